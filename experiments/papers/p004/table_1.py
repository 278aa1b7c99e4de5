"""Top-1 to top-10 accuracy of the top-k SVM and of the methods it is compared with.

    python -m experiments.papers.p004.table_1 [--small|--full] [--sets ...] [--methods ...] [--out results]

The tables of Lapin, Hein and Schiele, "Top-k multiclass SVM", 2015, on Caltech 101 Silhouettes and
CLINC-150. The official split of the silhouettes is not here: "caltech101_silhouettes" has parts of its
sizes in which all classes have their share; in "caltech101_silhouettes_by_class" the numbers of images
of each class follow a rule that gives these sizes to the image and thus is likely the official one. Of every
method the C of the grid is taken that is best on the validation part, one for each of top-1 to top-10; where
that C is at an end of the grid, the grid is extended. The number of the table is the accuracy on the test
part after training on the training part.

Every fit is kept in p004_table_1.cells.json as soon as it is there; a run that was interrupted, or one with
more methods, goes on from that file. A problem starts from the solution for the C before, where that was
solved in the same run. Baselines go up the grid until two C in a row are more than a point below the best
on the validation part, at every one of top-1 to top-10, and a top-k SVM to the first C that it does not
solve: the larger ones, which take longest, are left out.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from experiments import _data, _report
from experiments._cells import Cells
from experiments.papers.p004.baselines import BASELINES, GRID, TOL
from experiments.papers.p004.published import RANKS, TABLE_1

NAME = "p004_table_1"
TOPS = tuple(range(1, 11))
SILHOUETTES = ("caltech101_silhouettes_by_class", "caltech101_silhouettes")
SAID = {
    "caltech101_silhouettes_by_class": ", 4,100 / 2,264 / 2,307 images, at most 100 of a class in training, "
    "by a rule that gives the official sizes",
    "caltech101_silhouettes": ", 4,100 / 2,264 / 2,307 images, of each class its share in all parts",
}
VARIANTS = ("alpha", "beta")
FALL = 1.0  # a baseline's C is too large if its accuracy is this many points below the best one
TOP_K = {variant: f"top-k SVM {variant}" for variant in VARIANTS}


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Top-1 to top-10 accuracy of the top-k SVM and of the methods it is compared with.

    Attributes:
        sets: of experiments._data.CLASS_SETS; empty for the silhouettes, in both splits.
        methods: "top-k SVM alpha", "top-k SVM beta" and names of .baselines.BASELINES; empty
            for the top-k SVMs, SVM OVA and softmax.
        ks: of the top-k SVM; empty for 1, 5, 10.
        grid: of C, ascending, of every method that has a C; empty for 1e-5, 1e-4, …, 1e3.
        extensions: most steps by which a grid is extended at each end.
        max_epochs: of the top-k SVM; a C that is not solved by then is not chosen.
        small: the digits of scikit-learn, three C, four methods.
        full: methods and k that are not given are all of them; sets those of the paper, in both splits.
    """

    sets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    ks: tuple[int, ...] = ()
    grid: tuple[float, ...] = ()
    extensions: int = 2
    max_epochs: int = 300

    def chosen(self) -> Options:
        """With the sizes that --small, --full or neither stands for."""
        few = (*TOP_K.values(), "SVM OVA", "softmax")
        if self.small:
            sizes = {"sets": ("digits",), "methods": few, "ks": (1, 3), "grid": (0.01, 0.1, 1.0)}
        elif self.full:
            methods, ks = (*TOP_K.values(), *BASELINES), (*range(1, 11), 20)
            sizes = {"sets": SILHOUETTES, "methods": methods, "ks": ks, "grid": GRID}
        else:
            sizes = {"sets": SILHOUETTES, "methods": few, "ks": (1, 5, 10), "grid": GRID}
        # values that were given as flags stay
        return dataclasses.replace(
            self, **{name: getattr(self, name) or size for name, size in sizes.items()}
        )


