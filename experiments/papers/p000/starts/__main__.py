"""One-vs-all training from different starts: every table and figure of Schultheis and Babbar, 2022.

    python -m experiments.papers.p000.starts [--small|--full] [--sets NAME...] [--traced NAME] [--out results]

E. Schultheis, R. Babbar, "Speeding-up one-versus-all training for extreme classification via
mean-separating initialization", 2022. Tables 1 to 4: minutes of training by start, with the squared hinge
and the logistic loss, against the tree of starts (OvAP++), and what the models score. Figures 1, 3, 4 and
6 to 15: objective, active rows, multiplier of the line search and time by Newton step; steps, time,
initial objective and distance by the number of positives; for the bias, the loose and strict ends of OvAP
and t of MSI. Sets are named as in its module _sets; those whose files are not there are left
out. Runs are kept in p000_starts.cells.json, so that the study goes on where it was stopped. Writes
p000_starts.json, .md and _figure_*.png.
"""

from __future__ import annotations

import dataclasses

from experiments import _one_vs_all, _report
from experiments._cells import Cells
from experiments.papers.p000.starts import _figures, _sets, _tables
from experiments.papers.p000.starts._runs import Runs

NAME = "p000_starts"
# The options that list cells.
LISTED = ("sets", "traced", "repeats", "sample", "traced_sample", "dismecpp")


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Every table and figure of Schultheis and Babbar, 2022.

    Attributes:
        sets: of the tables.
        traced: the set of the figures.
        repeats: of every timed run.
        sample: most labels of a set that are timed; 0 for all.
        traced_sample: most labels in a figure.
        dismecpp: path of the train program of dismecpp, to be timed on the sparse sets; empty leaves it out.
        small: sets of the package and a power law, at most 200 labels of each.
        full: all sets, five repetitions, stackexchange_tags in the figures.
    """

    sets: tuple[str, ...] = (
        *("naics_demo", "power_law:1000x4000x5000", "bibtex", "naics_demo:svd50", "yeast_gasch1_go"),
    )
    traced: str = "naics_demo"
    repeats: int = 1
    sample: int = 1200
    traced_sample: int = 300
    dismecpp: str = ""

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for; sets that are asked for stay."""
        usual = Options()
        if self.small:
            sets = "naics_demo", "power_law:300x2000x2000", "naics_demo:svd50"
            return dataclasses.replace(
                self,
                sets=self.sets if self.sets != usual.sets else sets,
                sample=min(self.sample, 200),
                traced_sample=min(self.traced_sample, 100),
            )
        if not self.full:
            return self
        sets = (
            *("stackexchange_tags", "delicious", "bibtex", "rcv1_subset1", "naics2017"),
            *("power_law:10000", "power_law:100000", "power_law:1000000"),
            *("stackexchange_tags:svd300", "yeast_gasch1_go"),
        )
        return dataclasses.replace(
            self,
            sets=self.sets if self.sets != usual.sets else sets,
            traced=self.traced if self.traced != usual.traced else "stackexchange_tags",
            repeats=max(self.repeats, 5),
            sample=2000,
            traced_sample=0,
        )


def run(options: Options) -> dict:
    """The facts of the sets, the timed runs by set, loss, solver and start, and the traces."""
    for name in (options.traced, *options.sets):
        _sets.check(name)
    cells = Cells(options, NAME, listed=LISTED)
    runs = Runs(
        cells,
        repeats=options.repeats,
        sample=options.sample,
        traced=options.traced_sample,
        dismecpp=options.dismecpp,
    )
    try:
        result: dict = {
            "repeats": options.repeats,
            "sample": options.sample,
            "traced": options.traced,
            "sets": {},
            "absent": [],
            "times": {},
            "traces": {},
        }
        # the traced set comes first, so that it is read once for traces and timed runs
        for name in dict.fromkeys((options.traced, *options.sets)):
            try:
                facts = runs.facts(name)
            except FileNotFoundError as error:
                if name == options.traced:
                    raise
                print(f"{name} is left out: {error}", flush=True)
                result["absent"].append(name)
                continue
            result["sets"][name] = facts
            if name == options.traced:
                result["traces"] = {
                    solver: {start: runs.trace(name, solver, start) for start in _figures.STARTS}
                    for solver in _one_vs_all.SOLVERS
                    if solver != _one_vs_all.ALONE  # traces share products in blocks of their own
                }
            if name in options.sets:
                result["times"][name] = _times(runs, name, options)
    finally:
        runs.close()
    return result | {"made": cells.made()}


def _times(runs: Runs, name: str, options: Options) -> dict:
    """The timed runs by loss, solver and start."""
    # in a tree the ancestors of a label are trained, too, so that a sample cannot stand for all labels
    whole = not options.sample or runs.facts(name)["trained"] <= options.sample
    tree = ("ova_primal_pp",) if whole else ()
    sparse = runs.facts(name)["setting"] != "dense"
    found = {
        "squared_hinge": {
            solver: runs.times(
                name,
                solver,
                "squared_hinge",
                _tables.STARTS if solver == _one_vs_all.ALONE else (*_tables.STARTS, *tree),
            )
            for solver in _one_vs_all.SOLVERS
            if sparse or solver != _one_vs_all.ALONE  # that solver is compared with dismecpp
        },
        "logistic": {"xmcjax": runs.times(name, "xmcjax", "logistic", _tables.STARTS)},
    }
    if options.dismecpp and sparse:
        for loss, solvers in found.items():
            solvers["dismecpp"] = runs.times(name, "dismecpp", loss, _tables.STARTS)
    return found


def markdown(result: dict) -> str:
    """The tables, and the numbers under the figures."""
    text = _tables.markdown(result) + _figures.markdown(result)
    if result["absent"]:
        text += f"\nNot there, left out: {', '.join(result['absent'])}.\n"
    return text


if __name__ == "__main__":
    _report.main(NAME, Options, __doc__, run, markdown, _figures.drawings(NAME))
