"""TopPush over pairs of classes and instances, by Newton's method on its smoothed dual.

A pair (c, i) is right where c = y_i: the reduction of Lapin, Hein and Schiele, "Top-k multiclass
SVM", 2015, section 2.3. With a threshold τ for the largest wrong score,

    min_{W,τ}  ½‖W‖² + C Σ_right max(0, 1 + τ − z_ci)²,   z_ci ≤ τ at wrong pairs,   Z = WᵀXᵀ,

with one τ for all classes (joint) or one for each (one-vs-all). The dual is

    max_{α,β ≥ 0}  Σ α − Σ α²/4C − ½‖(α − β) X‖²,   Σα = Σβ.

Method of multipliers: the constraints, which are not smooth, are replaced by their Moreau envelope of weight
ρ around the last multipliers, so that β = max(0, β' + ρ (z − τ)); α is 2 C max(0, 1 + τ − z). The smoothed
problem is solved by Newton's method. The Hessian of a class is I + X_Aᵀ D X_A over its active pairs A, which
are few, and is inverted through (D⁻¹ + X_A X_Aᵀ)⁻¹; τ is eliminated from the system, and is set to its
best value after every step. The iteration ends by a relative duality gap, measured on the original problem
with feasible multipliers.

symbol          variable    shape
W               W           [m, d]
Z               Z           [m, n]
α (right), β    A           [m, n]
D               D           [m, n], dα/dz or dβ/dz
τ               tau         [1, 1] or [m, 1]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

RHO = 3.0  # ρ at the start, divided by the mean of ‖x‖², the curvature of the dual
GROWTH = 4.0  # factor of ρ after a round that has not halved the gap
MAX_ROUNDS = 100
MAX_STEPS = 50  # Newton steps per round
MAX_THRESHOLD_STEPS = 60
WHOLE = (1.0, 0.5, 0.25, 0.125)  # lengths tried along Newton's direction
MAX_HALVINGS = 30
ARMIJO = 1e-4  # factor of the sufficient decrease
ROUNDING = 1e-7  # relative rounding error of a value; float32 features give no better


class Solution(NamedTuple):
    """Weights [m, d], thresholds, multipliers [m, n], ρ, relative duality gap, Newton steps."""

    W: np.ndarray
    tau: np.ndarray
    A: np.ndarray
    rho: float
    gap: float
    steps: int


def solve(X, y, m: int, C: float, joint: bool, start: Solution | None = None, tol: float = 1e-3) -> Solution:
    """Solves to a relative duality gap.

    Args:
        X: features [n, d], dense or CSR, float32 or float64.
        y: classes 0 … m−1 of the instances.
        m: number of classes.
        C: weight of the losses.
        joint: one τ for all classes, else one for each.
        start: the solution of the same problem, or None; see :func:`scaled`.
        tol: of (primal − dual) / primal.
    """
    problem = _Problem(X, y, m, C, joint)
    if start is None:
        # from zero all scores would be tied, and every pair active
        W, A = problem.means(), np.zeros((m, X.shape[0]), X.dtype)
        tau = np.zeros((1 if joint else m, 1))
    else:
        W, tau, A = start[:3]
    rho = RHO / float(np.mean(problem.norms2))
    Z = problem.scores(W)
    primal, dual, gap, steps = np.inf, -np.inf, np.inf, 0
    best = W, tau
    for _ in range(MAX_ROUNDS):
        value = problem.primal(W, Z)
        # Newton's method may leave ½‖∇‖² at a part of the gap
        inexact = 0.1 * max(min(primal, value) - max(dual, 0.0), tol * max(dual, 0.0))
        W, tau, Z, count = _newton(problem, W, tau, Z, A, rho, inexact)
        steps += count
        A = problem.multipliers(Z, tau, A, rho)
        dual = max(dual, problem.dual(A))
        value = problem.primal(W, Z)
        if value < primal:
            primal, best = value, (W, tau)
        before, gap = gap, (primal - dual) / primal
        if gap <= tol:
            break
        if gap > before / 2:
            rho *= GROWTH
    return Solution(best[0], best[1], A, rho, gap, steps)


def scaled(solution: Solution, factor: float) -> Solution:
    """A start for factor · C: the multipliers grow with C."""
    return solution._replace(A=factor * solution.A)


class _Problem:
    """Values, multipliers and Newton systems."""

    def __init__(self, X, y, m: int, C: float, joint: bool):
        self.joint, self.C, self.X = joint, C, X
        self.sparse = sp.issparse(X)
        squares = X.multiply(X) if self.sparse else np.square(X)
        self.norms2 = np.asarray(squares.sum(axis=1)).ravel()
        self.right = np.zeros((m, X.shape[0]), bool)
        self.right[y, np.arange(X.shape[0])] = True
        self.sign = np.where(self.right, -1, 1).astype(X.dtype)  # sign of z in the violation

    def means(self) -> np.ndarray:
        """C (Σ_{i of c} x_i − share of c · Σ_i x_i), [m, d]."""
        sums = np.asarray(self.right.astype(self.X.dtype) @ self.X)
        share = self.right.mean(axis=1, keepdims=True, dtype=self.X.dtype)
        return self.X.dtype.type(self.C) * (sums - share * sums.sum(axis=0))

    def scores(self, W) -> np.ndarray:
        """The scores Z of weights W."""
        return np.ascontiguousarray((self.X @ W.T).T)

    def total(self, a) -> np.ndarray:
        """Sums by threshold, [1, 1] or [m, 1]."""
        axis = None if self.joint else 1
        return np.asarray(np.sum(a, axis=axis, dtype=np.float64, keepdims=True))

    def violation(self, Z, tau) -> np.ndarray:
        """1 + τ − z at right pairs, z − τ at wrong ones."""
        v = self.sign * (Z - tau.astype(Z.dtype))
        v[self.right] += 1
        return v

    def multipliers(self, Z, tau, before, rho) -> np.ndarray:
        """α, and β of the smoothed problem around `before`."""
        v = self.violation(Z, tau)
        # ℓ is smooth: α = 2 C max(0, 1 + τ − z)
        alpha = 2 * self.C * v[self.right]
        v *= Z.dtype.type(rho)
        v += before
        v[self.right] = alpha
        return np.maximum(v, 0, out=v)

    def curvature(self, A, rho) -> np.ndarray:
        """D of the multipliers A."""
        return np.where(A > 0, np.where(self.right, 2 * self.C, rho), 0)

    def slope(self, A) -> np.ndarray:
        """The slope of the smoothed problem in τ: Σα − Σβ."""
        return -self.total(self.sign * A)

    def primal(self, W, Z) -> float:
        """½‖W‖² + Σ ℓ at the least τ."""
        wrong = np.where(self.right, -np.inf, Z)
        tau = wrong.max(keepdims=True) if self.joint else wrong.max(axis=1, keepdims=True)
        losses = self.C * np.square(np.maximum(self.violation(Z, tau)[self.right], 0)).sum(dtype=np.float64)
        return float(np.square(W, dtype=np.float64).sum() / 2 + losses)

    def dual(self, A) -> float:
        """Σ α − Σ α²/4C − ½‖(α − β) X‖², after the larger of Σα and Σβ was scaled down to the other."""
        alpha, beta = self.total(np.where(self.right, A, 0)), self.total(np.where(self.right, 0, A))
        least = np.minimum(alpha, beta)
        down = least / np.where(alpha > 0, alpha, 1)
        up = least / np.where(beta > 0, beta, 1)
        A = A * np.where(self.right, down, up).astype(A.dtype)
        alpha = A[self.right].astype(np.float64)
        conjugate = np.square(alpha).sum() / (4 * self.C)
        W = self.combined(A)
        return float(alpha.sum() - conjugate - np.square(W, dtype=np.float64).sum() / 2)

    def combined(self, A) -> np.ndarray:
        """(α − β) X, [m, d]."""
        return -((self.sign * A) @ self.X)

    def smoothed(self, W, Z, tau, before, rho) -> np.ndarray:
        """The smoothed problem by class, up to a constant, float64 [m, 1]."""
        A = self.multipliers(Z, tau, before, rho)
        v = self.violation(Z, tau)
        # A (v + before/ρ) − A²/2ρ; at right pairs A²/4C
        values = A * (v + before / rho) - np.square(A) / (2 * rho)
        values[self.right] = np.square(A[self.right]) / (4 * self.C)
        norms = np.square(W, dtype=np.float64).sum(axis=1, keepdims=True) / 2
        return values.sum(axis=1, keepdims=True, dtype=np.float64) + norms


def _newton(problem: _Problem, W, tau, Z, before, rho, inexact):
    """Newton's method on the smoothed problem until ½‖∇‖² ≤ inexact. Returns W, τ, Z and its steps."""
    m = len(W)
    for step in range(MAX_STEPS):
        tau = _best_threshold(problem, Z, tau, before, rho)
        A = problem.multipliers(Z, tau, before, rho)
        G = W - problem.combined(A)  # ∇_W
        norms2 = np.square(G, dtype=np.float64).sum(axis=1, keepdims=True)
        if norms2.sum() / 2 <= inexact:
            return W, tau, Z, step
        # with a τ of its own a class can end by itself
        moving = np.ones((m, 1), bool) if problem.joint else norms2 / 2 > inexact / m
        slope = problem.slope(A)
        P, B, q = _direction(problem, G, slope, problem.curvature(A, rho), moving)
        W, tau, Z = _search(problem, W, tau, Z, before, rho, G, slope, P, B, q)
    return W, _best_threshold(problem, Z, tau, before, rho), Z, MAX_STEPS


