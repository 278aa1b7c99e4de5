"""Approximate inverses of the Hessian of G, a block per class, with results of mean 0 over the classes.

What all classes have in common the Hessian multiplies by λ in the weights, and by 0 in the intercepts, so
that a Newton direction has the mean 0 over the classes. Blocks of the classes alone do not know that: their
result is centred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xmcjax.solvers.multinomial._scores import DenseScores, SparseScores

Preconditioner = Callable[[np.ndarray], np.ndarray]

# Rows of the largest curvature from which a block is made: so many for a feature, and at least so many.
_ROWS_PER_FEATURE, _LEAST_ROWS = 3, 768
# Of Σ_i c_i, on the diagonal of an intercept, which is not regularised.
_BIAS = 1e-9
# Of the rows that tell which curvatures are large.
_SAMPLE = 2000


def rows_of_a_block(d: int) -> int:
    """From how many rows a block of d features is made."""
    return max(_ROWS_PER_FEATURE * d, _LEAST_ROWS)


def uniform(scores: DenseScores, K: int, l2: float, gram: np.ndarray) -> Preconditioner:
    """The inverse at W = 0, where all classes have the same block: exact, if A can be inverted.

    `gram` is that of :func:`gram`.
    """
    A = gram / K
    _regularise(A, scores, l2)
    inverse = _inverse(A)
    if inverse is None:
        return diagonal(scores, np.full((K, scores.n), 1 / K, scores.work), l2)
    return lambda r: _centred((r @ inverse).astype(scores.work), 0)


def blocks(scores: DenseScores, P: np.ndarray, l2: float, gram: np.ndarray) -> Preconditioner:
    """Of each class k the inverse of Σ_i c_i p_ik (1 − p_ik) x_i x_iᵀ + λI, in full.

    The sum goes over the rows of largest curvature; for the others there is a multiple of `gram`.

    Args:
        scores: dense.
        P: probabilities [K, n], in the dtype of conjugate gradients.
        l2: λ.
        gram: Σ_i c_i x_i x_iᵀ.

    Where rounding leaves a block without an inverse, it is the diagonal of all.
    """
    inverse = np.empty((len(P), scores.d + 1, scores.d + 1), scores.work)
    most = rows_of_a_block(scores.d)
    mass = float(scores.weight.sum())
    for k, p in enumerate(P):
        w = scores.weight * (p * (1 - p))
        rows = _largest(w, most)
        A = _gram(scores, w[rows], rows)
        A += max(float(w.sum() - w[rows].sum()), 0.0) / mass * gram
        _regularise(A, scores, l2)
        block = _inverse(A)
        if block is None:
            return diagonal(scores, P, l2)
        inverse[k] = block

    def apply(r):
        return _centred(np.matmul(inverse, r[:, :, None])[:, :, 0], 0)

    return apply


def diagonal(scores: DenseScores | SparseScores, P: np.ndarray, l2: float) -> Preconditioner:
    """The inverse of the diagonal, Σ_i c_i p_ik (1 − p_ik) x_ij² + λ."""
    curvature = scores.of_rows(scores.weight.astype(scores.work)) * (P * (1 - P))
    D = scores.squared_transposed(curvature)
    last = (slice(None), -1) if scores.axis == 0 else -1
    bias = D[last] + _BIAS * float(scores.weight.sum())
    D += l2
    D[last] = bias
    inverse = 1 / np.maximum(D, np.finfo(D.dtype).tiny)

    def apply(r):
        return _centred(inverse * r, scores.axis)

    return apply


def _inverse(A: np.ndarray) -> np.ndarray | None:
    """Of a symmetric matrix, which is overwritten; None where it is not positive definite after rounding."""
    import scipy.linalg.lapack  # which takes a tenth of a second

    factor, wrong = scipy.linalg.lapack.dpotrf(A, lower=1, overwrite_a=1)
    if wrong or not np.all(np.isfinite(factor)):
        return None
    lower, _ = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    lower = np.tril(lower)
    return lower + np.tril(lower, -1).T


def gram(scores: DenseScores) -> np.ndarray:
    """Σ_i c_i x_i x_iᵀ with a 1 at the end of x_i, [d+1, d+1]."""
    return _gram(scores, scores.weight)


def _gram(scores: DenseScores, w: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
    root = np.sqrt(w).astype(scores.work)[:, None]
    A = np.zeros((scores.d + 1, scores.d + 1))
    for part in scores.parts(A.size):
        if part.start < len(root):
            chosen = part if isinstance(rows, slice) else rows[part]
            scaled = scores.X[chosen] * root[part]
            A += scaled.T @ scaled
    return A


def _regularise(A: np.ndarray, scores: DenseScores, l2: float) -> None:
    A[np.diag_indices(len(A))] += l2
    A[-1, -1] += _BIAS * float(scores.weight.sum()) - l2


def _largest(w: np.ndarray, most: int):
    """The places of about `most` of the largest numbers."""
    n = len(w)
    if most >= n:
        return slice(None)
    some = w[:: max(1, n // _SAMPLE)]
    rank = min(int(len(some) * (1 - most / n)), len(some) - 1)
    return np.flatnonzero(w > np.partition(some, rank)[rank])


def _centred(z: np.ndarray, axis: int) -> np.ndarray:
    z -= z.mean(axis=axis, keepdims=True)
    return z
