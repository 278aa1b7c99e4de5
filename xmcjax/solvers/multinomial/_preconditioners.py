"""Approximate inverses of the Hessian of G, a block per class, with results of mean 0 over the classes.

The Hessian multiplies what is equal in all classes by λ in the weights, and by 0 in the intercepts, so that a
Newton direction has the mean 0 over the classes. A block per class does not ensure that: the results of the
blocks are centred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from xmcjax import native
from xmcjax.solvers.multinomial._scores import DenseScores, Hessian, SparseScores


class Stop(NamedTuple):
    """When conjugate gradients end, r being the residual: where rᵀM r or r itself is small."""

    part: float  #: rᵀM r is at most this part of the first one,
    least: float  #: or rᵀM r is at most this,
    weights: float = -1.0  #: or ‖r‖² of the weights is at most this
    intercepts: float = -1.0  #: and Σ |r| of the intercepts at most this


class Direction(NamedTuple):
    """What conjugate gradients end with."""

    x: np.ndarray  #: M r where that is enough
    products: int  #: with the Hessian
    fall: float  #: rᵀx of r as it was given: twice what the model of G falls by, where the residual is 0


def conjugate_gradients(
    hessian: Hessian,
    apply: Callable[[np.ndarray], np.ndarray],
    r: np.ndarray,
    ridged: Callable[[np.ndarray, np.ndarray], None],
    residual: Callable[[], tuple[float, float]],
    stop: Stop,
    max_steps: int,
) -> Direction:
    """Solves (H + λ) x = r.

    Args:
        hessian: products with H.
        apply: z = M r.
        r: the right side, which becomes the residual.
        ridged: ``(p, q)``: q += λ p.
        residual: ‖r‖² of the weights and Σ |r| of the intercepts.
        stop: when conjugate gradients end.
        max_steps: products with H at most.
    """
    x, z, p, q, narrow = np.zeros_like(r), apply(r), hessian.V, hessian.out, r.dtype.type
    rz = float(np.vdot(r, z))
    most, products, fall = max(stop.part * rz, stop.least), 0, 0.0

    def enough() -> bool:
        if rz <= most or stop.weights < 0:
            return rz <= most
        weights, intercepts = residual()
        return weights <= stop.weights and intercepts <= stop.intercepts

    if enough():
        return Direction(z, 0, rz)
    p[:] = z
    while products < max_steps and rz > 0:
        hessian.product()
        products += 1
        ridged(p, q)
        along = float(np.vdot(p, q))
        if not along > 0:
            break
        before, step = rz, narrow(rz / along)
        fall += before / along * before
        x += step * p
        r -= step * q
        z = apply(r)
        rz = float(np.vdot(r, z))
        if enough():
            break
        p *= narrow(rz / before)
        p += z
    return Direction(x, products, fall)


class Preconditioner:
    """M, which makes z = M r in a new array.

    Args:
        scores: of the features.
        apply: ``(r)`` -> z.
    """

    def __init__(self, scores: DenseScores | SparseScores, apply: Callable[[np.ndarray], np.ndarray]):
        self._scores, self._apply = scores, apply

    def __call__(self, r: np.ndarray) -> np.ndarray:
        return self._apply(r)

    def solve(self, P: np.ndarray, r: np.ndarray, ridge: float, stop: Stop, max_steps: int) -> Direction:
        """Solves (H + λ) x = r by conjugate gradients, with the Hessian H of the losses.

        Args:
            P: probabilities at which H is taken.
            r: the right side, in the dtype of conjugate gradients; it is overwritten.
            ridge: λ, which the intercepts do not have.
            stop: when conjugate gradients end.
            max_steps: products with H at most.
        """
        lead, last, narrow = self._scores.lead, self._scores.last, self._scores.work.type

        def ridged(p: np.ndarray, q: np.ndarray) -> None:
            q[lead] += narrow(ridge) * p[lead]

        def residual() -> tuple[float, float]:
            return float(np.vdot(r[lead], r[lead])), float(np.abs(r[last]).sum())

        return conjugate_gradients(self._scores.hessian(P), self._apply, r, ridged, residual, stop, max_steps)

    def _natively(
        self, P: np.ndarray, r: np.ndarray, ridge: float, stop: Stop, max_steps: int, inverse: np.ndarray
    ) -> Direction:
        """:meth:`solve` in one native call."""
        x, sums = self._scores.room(r.shape, r.dtype), np.empty(2)
        given = dict(inverse=inverse, ridge=ridge, least=np.array(stop), max_steps=max_steps)
        self._scores.solve(P, **given, r=r, x=x, sums=sums)
        return Direction(x, int(sums[0]), float(sums[1]))


class Diagonal(Preconditioner):
    """The inverse of the diagonal with CSR features, in native calls.

    Args:
        scores: of the features.
        inverse: of the diagonal.
    """

    def __init__(self, scores: SparseScores, inverse: np.ndarray):
        super().__init__(scores, lambda r: centred(inverse * r, 1))
        self.inverse = inverse

    def solve(self, P: np.ndarray, r: np.ndarray, ridge: float, stop: Stop, max_steps: int) -> Direction:
        """:meth:`Preconditioner.solve` in one native call."""
        return self._natively(P, r, ridge, stop, max_steps, self.inverse)


class Blocks(Preconditioner):
    """Whole blocks of dense features.

    Args:
        scores: of the features.
        inverse: of the blocks of all classes, [K, d+1, d+1].
    """

    def __init__(self, scores: DenseScores, inverse: np.ndarray):
        super().__init__(scores, lambda r: centred(np.matmul(inverse, r[:, :, None])[:, :, 0], 0))
        self._inverse = inverse

    def solve(self, P: np.ndarray, r: np.ndarray, ridge: float, stop: Stop, max_steps: int) -> Direction:
        """:meth:`Preconditioner.solve`, in one native call where the library is there."""
        if not self._scores.native:
            return super().solve(P, r, ridge, stop, max_steps)
        return self._natively(P, r, ridge, stop, max_steps, self._inverse)


# A block is made from the rows of largest curvature: _ROWS_PER_FEATURE per feature, and at least _LEAST_ROWS.
_ROWS_PER_FEATURE, _LEAST_ROWS = 3, 768
# Part of Σ_i c_i that is added to the diagonal for an intercept, which is not regularised.
_BIAS = 1e-9
# Rows of a matrix up to which NumPy inverts it as fast as LAPACK's own calls, which have to be imported.
_SMALL = 64
# A matrix is inverted in float32 if the rounding of its trace is below this part of its least diagonal
# number.
_OF_ROUNDING = 0.1
# Rows that are scaled at once for a sum of x xᵀ: they stay in a cache, and Ctrl-C is answered between such
# parts.
_GRAM_ROWS = 2048
# Number of rows whose curvatures tell which ones are large.
_SAMPLE = 1000


def rows_of_a_block(d: int) -> int:
    """From how many rows a block of d features is made."""
    return max(_ROWS_PER_FEATURE * d, _LEAST_ROWS)


def uniform(scores: DenseScores, K: int, l2: float, gram: np.ndarray) -> Preconditioner:
    """The inverse at W = 0, where all classes have the same block.

    It is exact if `gram`, made by :func:`gram`, can be inverted, and λ is not below its rounding.
    """
    A = gram / K
    _regularise(A, scores, l2)
    inverse = _inverse(A, scores.work)
    if inverse is None:
        P, n = np.full((K, scores.n), 1 / K, scores.work), scores.n
        return diagonal(scores, P, np.full(n, 1 - 1 / K, scores.work), l2)
    return Preconditioner(scores, lambda r: centred((r @ inverse).astype(scores.work), 0))


def blocks(
    scores: DenseScores, P: np.ndarray, rest: np.ndarray, l2: float, gram: np.ndarray
) -> Preconditioner:
    """The inverse of Σ_i c_i p_ik (1 − p_ik) x_i x_iᵀ + λI in full, for each class k.

    The sum goes over the rows of largest curvature; a multiple of `gram` stands for the other rows.

    Args:
        scores: dense.
        P: probabilities [K, n], in the dtype of conjugate gradients.
        rest: 1 − the largest probability of an instance, [n], in the same dtype.
        l2: λ.
        gram: Σ_i c_i x_i x_iᵀ.

    Where rounding leaves a block without an inverse, all classes have the diagonal alone.
    """
    inverse = np.empty((len(P), scores.d + 1, scores.d + 1), scores.work)
    most = rows_of_a_block(scores.d)
    mass = float(scores.weight.sum())
    if scores.native and scores.d < _SMALL:
        found = np.empty(len(P), np.int32)
        of_p = dict(P=scores.in_blocks(P), rest=scores.in_blocks(rest[None])[:, 0])
        given = dict(**scores.blocks, **of_p, gram=gram, most=most, threads=scores.threads)
        ridges = dict(ridge=l2, last_ridge=_BIAS * mass, least=_least_part(scores))
        native.InPlace.once("softmax_blocks", **given, **ridges, inverse=inverse, found=found)
        return Blocks(scores, inverse) if found.all() else diagonal(scores, P, rest, l2)
    for k, s in enumerate(scores.spread(P, rest)):
        w = scores.weight * s
        rows = _largest(w, most)
        A = weighted_gram(scores, w[rows], rows)
        A += max(float(w.sum() - w[rows].sum()), 0.0) / mass * gram
        _regularise(A, scores, l2)
        block = _inverse(A, scores.work)
        if block is None:
            return diagonal(scores, P, rest, l2)
        inverse[k] = block
    return Blocks(scores, inverse)


def diagonal(
    scores: DenseScores | SparseScores, P: np.ndarray, rest: np.ndarray, l2: float
) -> Preconditioner:
    """The inverse of the diagonal, Σ_i c_i p_ik (1 − p_ik) x_ij² + λ."""
    bias = _BIAS * float(scores.weight.sum())
    if scores.native and isinstance(scores, SparseScores):
        return Diagonal(scores, scores.native_diagonal(P, rest, l2, bias))
    curvature = scores.of_rows(scores.weight.astype(scores.work)) * scores.spread(P, rest)
    D = scores.squared_transposed(curvature)
    D[scores.lead] += l2
    D[scores.last] += bias
    inverse = 1 / np.maximum(D, np.finfo(D.dtype).tiny)
    return Preconditioner(scores, lambda r: centred(inverse * r, scores.axis))


def uniform_diagonal(
    scores: DenseScores | SparseScores, P: np.ndarray, rest: np.ndarray, l2: float
) -> Preconditioner:
    """:func:`diagonal` where all classes have the same probabilities, as at W = 0."""
    if not (scores.native and isinstance(scores, SparseScores)):
        return diagonal(scores, P, rest, l2)
    inverse = scores.native_diagonal(P[:, :1].copy(), rest, l2, _BIAS * float(scores.weight.sum()))
    return Diagonal(scores, np.repeat(inverse, P.shape[1], axis=1))


def _inverse(A: np.ndarray, work: np.dtype) -> np.ndarray | None:
    """The inverse of a symmetric A, which is overwritten, for products in `work`; None if there is none."""
    if len(A) <= _SMALL:
        try:
            half = np.linalg.inv(np.linalg.cholesky(A))
        except np.linalg.LinAlgError:
            return None
        return half.T @ half if np.all(np.isfinite(half)) else None
    import scipy.linalg.lapack as lapack  # here, because the import takes a twentieth of a second

    # float32 takes half of the time, if its rounding is small beside the diagonal
    rounding = float(np.finfo(np.float32).eps) * float(np.trace(A))
    narrow = work == np.float32 and rounding < _OF_ROUNDING * float(A.diagonal().min())
    factorise, invert = (lapack.spotrf, lapack.spotri) if narrow else (lapack.dpotrf, lapack.dpotri)
    factor, wrong = factorise(A.astype(np.float32) if narrow else A, lower=1, clean=1, overwrite_a=1)
    if wrong or not np.all(np.isfinite(factor.diagonal())):
        return None
    # the upper half of the factor is 0 and stays so
    lower, _ = invert(factor, lower=1, overwrite_c=1)
    whole = lower + lower.T
    whole[np.diag_indices(len(whole))] /= 2
    return whole if np.all(np.isfinite(whole)) else None


def gram(scores: DenseScores) -> np.ndarray:
    """Σ_i c_i x_i x_iᵀ with a 1 at the end of x_i, [d+1, d+1]."""
    if not scores.unit:
        return weighted_gram(scores, scores.weight)
    A = np.zeros((scores.d + 1, scores.d + 1))
    for first in range(0, scores.n, _GRAM_ROWS):
        x = scores.features(slice(first, first + _GRAM_ROWS))
        A[:-1, :-1] += x.T @ x
        A[-1, :-1] += np.ones(len(x), x.dtype) @ x
    A[-1, -1] = scores.n
    A[-1] *= scores.intercept
    A[:-1, -1] = A[-1, :-1]
    return A


def weighted_gram(scores: DenseScores, w: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
    """Σ_i w_i x_i x_iᵀ with a 1 at the end of x_i, over the chosen rows, [d+1, d+1]."""
    root = np.sqrt(w).astype(scores.work)
    A = np.zeros((scores.d + 1, scores.d + 1))
    for first in range(0, len(root), _GRAM_ROWS):
        part = slice(first, first + _GRAM_ROWS)
        scaled = scores.rows(part if isinstance(rows, slice) else rows[part], root[part])
        A += scaled.T @ scaled
    return A


def _regularise(A: np.ndarray, scores: DenseScores, l2: float) -> None:
    ridge = np.full(len(A), l2)
    ridge[-1] = _BIAS * float(scores.weight.sum())
    A[np.diag_indices(len(A))] += np.maximum(ridge, _least_part(scores) * A.diagonal())


def _least_part(scores: DenseScores) -> float:
    """The least part of each diagonal number of a block that is added to it.

    With a smaller part and collinear features, the inverse would have numbers so large that their rounding
    exceeds the inverse in other directions, and it would not be definite.
    """
    return (scores.d + 1) * float(np.finfo(scores.work).eps)


def _largest(w: np.ndarray, most: int):
    """The places of about `most` of the largest numbers."""
    n = len(w)
    if most >= n:
        return slice(None)
    some = w[:: max(1, n // _SAMPLE)]
    rank = min(int(len(some) * (1 - most / n)), len(some) - 1)
    return np.flatnonzero(w > np.partition(some, rank)[rank])


def centred(z: np.ndarray, axis: int) -> np.ndarray:
    """z less its mean along an axis, in the place of z."""
    z -= z.mean(axis=axis, keepdims=True)
    return z