class Fits:
    """Records of the fits by set, method and C, kept as cells."""

    def __init__(self, options: Options):
        self.options = options
        listed = ("sets", "methods", "ks", "grid", "extensions")
        self._cells = Cells(options, NAME, listed)

    def of(self, name: str, method: str) -> dict[float, dict]:
        """The records of a method by C, ascending."""
        records = {asked["C"]: fit for asked, fit in self._cells.alike(set=name, method=method, tol=TOL)}
        return dict(sorted(records.items()))

    def add(self, name: str, method: str, C: float, record: dict) -> None:
        """Stores a record."""
        self._cells.put(record, set=name, method=method, tol=TOL, C=C)

    def result(self) -> dict:
        """All records of these options that are stored, of other sets and methods too."""
        fits: dict[str, dict[str, dict[str, dict]]] = {}
        found = sorted(self._cells.alike(tol=TOL), key=lambda one: one[0]["C"])
        for asked, fit in found:
            fits.setdefault(asked["set"], {}).setdefault(asked["method"], {})[repr(asked["C"])] = fit
        settings = {"max_epochs": self.options.max_epochs, "tol": TOL}
        return {"made": self._cells.made(), "settings": settings, "fits": fits}

    def write(self) -> None:
        """Writes the tables with the present records."""
        _report.write(self.options.out, NAME, self.result(), markdown(self.result()))


def accuracies(scores: np.ndarray, y: np.ndarray) -> list[float]:
    """Top-1 to top-10 accuracy in per cent; of classes with equal scores the first ranks first."""
    ranked = np.argsort(-scores, axis=1, kind="stable")[:, : max(TOPS)]
    return (100 * np.cumsum((ranked == y[:, None]).mean(axis=0))).tolist()


def record(data: _data.ClassSplit, scores, gap: float, seconds: float, epochs: int | None = None) -> dict:
    """The record of a fit; `scores` is a function of features."""
    return {
        "valid": accuracies(scores(data.X_valid), data.y_valid),
        "test": accuracies(scores(data.X_test), data.y_test),
        "gap": None if np.isnan(gap) else gap,
        "seconds": seconds,
        "epochs": epochs,
    }


def best(records: dict[float, dict]) -> list[float]:
    """For each of top-1 to top-10, the C with the best validation accuracy; of equal ones the smallest.

    A top-k SVM that was given up at its last epoch does not count, unless all were.
    """
    Cs = [C for C, fit in records.items() if fit["epochs"] is None or fit["gap"] <= TOL]
    Cs = sorted(Cs or records)
    valid = np.array([records[C]["valid"] for C in Cs])
    return [Cs[place] for place in valid.argmax(axis=0)]


def outside(records: dict[float, dict], grid: Sequence[float], extensions: int) -> list[float]:
    """The next C beyond each end of the grid that is a best C, unless the grid was extended enough there."""
    tried, ratio = sorted(records), grid[1] / grid[0]
    chosen, found = best(records), []
    # how often the grid was extended; 1.01, because its C are rounded
    below = sum(grid[0] > C * 1.01 for C in tried)
    above = sum(grid[-1] * 1.01 < C for C in tried)
    if tried[0] in chosen and below < extensions:
        found.append(float(f"{tried[0] / ratio:.6g}"))
    if tried[-1] in chosen and above < extensions:
        found.append(float(f"{tried[-1] * ratio:.6g}"))
    return found


def fallen(records: dict[float, dict]) -> bool:
    """Whether the two largest C are more than FALL below the best at every one of top-1 to top-10."""
    valid = np.array([records[C]["valid"] for C in sorted(records)])
    return len(valid) > 2 and bool((valid[-2:] < valid.max(axis=0) - FALL).all())