def _direction(problem: _Problem, G, slope, D, moving):
    """Newton's direction: P + q B in W and q in τ."""
    m, dtype = len(G), problem.X.dtype
    P, B = np.where(moving, -G, 0), np.zeros_like(G)
    above, below = np.zeros((m, 1)), np.zeros((m, 1))
    for c in np.flatnonzero(moving):
        rows = np.flatnonzero(D[c])
        if not len(rows):
            continue
        block = problem.X[rows]
        gram = (block @ block.T).toarray() if problem.sparse else block @ block.T
        gram = gram.astype(np.float64)
        gram[np.diag_indices_from(gram)] += 1 / D[c, rows]
        # u = (D⁻¹ + X_A X_Aᵀ)⁻¹ [X_A g, 1]
        sides = np.stack([block @ G[c], np.ones(len(rows))], axis=1)
        factor = scipy.linalg.cho_factor(gram, overwrite_a=True, check_finite=False)
        u = scipy.linalg.cho_solve(factor, sides, overwrite_b=True, check_finite=False)
        above[c], below[c] = u.sum(axis=0)
        along = u.T.astype(dtype) @ block
        P[c] += along[0]
        B[c] = along[1]
    # q Σ 1ᵀu₁ = −∇_τ − Σ 1ᵀu_g
    above, below = problem.total(above), problem.total(below)
    return P, B, np.where(below > 0, -(slope + above) / np.where(below > 0, below, 1), 0)


