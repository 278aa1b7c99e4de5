"""Points with others behind them, so that the programs of kernel machines are compiled for few sizes.

Compilation takes seconds where a fit of some hundred rows takes hundredths of a second: with few sizes, the
folds of a cross-validation share their programs. The points behind have the weight 0 and coefficients of 0.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from xmcjax._sizes import filled_length, rows_and_entries, with_rows

# _LEAST, LEAST_NEW: fewest rows that training points and new points are filled up to. _MOST, _NUMBERS: most
# rows and numbers of training points that are filled up: with more, matrices and copies take longer than
# compilation. _NUMBERS_EACH_TIME: the same limit for prediction, which fills them up each time.
_LEAST, LEAST_NEW, _MOST, _NUMBERS, _NUMBERS_EACH_TIME = 128, 16, 4096, 1 << 22, 1 << 18


def _rows(n: int, least: int) -> int:
    return n if n > _MOST else filled_length(n, least)


def filled_features(X: Any, least: int = LEAST_NEW) -> Any:
    """Features [n, d], CSR or an array, with rows of zeros behind, and entries of value 0 in these."""
    rows, entries = rows_and_entries(X, functools.partial(filled_length, least=_LEAST))
    return with_rows(X, _rows(rows, least), entries) if rows <= _MOST else X


def filled_products(M: np.ndarray, width: int) -> np.ndarray:
    """Kernel values of new points [m, n] with rows of zeros behind, and columns up to `width`."""
    m, n = M.shape
    return np.pad(M, [(0, _rows(m, LEAST_NEW) - m), (0, width - n)])


def may_be_filled(kernel: Any, points: Any, most: int = _NUMBERS) -> bool:
    """Whether further training points, which are all in the centre, do no harm behind these.

    A user's own kernel need not be finite there, and then a coefficient of 0 does not help.

    Args:
        kernel: of :mod:`xmcjax.kernels`.
        points: the training points.
        most: numbers that may be copied.
    """
    import jax

    return sum(np.size(leaf) for leaf in jax.tree.leaves(points)) <= most and _is_of_the_library(kernel)


def _is_of_the_library(kernel: Any) -> bool:
    from xmcjax.kernels import RBF, Kernel, Linear, Matern, Product, Scaled, Sum

    if type(kernel) not in (Linear, RBF, Matern, Scaled, Sum, Product):
        return False
    parts = (getattr(kernel, field.name) for field in dataclasses.fields(kernel))
    return all(_is_of_the_library(part) for part in parts if isinstance(part, Kernel))


def filled_points(points: Any, least: int = _LEAST) -> Any:
    """The points with others behind that are all in the centre; on the host, where nothing is compiled."""
    from xmcjax import linops
    from xmcjax.kernels import GivenProducts, Points

    n = points.n
    if isinstance(points, GivenProducts):
        more = _rows(n, least) - n
        parts = np.pad(points.matrix, (0, more)), np.pad(points.diagonal, (0, more))
        return GivenProducts(*(linops.put(part) for part in parts)) if more else points
    op = points.op
    X = linops.host_features(op)
    filled = filled_features(X, least)
    if filled is X:
        return points
    if isinstance(op, linops.Dense):
        op = linops.Dense(linops.put(filled))
    elif isinstance(op, linops.Csr):
        backend = "native" if op.native else "jnp"
        op = linops.make(filled, points.dtype, backend=backend, threads=op.threads)
    else:
        op = linops.make(filled, points.dtype, backend="gpu")
    more = (0, filled.shape[0] - n)
    # x·m - ½‖m‖² at x = m
    offset = 0 if points.centre is None else np.sum(np.square(points.centre)) / 2
    return Points(
        op,
        linops.put(np.pad(points.norms2, more)),
        linops.put(np.pad(points.offset, more, constant_values=offset)),
        points.centre,
    )


def for_prediction(kernel: Any, points: Any) -> Any:
    """The kernel of a fit, a :class:`xmcjax.kernels.ClassKernels`, without what only fits need.

    Args:
        kernel: of the points, or of these with others behind.
        points: the points that were given.
    """
    from xmcjax import kernels

    gram = kernel.gram
    if gram.n != points.n:
        gram = kernels.gram(gram.kernel, points, memory=0)
    return dataclasses.replace(kernel, gram=gram.for_prediction())


def filled_kernel(kernel: Any, dual_coef: np.ndarray) -> tuple[Any, np.ndarray]:
    """A kernel for prediction and coefficients [n, C] with points behind; approximations stay as they are."""
    from xmcjax.kernels import Gram

    gram = kernel.gram
    if not isinstance(gram, Gram) or not may_be_filled(gram.kernel, gram.points, _NUMBERS_EACH_TIME):
        return kernel, dual_coef
    points = filled_points(gram.points)
    more = points.n - len(dual_coef)
    # rows of a tile are another number for each n, and a part of the program, which does not need it
    gram = dataclasses.replace(gram, points=points, rows=1)
    return dataclasses.replace(kernel, gram=gram), np.pad(dual_coef, [(0, more), (0, 0)])
