"""Dual variables of dense features by the alternating direction method of multipliers.

Where features are long or correlated, and C is large, coordinate ascent needs thousands of passes. With the
row map and the metric M of :mod:`xmcjax.solvers._formulations` a step is

    α⁺ = row_map(M α + ρ h, ρ),   O = −Xᵀ coefficients(α⁺),   Δ = (I + ρ XᵀX)⁻¹ (W + 2 O − V),
    W ← W − κ Δ,   α ← α + κ (α⁺ − α),   V ← V + κ (O − V),                      κ = 1.8,

V = −Xᵀ coefficients(α), and W = −V at the optimum. The map knows nothing of other rows; the system is the
same for all classes, and in the eigenbasis of XᵀX a diagonal, so that ρ may change. P(W) and D(α⁺) come
with every step: the best of both are kept.

ρ is free of scale in the beginning, 3 ‖α‖ / ‖XW‖ with ‖α‖² = αᵀM α, and balances what a step changes
afterwards: r = ‖Δα‖² / (ρ² ‖XΔW‖²), and ρ is multiplied by √r where r is not within [1/2.5, 2.5].

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

from xmcjax.solvers._certified import losses
from xmcjax.solvers._formulations import NAMES, Formulation

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
        formulation: a name of :mod:`xmcjax.solvers._formulations`.
        C: weight of the losses.
        tol: of the relative duality gap.
        most: steps at most.
        k: of the top-k losses.
    """
    X = np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)
    A = alpha.toarray().astype(np.float64)
    # numbers that overflow leave a gap that is not finite, or too large, and the caller says so
    with np.errstate(over="ignore", invalid="ignore"):
        return _solved(X, y, A, NAMES[formulation], C, tol, most, k)


def _solved(X, y, A: np.ndarray, form: Formulation, C: float, tol: float, most: int, k: int) -> Found:
    eigenvalue, basis = scipy.linalg.eigh(X.T @ X, driver="evd")
    eigenvalue = np.maximum(eigenvalue, 0)[:, None]
    X = X @ basis

    def weights(A: np.ndarray) -> np.ndarray:
        return -form.centred(X.T @ form.coefficients(A, y))

    def length(A: np.ndarray) -> float:
        return np.sqrt(np.vdot(A, form.metric(A)))

    V = weights(A)
    W = -V
    size = np.sqrt(np.sum(eigenvalue * W**2))
    # α = 0: the first step of a row of mean length goes to its bound
    rho = first = 3 * length(A) / size if size > 0 else C
    best_primal, best_dual, best_W, best_A, step = np.inf, -np.inf, W, A, 0
    while True:
        Z = X @ W
        checked = step % _CHECK == 0 or step >= most
        if checked:
            primal = float(np.vdot(W, W) / 2 + C * losses(Z, y, form, k).sum())
            if primal < best_primal:
                best_primal, best_W = primal, W
        with jax.enable_x64(True):
            new = np.array(form.row_map(form.metric(A) + rho * form.gains(Z, y), y, rho, C, k))
        O = weights(new)
        if checked:
            gain, norm2 = float(form.dual_gain(new, C)), float(np.vdot(O, O))
            # D(s α) of the best s: the dual sets hold all shorter ones
            factor = min(1.0, gain / norm2) if norm2 > 0 and not form.ridge(C) else 1.0
            dual = factor * gain - factor**2 * norm2 / 2
            if dual > best_dual:
                best_dual, best_A = dual, factor * new
            gap = (best_primal - best_dual) / best_primal
            if not gap > tol or step >= most or not np.isfinite(gap):
                break
        delta = _RELAXED * (W + 2 * O - V) / (1 + rho * eigenvalue)
        change = _RELAXED * (new - A)
        W, A, V = form.centred(W - delta), A + change, V + _RELAXED * (O - V)
        step += 1
        if step in _EARLY or step % _EVERY == 0:
            moved = rho * np.sqrt(np.sum(eigenvalue * delta**2))
            ratio = (length(change) / moved) ** 2 if moved > 0 else 1.0
            if not 1 / _BALANCED <= ratio <= _BALANCED:
                rho = float(np.clip(rho * np.sqrt(ratio), first / _RANGE, first * _RANGE))
    return Found(form.centred(basis @ best_W), sp.csr_array(best_A), gap, step)
