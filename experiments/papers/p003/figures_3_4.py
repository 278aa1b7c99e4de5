"""Section 8.1 of Seeger, 2006: kernel multinomial regression on satimage with learnt hyperparameters.

    python -m experiments.papers.p003.figures_3_4 [--small|--full] [--out results]

mc-sep has a v and a w for each class, mc-tied one of each, 1rest solves a binary problem for each class.
The criterion has five folds, drawn anew for each partition and alike for all methods. Two scalings of
the features: one common factor, so that the sum of their variances is the paper's 1/0.017, and each
feature to [−1, 1] by its range in the training part. Searches start at v = 10 (1rest: 20, see
docs/guide/kernels.md) and w = 1 / Σ Var[x_j]; those of many rows at what a coarse search on 1,000 of them,
and from there on 2,000, has found.

Searches are kept in p003_figures_3_4.cells.json. Writes p003_figures_3_4.json, .md and, where matplotlib
is installed, .png with the curves of figures 3 and 4.
"""

from __future__ import annotations

import dataclasses
import functools
import time

import numpy as np

from experiments import _data, _report
from experiments._cells import Cells
from xmcjax.data import load_svmlight

METHODS = {"mc-sep": ("class", "softmax"), "mc-tied": ("all", "softmax"), "1rest": ("class", "one_vs_rest")}
# the paper's test errors and their standard deviations over ten partitions; mc-tied is only in a figure
PAPER = {"mc-sep": (0.0781, 0.0016), "1rest": (0.0801, 0.0005)}
# errors of Hsu and Lin, 2002, as the paper quotes them
SVMS = {"best multi-class SVM": 0.0765, "one-against-rest SVM": 0.0830}
SCALINGS = ("factor", "range")
FIRST = (1_000, 2_000)  # rows of the first searches
COARSE = 3  # the tolerance of the first searches, as a multiple of that of the last one
POINTS = 201  # of a reject curve


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Kernel multinomial regression on satimage.

    Attributes:
        methods: any of mc-sep, mc-tied, 1rest.
        scalings: any of factor, range.
        rows: of the training part, drawn at random.
        partitions: numbers of the partitions into folds that are run.
        folds: of the criterion.
        tol: of the search, relative.
        max_iter: most iterations of a search.
        small: 200 rows, one partition, three iterations.
        full: all 4,435 rows and ten partitions, range alone where no scalings are given.
    """

    methods: tuple[str, ...] = tuple(METHODS)
    scalings: tuple[str, ...] = SCALINGS
    rows: int = 1_000
    partitions: tuple[int, ...] = (0,)
    folds: int = 5
    tol: float = 1e-3
    max_iter: int = 50

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            scalings = self.scalings if self.scalings != SCALINGS else ("range",)
            return dataclasses.replace(self, rows=4_435, partitions=tuple(range(10)), scalings=scalings)
        if self.small:
            return dataclasses.replace(self, rows=200, max_iter=3)
        return self


def load(scaling: str):
    """(X, y, X_test, y_test), float32."""
    folder = _data.folder() / "satimage"
    parts = [load_svmlight(folder / f"{part}.libsvm.xz") for part in ("train", "test")]
    X, X_test = (X.toarray().astype(np.float64) for X, _ in parts)
    if scaling == "range":
        low, high = X.min(axis=0), X.max(axis=0)
        X, X_test = (2 * (Z - low) / (high - low) - 1 for Z in (X, X_test))
    else:
        factor = np.sqrt(1 / 0.017 / X.var(axis=0).sum())
        X, X_test = X * factor, X_test * factor
    y, y_test = (np.asarray(y).astype(int) for _, y in parts)
    return X.astype(np.float32), y, X_test.astype(np.float32), y_test


def first_searches(rows: int) -> tuple[int, ...]:
    """The numbers of rows of the searches that precede the one on `rows` rows."""
    return tuple(n for n in FIRST if 1.5 * n < rows)


def one(method: str, scaling: str, partition: int, cells: Cells, options: Options) -> dict:
    """The searches, the fit at their end, and its errors on the test part."""
    from xmcjax import KernelLogisticClassifier
    from xmcjax.metrics import reject_curve

    X, y, X_test, y_test = load(scaling)
    share, likelihood = METHODS[method]
    rng = np.random.default_rng(partition)
    rows = rng.permutation(len(X))[: options.rows]
    X, y = X[rows], y[rows]
    fold = rng.permutation(len(rows)) % options.folds

    def searched(n: int, start: dict, tol: float) -> tuple[KernelLogisticClassifier, dict]:
        begin = time.perf_counter()
        model = KernelLogisticClassifier(**start, likelihood=likelihood, tol=3e-4)
        model.tune(X[:n], y[:n], fold[:n], share=share, tol=tol, max_iter=options.max_iter, verbose=True)
        w = model.kernel_.w.tolist() if share == "class" else float(model.kernel_.w[0])
        found = dict(v=model.v_.tolist(), w=w, evaluations=model.search_.history[-1].evaluations)
        return model, {**found, "seconds": time.perf_counter() - begin}

    at = dict(v=20.0 if method == "1rest" else 10.0, w=1 / float(X.var(axis=0).sum()))
    passed = []
    for n in first_searches(len(X)):
        work = functools.partial(searched, n, at, COARSE * options.tol)
        asked = dict(method=method, scaling=scaling, partition=partition, first=n)
        passed.append(cells.get(lambda work=work: work()[1], **asked))
        at = {name: np.array(passed[-1][name])[()] for name in ("v", "w")}
    model, last = searched(len(X), at, options.tol)
    predicted, u = model.predict(X_test), model.decision_function(X_test)
    # the confidence of 1rest is that of its binary problem
    confidence = u.max(axis=1) if method == "1rest" else model.predict_proba(X_test).max(axis=1)
    curve = reject_curve(y_test, predicted, confidence)
    return {
        "error": float(np.mean(predicted != y_test)),
        "criterion": model.criterion_,
        "converged": model.search_.converged,
        "iterations": len(model.search_.history) - 1,
        "evaluations": [part["evaluations"] for part in (*passed, last)],
        "seconds": sum(part["seconds"] for part in (*passed, last)),
        "v": model.v_.tolist(),
        "w": model.kernel_.w.tolist(),
        "curve": curve[drawn(len(curve))].tolist(),
        "test": len(y_test),
    }


def drawn(rows: int) -> np.ndarray:
    """For each point of a stored curve the number of kept rows, less one."""
    return np.linspace(0, rows - 1, POINTS).round().astype(int)


def run(options: Options) -> dict:
    """The runs that are asked for, and all stored runs on the same rows, including other methods."""
    listed = ("methods", "scalings", "partitions")
    cells = Cells(options, "p003_figures_3_4", listed=listed)
    for partition in options.partitions:
        for scaling in options.scalings:
            for method in options.methods:
                work = functools.partial(one, method, scaling, partition, cells, options)
                cells.get(work, method=method, scaling=scaling, partition=partition)
    keys = [name.removesuffix("s") for name in listed]
    found = [(asked, run) for asked, run in cells.alike() if "first" not in asked]
    runs = [{key: asked[key] for key in keys} | run for asked, run in found]
    runs.sort(key=lambda r: (r["partition"], SCALINGS.index(r["scaling"]), list(METHODS).index(r["method"])))
    return {"made": cells.made(), "rows": options.rows, "folds": options.folds, "runs": runs}


def summaries(result: dict):
    """(scaling, method, its runs) of every pair that was run."""
    for scaling in SCALINGS:
        for method in METHODS:
            runs = [r for r in result["runs"] if (r["scaling"], r["method"]) == (scaling, method)]
            if runs:
                yield scaling, method, runs


def markdown(result: dict) -> str:
    """Errors beside the paper's."""

    def spread(values) -> str:
        return f"{np.mean(values):.4f}" + (f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else "")

    rows = [
        [
            scaling,
            method,
            len(runs),
            spread([r["error"] for r in runs]),
            *beside(method, float(np.mean([r["error"] for r in runs]))),
            f"{np.mean([r['curve'][int(0.9 * (POINTS - 1))] for r in runs]):.4f}",
            f"{np.mean([r['criterion'] for r in runs]):.1f}",
            " + ".join(f"{mean:.0f}" for mean in np.mean([r["evaluations"] for r in runs], axis=0)),
            f"{np.mean([r['seconds'] for r in runs]):.0f}",
        ]
        for scaling, method, runs in summaries(result)
    ]
    header = ("scaling", "method", "partitions", "test error", "paper, 4,435 rows", "difference")
    header += ("over the paper's standard deviation", "errors at 10% rejected")
    passes = " + ".join([*(f"{n:,}" for n in first_searches(result["rows"])), "all"])
    header += ("Ψ", f"evaluations of Ψ on {passes} rows", "s per search")
    text = f"{result['rows']} training rows, {result['folds']} folds\n\n"
    text += _report.markdown_table(header, rows) + "\n"
    rows = []
    for scaling, method, runs in summaries(result):
        error = np.mean([r["error"] for r in runs])
        rows.append([scaling, method, *(f"{error - svm:+.4f}" for svm in SVMS.values())])
    header = ("scaling", "method", *(f"above the {name}'s {error:.4f}" for name, error in SVMS.items()))
    return text + _report.markdown_table(header, rows)


