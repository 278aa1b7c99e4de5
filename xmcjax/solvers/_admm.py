"""Dual variables of dense features by the alternating direction method of multipliers.

Where features are long or correlated, and C is large, coordinate ascent needs thousands of passes. With
U [n, m] what the rows add to −W, so that W = −XᵀU at the optimum (u_ic = α_ic and u_iy = −Σ_c α_ic;
Lee-Lin-Wahba and one against the rest as in `_Map`), a step is

    U⁺ = map(U + ρ X W),   O = Xᵀ U⁺,   Δ = (I + ρ XᵀX)⁻¹ (W + 2 O − V),
    W ← W − κ Δ,   U ← U + κ (U⁺ − U),   V ← V + κ (O − V),                      κ = 1.8,

V = XᵀU. The map is a projection of each row onto its dual set, which knows nothing of other rows; the
system is the same for all classes, and in the eigenbasis of XᵀX a diagonal, so that ρ may change. P(W) and
D(U⁺) come with every step: the best of both are kept.

ρ is free of scale in the beginning, 3 ‖U‖ / ‖XW‖, and balances what a step changes afterwards:
r = ‖ΔU‖² / (ρ² ‖XΔW‖²), and ρ is multiplied by √r where r is not within [1/2.5, 2.5].

Eckstein and Bertsekas, "On the Douglas-Rachford splitting method and the proximal point algorithm for maximal
monotone operators", 1992 (κ); He, Yang and Wang, "Alternating direction method with self-adaptive penalty
parameters", 2000 (ρ).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import scipy.linalg
import scipy.sparse as sp

from xmcjax.projections import topk_simplex
from xmcjax.solvers._certified import PAIRED, losses

# Features up to which XᵀX is decomposed, and bytes that all arrays together may take.
MOST_FEATURES, MOST_BYTES = 2000, 2 << 30
_RELAXED = 1.8
# Steps at which ρ is looked at, and then every so many.
_EARLY, _EVERY = (10, 25), 50
# Changes of ρ that are let be, and the range that it stays in, relative to the first.
_BALANCED, _RANGE = 2.5, 1e8
# Steps from one look at the gap to the next.
_CHECK = 5


class Found(NamedTuple):
    """What came of it."""

    W: np.ndarray  #: float64 [d, m], of the smallest P
    alpha: sp.csr_array  #: of the largest D
    gap: float  #: (P − D) / P
    steps: int


def fits(n: int, d: int, m: int) -> bool:
    """Whether the features are few enough, and the arrays small enough."""
    return d <= MOST_FEATURES and 8 * (n * (2 * d + 6 * m) + 2 * d * d + 6 * d * m) <= MOST_BYTES


def solve(
    X, y: np.ndarray, alpha: sp.csr_array, formulation: str, C: float, tol: float, most: int, k: int = 1
) -> Found:
    """Steps from some dual variables until the gap is small enough.

    Args:
        X: [n, d], dense or sparse; worked with as dense float64.
        y: the class of each row, [n].
        alpha: dual variables [n, m].
        formulation: of ``multiclass_dual.FORMULATIONS``, or "topk_alpha", "topk_beta".
        C: weight of the losses.
        tol: of the relative duality gap.
        most: steps at most.
        k: of the top-k losses.
    """
    X = X.toarray() if sp.issparse(X) else X
    X = np.asarray(X, np.float64)
    eigenvalue, basis = scipy.linalg.eigh(X.T @ X, driver="evd")
    eigenvalue = np.maximum(eigenvalue, 0)[:, None]
    X = X @ basis
    rows = _Map(y, formulation, C, k)
    U = rows.taken(alpha.toarray().astype(np.float64))
    V = rows.centred(X.T @ U)
    W = -V
    length = np.sqrt(np.sum(eigenvalue * W**2))
    # U = 0: the first step of a row of mean length goes to its bound
    rho = first = 3 * np.linalg.norm(U) / length if length > 0 else C
    best_primal, best_dual, best_W, best_U, step = np.inf, -np.inf, W, U, 0
    while True:
        Z = X @ W
        checked = step % _CHECK == 0 or step >= most
        if checked:
            primal = float(np.vdot(W, W) / 2 + C * rows.losses(Z))
            if primal < best_primal:
                best_primal, best_W = primal, W
        new = rows(U + rho * Z, rho)
        O = rows.centred(X.T @ new)
        if checked:
            gain, norm2 = rows.gain(new), float(np.vdot(O, O))
            # D(s U) of the best s: the dual sets hold all shorter ones
            factor = min(1.0, gain / norm2) if norm2 > 0 and formulation != "ovr_squared" else 1.0
            dual = factor * gain - factor**2 * norm2 / 2
            if dual > best_dual:
                best_dual, best_U = dual, factor * new
            gap = (best_primal - best_dual) / best_primal
            if not gap > tol or step >= most or not np.isfinite(gap):
                break
        delta = _RELAXED * (W + 2 * O - V) / (1 + rho * eigenvalue)
        change = _RELAXED * (new - U)
        W, U, V = rows.centred(W - delta), U + change, V + _RELAXED * (O - V)
        step += 1
        if step in _EARLY or step % _EVERY == 0:
            moved = rho * np.sqrt(np.sum(eigenvalue * delta**2))
            ratio = (np.linalg.norm(change) / moved) ** 2 if moved > 0 else 1.0
            if not 1 / _BALANCED <= ratio <= _BALANCED:
                rho = float(np.clip(rho * np.sqrt(ratio), first / _RANGE, first * _RANGE))
    return Found(rows.centred(basis @ best_W), rows.given(best_U), gap, step)


class _Map:
    """The rows of U: the projection of each, what it gives to D, and the losses.

    formulation  u of a row               projection of v = u + ρ z
    ww, cs       α_c, and −Σ_c α_c at y   α = clip(b − t, 0, h), Σα = min(t, R), b_c = v_c − v_y + ρ,
                                          with (h, R) = (C, (m − 1) C) and (C, C)
    topk_beta    the same                 the same with (C/k, C)
    topk_alpha   the same                 α ≤ Σα/k in the place of h
    llw          α_c, and 0 at y          α = clip(v + ρ, 0, C); XᵀU is centred
    ovr          ± α_c, − at y            α = clip(± v + ρ, 0, C)
    ovr_squared  the same                 α = max(0, ± v + ρ) / (1 + ρ/(2C))
    """

    def __init__(self, y: np.ndarray, formulation: str, C: float, k: int):
        self._own = np.arange(len(y)), y
        self._pairs = formulation in PAIRED
        self._formulation, self._C, self._k = formulation, C, k

    def taken(self, alpha: np.ndarray) -> np.ndarray:
        """U of α, which is written over."""
        if self._pairs:
            alpha[self._own] = 0
            alpha[self._own] = -alpha.sum(axis=1)
        elif self._formulation != "llw":
            alpha[self._own] *= -1
        return alpha

    def given(self, U: np.ndarray) -> sp.csr_array:
        """α of U."""
        alpha = U.copy()
        alpha[self._own] = 0 if self._pairs else -alpha[self._own]
        return sp.csr_array(np.maximum(alpha, 0))

    def centred(self, V: np.ndarray) -> np.ndarray:
        """XᵀU; for Lee-Lin-Wahba with Σ_c w_c = 0, which does not survive rounding by itself."""
        return V - V.mean(axis=1, keepdims=True) if self._formulation == "llw" else V

    def __call__(self, v: np.ndarray, rho: float) -> np.ndarray:
        C, own = self._C, self._own
        if self._pairs:
            v += rho - v[own][:, None]
            v[own] = -np.inf
            k = v.shape[1] - 1 if self._formulation == "ww" else self._k
            radius = k * C if self._formulation == "ww" else C
            variant = "alpha" if self._formulation == "topk_alpha" else "beta"
            with jax.enable_x64(True):
                new = np.array(topk_simplex(v, k, radius, 1.0, variant=variant))
            new[own] = -new.sum(axis=1)
            return new
        if self._formulation == "llw":
            new = np.clip(v + rho, 0, C)
            new[own] = 0
            return new
        v[own] *= -1
        v += rho
        new = (
            np.maximum(v, 0) / (1 + rho / (2 * C)) if self._formulation == "ovr_squared" else np.clip(v, 0, C)
        )
        new[own] *= -1
        return new

    def gain(self, U: np.ndarray) -> float:
        """Σα, less ρ/2 Σα² where there is one: what D is without ½ ‖W‖²."""
        own = U[self._own]
        if self._pairs:
            return -float(own.sum())
        gain = float(U.sum() - 2 * own.sum())
        return gain - float(np.vdot(U, U)) / (4 * self._C) if self._formulation == "ovr_squared" else gain

    def losses(self, Z: np.ndarray) -> float:
        """Σ_i loss_i / C of the scores."""
        return float(losses(Z.copy(), self._own[1], self._formulation, self._k).sum())
