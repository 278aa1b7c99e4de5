"""Dual variables of one problem by a primal-dual interior-point method, on the host, with dense features.

Coordinate ascent and the alternating direction method need thousands of passes where C is large or features
differ in size. This method mostly needs 10 to 75 steps, but each of them factorises a system in
all weights that depend on each other: those of all classes, or of one class.

A dual variable has the upper bound U = C, or those of a row have the sum R = C at most. With a slack s of
each gain h = 1 + linear(Z), Z = X W, and multipliers ξ of the first bound or τ of the second (the other is
left out), W and α are the optimum where

    s = ξ + τ − h,   W = Xᵀ coefficients(α),   α s = 0,   (U − α) ξ = 0,   (R − Σ α) τ = 0,   all ≥ 0.

Newton's method solves these equations with μ > 0 in place of 0 in the products, and μ falls from step to step
(Mehrotra's predictor and corrector). With the changes of all other variables eliminated, that of W solves

    (I + Xᵀ linearᵀ G linear X) ΔW = right side,   G = diag θ − θ θᵀ / (Σ θ + (R − Σ α) / τ) of each row,
    1/θ = s/α + ξ/(U − α),

and G = diag θ without R. Where each class is a problem of its own, each has its own μ and its own steps.

Mehrotra, "On the implementation of a primal-dual interior point method", 1992; Ferris and Munson,
"Interior-point methods for massive support vector machines", 2002.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve, cholesky

from xmcjax.solvers._formulations import Formulation
from xmcjax.solvers._formulations import formulation as formulation_of

# _UNKNOWNS: the most unknowns of one system. _BYTES: the most bytes that all arrays together may take.
_UNKNOWNS, _BYTES = 2400, 1 << 30
# Part of the way to the nearest bound that a step goes.
_PART = 0.99
# The method ends after _SHORT_STEPS steps in a row that go less than the part _SHORT of the full step.
_SHORT, _SHORT_STEPS = 1e-3, 5
# Where rounding makes a system indefinite, the first of these numbers that makes it definite is added to its
# diagonal, which is scaled to 1.
_SHIFTS = (0.0, 1e-14, 1e-12, 1e-10)
# In the end dual variables below a part of C are set to 0: the first part with which the gap stays small
# enough.
_ZEROS = (1e-3, 1e-5, 1e-7)
# Bytes of the products of dual weights and features that are held at once.
_AT_ONCE = 32 << 20


class Found(NamedTuple):
    """What the method comes to."""

    W: np.ndarray  #: float64 [d, m], of the smallest P
    alpha: sp.csr_array  #: of the largest D
    gap: float  #: (P − D) / P
    steps: int


def fits(n: int, d: int, m: int, formulation: str) -> bool:
    """Whether a system has few unknowns, and all arrays are small enough."""
    together = _all_classes(formulation_of(formulation))
    unknowns = d * m if together else d
    systems = (3 if together else 2 * m) * unknowns**2
    return 0 < unknowns <= _UNKNOWNS and 8 * (25 * n * m + n * d + systems) + 2 * _AT_ONCE <= _BYTES


def multiplications(n: int, d: int, m: int, formulation: str) -> float:
    """Multiplications of a step, about."""
    form = formulation_of(formulation)
    if not _all_classes(form):
        return m * (n * d**2 + d**3 / 3)
    of_sums = n * (d * m) ** 2 / 2 if _sums(form) else 0.0
    return n * m * d**2 + (d * m) ** 3 / 3 + of_sums


def _all_classes(form: Formulation) -> bool:
    """Whether a system is one of the weights of all classes."""
    return form.sparse


def _sums(form: Formulation) -> bool:
    """Whether the sum of the dual variables of a row is bounded, in place of each by itself."""
    return form.name == "cs"


class Method:
    """The variables of a problem, which steps change.

    Args:
        X: features [n, d].
        y: the class of each row, [n].
        m: number of classes.
        formulation: "ww", "cs", "llw" or "ovr".
        C: weight of the losses.
    """

    def __init__(self, X: np.ndarray, y: np.ndarray, m: int, formulation: str, C: float):
        self._X, self._y, self._C = np.asarray(X, np.float64), y, float(C)
        self._form = form = formulation_of(formulation)
        n, d = X.shape
        self._there = np.ones((n, m), bool)
        if not form.has_own:
            self._there[np.arange(n), y] = False
        self._axis = 0 if form.has_own else None  # over which variables depend on each other
        self._systems = (_Together if _all_classes(form) else _ByClass)(self._X, y, m, form)
        # variables in the middle of their bounds, and slacks that suit W = 0, where gains are 1
        sums = _sums(form)
        self._a = np.where(self._there, C / (2 * (m - 1)) if sums else C / 2, 0.0)
        self._W = np.zeros((d, m))
        self._s = np.ones((n, m))
        self._xi: Any = None if sums else np.full((n, m), 2.0)
        self._tau: Any = np.full((n, 1), 2.0) if sums else None

    def run(self, tol: float, most: int, told: Callable[[float, int, Callable], None] | None = None) -> Found:
        """Steps until the gap is small enough, nothing is gained, or there were so many.

        Args:
            tol: of the relative duality gap.
            most: steps at most.
            told: called with the gap, the steps made and what gives the dual variables; or None.
        """
        best_P, best_D, W, a = np.inf, -np.inf, self._W, self._a
        step = short = 0
        # numbers that overflow end it, with what was found before
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            while True:
                P, D = self._objectives()
                primal, dual = float(P.sum()), float(D.sum())
                if primal < best_P:
                    best_P, W = primal, self._W
                if dual > best_D:
                    best_D, a = dual, self._a
                gap = (best_P - best_D) / best_P if best_P > 0 else np.inf
                if told is not None:
                    told(gap, step, functools.partial(sp.csr_array, a))
                if not gap > tol or step >= most or short >= _SHORT_STEPS:
                    break
                try:
                    longest = self._step(tol * P < P - D)
                except np.linalg.LinAlgError:  # rounding, or numbers that overflow, leave no factor
                    break
                short = 0 if longest >= _SHORT else short + 1
                step += 1
            return Found(W, self._sparse(a, best_P, best_D, tol), gap, step)

    def _sparse(self, a: np.ndarray, primal: float, dual: float, tol: float) -> sp.csr_array:
        """Dual variables of which those near 0 are 0, if the gap stays small enough."""
        for part in _ZEROS:
            some = np.where(a >= part * self._C, a, 0.0)
            least = min(dual, primal * (1 - tol))
            if self._dual(some).sum() >= least:
                return sp.csr_array(some)
        return sp.csr_array(a)

    def _weights(self, a: np.ndarray) -> np.ndarray:
        return self._form.centred(self._X.T @ self._form.coefficients(a.copy(), self._y))

    def _linear(self, Z: np.ndarray) -> np.ndarray:
        return np.where(self._there, self._form.linear(Z, self._y), 0.0)

    def _total(self, of_entries: np.ndarray) -> np.ndarray:
        """Sums over the variables that depend on each other, [m] or a number."""
        return np.sum(of_entries, axis=self._axis)

    def _dual(self, a: np.ndarray) -> np.ndarray:
        """D, or that of each class, [m]."""
        return self._total(a) - self._total(self._weights(a) ** 2) / 2

    def _objectives(self) -> tuple[np.ndarray, np.ndarray]:
        """P and D, or those of each class, [m]; what a step needs of them is kept."""
        self._V = self._weights(self._a)
        h = self._linear(self._X @ self._W) + 1
        slack = self._s + h
        slack -= self._multiplier
        self._short = np.where(self._there, slack, 0.0)  # s − ξ − τ + h
        h = np.where(self._there, h, -np.inf)
        losses = self._form.losses(h) if self._axis is None else np.maximum(h, 0)
        primal = self._total(self._W**2) / 2 + self._C * self._total(losses)
        return primal, self._total(self._a) - self._total(self._V**2) / 2

    def _step(self, unsolved: np.ndarray) -> float:
        """One step of the classes that are unsolved, or of all; how long the longest is."""
        there, a, s = self._there, np.where(self._there, self._a, 1.0), self._s
        if self._xi is not None:
            free = np.where(there, self._C - self._a, 1.0)  # U − α
            theta = np.where(there, 1 / (s / a + self._xi / free), 0.0)
            rank_one = None
        else:
            free = self._C - self._a.sum(axis=1, keepdims=True)  # R − Σ α
            theta = np.where(there, a / s, 0.0)
            rank_one = theta.sum(axis=1, keepdims=True) + free / self._tau
        self._systems.factorise(theta, rank_one, unsolved)
        moved = self._changes(theta, rank_one, a, free, -a * s, -free * self._multiplier)
        # μ of the corrector: what the predictor would leave, its cube by the square of what there is
        mu = self._mean(a * s, free * self._multiplier)
        length = self._longest(a, s, free, moved)
        da, ds, dm, dfree = moved.a, moved.s, moved.multiplier, moved.free
        left = self._mean(
            (a + length * da) * (s + length * ds),
            (free + length * dfree) * (self._multiplier + length * dm),
        )
        mu = (left / mu) ** 3 * mu
        moved = self._changes(
            *(theta, rank_one, a, free),
            mu - a * s - da * ds,
            mu - free * self._multiplier - dfree * dm,
        )
        length = np.where(unsolved, np.minimum(1.0, _PART * self._longest(a, s, free, moved)), 0.0)
        self._W = self._W + length * moved.W
        self._a = np.where(there, self._a + length * moved.a, 0.0)
        self._s = np.where(there, s + length * moved.s, 1.0)
        if self._xi is not None:
            self._xi = np.where(there, self._xi + length * moved.multiplier, 1.0)
        else:
            self._tau = self._tau + length * moved.multiplier
        return float(np.max(length))

    @property
    def _multiplier(self) -> np.ndarray:
        """ξ, or τ."""
        return self._xi if self._xi is not None else self._tau

    def _mean(self, of_slacks: np.ndarray, of_bounds: np.ndarray) -> np.ndarray:
        """Mean of the products that are to be 0."""
        bounds = self._there if self._xi is not None else np.ones_like(self._tau)
        count = self._total(self._there) + self._total(bounds)
        return (self._total(self._there * of_slacks) + self._total(bounds * of_bounds)) / count

    def _longest(self, a, s, free, moved: _Changes) -> np.ndarray:
        """The longest step up to 1 after which no variable is below 0, [m] or a number."""
        least = np.full(self._W.shape[1] if self._axis == 0 else (), 1.0)
        pairs = [(a, moved.a), (s, moved.s), (free, moved.free), (self._multiplier, moved.multiplier)]
        for value, change in pairs:
            there = self._there if value.shape == self._there.shape else True
            reach = np.where(there & (change < 0), -value / change, np.inf)
            least = np.minimum(least, reach.min(axis=self._axis))
        return least

    def _changes(self, theta, rank_one, a, free, of_slacks, of_bounds) -> _Changes:
        """Newton's changes for the changes of the products α s, and (U − α) ξ or (R − Σ α) τ."""
        # Δα = θ (Δu − Δτ) + ν, Δu = linear(X ΔW)
        nu = of_slacks / a + self._short
        if rank_one is None:
            nu = theta * (nu - of_bounds / free)
            right = nu
        else:
            nu = theta * nu
            rest = nu.sum(axis=1, keepdims=True) + of_bounds / self._tau
            right = nu - theta * (rest / rank_one)
        dW = self._systems.solve(self._V - self._W + self._weights(right))
        du = self._linear(self._X @ dW)
        if rank_one is None:
            da = theta * du + nu
            dxi = (of_bounds + self._xi * da) / free
            return _Changes(dW, da, dxi - du - self._short, dxi, -da)
        dtau = ((theta * du).sum(axis=1, keepdims=True) + rest) / rank_one
        da = theta * (du - dtau) + nu
        return _Changes(dW, da, dtau - du - self._short, dtau, -da.sum(axis=1, keepdims=True))


