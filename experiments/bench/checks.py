"""What the check of matrices costs, beside a fit and beside the prediction of 1,000 rows.

    python -m experiments.bench.checks [--small|--full] [--out results]

Processor seconds of this process, the least of some repetitions: of the check of the features and labels of a
training set, and of the one-vs-all fit of some of its labels, scaled up to all; of the check of 1,000 rows
and of the weights, and of ``predict_topk`` with them, compiled before. Once on the sparse features of the
data set, once on a CSR matrix in which nearly all values are stored. Writes checks.json and checks.md.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from experiments import _data, _report

ROWS, TOP = 1000, 5


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(data="naics_demo", labels=8, repeats=2, dense=(1200, 50, 0.9)),
    full=dict(repeats=10),
):
    """The cost of the check.

    Attributes:
        data: a set of experiments._data.
        labels: that are trained for the time of a fit.
        repeats: of every measurement.
        dense: rows, columns and share of stored values of the dense CSR matrix.
        small: the demo set that comes with the package.
        full: ten repetitions.
    """

    data: str = "stackexchange_tags"
    labels: int = 64
    repeats: int = 5
    dense: tuple[int, int, float] = (5000, 500, 0.9)


def run(options: Options) -> dict:
    """Measures both sets."""
    split = _data.load_split(options.data)
    rng = np.random.default_rng(0)
    rows, columns, share = options.dense
    X = rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < share)
    Y = rng.random((rows, 20)) < 0.1
    return {
        "rows": [
            _measured(options.data, split.X, split.Y, options),
            _measured(
                "a dense CSR matrix",
                sp.csr_matrix(X, dtype=np.float32),
                sp.csr_matrix(Y, dtype=np.float32),
                options,
            ),
        ]
    }


def _measured(name: str, X, Y, options: Options) -> dict:
    from xmcjax import _sparse, lanes
    from xmcjax.models import ArrayModel, predict_topk

    count = min(options.labels, Y.shape[1])
    results: dict[int, lanes.LabelResult] = {}

    def fit(labels):
        lanes.train_one_vs_all(
            X, Y, lanes.OneVsAll(clip=0.0), lambda r: results.__setitem__(r.label, r), labels=labels
        )

    chosen = np.linspace(0, Y.shape[1] - 1, count).astype(int)
    fit(chosen[:1])  # compiles
    training = _least(options.repeats, lambda: fit(chosen)) * Y.shape[1] / count
    W = np.zeros((Y.shape[1], X.shape[1]), np.float32)
    for label in chosen:
        W[label, results[label].indices] = results[label].values
    few, coef = X[:ROWS], sp.csr_matrix(W)
    predict_topk(ArrayModel(coef), few, TOP)  # compiles
    row = {
        "data": name,
        "entries": int(X.nnz),
        "check of a fit": _least(options.repeats, lambda: (_sparse.csr(X), _sparse.csr(Y, "Y"))),
        "fit": training,
        "check of a prediction": _least(options.repeats, lambda: (_sparse.csr(few), ArrayModel(coef))),
        "prediction": _least(options.repeats, lambda: predict_topk(ArrayModel(coef), few, TOP)),
    }
    row["share of a fit"] = row["check of a fit"] / row["fit"]
    row["share of a prediction"] = row["check of a prediction"] / row["prediction"]
    return row


def _least(repeats: int, work: Callable[[], object]) -> float:
    """The least processor seconds of some repetitions."""
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def markdown(result: dict) -> str:
    """A line for each matrix."""
    header = tuple(result["rows"][0])
    rows = [
        tuple(f"{value:.3g}" if isinstance(value, float) else value for value in row.values())
        for row in result["rows"]
    ]
    return "Processor seconds, and shares.\n\n" + _report.markdown_table(header, rows)


if __name__ == "__main__":
    _report.main("checks", Options, __doc__, run, markdown)
