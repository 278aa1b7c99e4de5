"""Every solver on small problems against float64, twice; and prediction against numpy."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp

from experiments.bench.gpu_kit import _problems
from experiments.bench.gpu_kit._kit import Kit
from experiments.bench.gpu_kit.products import relative

# Scores that differ by less count as equal in prediction.
TIE = 1e-5


def run(kit: Kit) -> None:
    """Takes a figure for prediction, which all solvers share, and then one for each solver."""
    stored = kit.references()
    X, Y = (sp.csr_matrix(stored[f"solvers/{name}"]) for name in "XY")
    data = _problems.Data(X, stored["solvers/y"], Y)
    with kit.attempt("prediction"):
        _prediction(kit, X)
    for name, problem in _problems.chosen(kit.small).items():
        with kit.attempt(name):
            begin = time.perf_counter()
            answer, value = problem.solve(data, False)
            first = time.perf_counter() - begin
            again, _ = problem.solve(data, False)
            second = time.perf_counter() - begin - first
            reference = float(stored[f"solvers/{name}/value"])
            excess = value / reference - 1
            same = np.asarray(answer).tobytes() == np.asarray(again).tobytes()
            kit.figure(
                name,
                objective=value,
                excess=excess,
                distance=relative(answer, stored[f"solvers/{name}/answer"]),
                same_bits=same,
                first_seconds=first,
                seconds=second,
                right=bool(abs(excess) <= _problems.TOLERANCE),
            )


def _prediction(kit: Kit, X: sp.csr_matrix) -> None:
    from xmcjax.models import ArrayModel, predict_topk

    rng = np.random.default_rng(3)
    W = sp.random_array((900, X.shape[1]), density=0.2, rng=rng, dtype=np.float32, format="csr")
    b = rng.normal(size=900).astype(np.float32)
    (best, scores), (again, _) = (predict_topk(ArrayModel(W, b), X, 5) for _ in range(2))
    exact = (X.astype(np.float64) @ W.T.astype(np.float64)).toarray() + b
    places = np.sort(exact, axis=1)[:, ::-1][:, :5]
    off = float(np.abs(np.take_along_axis(exact, best, axis=1) - places).max())
    error = relative(scores, places)
    same = best.tobytes() == again.tobytes()
    kit.figure("prediction", error=error, worst_place=off, same_bits=same, right=off <= TIE and error <= TIE)
