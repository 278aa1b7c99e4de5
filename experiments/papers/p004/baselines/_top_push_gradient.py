"""TopPush as it was published: accelerated projected gradient on the dual, ended early.

Li, Jin and Zhou, "Top rank optimization in linear time", 2014, Algorithm 1, over the pairs of the joint
problem of :mod:`._top_push_solver`:

    min  ½‖(α − β) X‖² + Σ α²/4C − Σ α   over  α, β ≥ 0,  Σ α = Σ β,

α of right and β of wrong pairs, kept together as A [n, m]. The curvature is found by doubling. As in the
published program, a run ends where a step changes the value by less than TOL of it: its iterates rank better
than the minimum.
"""

from __future__ import annotations

import numpy as np

TOL = 1e-4
MAX_STEPS = 1_000
HALVINGS = 60  # bisections for the threshold of a projection
GROWTH = 2.0  # factor by which the curvature grows


def solve(X, right: np.ndarray, C: float, tol: float = TOL) -> tuple[np.ndarray, float]:
    """Weights [d, m] of the last iterate, and its relative duality gap.

    Args:
        X: features [n, d], dense or CSR.
        right: which pairs are right, [n, m].
        C: weight of the losses.
        tol: relative change of the value at which the run ends.
    """
    dtype = X.dtype
    sign, at = np.where(right, 1, -1).astype(dtype), right.astype(dtype)

    def value(A) -> tuple[float, np.ndarray]:
        W = np.asarray(X.T @ (sign * A))
        alpha = A[right].astype(np.float64)
        quadratic = float(np.square(W, dtype=np.float64).sum()) / 2
        return quadratic + float(np.square(alpha).sum() / (4 * C) - alpha.sum()), W

    A = before = np.zeros(right.shape, dtype)
    W, now, curvature, momentum = np.zeros((X.shape[1], right.shape[1]), dtype), 0.0, 1 / (2 * C), 1.0
    for _ in range(MAX_STEPS):
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        point = A + dtype.type((momentum - 1) / following) * (A - before)
        at_point, W = value(point)
        slope = sign * np.asarray(X @ W) + at * (point / dtype.type(2 * C) - 1)
        while True:
            trial = project(point - slope / dtype.type(curvature), right)
            reached, W = value(trial)
            step = (trial - point).astype(np.float64)
            model = at_point + float((slope * step).sum()) + curvature / 2 * float(np.square(step).sum())
            if reached <= model + 1e-6 * abs(model):
                break
            curvature *= GROWTH
        before, A, momentum = A, trial, following
        last, now = now, reached
        if abs(now - last) <= tol * abs(now):
            break
    Z = np.asarray(X @ W)
    top = float(np.where(right, -np.inf, Z).max())
    losses = C * float(np.square(np.maximum(1 + top - Z[right], 0), dtype=np.float64).sum())
    primal = float(np.square(W, dtype=np.float64).sum()) / 2 + losses
    return W, (primal + now) / primal


def project(A: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The nearest point with A ≥ 0 and equal sums over right and over wrong pairs."""
    alpha, beta = A[right].astype(np.float64), A[~right].astype(np.float64)
    low, high = -float(max(beta.max(), 0.0)) - 1, float(max(alpha.max(), 0.0)) + 1
    for _ in range(HALVINGS):
        threshold = (low + high) / 2
        above = np.maximum(alpha - threshold, 0).sum() - np.maximum(beta + threshold, 0).sum()
        low, high = (threshold, high) if above > 0 else (low, threshold)
    return np.maximum(np.where(right, A - A.dtype.type(threshold), A + A.dtype.type(threshold)), 0)
