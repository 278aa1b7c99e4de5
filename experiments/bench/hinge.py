"""One-vs-all training with the hinge beside LIBLINEAR, on a sample of labels.

    python -m experiments.bench.hinge [--small|--full] [--data stackexchange_tags] [--C 1 10] [--out results]

One thread, the bias regularised like a feature of value 1, no clipping. LIBLINEAR is scikit-learn's
LinearSVC(loss="hinge"), one label after the other. Its tolerance is halved until the duality gaps of all
labels together are at most 0.005 of their objectives, which is where ours ends each label. The gap is against
the dual of a solution of ours at 1e-4. Times are CPU time per label, medians of repetitions by turns. Writes
hinge.json and hinge.md.
"""

from __future__ import annotations

import dataclasses
import time
import warnings

import numpy as np
import scipy.sparse as sp

from experiments import _data, _one_vs_all, _report

GAP = 0.005


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(data="naics_demo", sample=16, repeats=1),
    full=dict(sample=256, repeats=5),
):
    """The hinge of one-vs-all training.

    Attributes:
        data: a set of the data folder, or naics_demo.
        sample: labels with a positive row.
        C: weights of the losses.
        repeats: of every training.
        small: 16 labels of naics_demo, one repetition.
        full: 256 labels, five repetitions.
    """

    data: str = "stackexchange_tags"
    sample: int = 128
    C: tuple[float, ...] = (1.0, 10.0)
    repeats: int = 3


def run(options: Options) -> dict:
    """Trains by turns; times per label and the gaps of both."""
    split = _data.load_split(options.data)
    X, Y = sp.csr_array(split.X), sp.csc_array(split.Y)
    labels = _one_vs_all.sample(Y, options.sample)
    rows = [_compared(X, Y, labels, C, options.repeats) for C in options.C]
    return {"data": options.data, "labels": len(labels), "rows": rows}


def _compared(X, Y, labels: np.ndarray, C: float, repeats: int) -> dict:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    from xmcjax.lanes import OneVsAll, train_one_vs_all
    from xmcjax.losses import hinge
    from xmcjax.solvers import Status

    targets = {label: np.where(Y[:, [label]].toarray()[:, 0] != 0, 1.0, -1.0) for label in labels.tolist()}

    def ours(tol: float = GAP) -> dict:
        found = {}
        how = OneVsAll(hinge, C=C, tol=tol, clip=0.0, max_iter=1000)
        train_one_vs_all(X, Y, how, lambda result: found.update({result.label: result}), labels=labels)
        return found

    def theirs(tol: float) -> dict:
        found = {}
        for label, y in targets.items():
            svc = LinearSVC(loss="hinge", C=C, tol=tol, random_state=0, max_iter=10_000)
            with warnings.catch_warnings():
                # LinearSVC used up its sweeps; the gap shows how far it came
                warnings.simplefilter("ignore", ConvergenceWarning)
                found[label] = svc.fit(X, y)
        return found

    def objective(label: int, w: np.ndarray, bias: float) -> float:
        margins = targets[label] * (X @ w.astype(np.float64) + bias)
        return float(w @ w + bias * bias) / 2 + C * float(np.maximum(1 - margins, 0).sum())

    def of_theirs(found: dict) -> float:
        each = (objective(label, svc.coef_[0], float(svc.intercept_[0])) for label, svc in found.items())
        return sum(each)

    reference = ours(1e-4)
    least = sum(result.value - result.gradient_norm**2 / 2 for result in reference.values())
    tol, gap = 2.0, np.inf
    while gap > GAP and tol > 1e-4:
        tol /= 2
        value = of_theirs(theirs(tol))
        gap = (value - least) / value
    seconds: dict[str, list[float]] = {"ours": [], "liblinear": []}
    for _ in range(repeats):
        for who, fit in (("ours", ours), ("liblinear", lambda: theirs(tol))):
            begin = time.process_time()
            done = fit()
            seconds[who].append((time.process_time() - begin) / len(labels))
            if who == "ours":
                last = done
    value = sum(result.value for result in last.values())
    return {
        "C": C,
        "tol": tol,
        "gap": {"ours": (value - least) / value, "liblinear": gap},
        "seconds": seconds,
        "median": {who: float(np.median(times)) for who, times in seconds.items()},
        "converged": sum(result.status == Status.CONVERGED for result in last.values()),
        "passes": float(np.mean([result.newton_steps for result in last.values()])),
    }


def markdown(result: dict) -> str:
    """The table."""
    header = ["C", "LIBLINEAR ms", "xmcjax ms", "ratio", "gap of both", "LIBLINEAR's tol", "our passes"]
    table = []
    for row in result["rows"]:
        theirs, ours = 1e3 * row["median"]["liblinear"], 1e3 * row["median"]["ours"]
        gaps = f"{row['gap']['liblinear']:.1e} / {row['gap']['ours']:.1e}"
        cells = [f"{row['C']:g}", f"{theirs:.1f}", f"{ours:.1f}", f"{theirs / ours:.1f}", gaps]
        table.append([*cells, f"{row['tol']:g}", f"{row['passes']:.1f}"])
    text = f"One-vs-all with the hinge, {result['data']}, {result['labels']} labels, CPU time per label"
    return f"{text}\n\n{_report.markdown_table(header, table)}\n"


if __name__ == "__main__":
    _report.main("hinge", Options, __doc__, run, markdown)
