"""Approximate inverses of the Hessian of G, a block per class, with results of mean 0 over the classes.

What all classes have in common the Hessian multiplies by λ in the weights, and by 0 in the intercepts, so
that a Newton direction has the mean 0 over the classes. Blocks of the classes alone do not know that: their
result is centred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from xmcjax import native
from xmcjax.solvers.multinomial._scores import DenseScores, SparseScores

# A step of conjugate gradients: ``(rᵀz)`` -> pᵀ H p, which is above 0 or there is no step, and rᵀz after it.
Step = Callable[[float], tuple[float, float]]


class Vectors(NamedTuple):
    """Of conjugate gradients for H x = b, where H is the Hessian of the losses and a ridge."""

    x: np.ndarray
    r: np.ndarray  #: b − H x
    z: np.ndarray  #: M r
    p: np.ndarray  #: the direction
    q: np.ndarray  #: what the Hessian of the losses makes of it


class Preconditioner:
    """M, which makes z of r in an array that it may keep.

    Args:
        apply: ``(r)`` -> z.
    """

    def __init__(self, apply: Callable[[np.ndarray], np.ndarray]):
        self._apply = apply

    def __call__(self, r: np.ndarray) -> np.ndarray:
        return self._apply(r)

    def stepping(self, v: Vectors, ridge: np.generic, lead: tuple[slice, slice]) -> Step:
        """Steps of the vectors, which are changed in place.

        Args:
            v: all of them.
            ridge: λ, in their dtype.
            lead: the places of the weights, which alone it regularises.
        """

        def step(rz: float) -> tuple[float, float]:
            v.q[lead] += ridge * v.p[lead]
            along = float(np.vdot(v.p, v.q))
            if not along > 0:
                return along, rz
            a = v.x.dtype.type(rz / along)
            v.x[:] += a * v.p
            v.r[:] -= a * v.q
            v.z[:] = self._apply(v.r)
            return along, float(np.vdot(v.r, v.z))

        return step


class _Diagonal(Preconditioner):
    """Of weights [d+1, K], natively in two passes over the vectors."""

    def __init__(self, inverse: np.ndarray, threads: int):
        super().__init__(lambda r: _centred(inverse * r, 1))
        self._inverse, self._threads = inverse, threads

    def stepping(self, v: Vectors, ridge: np.generic, lead: tuple[slice, slice]) -> Step:
        sums, before = np.zeros(2), np.zeros(())
        given = dict(inverse=self._inverse, ridge=ridge, rz=before, threads=self._threads)
        call = native.InPlace("centred_step", **v._asdict(), **given, sums=sums)

        def step(rz: float) -> tuple[float, float]:
            before[...] = rz
            call()
            return float(sums[0]), float(sums[1])

        return step


# Rows of the largest curvature from which a block is made: so many for a feature, and at least so many.
_ROWS_PER_FEATURE, _LEAST_ROWS = 3, 768
# Of Σ_i c_i, on the diagonal of an intercept, which is not regularised.
_BIAS = 1e-9
# A matrix of so many rows NumPy inverts as fast as LAPACK's own calls, which are imported first.
_SMALL = 64
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
    return Preconditioner(lambda r: _centred((r @ inverse).astype(scores.work), 0))


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

    return Preconditioner(apply)


class Factors(NamedTuple):
    """Eigenvalues and eigenvectors of B [K, K] and A [d+1, d+1], where B ⊗ A is near the Hessian."""

    b: np.ndarray
    B: np.ndarray
    a: np.ndarray
    A: np.ndarray


def factors(scores: DenseScores, P: np.ndarray) -> Factors | None:
    """B = Σ_i c_i (diag p_i − p_i p_iᵀ), and A = Σ_i ω_i x_i x_iᵀ / Σ_i ω_i with ω_i = c_i (1 − ‖p_i‖²).

    Args:
        scores: dense.
        P: probabilities [K, n], in the dtype of conjugate gradients.

    None where they have no eigenvalues after rounding.
    """
    weighed = P * scores.weight.astype(scores.work)
    B = -(weighed @ P.T).astype(np.float64)
    B[np.diag_indices(len(B))] += weighed.sum(axis=1, dtype=np.float64)
    trace = np.maximum(scores.weight - (weighed * P).sum(axis=0), 0)
    A = _gram(scores, trace) / max(float(trace.sum()), np.finfo(np.float64).tiny)
    found = []
    for matrix in (B, A):
        try:
            values, vectors = np.linalg.eigh(matrix.astype(scores.work))
        except np.linalg.LinAlgError:
            return None
        if not np.all(np.isfinite(values)):
            return None
        found += [np.maximum(values, 0), vectors]
    return Factors(*found)


def kronecker(f: Factors, l2: float) -> Preconditioner:
    """(B ⊗ A + λI)⁻¹: what whole blocks cost too much for.

    Args:
        f: of :func:`factors`.
        l2: λ.
    """
    inverse = 1 / (f.b[:, None] * f.a + f.a.dtype.type(l2))
    return Preconditioner(lambda r: _centred(f.B @ ((f.B.T @ r @ f.A) * inverse) @ f.A.T, 0))


def diagonal(scores: DenseScores | SparseScores, P: np.ndarray, l2: float) -> Preconditioner:
    """The inverse of the diagonal, Σ_i c_i p_ik (1 − p_ik) x_ij² + λ."""
    curvature = scores.of_rows(scores.weight.astype(scores.work)) * (P * (1 - P))
    D = scores.squared_transposed(curvature)
    last = (slice(None), -1) if scores.axis == 0 else -1
    bias = D[last] + _BIAS * float(scores.weight.sum())
    D += l2
    D[last] = bias
    inverse = 1 / np.maximum(D, np.finfo(D.dtype).tiny)
    if scores.native and scores.axis == 1:
        return _Diagonal(inverse, scores.threads)
    return Preconditioner(lambda r: _centred(inverse * r, scores.axis))


def _inverse(A: np.ndarray) -> np.ndarray | None:
    """Of a symmetric matrix, which is overwritten; None where it is not positive definite after rounding."""
    if len(A) <= _SMALL:
        try:
            half = np.linalg.inv(np.linalg.cholesky(A))
        except np.linalg.LinAlgError:
            return None
        return half.T @ half if np.all(np.isfinite(half)) else None
    import scipy.linalg.lapack  # which takes a twentieth of a second

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
    root = np.sqrt(w).astype(scores.work)
    A = np.zeros((scores.d + 1, scores.d + 1))
    for part in scores.parts(A.size):
        if part.start < len(root):
            scaled = scores.rows(part if isinstance(rows, slice) else rows[part], root[part])
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