def _search(problem: _Problem, W, tau, Z, before, rho, G, slope, P, B, q):
    """A step that lowers the value. Returns W, τ and Z."""
    m = len(W)
    F = P + np.broadcast_to(q, (m, 1)).astype(P.dtype) * B
    dP, dF = problem.scores(P), problem.scores(F)
    value = problem.smoothed(W, Z, tau, before, rho)
    rounding = ROUNDING * np.abs(value)

    # first the whole direction is tried; classes with a common τ take the same step
    descent = problem.total((G * F).sum(axis=1, keepdims=True, dtype=np.float64)) + slope * q
    taken = np.zeros_like(tau)
    for t in WHOLE:
        change = problem.smoothed(W + t * F, Z + t * dF, tau + t * q, before, rho) - value
        change = problem.total(change)
        good = (taken == 0) & (change <= ARMIJO * t * descent + problem.total(rounding))
        taken = np.where(good, t, taken)
        if taken.all():
            break
    t = np.broadcast_to(taken, (m, 1)).astype(W.dtype)
    # where that step is too short: at a fixed τ, every class takes its own step
    trial, length, alone = t == 0, 1.0, np.zeros_like(t)
    descent = (G * P).sum(axis=1, keepdims=True, dtype=np.float64)
    for _ in range(MAX_HALVINGS):
        if not trial.any():
            break
        after = problem.smoothed(W + length * P, Z + length * dP, tau, before, rho)
        good = trial & (after <= value + ARMIJO * length * descent + rounding)
        alone = np.where(good, W.dtype.type(length), alone)
        trial &= ~good
        length /= 2
    return W + t * F + alone * P, tau + taken * q, Z + t * dF + alone * dP


def _best_threshold(problem: _Problem, Z, tau, before, rho) -> np.ndarray:
    """The τ where the smoothed problem's slope Σα − Σβ, which grows with τ, is 0."""
    low, high = np.full_like(tau, -np.inf), np.full_like(tau, np.inf)
    stride = np.full_like(tau, 0.1)
    for _ in range(MAX_THRESHOLD_STEPS):
        A = problem.multipliers(Z, tau, before, rho)
        slope, D = problem.slope(A), problem.total(problem.curvature(A, rho))
        scale = problem.total(A)
        if (np.abs(slope) <= 1e-6 * scale).all():
            break
        low, high = np.where(slope < 0, tau, low), np.where(slope > 0, tau, high)
        step = np.where(D > 0, -slope / np.where(D > 0, D, 1), -np.sign(slope) * stride)
        # Newton inside the bracket, else its middle, else a stride that doubles
        following = tau + np.clip(step, -stride, stride)
        outside = (following <= low) | (following >= high)
        bounded = np.isfinite(low) & np.isfinite(high)
        middle = np.where(bounded, low, 0) / 2 + np.where(bounded, high, 0) / 2
        following = np.where(bounded & outside, middle, following)
        stride = np.where(bounded, stride, 2 * stride)
        tau = following
    return tau
