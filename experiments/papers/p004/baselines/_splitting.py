"""½‖W‖² + C R(X W) for the risk R of Recall@k or Prec@k, by the alternating direction method of multipliers.

With Y the right pairs as ones, [n, m], and labellings P between 0 and 1 with a loss Δ(P),

    R(Z) = max_P Δ(P) + ⟨P − Y, Z⟩,

so that with Z = X W, a penalty ρ and the scaled multipliers U (Boyd and others, 2011)

    W ← argmin ½‖W‖² + ρ/2 ‖X W − Z + U‖²      by the eigenvectors of XᵀX
    Z ← argmin ½‖Z − V‖² + t R(Z) = V + t (Y − P),  V = X W + U,  t = C/ρ
    U ← V − Z.

X W is replaced by OVER X W + (1 − OVER) Z, with Z of the previous step. Every P gives a lower bound,
C Δ(P) − ½‖C Xᵀ(P − Y)‖², and the weights −C Xᵀ(P − Y), whose gap to the bound ends the iteration.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

OVER = 1.6
MAX_STEPS = 3_000
CHECK = 10  # steps from one bound to the next
MOST_FEATURES = 2_000  # the most features for which eigenvectors are computed
HALVINGS = 60  # bisections for the threshold of a projection
EXACT = 1e-6  # relative tolerance of a sum


class Start(NamedTuple):
    """A start for another C, because C/ρ stays the same: Z and U, both [n, m], and what a step keeps."""

    Z: np.ndarray
    U: np.ndarray
    kept: Any = None


def minimise(risk, right: np.ndarray, X: np.ndarray, C: float, tol: float, start: Start | None):
    """Weights [d, m], their relative duality gap, and a start for the next C.

    Args:
        risk: has `value`, a function of scores [n, m]; `rho`, ρ over C; and ``labelling(V, t, kept)``, which
            gives the P of the step in the dtype of V, Δ(P), and `kept` for the next step, at first None.
        right: which pairs are right, [n, m].
        X: features [n, d].
        C: weight of the risk.
        tol: relative duality gap to reach.
        start: of a fit with another C.
    """
    dtype = X.dtype
    Y = right.astype(dtype)
    values, vectors = np.linalg.eigh((X.T @ X).astype(np.float64))
    rho, t = risk.rho * C, dtype.type(1 / risk.rho)
    shrunk = (rho / (1 + rho * np.maximum(values, 0)))[:, None].astype(dtype)
    vectors = vectors.astype(dtype)
    Z, U, kept = start or Start(np.zeros_like(Y), np.zeros_like(Y))
    primal, dual, gap, best = np.inf, -np.inf, np.inf, np.zeros((X.shape[1], Y.shape[1]), dtype)
    for step in range(1, MAX_STEPS + 1):
        W = vectors @ (shrunk * (vectors.T @ (X.T @ (Z - U))))
        scores = X @ W
        V = dtype.type(OVER) * scores + dtype.type(1 - OVER) * Z + U
        P, missed, kept = risk.labelling(V, t, kept)
        Z = V + t * (Y - P)
        U = V - Z
        if step % CHECK and step != MAX_STEPS:
            continue
        of_dual = -dtype.type(C) * (X.T @ (P - Y))
        dual = max(dual, C * missed - float(np.square(of_dual, dtype=np.float64).sum()) / 2)
        for found, of_found in ((W, scores), (of_dual, X @ of_dual)):
            value = float(np.square(found, dtype=np.float64).sum()) / 2 + C * risk.value(of_found)
            if value < primal:
                primal, best = value, found
        gap = (primal - dual) / primal
        if gap <= tol:
            break
    return best, gap, Start(Z, U, kept)


def project(A: np.ndarray, most: int) -> np.ndarray:
    """The nearest P with 0 ≤ P ≤ 1 and Σ P ≤ most."""
    inside = np.clip(A, 0, 1)
    if inside.sum(dtype=np.float64) <= most:
        return inside
    low, high, positive = 0.0, float(A.max()), A[A > 0]
    for _ in range(HALVINGS):
        threshold = (low + high) / 2
        total = np.clip(positive - A.dtype.type(threshold), 0, 1).sum(dtype=np.float64)
        if 0 <= most - total <= EXACT * most:
            break
        low, high = (threshold, high) if total > most else (low, threshold)
        positive = positive[positive > low] if total > most else positive
    else:
        threshold = high  # with this one the sum is at most `most`
    return np.clip(A - A.dtype.type(threshold), 0, 1)
