"""TopPush: the best wrong pair below the right ones.

Li, Jin and Zhou, "Top rank optimization in linear time", 2014: for scores z of positives and
negatives, with the truncated quadratic loss,

    min_w ½‖w‖² + C Σ_right max(0, 1 + max_wrong z − z_i)².

The reduction of Lapin, Hein and Schiele, section 2.3, makes pairs of classes and instances of a multi-class
problem. Joint: one maximum over all wrong pairs. One-vs-all: one problem a class, whose thresholds
max_wrong z are subtracted from the scores, without which classes would not compare (on the
silhouettes top-1 accuracy is then a half lower).

The paper has λ/2 ‖w‖² and the mean of the losses, C = 1/(λ n), and the published program ends where a step of
the dual becomes small: :class:`TopPushEarly` does so, while :class:`TopPush` is solved to its gap.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments.papers.p004.baselines import _top_push_gradient, _top_push_solver
from experiments.papers.p004.baselines._base import GRID, TOL, Fitted, linear, one_hot


@dataclasses.dataclass(frozen=True)
class TopPush:
    """TopPush.

    Attributes:
        joint: over all pairs, else one-vs-all.
    """

    joint: bool = True
    grid: tuple[float, ...] = GRID

    def fit(self, X, y, C: float, start=None) -> Fitted:
        """See :class:`.Method`; `start` holds the solution for another C, and that C."""
        y = np.asarray(y)
        before = None if start is None else _top_push_solver.scaled(start[0], C / start[1])
        found = _top_push_solver.solve(X, y, int(y.max()) + 1, C, self.joint, before, TOL)
        bias = None if self.joint else -found.tau[:, 0].astype(X.dtype)
        return Fitted(linear(found.W.T, bias), found.gap, (found, C))


@dataclasses.dataclass(frozen=True)
class TopPushEarly:
    """TopPush over all pairs, by the published method with its early stop."""

    grid: tuple[float, ...] = GRID

    def fit(self, X, y, C: float, start=None) -> Fitted:
        """See :class:`.Method`; each C starts from 0, because the early stop depends on the start."""
        W, gap = _top_push_gradient.solve(X, one_hot(y, bool), C)
        return Fitted(linear(W), gap, None)
