"""One-vs-all training with each penalty, beside LIBLINEAR with the l1 norm, on a sample of labels.

    python -m experiments.bench.penalties [--small|--full] [--data stackexchange_tags] [--out results]

One thread, squared hinge, C = 1, the bias regularised like a feature of value 1, no clipping. Times are
CPU time per label, medians of repetitions by turns; compilation and the start are included.
LIBLINEAR is scikit-learn's LinearSVC(penalty="l1", dual=False), one label after the other, at several
tolerances. Writes penalties.json and penalties.md.
"""

from __future__ import annotations

import dataclasses
import time
import warnings

import numpy as np
import scipy.sparse as sp

from experiments import _data, _one_vs_all, _report

TOLERANCES = (1e-1, 1e-2, 1e-3)


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(data="naics_demo", sample=16, repeats=1),
    full=dict(sample=64, repeats=5),
):
    """Penalties of one-vs-all training.

    Attributes:
        data: a set of the data folder, or naics_demo.
        sample: labels with a positive row.
        repeats: of every training.
        small: 16 labels of naics_demo, one repetition.
        full: 64 labels, five repetitions.
    """

    data: str = "stackexchange_tags"
    sample: int = 32
    repeats: int = 3


def run(options: Options) -> dict:
    """Trains by turns; times, steps and weights that are not zero, per label."""
    from xmcjax.lanes import OneVsAll, train_one_vs_all
    from xmcjax.penalties import L1, L2, ElasticNet, HuberPenalty

    split = _data.load_split(options.data)
    X, Y = sp.csr_matrix(split.X), sp.csc_array(split.Y)
    labels = _one_vs_all.sample(Y, options.sample)
    penalties = [L2(), L1(), ElasticNet(0.5), HuberPenalty(0.1), HuberPenalty(0.01)]
    seconds: dict[str, list[float]] = {}
    rows: dict[str, dict] = {}
    values: dict[str, dict[int, float]] = {}
    for _ in range(options.repeats):
        for penalty in penalties:
            name, results = repr(penalty), []
            begin = time.process_time()
            summary = train_one_vs_all(
                X, Y, OneVsAll(penalty=penalty, clip=0.0), results.append, labels=labels
            )
            seconds.setdefault(name, []).append(time.process_time() - begin)
            values[name] = {r.label: r.value for r in results}
            rows[name] = {
                "newton_steps": summary.newton_steps / len(labels),
                "inner_steps": summary.cg_steps / len(labels),
                "weights": float(np.mean([len(r.values) for r in results])),
                "statuses": {s.name.lower(): n for s, n in summary.statuses.items()},
            }
        for tolerance in TOLERANCES:
            name = f"LinearSVC, tol {tolerance:g}"
            begin = time.process_time()
            found = _liblinear(X, Y, labels, tolerance)
            seconds.setdefault(name, []).append(time.process_time() - begin)
            values[name] = {label: value for label, (value, _) in found.items()}
            rows[name] = {"weights": float(np.mean([count for _, count in found.values()]))}
    ours = values[repr(L1())]
    for name, row in rows.items():
        row["ms"] = 1e3 * float(np.median(seconds[name])) / len(labels)
        if name.startswith("LinearSVC") or name == repr(L1()):
            # relative to the best objective of all programs
            best = {k: min(ours[k], *(values[f"LinearSVC, tol {t:g}"][k] for t in TOLERANCES)) for k in ours}
            row["worst_objective"] = max(values[name][k] / best[k] for k in ours)
    return {"data": options.data, "labels": len(labels), "rows": rows}


def _liblinear(X, Y, labels, tolerance: float) -> dict[int, tuple[float, int]]:
    """(objective, number of non-zero weights) of each label."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    ones = _one_vs_all.features(X, "published")
    found = {}
    for label in labels.tolist():
        y = 2 * Y[:, [label]].toarray().ravel() - 1
        svc = LinearSVC(penalty="l1", dual=False, fit_intercept=False, tol=tolerance, max_iter=10_000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            w = svc.fit(ones, y).coef_[0]
        slack = np.maximum(1 - y * (ones @ w), 0)
        found[label] = float(np.abs(w).sum() + slack @ slack), int(np.count_nonzero(w[:-1]))
    return found


def markdown(result: dict) -> str:
    """The rows as a table."""
    header = ["penalty", "ms per label", "Newton steps", "inner steps", "weights", "worst objective / best"]
    keys = ("ms", "newton_steps", "inner_steps", "weights", "worst_objective")
    lines = [[name, *(row.get(key, "") for key in keys)] for name, row in result["rows"].items()]
    return f"{result['data']}, {result['labels']} labels\n\n" + _report.markdown_table(header, lines)


if __name__ == "__main__":
    _report.main("penalties", Options, __doc__, run, markdown)
