"""SVM^OVA of Lapin, Hein and Schiele, 2015: one squared-hinge SVM per class without bias, by lanes.

The paper takes LIBLINEAR, whose default is the same problem,

    min_w ½‖w‖² + C Σ_i max(0, 1 − y_i w·x_i)².

With the dual variables α_i = 2 C max(0, 1 − y_i w·x_i) the duality gap of any w is ½‖∇P(w)‖², so
that the norm of the gradient at which a lane may stop is known.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments.papers.p004.baselines._base import GRID, TOL, Fitted, linear, one_hot
from xmcjax import linops
from xmcjax.losses import squared_hinge
from xmcjax.solvers import newton_cg

# without bias; only the gradient decides when a lane ends
HPARAMS = newton_cg.HParams(l2_bias=-1.0, decrement=1e30, max_steps=2_000)
MAX_RUNS = 10


@dataclasses.dataclass(frozen=True)
class OneVsAll:
    """One-vs-all SVM."""

    grid: tuple[float, ...] = GRID

    def fit(self, X, y, C: float, start=None) -> Fitted:
        """See :class:`experiments.papers.p004.baselines.Method`; `start` are weights [d, m]."""
        op = linops.make(X, backend="native" if linops.native_ready() else "auto")
        Y = 2 * one_hot(y, X.dtype) - 1
        W = np.zeros((X.shape[1], Y.shape[1]), X.dtype) if start is None else start
        primal, gap = objective(X, Y, W, C)
        for _ in range(MAX_RUNS):
            # half of the allowed gap, divided among the classes
            tolerance = np.sqrt(TOL * primal / Y.shape[1])
            problem = newton_cg.lane_problem(op, Y, squared_hinge, weight=C, tolerance=tolerance)
            W = np.asarray(newton_cg.run(problem, HPARAMS, newton_cg.init(problem, W)).w)
            primal, gap = objective(X, Y, W, C)
            if gap <= TOL * primal:
                break
        return Fitted(linear(W), gap / primal, W)


def objective(X, Y, W, C: float) -> tuple[float, float]:
    """Σ P over the classes and its duality gap ½ Σ ‖∇P‖²; Y is ±1."""
    slack = np.maximum(0, 1 - Y * (X @ W))
    # ∇P = w − 2 C Xᵀ(y max(0, 1 − m))
    gradient = W - 2 * C * (X.T @ (Y * slack))
    primal = np.square(W, dtype=np.float64).sum() / 2 + C * np.square(slack, dtype=np.float64).sum()
    return float(primal), float(np.square(gradient, dtype=np.float64).sum() / 2)
