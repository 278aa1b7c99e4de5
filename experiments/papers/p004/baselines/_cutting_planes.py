"""Cutting planes for ½‖W‖² + C R(X W) with a convex risk R ≥ 0: the structural SVM with one slack.

Joachims, Finley and Yu, "Cutting-plane training of structural SVMs", 2009, with the line search of
Franc and Sonnenburg, "Optimized cutting plane algorithm for support vector machines", 2008. A
plane R(W) ≥ ⟨G_t, W⟩ + b_t holds for every C. The dual over t planes, μ ≥ 0, Σ μ ≤ C,

    max_μ  bᵀμ − ½ μᵀ H μ,   H_st = ⟨G_s, G_t⟩,   W = −Σ_t μ_t G_t,

is a lower bound; it is solved by an active-set method.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

MAX_PLANES = 400
MAX_ITERATIONS = 300
AHEAD = 0.1  # the next plane is taken this part of the way from the best point to the model's minimum
SECTIONS = 3  # golden sections of the line search


class Planes:
    """Planes of a risk of W [d, m], and the last multipliers.

    If there is no place left, the plane that was idle for longest is replaced.
    """

    def __init__(self, shape: tuple[int, int], dtype):
        self.shape = shape
        self.W = np.zeros(shape, dtype)  # the best weights of the last C
        # float64, so that H has no negative eigenvalue if planes are equal
        self.G = np.zeros((MAX_PLANES, shape[0] * shape[1]))
        self.H = np.zeros((MAX_PLANES, MAX_PLANES))
        self.b = np.zeros(MAX_PLANES)
        self.mu = np.zeros(MAX_PLANES)
        self.idle = np.zeros(MAX_PLANES, int)
        self.count = 0

    def add(self, G: np.ndarray, b: float) -> None:
        """Adds a plane ⟨G, W⟩ + b."""
        if self.count < MAX_PLANES:
            t, self.count = self.count, self.count + 1
        else:
            t = int(np.where(self.mu > 0, -1, self.idle).argmax())
        self.G[t], self.b[t], self.mu[t], self.idle[t] = G.ravel(), b, 0.0, 0
        self.H[t, : self.count] = self.H[: self.count, t] = self.G[: self.count] @ self.G[t]

    def solve(self, C: float) -> tuple[np.ndarray, float]:
        """The minimiser of the model and its value, a lower bound."""
        k = self.count
        H, b = self.H[:k, :k], self.b[:k]
        mu = self.mu[:k] * min(1.0, C / max(self.mu[:k].sum(), 1e-300))
        self.mu[:k] = mu = dual_ascent(H, b, C, mu)
        self.idle[:k] = np.where(mu > 0, 0, self.idle[:k] + 1)
        W = -(mu @ self.G[:k]).reshape(self.shape).astype(self.W.dtype)
        return W, float(b @ mu - mu @ H @ mu / 2)


def minimise(planes: Planes, risk, X, C: float, tol: float) -> tuple[np.ndarray, float]:
    """Weights [d, m] and their relative duality gap.

    Args:
        planes: the known planes; new ones are added.
        risk: R of scores [n, m], with `value` and, for a plane ⟨slope, Z⟩ + offset that touches it, `plane`.
        X: features [n, d], dense or CSR.
        C: weight of the risk.
        tol: relative duality gap to reach.
    """
    best = planes.W
    Z_best = np.asarray(X @ best)
    primal = value(risk, C, best, Z_best)
    point, gap = Z_best, np.inf
    for _ in range(MAX_ITERATIONS):
        # R(W) ≥ ⟨slope, X W⟩ + offset
        slope, offset = risk.plane(point)
        planes.add(np.asarray(X.T @ slope), offset)
        W, dual = planes.solve(C)
        Z = np.asarray(X @ W)
        start, end = (best, Z_best), (W, Z)
        t, found = golden_section(risk, C, start, end, primal)
        if found < primal:
            primal, (best, Z_best) = found, between(start, end, t)
        gap = (primal - dual) / primal
        if gap <= tol:
            break
        point = between((best, Z_best), end, AHEAD)[1]
    planes.W = best
    return best, gap


def value(risk, C: float, W, Z) -> float:
    """½‖W‖² + C R."""
    return float(np.square(W, dtype=np.float64).sum()) / 2 + C * risk.value(Z)


def between(start, end, t: float):
    """start + t (end − start) of pairs of arrays, in their dtype."""
    return tuple(a + a.dtype.type(t) * (b - a) for a, b in zip(start, end, strict=True))


def golden_section(risk, C: float, start, end, at_start: float) -> tuple[float, float]:
    """The best t in [0, 1] that was tried on the line from start to end, and the value there."""

    def f(t: float) -> float:
        return value(risk, C, *between(start, end, t))

    ratio = (5**0.5 - 1) / 2
    tried = {0.0: at_start, 1.0: f(1.0)}
    low, high = 0.0, 1.0
    left, right = 1 - ratio, ratio
    for _ in range(SECTIONS):
        for t in (left, right):
            if t not in tried:
                tried[t] = f(t)
        if tried[left] < tried[right]:
            high, right = right, left
            left = high - ratio * (high - low)
        else:
            low, left = left, right
            right = low + ratio * (high - low)
    t = min(tried, key=lambda t: tried[t])
    return t, tried[t]


def dual_ascent(H: np.ndarray, b: np.ndarray, C: float, mu: np.ndarray) -> np.ndarray:
    """argmax bᵀμ − ½ μᵀHμ over μ ≥ 0, Σμ ≤ C, by an active-set method from a feasible μ."""
    ridge = 1e-12 * max(float(np.trace(H)) / len(b), 1e-300)
    small = 1e-10 * max(float(np.abs(b).max()), 1e-300)
    for _ in range(50 * len(b) + 50):
        gradient = b - H @ mu
        bound = mu.sum() >= C * (1 - 1e-12)
        # ν is the multiplier of Σμ ≤ C: the gradient at the planes in use
        nu = max(float(gradient @ mu / mu.sum()), 0.0) if bound else 0.0
        violated = np.where(mu > 0, -np.inf, gradient - nu)
        worst = int(violated.argmax())
        settled = not (mu > 0).any() or np.abs(gradient - nu)[mu > 0].max() <= small
        if violated[worst] <= small and settled:
            break
        support = mu > 0
        support[worst] |= violated[worst] > small
        mu = _on_support(H, b, C, mu, np.flatnonzero(support), ridge)
    return mu


def _on_support(H, b, C, mu, rows, ridge):
    """The maximum over a support, from which rows are dropped until no multiplier is below zero."""
    while len(rows):
        block = H[np.ix_(rows, rows)] + ridge * np.eye(len(rows))
        solved = scipy.linalg.solve(block, np.stack([b[rows], np.ones(len(rows))], axis=1), assume_a="pos")
        x = solved[:, 0]
        if x.sum() > C:
            x = x - solved[:, 1] * (x.sum() - C) / solved[:, 1].sum()
        now = mu[rows]
        falling = x < 0
        if not falling.any():
            break
        # moves until the first multiplier reaches zero
        room = now[falling] / (now[falling] - x[falling])
        t = float(room.min())
        x = now + t * (x - now)
        x[np.flatnonzero(falling)[room <= t]] = 0.0
        mu = np.zeros_like(mu)
        mu[rows] = np.maximum(x, 0.0)
        rows = rows[mu[rows] > 0]
    result = np.zeros_like(mu)
    if len(rows):
        result[rows] = x
    return result
