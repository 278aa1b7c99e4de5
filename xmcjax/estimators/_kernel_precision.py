"""The precision in which a fit with kernels is computed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import number
from xmcjax.estimators._kernel_parts import base_kernel, points_of
from xmcjax.estimators._kernel_sizes import filled_points, may_be_filled
from xmcjax.kernels import RBF, GivenProducts, Kernel, Matern, stack
from xmcjax.lanes import precision

# Fits in single precision to 140 and 1,400 rows of 3 and 35 classes, by RBF and linear kernels, converged
# to the tolerance by default where ε √n max s max K̃_ii is below this. Beyond it many ended at max_iter, after
# ten times the CG steps of double precision, or with a failed line search. Above 0.1 predictions were wrong.
_ROUNDING = 2e-4
# And where the exponent of a kernel of distances is rounded by less than this, as ‖x − x'‖² is the difference
# of numbers of the size of ‖x − m‖²: two clusters that are far from each other are far from their mean m.
_OF_EXPONENT = 1e-4


def points_in_precision(
    X, sample_weight, kernel, w, *, v, sigma2, weight=None, depth=1, loadings=None
) -> tuple[Any, float, np.dtype]:
    """The points of a fit, the scale of their features, and the dtype of both.

    It is that of X, or float64 where K̃α is rounded so much in float32 that a fit would not converge. Of
    kernel values that are given it is that of X: these are rounded as much themselves.

    Args:
        X, sample_weight, kernel, w: as of ``points_of``.
        v: variances of the functions, a number or [P].
        sigma2: of the intercepts.
        weight: s of the losses of the rows, [n]; None for ones.
        depth: of the tree of functions, of which a class is the sum of so many.
        loadings: B, [C, P], of functions that are mixed.

    Raises:
        TypeError, ValueError: as ``points_of`` and ``base_kernel`` do, or variances that are no numbers.
    """
    with precision(X.dtype):
        points, scale = points_of(X, sample_weight, kernel, w)
        if X.dtype == np.float64 or isinstance(points, GivenProducts):
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
    if not (rounding <= _ROUNDING and _of_exponent(base, points, there) <= _OF_EXPONENT):
        X = X.astype(np.float64)
        with precision(X.dtype):
            points, scale = points_of(X, sample_weight, kernel, w)
    return points, scale, X.dtype


def _largest(kernel: Kernel, points, there: np.ndarray) -> float:
    """The largest k(x, x) of the rows that are there."""
    if isinstance(kernel, (RBF, Matern)):
        return 1.0
    kernel, count = stack(kernel, points.dtype)
    pairs = (filled_points(points) if may_be_filled(kernel, points) else points).with_themselves()
    each = (jax.tree.map(lambda leaf, i=i: leaf[i], kernel) for i in range(count))
    values = (np.asarray(one.value(pairs))[: len(there)] for one in each)
    return float(max(np.max(of_one[there], initial=0) for of_one in values))


def _of_exponent(kernel: Kernel, points, there: np.ndarray) -> float:
    """By how much w/(2d) ‖x − x'‖² is rounded, about, of the rows that are there; 0 of other kernels."""
    if not isinstance(kernel, (RBF, Matern)):
        return 0.0
    size = 2 * float(np.max(np.asarray(points.norms2)[there], initial=0))
    w = float(np.max(np.asarray(kernel.w), initial=0))
    return float(np.finfo(points.dtype).eps) * w / (2 * points.op.shape[1]) * size