def beside(method: str, error: float) -> tuple[str, str, str]:
    """The paper's error, our excess over it, and this excess divided by the paper's standard deviation."""
    if method not in PAPER:
        return "", "", ""
    mean, deviation = PAPER[method]
    difference = error - mean
    return f"{mean:.4f} ± {deviation:.4f}", f"{difference:+.4f}", f"{difference / deviation:+.2f}"


def draw(result: dict, axes) -> None:
    """Figure 3 for every scaling, and dashed, five times as large, the differences of figure 4."""
    test = result["runs"][0]["test"]
    kept = (drawn(test) + 1) / test
    mean = {(s, m): np.mean([r["curve"] for r in runs], axis=0) for s, m, runs in summaries(result)}
    for (scaling, method), curve in mean.items():
        axes.plot(1 - kept, curve, label=f"{method}, {scaling}")
    for scaling in SCALINGS:
        if {(scaling, "mc-sep"), (scaling, "1rest")} <= mean.keys():
            difference = mean[scaling, "1rest"] - mean[scaling, "mc-sep"]
            axes.plot(1 - kept, 5 * difference, "--", label=f"5 (1rest − mc-sep), {scaling}")
    axes.set_xlabel("fraction rejected")
    axes.set_ylabel("errors over all test rows")
    axes.legend()


if __name__ == "__main__":
    _report.main("p003_figures_3_4", Options, __doc__, run, markdown, {"p003_figures_3_4": draw})