def to_fit(records: dict[float, dict], Cs: Iterable[float]) -> set[float]:
    """The C of a top-k SVM that have no record, up to the first one that was not solved."""
    unsolved = min((C for C, fit in records.items() if fit["gap"] > TOL), default=np.inf)
    return {C for C in Cs if C not in records and unsolved > C}


def fit_top_k(data, op, variant: str, ks: Sequence[int], C: float, max_epochs: int, before):
    """Fits several k at one C as lanes, from arrays of the State for a smaller C; their records and State."""
    import jax

    from xmcjax.solvers import topk_sdca

    begin = time.perf_counter()
    lanes: Any = np.array(ks)
    problem = topk_sdca.problem(op, data.y, k=lanes, C=C, variant=variant)
    state = topk_sdca.init(problem, jax.random.key(0))
    # dual variables that are feasible for a smaller C are feasible for a larger one
    state = state._replace(**before)
    state = topk_sdca.run(problem, topk_sdca.HParams(tol=TOL, max_epochs=max_epochs), state)
    W = topk_sdca.weights(problem, state)
    seconds = (time.perf_counter() - begin) / len(ks)
    gaps = np.asarray(state.gap, np.float64) / np.asarray(state.primal, np.float64)
    found = {}
    for lane, k in enumerate(ks):
        found[k] = record(
            data,
            lambda X, W=W[lane]: np.asarray(X @ W.T),
            float(gaps[lane]),
            seconds,
            int(state.epochs[lane]),
        )
    return found, state


def run_top_k(name: str, data, variant: str, fits: Fits) -> None:
    """Fits the grid of C and k of a variant, with all lanes of a C at once."""
    from xmcjax import linops

    options = fits.options
    op = linops.make(data.X)
    grid = options.grid
    # both variants are the same for k = 1
    ks = [k for k in options.ks if variant == "alpha" or k > 1]

    def known(k: int) -> dict[float, dict]:
        return fits.of(name, title(variant, k))

    wanted = {k: to_fit(known(k), grid) for k in ks}
    while any(wanted.values()):
        before: Any = None
        before_ks: list[int] = []
        for C in sorted(set().union(*wanted.values())):
            missing = [k for k in ks if C in to_fit(known(k), wanted[k])]
            if missing:
                start = {}
                if set(missing) <= set(before_ks):
                    lanes = np.array([before_ks.index(k) for k in missing])
                    start = {part: getattr(before, part)[lanes] for part in ("weights", "dual", "index")}
                found, before = fit_top_k(data, op, variant, missing, C, options.max_epochs, start)
                for k, fit in found.items():
                    fits.add(name, title(variant, k), C, fit)
                fits.write()
                epochs = [fit["epochs"] for fit in found.values()]
                print(f"{name}: {TOP_K[variant]}, C = {C:g}, k = {missing}: epochs {epochs}", flush=True)
            before_ks = missing
        wanted = {k: to_fit(known(k), outside(known(k), grid, options.extensions)) for k in ks}


def run_baseline(name: str, data, method: str, fits: Fits) -> None:
    """Fits the grid of a method, each C from the previous solution."""
    baseline = BASELINES[method]
    # a method whose grid is of stepsizes keeps its own grid
    grid = baseline.grid if baseline.grid != GRID else fits.options.grid
    wanted = list(grid)
    while wanted:
        start = None
        for C in wanted:
            smaller = {known: fit for known, fit in fits.of(name, method).items() if known < C}
            if fallen(smaller):
                break
            if C in fits.of(name, method):
                start = None
                continue
            begin = time.perf_counter()
            fitted = baseline.fit(data.X, data.y, C, start)
            start = fitted.start
            seconds = time.perf_counter() - begin
            fits.add(name, method, C, record(data, fitted.scores, float(fitted.gap), seconds))
            fits.write()
            print(f"{name}: {method}, C = {C:g}: gap {fitted.gap:.1e}, {seconds:.1f} s", flush=True)
        wanted = outside(fits.of(name, method), grid, fits.options.extensions)


