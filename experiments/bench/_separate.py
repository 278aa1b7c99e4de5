"""One-vs-rest with the hinge loss: ours against LIBLINEAR's dual (through scikit-learn), at the same gap.

LIBLINEAR does not return dual variables. Its gap is that of its weights to the largest dual objective known,
which is certified in float64. Our gap is the one that `MulticlassSVC` certifies for the weights of the same
fit, which is no smaller. LIBLINEAR's `tol` is the largest of 1, 1/2, 1/4, … with a gap of at most 1e-3; ours
then must reach the gap that LIBLINEAR reached.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import scipy.sparse as sp

from experiments import _multiclass, _report

# By which factor the gap of the reference, whose dual objective is used, is smaller.
_FINER = 20


def primal(X, y: np.ndarray, W: np.ndarray, bias: np.ndarray, C: float) -> float:
    """The primal objective in float64, with a regularised bias."""
    W, bias = W.astype(np.float64), bias.astype(np.float64)
    gains = 1 + X @ W + bias
    own = np.arange(len(y)), y
    gains[own] = 2 - gains[own]
    return float(((W**2).sum() + (bias**2).sum()) / 2 + C * np.maximum(gains, 0).sum())


def compared(name: str, C: float, intercept: bool, gap: float, repeats: int) -> dict:
    """Seconds, gaps and test errors of both on one set."""
    from sklearn.svm import LinearSVC

    from xmcjax import MulticlassSVC

    parts = _multiclass.load(name)
    X, y = parts.X, parts.y
    X = X if sp.issparse(X) else np.ascontiguousarray(X, np.float32)

    def ours(tol: float):
        classifier = MulticlassSVC(
            "ovr", C=C, tol=tol, fit_intercept=intercept, max_iter=20_000, random_state=0
        )
        return classifier.fit(X, y)

    def theirs(tol: float):
        classifier = LinearSVC(
            loss="hinge", dual=True, C=C, tol=tol, fit_intercept=intercept, max_iter=10**6, random_state=0
        )
        return classifier.fit(X, y)

    def objective(classifier) -> float:
        return primal(X, y, classifier.coef_.T, np.broadcast_to(classifier.intercept_, y.max() + 1), C)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a reference that misses its gap still certifies the gap it has
        reference = ours(gap / _FINER)
    dual = objective(reference) * (1 - reference.dual_gap_)
    tol, reached = 2.0, np.inf
    while not reached <= gap:
        tol /= 2
        value = objective(theirs(tol))
        reached = (value - dual) / value

    seconds = {"ours": [], "liblinear": []}
    fits = {"ours": lambda: ours(reached), "liblinear": lambda: theirs(tol)}
    errors, gaps, statuses = {}, {}, {}
    for _ in range(repeats):
        for who, fit in fits.items():
            begin = time.process_time()
            done = fit()
            seconds[who].append(time.process_time() - begin)
            value = objective(done)
            gaps[who] = (value - dual) / value
            errors[who] = 100 * float(np.mean(done.predict(parts.X_test) != parts.y_test))
            if who == "ours":
                statuses = {"status": done.status_.name, "certified": done.dual_gap_, "passes": done.n_iter_}
    return {
        "set": name,
        "C": C,
        "intercept": intercept,
        "tol": tol,
        "gap": reached,
        "seconds": seconds,
        "median": {who: float(np.median(times)) for who, times in seconds.items()},
        "gaps": gaps,
        "errors": errors,
        **statuses,
    }


def markdown(rows: list[dict]) -> str:
    """The table."""
    header = ["set", "C", "bias", "gap", "LIBLINEAR s", "xmcjax s", "ratio"]
    header += ["LIBLINEAR's tol", "our passes", "error % of both"]
    table = []
    for row in rows:
        theirs, ours = row["median"]["liblinear"], row["median"]["ours"]
        error = f"{row['errors']['liblinear']:.2f} / {row['errors']['ours']:.2f}"
        late = "" if row["status"] == "CONVERGED" else f" ({row['status']})"
        bias = "yes" if row["intercept"] else "no"
        cells = [row["set"], row["C"], bias, f"{row['gap']:.1e}", f"{theirs:.2f}", f"{ours:.2f}{late}"]
        table.append([*cells, f"{theirs / ours:.1f}", row["tol"], row["passes"], error])
    text = "One-vs-rest with the hinge, CPU seconds on one thread at the same gap\n\n"
    return text + _report.markdown_table(header, table) + "\n"
