"""The precision in which a fit with kernels is computed."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import number
from xmcjax._sizes import filled_length
from xmcjax.estimators._kernel_parts import base_kernel, points_of
from xmcjax.estimators._kernel_sizes import filled_points, may_be_filled
from xmcjax.kernels import RBF, GivenProducts, Kernel, Linear, Matern, Pairs, stack
from xmcjax.lanes import precision
from xmcjax.linops import host_features

# Fits in float32 to 140 and 1,400 rows of 3 and 35 classes, by RBF and linear kernels, converged where
# ε √n max s max K̃_ii is below _ROUNDING times the tolerance, clipped to LEAST_TOLERANCE … _MOST_TOLERANCE.
# Beyond that many ended at max_iter, after ten times the CG steps of float64, or with a failed line search.
# Above 0.1 predictions were wrong.
_ROUNDING, LEAST_TOLERANCE, _MOST_TOLERANCE = 20.0, 1e-5, 1e-3
# Values of the kernel must also be rounded by less than this part of the largest one. ‖x − x'‖² is the
# difference of numbers of the size of ‖x − m‖²: two clusters that are far from each other are far from their
# mean m. Products of features that are tiny underflow.
_OF_VALUES = 5e-5
# _ROWS: rows whose kernel values are compared, with the nearest row of each. _WIDTH: fewest features that
# they are filled up to. _NUMBERS: values of features that are taken at once.
_ROWS, _WIDTH, _NUMBERS = 32, 128, 1 << 20


def tolerance_in(dtype: np.dtype, tol: float) -> float:
    """The tolerance of a fit: not below 100 roundings, and no larger than what is finite ten times over.

    The objective is to be above its minimum by ten tolerances at most.
    """
    numbers = np.finfo(dtype)
    return min(max(tol, 100 * float(numbers.eps)), float(numbers.max) / 10)


def points_in_precision(
    X, sample_weight, kernel, w, *, v, sigma2, tol=0.0, weight=None, depth=1, loadings=None
) -> tuple[Any, float, np.dtype]:
    """The points of a fit, the scale of their features, and the dtype of both.

    The dtype is that of X, or float64 where in float32 K̃α is rounded so much that a fit would not converge
    to its tolerance, or values of the kernel so much that it would converge elsewhere. For kernel values that
    are given, only the rounding of K̃α matters.

    Args:
        X, sample_weight, kernel, w: as of ``points_of``.
        v: variances of the functions, a number or [P].
        sigma2: of the intercepts.
        tol: tolerance of the fit; 0 for the least.
        weight: s of the losses of the rows, [n]; None for ones.
        depth: of the tree of functions; a class is the sum of at most so many.
        loadings: B, [C, P], of functions that are mixed.

    Raises:
        TypeError, ValueError: as ``points_of`` and ``base_kernel`` do, or variances that are no numbers.
    """
    with precision(X.dtype):
        points, scale = points_of(X, sample_weight, kernel, w)
        if X.dtype == np.float64:
            return points, scale, X.dtype
        variance = depth * float(np.max(np.abs(_sparse.numbers(v, "v")), initial=0))
        if loadings is not None:
            squares = _sparse.numbers(loadings, "loadings") ** 2
            variance *= float(np.max(np.sum(squares, axis=-1), initial=0))
        there = np.ones(points.n, bool) if weight is None else weight > 0
        base = base_kernel(kernel, w, scale)
        variance = variance * _largest(base, points, there) + number("sigma2", sigma2)
    most = 1.0 if weight is None else float(np.max(weight))
    rounding = np.finfo(X.dtype).eps * np.sqrt(np.count_nonzero(there)) * most * variance
    given = isinstance(points, GivenProducts)
    most_rounding = _ROUNDING * float(np.clip(tol, LEAST_TOLERANCE, _MOST_TOLERANCE))
    if not (rounding <= most_rounding and (given or _of_values(base, points, X, there) <= _OF_VALUES)):
        X = X.astype(np.float64)
        with precision(X.dtype):
            points, scale = points_of(X, sample_weight, kernel, w)
    return points, scale, X.dtype


def _largest(kernel: Kernel, points, there: np.ndarray) -> float:
    """The largest k(x, x) of the rows that are there."""
    if isinstance(kernel, (RBF, Matern)):
        return 1.0
    pairs = (filled_points(points) if may_be_filled(kernel, points) else points).with_themselves()
    values = (np.asarray(one.value(pairs))[: len(there)] for one in _each(kernel, points.dtype))
    return float(max(np.max(of_one[there], initial=0) for of_one in values))


def _of_values(kernel: Kernel, points, X, there: np.ndarray) -> float:
    """By how much values of the kernel are rounded, as a part of the largest, between some of the rows.

    The same values in float64 show it. Kernels of distances change most between rows that are near each
    other, and distances are rounded most between rows that are far from the mean. Values of the linear kernel
    have as many digits as K̃α, unless its products underflow.
    """
    if isinstance(kernel, Linear):
        largest = _largest(kernel, points, there)
        return points.op.shape[1] * float(np.finfo(points.dtype).tiny) / largest if largest > 0 else 0.0
    if not there.any():
        return 0.0
    op, norms2, offset = points.op, np.asarray(points.norms2), np.asarray(points.offset)
    rows = _some_rows(X, norms2, np.flatnonzero(there))
    found = _between(kernel, host_features(op)[rows], norms2[rows], offset[rows])
    with precision(np.float64):
        centred, middle = _about_the_middle(X[rows])
        exact = _between(kernel, centred, _norms2(centred), centred @ middle + middle @ middle / 2)
    if not all(np.isfinite(of_one).all() for of_one in [*found, *exact]):
        return np.inf  # of a user's own kernel
    # next to values that are 0, rounding does not matter
    return max(
        float(np.max(np.abs(rounded - of_one)) / max(np.max(np.abs(of_one)), np.finfo(np.float64).tiny))
        for rounded, of_one in zip(found, exact, strict=True)
    )


def _between(kernel: Kernel, centred, norms2, offset) -> list[np.ndarray]:
    """The values of each kernel between all of some rows less their centre, in the precision of these.

    Args:
        kernel: one, or a stack.
        centred: a NumPy array, or a matrix of scipy.
        norms2, offset: of :class:`xmcjax.kernels.Points`.
    """
    features = float(centred.shape[1])
    if sp.issparse(centred):
        centred = centred[:, np.unique(centred.indices)].toarray()
    # columns of zeros behind, so that few programs are compiled
    centred = np.pad(centred, [(0, 0), (0, filled_length(centred.shape[1], _WIDTH) - centred.shape[1])])
    inner, distance2 = _products(centred, norms2, offset)
    each = _each(kernel, inner.dtype)
    return [np.asarray(_value(one, inner, distance2, features=features)) for one in each]


def _each(kernel: Kernel, dtype) -> Iterator[Kernel]:
    """The kernels of a stack, or the one."""
    kernel, count = stack(kernel, dtype)
    return (jax.tree.map(lambda leaf, i=i: leaf[i], kernel) for i in range(count))


@jax.jit
def _products(centred: jax.Array, norms2: jax.Array, offset: jax.Array) -> tuple[jax.Array, jax.Array]:
    some = GivenProducts(jnp.matmul(centred, centred.T, precision="highest"), norms2)
    inner, distance2, _ = some.pairs(0, some.n, some)
    return inner + offset[:, None] + offset, distance2


@functools.partial(jax.jit, static_argnames="features")
def _value(kernel: Kernel, inner: jax.Array, distance2: jax.Array, *, features: float) -> jax.Array:
    return kernel.value(Pairs(inner, distance2, features))


def _some_rows(X, norms2: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Numbers of some rows, half of them far from the mean, and of the nearest other row of each."""
    by_norm, n = there[np.argsort(norms2[there], kind="stable")], len(there)
    far = np.arange(n - _ROWS // 2, n).clip(0)
    rows = by_norm[np.append(far, np.linspace(0, n - 1, _ROWS - len(far)).astype(int))]
    chosen, middle = _about_the_middle(X[rows])
    size, nearest, best = _norms2(chosen), rows.copy(), np.full(len(rows), np.inf)
    step = n if sp.issparse(X) else max(1, _NUMBERS // max(X.shape[1], 1))
    for start in range(0, n, step):
        places = there[start : start + step]
        others, _ = _about_the_middle(X[places], middle)
        inner = chosen @ others.T
        both = size[:, None] + _norms2(others)
        distance2 = both - 2 * (inner.toarray() if sp.issparse(inner) else inner)
        # rows that are alike have a distance of 0 in every precision
        distance2[distance2 <= 64 * np.finfo(np.float64).eps * both] = np.inf
        one = np.argmin(distance2, axis=1)
        least = distance2[np.arange(len(rows)), one]
        nearest = np.where(least < best, places[one], nearest)
        best = np.minimum(best, least)
    return np.append(rows, nearest)


def _about_the_middle(X, middle: np.ndarray | None = None) -> tuple[Any, np.ndarray]:
    """(X in float64 less a row, which is 0 where X is sparse and the mean where it is None; that row)."""
    X = X.astype(np.float64)
    if sp.issparse(X):
        return X, np.zeros(X.shape[1])
    middle = X.mean(axis=0) if middle is None else middle
    return X - middle, middle


def _norms2(X) -> np.ndarray:
    """Squared norms of rows."""
    return sp.csr_array(X).power(2).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