def title(variant: str, k: int) -> str:
    """The title of a row of the tables; beta with k = 1 is the row of alpha."""
    return f"top-{k} SVM {'alpha' if k == 1 else variant}"


def run(options: Options) -> dict:
    """All fits that the file of the results does not have."""
    names = [*TOP_K.values(), *BASELINES]
    for method in options.methods:
        if method not in names:
            raise ValueError(f"expected methods of {', '.join(names)}, got {method!r}")
    fits = Fits(options)
    for name in options.sets:
        data = _data.load_classes(name)
        for method in options.methods:
            variants = [variant for variant in VARIANTS if TOP_K[variant] == method]
            if variants:
                run_top_k(name, data, variants[0], fits)
            else:
                run_baseline(name, data, method, fits)
    fits.write()
    return fits.result()


def selected(records: dict[str, dict]) -> tuple[list[float], list[float], float | None]:
    """Test accuracies at the best C of each of top-1 to top-10, these C, and the largest gap, or None."""
    by_C = {float(C): fit for C, fit in records.items()}
    Cs = best(by_C)
    gaps = [by_C[C]["gap"] for C in Cs]
    gap = None if None in gaps else max(gaps)
    return [by_C[C]["test"][i] for i, C in enumerate(Cs)], Cs, gap


def ordered(methods) -> Iterator[str]:
    """Baselines as in their table, then the top-k SVMs by variant and k."""
    yield from (method for method in BASELINES if method in methods)
    yield from sorted(
        (method for method in methods if method not in BASELINES),
        key=lambda method: (method.rsplit(" ", 1)[1], int(method.split("-")[1].split()[0])),
    )


def markdown(result: dict) -> str:
    """One table per set: ours and, where the paper has one, its row below."""
    text = ""
    for name, methods in result["fits"].items():
        rows = []
        for method in ordered(methods):
            test, Cs, gap = selected(methods[method])
            at = "C" if method not in BASELINES or BASELINES[method].grid == GRID else "stepsize"
            choice = f"{at} {Cs[0]:g}, {Cs[4]:g}, {Cs[-1]:g}"
            shown = [f"{value:.2f}" for value in test] + ["–"] * (len(TOPS) - len(test))
            rows.append([method, *shown, choice, "–" if gap is None else f"{gap:.0e}"])
            published = method.removesuffix(", ended early")  # the paper has the published program
            if name in SILHOUETTES and published in TABLE_1:
                paper = dict(zip(RANKS, TABLE_1[published], strict=True))
                cells = [f"*{paper[top]:.2f}*" if top in paper else "" for top in TOPS]
                rows.append(["*paper*", *cells, "", ""])
        header = ("method", *(f"top-{top}" for top in TOPS), "chosen for top-1, 5, 10", "gap")
        text += f"\n{name}{SAID.get(name, '')}:\n\n" + _report.markdown_table(header, rows)
        text += "\n" + "\n".join(comparison(methods)) + "\n"
    return text.lstrip()


def comparison(methods: dict) -> list[str]:
    """Whether top-5 accuracy of k = 5 and k = 10 is at least that of k = 1, a line each."""
    lines = []
    if title("alpha", 1) not in methods:
        return lines
    one = selected(methods[title("alpha", 1)])[0][4]
    for variant in VARIANTS:
        for k in (5, 10):
            if title(variant, k) in methods:
                top_5 = selected(methods[title(variant, k)])[0][4]
                word = "at least" if top_5 >= one else "BELOW"
                lines.append(
                    f"- top-5 accuracy of {title(variant, k)}, {top_5:.2f}, is {word} that of "
                    f"{title(variant, 1)}, {one:.2f}"
                )
    return lines


def main() -> None:
    """Reads the options, runs, writes the results."""
    import tyro

    options = tyro.cli(Options, description=__doc__).chosen()
    print("\n" + markdown(run(options)) + f"\nwritten to {options.out}")


if __name__ == "__main__":
    main()