class _Changes(NamedTuple):
    """Of the variables."""

    W: np.ndarray
    a: np.ndarray
    s: np.ndarray
    multiplier: np.ndarray  #: ξ, or τ
    free: np.ndarray  #: U − α, or R − Σ α


def _factor(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factor of K scaled to a diagonal of ones, and the scale."""
    scale = 1 / np.sqrt(np.diag(K))
    K *= scale[:, None]
    K *= scale
    if not np.all(np.isfinite(K)):
        raise np.linalg.LinAlgError("numbers that overflow")
    for shift in _SHIFTS:
        K[np.diag_indices_from(K)] = 1 + shift
        try:
            return cholesky(K, lower=True, check_finite=False), scale
        except np.linalg.LinAlgError:
            if shift == _SHIFTS[-1]:
                raise
    raise AssertionError


def _solved(factor: tuple[np.ndarray, np.ndarray], right: np.ndarray) -> np.ndarray:
    L, scale = factor
    scale = scale.reshape(-1, *[1] * (right.ndim - 1))
    return scale * cho_solve((L, True), scale * right, check_finite=False)


class _ByClass:
    """A system of each class: of one against the rest, and of Lee-Lin-Wahba, whose weights add up to 0."""

    def __init__(self, X: np.ndarray, y: np.ndarray, m: int, form: Formulation):
        self._X, self._centred = X, not form.has_own
        at_once = max(1, _AT_ONCE // (8 * X.shape[1]))
        self._parts = [slice(first, first + at_once) for first in range(0, len(X), at_once)]
        self._factors = [(np.zeros((0, 0)), np.zeros(0))] * m

    def factorise(self, theta: np.ndarray, rank_one: None, unsolved: np.ndarray) -> None:
        d = self._X.shape[1]
        for c, wanted in enumerate(np.broadcast_to(unsolved, theta.shape[1:])):
            if wanted:
                K = np.eye(d)
                for part in self._parts:
                    K += (theta[part, c, None] * self._X[part]).T @ self._X[part]
                self._factors[c] = _factor(K)
        if self._centred:
            self._sum = _factor(np.sum([_solved(factor, np.eye(d)) for factor in self._factors], axis=0))

    def solve(self, right: np.ndarray) -> np.ndarray:
        if not self._centred:
            return np.stack([_solved(f, r) for f, r in zip(self._factors, right.T, strict=True)], axis=1)
        # K_c ΔW_c = r_c − λ with Σ_c ΔW_c = 0: λ = (Σ K_c⁻¹)⁻¹ Σ K_c⁻¹ r_c
        free = [_solved(f, r) for f, r in zip(self._factors, right.T, strict=True)]
        level = _solved(self._sum, np.sum(free, axis=0))
        return np.stack([w - _solved(f, level) for f, w in zip(self._factors, free, strict=True)], axis=1)


class _Together:
    """One system for the weights of all classes, where scores are subtracted: linear(z)_c = z_c − z_y."""

    def __init__(self, X: np.ndarray, y: np.ndarray, m: int, form: Formulation):
        self._X, self._y, self._m = X, y, m
        self._rows = [np.flatnonzero(y == c) for c in range(m)]

    def factorise(self, theta: np.ndarray, rank_one: np.ndarray | None, unsolved: np.ndarray) -> None:
        X, m = self._X, self._m
        n, d = X.shape
        at_once = max(1, _AT_ONCE // (8 * m * d))
        K = np.zeros((m, d, m, d))
        for y, rows in enumerate(self._rows):
            for first in range(0, len(rows), at_once):
                some = rows[first : first + at_once]
                x = X[some]
                # Σ θ_ic x xᵀ stands at (c, c) and (y, y), and with the other sign at (c, y) and (y, c)
                sums = (x.T @ (theta[some, :, None] * x[:, None, :]).reshape(len(some), m * d)).reshape(
                    d, m, d
                )
                K[y, :, y, :] += sums.sum(axis=1)
                K[:, :, y, :] -= sums.transpose(1, 0, 2)
                K[y, :, :, :] -= sums
                K[np.arange(m), :, np.arange(m), :] += sums.transpose(1, 0, 2)
        K = K.reshape(m * d, m * d)
        if rank_one is not None:
            root = theta / np.sqrt(rank_one)
            root[np.arange(n), self._y] = -root.sum(axis=1)
            for first in range(0, n, at_once):
                part = slice(first, first + at_once)
                products = (root[part, :, None] * X[part, None, :]).reshape(-1, m * d)
                K -= products.T @ products
        # Weights that all classes have together are those of I alone: a larger part of them, which is none of
        # the right side, keeps rounding from making the system indefinite.
        mean = np.tile(np.diag(K).reshape(m, d).mean(axis=0), m) / m
        for shift in range(m):
            places = np.arange(m * d)
            K[places, (places + shift * d) % (m * d)] += mean
        K[np.diag_indices_from(K)] += 1
        self._factor = _factor(K)

    def solve(self, right: np.ndarray) -> np.ndarray:
        right = right - right.mean(axis=1, keepdims=True)
        dW = _solved(self._factor, right.T.ravel()).reshape(self._m, -1).T
        return dW - dW.mean(axis=1, keepdims=True)
