"""Speed of all-in-one SVMs over processes where rows are short and where they are dense.

    python -m experiments.papers.p001.figure_2_dense [--small|--full] [--out results]

Figure 2 of Alber et al. 2017 on two problems of a thousand classes: naics2017, with five entries
a row, and made_dense, 10,000 rows of 400 random features around the means of their classes. Measured as in
:mod:`.figures_2_3`: ten epochs without shrinking by the number of processes, repetitions by turns, medians of
the clock and of the processor time of the busiest process. To say why the two differ, ten epochs of
Weston-Watkins are also split into the passes over everything and the sweeps, in one process and in each of
two, without what goes between them. Each set is kept in p001_figure_2_dense.cells.json when it is done.
Writes p001_figure_2_dense.json, .md and, where matplotlib is installed, .png.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments import _multiclass, _report
from experiments._cells import Cells
from experiments.papers.p001 import figures_2_3


@dataclasses.dataclass(frozen=True)
class Options:
    """Speed over processes.

    Attributes:
        sets: of experiments._multiclass.SETS.
        processes: joined on this machine.
        repeats: of every timed run.
        out: folder of the results.
        small: scikit-learn's digits, two processes, one repetition.
        full: as without it.
    """

    sets: tuple[str, ...] = ("naics2017", "made_dense")
    processes: tuple[int, ...] = (1, 2, 4)
    repeats: int = 3
    out: Path = Path("results")
    small: bool = False
    full: bool = False

    def chosen(self) -> Options:
        """With the sizes that --small stands for."""
        if self.small:
            return dataclasses.replace(self, sets=("digits",), processes=(1, 2), repeats=1)
        return self


def parts_of_work(parts: _multiclass.Parts) -> dict:
    """Processor seconds of ten passes over everything and of ten sweeps, Weston-Watkins.

    Returns:
        "pass" and "sweep", each with what one process takes and what the busier of two does.

    Raises:
        RuntimeError: the two have not found the same primal objective in the first pass.
    """
    from xmcjax.native import Ascent, Assessment, Match, shared_panel
    from xmcjax.solvers.multiclass_dual._native import canonical
    from xmcjax.solvers.multiclass_dual._problem import check_problem
    from xmcjax.solvers.multiclass_dual._schedule import bundles_of, round_count, round_pairs

    C, tolerance = figures_2_3.C["ww"], 1e-6
    X, y, m, _ = check_problem(parts.X, parts.y, "ww", C)
    X = canonical(X)
    # whole panels, as processes have that share their weights, unless there are too few for four bundles
    width = shared_panel(X.dtype) if m > 3 * shared_panel(X.dtype) else 1
    panels = bundles_of(np.add.reduceat(np.bincount(y), np.arange(0, m, width)), 4)
    bundles = [(first * width, min(last * width, m)) for first, last in panels]
    seconds = {what: {"one": 0.0, "of two": [0.0, 0.0]} for what in ("pass", "sweep")}
    primal: tuple[list[float], list[float]] = [], []  # by pass, of one process and of two

    def spent(work: Callable[[], object]) -> float:
        begin = time.process_time()
        work()
        return time.process_time() - begin

    alone = Ascent(X, y, m, "ww", C, seed=0, threads=1)
    alone.assess(1.0)
    for _ in range(figures_2_3.EPOCHS):
        seconds["pass"]["one"] += spent(lambda: primal[0].append(alone.assess(tolerance).primal))
        seconds["sweep"]["one"] += spent(lambda: alone.sweep(tolerance, False))
    # what two processes play, one after the other on the same weights
    both = Ascent(X, y, m, "ww", C, seed=0)
    both.assess(1.0)
    hosted: list[list[Match]] = [[], []]
    for r in range(round_count(len(bundles))):
        for place, (a, b) in enumerate(zip(*round_pairs(len(bundles), r), strict=True)):
            hosted[place].append(Match(bundles[a], bundles[b], r == 0))
    for _ in range(figures_2_3.EPOCHS):
        found: list[Assessment] = []
        for place, matches in enumerate(hosted):
            seconds["pass"]["of two"][place] += spent(
                lambda matches=matches, found=found: found.extend(both.examine(m, tolerance) for m in matches)
            )
        primal[1].append(sum(one.primal for one in found))
        both.begin_epoch(max(one.violation for one in found))
        for place, matches in enumerate(hosted):
            seconds["sweep"]["of two"][place] += spent(
                lambda matches=matches: [both.play(match, tolerance, False) for match in matches]
            )
        both.settle(False)
    if not np.isclose(primal[0][0], primal[1][0], rtol=1e-5):
        raise RuntimeError(f"one process found P = {primal[0][0]}, two processes {primal[1][0]}")
    return {what: {"one": s["one"], "of two": max(s["of two"])} for what, s in seconds.items()}


def measured(name: str, options: Options) -> dict:
    """Sizes of a set, its rows of :func:`figures_2_3.speed`, and its :func:`parts_of_work`."""
    parts = _multiclass.load(name)
    n, d = parts.X.shape
    entries = float(d if isinstance(parts.X, np.ndarray) else parts.X.nnz / n)
    how = figures_2_3.Options(
        data=name, threads=(), processes=options.processes, repeats=options.repeats, out=options.out
    )
    return {
        "instances": n,
        "classes": int(parts.y.max()) + 1,
        "entries": entries,
        "rows": figures_2_3.speed(parts, how),
        "work": parts_of_work(parts),
    }


def run(options: Options) -> dict:
    """By set; each is measured as a whole, as its runs go round by turns."""
    cells = Cells(options, "p001_figure_2_dense", listed=("sets",))
    found = [
        {"set": name, **cells.get(functools.partial(measured, name, options), set=name)}
        for name in options.sets
    ]
    return {"made": cells.made(), "repeats": options.repeats, "sets": found}


def markdown(result: dict) -> str:
    """A row for each set, method and number of processes."""
    cores = min(one["cores"] for one in result["made"])
    table = [
        (
            f"{one['set']}, {one['entries']:.1f} entries a row",
            figures_2_3.FORMULATIONS[row["formulation"]],
            row["count"],
            f"{row['median']:.2f}",
            "–" if drawn_beside_work(one["rows"], row, cores) else f"{row['speed_up']:.2f}",
            f"{row['busiest']:.2f}",
            f"{figures_2_3.drawn_work(one['rows'], row):.2f}",
            f"{row['together']:.2f}",
        )
        for one in result["sets"]
        for row in one["rows"]
    ]
    header = ("set", "", "processes", "seconds", "speed-up by the clock", "processor s of the busiest")
    header += ("speed-up by it", "processor s of all")
    text = f"Ten epochs without shrinking, C = 1 (Lee-Lin-Wahba: 10), medians of {result['repeats']}:\n\n"
    text += _report.markdown_table(header, table)
    if "–" in text:
        text += (
            "\nWhere a run, or that of one process, had less than 0.8 of the processors that it could use, "
            "the clock says nothing about a speed-up.\n"
        )
    table = [
        (
            one["set"],
            *(f"{work['one']:.2f} / {work['of two']:.2f}" for work in one["work"].values()),
            *(f"{work['of two'] / work['one']:.2f}" for work in one["work"].values()),
        )
        for one in result["sets"]
    ]
    text += (
        "\nTen passes over everything and ten sweeps of Weston-Watkins, processor seconds, in one process "
        "and in the busier of two, where half would be ideal:\n\n"
    )
    header = ("set", "passes, one / of two", "sweeps, one / of two", "part of the passes", "of the sweeps")
    text += _report.markdown_table(header, table)
    return text + (
        "\nTwo processes visit a row in three matches, and in each of them its list of classes is gone "
        "through and it is multiplied by the weights of its own class: of a row with few entries that is "
        "much of the cost, of one with hundreds its products with the other classes are, which processes "
        "share.\n"
    )


def drawn_beside_work(rows: list[dict], row: dict, cores: int) -> bool:
    """Whether this run or that of the fewest processes had less than 0.8 of the processors it could use."""
    could = min(row["count"], cores) * row["median"]
    return figures_2_3.drawn_beside_work(rows, row) or row["together"] < 0.8 * could


def draw(result: dict, axes) -> None:
    """Speed-up by processor time, a line for each set and method."""
    for one, style in zip(result["sets"], itertools.cycle(("^--", "o-")), strict=False):
        for formulation, title in figures_2_3.FORMULATIONS.items():
            rows = [row for row in one["rows"] if row["formulation"] == formulation]
            work = [figures_2_3.drawn_work(one["rows"], row) for row in rows]
            axes.plot([row["count"] for row in rows], work, style, label=f"{title}, {one['set']}")
    counts = sorted({row["count"] for one in result["sets"] for row in one["rows"]})
    axes.plot(counts, counts, ":", color="grey")
    axes.set(
        xlabel="processes", ylabel="speed-up, by the processor time of the busiest process", xticks=counts
    )
    axes.legend()


def main() -> None:
    """Reads the options, runs, writes the results."""
    _report.main("p001_figure_2_dense", Options, __doc__, run, markdown, {"p001_figure_2_dense": draw})


if __name__ == "__main__":
    main()
