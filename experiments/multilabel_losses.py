"""Losses for rows with several labels: the multi-label SVM beside multi-label cross-entropy and one-vs-all.

    python -m experiments.multilabel_losses [--small|--full] [--sets bibtex ...] [--out results]

Of each loss the C is the one with the best precision at 1 on a fifth of the training rows that was held out;
then it is trained on all of them. CPU time of that training on one thread, and precision at 1, 3 and 5 on the
test rows. Where rows have one label each, the multi-label SVM is that of Crammer and Singer: on clinc150 it
stands beside LIBLINEAR's solver of it (scikit-learn's LinearSVC, no bias), at C = 1 and a gap that is at most
ours, medians of repetitions by turns; LIBLINEAR's tolerance is halved until it is there. Writes
multilabel_losses.json and .md.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

from experiments import _data, _report
from experiments.bench.multiclass_svm import objective

GAP, TOP = 1e-3, (1, 3, 5)
TITLES = {
    "svm": "multi-label SVM",
    "entropy": "multi-label cross-entropy",
    "one-vs-all": "one-vs-all, squared hinge",
}


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Losses for rows with several labels.

    Attributes:
        sets: of the data folder, or naics_demo.
        C: weights of the losses that are tried.
        liblinear: whether to compare with LIBLINEAR on clinc150.
        repeats: of every training that is compared with LIBLINEAR.
        small: 300 rows of naics_demo, one C.
        full: stackexchange_tags and delicious too, five repetitions.
    """

    sets: tuple[str, ...] = ("bibtex", "rcv1_subset1")
    C: tuple[float, ...] = (0.1, 1.0, 10.0)
    liblinear: bool = True
    repeats: int = 3

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            return dataclasses.replace(self, sets=(*self.sets, "delicious", "stackexchange_tags"), repeats=5)
        if self.small:
            return dataclasses.replace(self, sets=("naics_demo",), C=(1.0,), liblinear=False, repeats=1)
        return self


def classifiers(C: float) -> dict[str, Any]:
    """A classifier for each loss, by name."""
    from xmcjax import MulticlassSVC, MultinomialLogisticRegression, OneVsAllClassifier

    return {
        "svm": MulticlassSVC("cs", C=C, tol=GAP, random_state=0),
        "entropy": MultinomialLogisticRegression(C=C),
        "one-vs-all": OneVsAllClassifier(C=C),
    }


def one_set(name: str, options: Options) -> dict:
    """C, seconds and precisions of each loss."""
    from xmcjax.metrics import precision_at_k

    split = _data.load_split(name)
    X, Y, X_test, Y_test = (sp.csr_matrix(a) for a in split)
    if options.small:
        used = np.unique(Y[:300].indices)
        X, Y, X_test, Y_test = X[:300], Y[:300, used], X_test[:100], Y_test[:100, used]
    held = np.random.default_rng(0).permutation(X.shape[0])
    out, kept = held[: len(held) // 5], held[len(held) // 5 :]

    def precisions(model, X, Y) -> dict[str, float]:
        scores = model.decision_function(X)
        return {str(k): precision_at_k(Y, scores, k) for k in TOP}

    def held_out(loss: str, C: float) -> float:
        with warnings.catch_warnings():
            # the warning is about labels whose rows were all held out
            warnings.filterwarnings("ignore", "[0-9]+ of [0-9]+ labels have no positive rows", UserWarning)
            model = classifiers(C)[loss].fit(X[kept], Y[kept])
        return precisions(model, X[out], Y[out])["1"]

    rows: dict[str, dict] = {}
    for loss in TITLES:
        best = max(options.C, key=functools.partial(held_out, loss))
        model = classifiers(best)[loss]
        begin = time.process_time()
        model.fit(X, Y)
        seconds = time.process_time() - begin
        rows[loss] = {"C": best, "seconds": seconds, "precision": precisions(model, X_test, Y_test)}
    size = {"rows": X.shape[0], "labels": Y.shape[1], "labels per row": float(Y.nnz / Y.shape[0])}
    return {"size": size, "losses": rows}


def beside_liblinear(options: Options) -> dict:
    """Seconds of ours and of LIBLINEAR where each row has one label."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    from xmcjax.solvers import multiclass_dual

    found = _data.load_classes("clinc150")
    X, y = sp.csr_array(found.X), np.unique(found.y, return_inverse=True)[1]
    n, m = len(y), int(y.max()) + 1
    Y = sp.csr_array((np.ones(n), (np.arange(n), y)), shape=(n, m))

    def ours(tol: float = GAP):
        return multiclass_dual.run_multilabel(X, Y, tol=tol)

    def theirs(tol: float) -> np.ndarray:
        how = dict(multi_class="crammer_singer", fit_intercept=False, max_iter=100_000, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the gap shows whether it converged
            return LinearSVC(C=1.0, tol=tol, **how).fit(X, y).coef_.T

    least = ours(1e-6).dual
    mine = ours().primal
    tol, value = 2.0, np.inf
    while value > mine and tol > 1e-6:
        tol /= 2
        value = objective(X, y, theirs(tol), "cs", 1.0)
    seconds: dict[str, list[float]] = {"ours": [], "liblinear": []}
    for _ in range(options.repeats):
        for who, fit in (("ours", ours), ("liblinear", lambda: theirs(tol))):
            begin = time.process_time()
            fit()
            seconds[who].append(time.process_time() - begin)
    return {
        "seconds": seconds,
        "median": {who: float(np.median(times)) for who, times in seconds.items()},
        "gap": {"ours": (mine - least) / mine, "liblinear": (value - least) / value},
        "tol": tol,
    }


def run(options: Options) -> dict:
    """All sets."""
    found: dict[str, Any] = {"sets": {name: one_set(name, options) for name in options.sets}}
    if options.liblinear:
        found["liblinear"] = beside_liblinear(options)
    return found


def markdown(result: dict) -> str:
    """The tables."""
    header = ["set", "loss", "C", "CPU s", *(f"P@{k}" for k in TOP)]
    table = [
        [
            name,
            TITLES[loss],
            f"{row['C']:g}",
            f"{row['seconds']:.2f}",
            *(f"{100 * row['precision'][str(k)]:.2f}" for k in TOP),
        ]
        for name, found in result["sets"].items()
        for loss, row in found["losses"].items()
    ]
    text = _report.markdown_table(header, table)
    if "liblinear" in result:
        found = result["liblinear"]
        ours, theirs = found["median"]["ours"], found["median"]["liblinear"]
        gaps = f"gaps {found['gap']['ours']:.1e} and {found['gap']['liblinear']:.1e}"
        text += (
            f"\nclinc150, one label a row, C = 1: {ours:.2f} s, LIBLINEAR's Crammer-Singer {theirs:.2f} s "
            f"({theirs / ours:.1f} times), {gaps}\n"
        )
    return text


if __name__ == "__main__":
    _report.main("multilabel_losses", Options, __doc__, run, markdown)
