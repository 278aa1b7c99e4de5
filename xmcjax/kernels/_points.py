"""Sets of points, and what kernel functions need of their pairs, in tiles."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse, linops
from xmcjax._cores import usable_cores
from xmcjax._fork import methods_need_threads_of_jax, needs_threads_of_jax
from xmcjax._pytrees import is_traced, pytree
from xmcjax.kernels._functions import Pairs
from xmcjax.linops import Dense, Grouped, LinOp


def _distances2(norms2, other_norms2, inner) -> jax.Array:
    """‖x − x'‖² = ‖x‖² + ‖x'‖² − 2 x·x'; 0 where it is only rounding, which a root would magnify.

    NaN where a norm is not finite.
    """
    size = norms2[:, None] + other_norms2[None]
    distance2 = size - 2 * inner
    distance2 = jnp.where(distance2 <= 8 * jnp.finfo(inner.dtype).eps * size, 0, distance2)
    return jnp.where(jnp.isinf(size), jnp.nan, distance2)


@functools.partial(methods_need_threads_of_jax, but=("against",))
@pytree(data_fields=["op", "norms2", "offset", "centre"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Points:
    """n points by their features, made by :func:`points`.

    The mean m of the training points is subtracted, because ‖x − x'‖² computed from inner products would
    lose the digits that a large common part takes up. For sparse features this is done only in columns whose
    mean is large, in which half of the rows or more have an entry.

    Attributes:
        op: x − m where there is a centre, else x; [n, d].
        norms2: the squared norms of those rows, [n].
        offset: x·m − ½‖m‖², [n], so that x·x' is the product of the rows plus both offsets.
        centre: m, [d], 0 in columns where nothing is subtracted; None where that is all of them.

    Example:
        >>> import numpy as np
        >>> from xmcjax.kernels import points
        >>> X = points(np.float32([[0, 1], [1, 0]]))
        >>> X.centre.tolist(), X.norms2.tolist()  # the mean, and ‖x‖² of points without it
        ([0.5, 0.5], [0.5, 0.5])
    """

    op: LinOp
    norms2: jax.Array
    offset: jax.Array
    centre: jax.Array | None

    @property
    def n(self) -> int:
        return self.op.shape[0]

    @property
    def dtype(self) -> Any:
        return self.op.dtype

    @property
    def divisor(self) -> float:
        """d, by which kernels divide distances; 1 where there are no features, as all distances are 0."""
        return float(max(1, self.op.shape[1]))

    def pairs(self, start, size: int, others: Points) -> Pairs:
        """The pairs of points start … start + size − 1 and all others, [size, others]; `size` is static."""
        cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=size)
        if isinstance(self.op, Dense) and isinstance(others.op, Dense):
            inner = jnp.matmul(cut(self.op.X), others.op.X.T, precision="highest")
        else:
            inner = self.op.inner(start + jnp.arange(size, dtype=jnp.int32), others.op)
        whole = inner + cut(self.offset)[:, None] + others.offset[None]
        distance2 = _distances2(cut(self.norms2), others.norms2, inner)
        return Pairs(whole, distance2, self.divisor)

    def with_themselves(self) -> Pairs:
        """The pairs of each point with itself, [n]."""
        return Pairs(self.norms2 + 2 * self.offset, jnp.zeros_like(self.norms2), self.divisor)

    def rows(self, places) -> Points:
        """Some of the points (on the host, not under jit)."""
        return Points(self.op.take_rows(places), self.norms2[places], self.offset[places], self.centre)

    def against(self, places) -> Points:
        """These points, for pairs with the training points at `places` only."""
        return self


@methods_need_threads_of_jax
@pytree(data_fields=["matrix", "diagonal"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class GivenProducts:
    """Points by their inner products with the training points, made by :func:`precomputed`.

    Attributes:
        matrix: inner products, [points, training points].
        diagonal: of each point with itself, [points].

    Example:
        >>> from xmcjax.kernels import precomputed
        >>> given = precomputed([[1.0, 0.5], [0.5, 2.0]])
        >>> given.diagonal.tolist()
        [1.0, 2.0]
    """

    matrix: jax.Array
    diagonal: jax.Array

    @property
    def n(self) -> int:
        return self.matrix.shape[0]

    @property
    def dtype(self) -> Any:
        return self.matrix.dtype

    def pairs(self, start, size: int, others: GivenProducts) -> Pairs:
        """The pairs of points start … start + size − 1 and the training points; `size` is static."""
        cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=size)
        inner = cut(self.matrix)
        return Pairs(inner, _distances2(cut(self.diagonal), others.diagonal, inner), 1.0)

    def with_themselves(self) -> Pairs:
        """The pairs of each point with itself, [n]."""
        return Pairs(self.diagonal, jnp.zeros_like(self.diagonal), 1.0)

    def rows(self, places) -> GivenProducts:
        """Some of the points."""
        return GivenProducts(self.matrix[places], self.diagonal[places])

    def against(self, places) -> GivenProducts:
        """These points, for pairs with the training points at `places` only."""
        return GivenProducts(self.matrix[:, places], self.diagonal)


def check_points(points) -> None:
    """Checks that points are what :func:`points` or :func:`precomputed` has made."""
    if not isinstance(points, Points | GivenProducts):
        kind = type(points).__name__
        raise TypeError(f"points: expected what points(X) or precomputed(M) returns, got {kind}")


def check_test_points(points, training) -> None:
    """Checks that test points have the form, the precision and the centre of the training points.

    Raises:
        TypeError: what is no points.
        ValueError: points that were not made like the training points; a centre that JAX traces is
            not looked at.
    """
    check_points(points)
    if isinstance(training, GivenProducts):
        how, width = "precomputed_test(M, training points)", training.n
    else:
        how, width = "points(T, like=training points)", training.op.shape[1]
    found = None
    if type(points) is not type(training):
        found = f"{type(points).__name__} beside {type(training).__name__}"
    elif (other := _width(points)) != width:
        found = f"width {other} beside {width}"
    elif points.dtype != training.dtype:
        found = f"{points.dtype} beside {training.dtype}"
    elif isinstance(training, Points) and not _of_one_centre(points.centre, training.centre):
        found = "another mean subtracted than that of the training points"
    if found is not None:
        raise ValueError(f"points: expected {how}, found {found}")


def _width(points: Points | GivenProducts) -> int:
    return (points.op if isinstance(points, Points) else points.matrix).shape[1]


def _of_one_centre(centre, other) -> bool:
    """Whether two centres are the same, as far as their numbers are known; None is 0."""
    if centre is other or is_traced((centre, other)):
        return True
    both = (np.asarray(0 if m is None else m) for m in (centre, other))
    return np.array_equal(*np.broadcast_arrays(*both), equal_nan=True)


@needs_threads_of_jax
def points(X, dtype=None, *, like: Points | None = None, backend: str = "auto") -> Points:
    """Features as points.

    Args:
        X: [n, d], dense or scipy.sparse.
        dtype: as for :func:`xmcjax.linops.make`.
        like: the training points, for test points: X comes into their form and precision.
        backend: of sparse features, as for :func:`xmcjax.linops.make`; "auto" takes "gpu" where the default
            device is a GPU that has kernels for it, whose products have no derivatives in X.

    Raises:
        TypeError: X is no matrix of real numbers.
        ValueError: X of another width than the training points, or not of matrix form.

    Example:
        >>> X = points(np.float32([[0, 1], [1, 0]]))
        >>> X.norms2.tolist()
        [0.5, 0.5]
    """
    if not isinstance(X, jax.Array):
        X = _sparse.matrix(X)
    if like is not None:
        if X.ndim != 2 or X.shape[1] != like.op.shape[1]:
            raise ValueError(f"expected points [m, {like.op.shape[1]}], got shape {list(X.shape)}")
        dtype, backend = like.dtype, "dense" if isinstance(like.op, Dense) else backend
        if backend == "auto" and isinstance(like.op, Grouped):
            backend = "gpu"
        elif backend == "auto":
            backend = "native" if getattr(like.op, "native", False) else "jnp"
    elif backend == "auto":
        backend = linops.products_backend(X)
    made = functools.partial(linops.make, backend=backend, threads=usable_cores())
    op: Any = made(X, dtype)
    if isinstance(op, Dense):
        return _centred(op, like.centre if like is not None else None)
    some = 0 not in op.shape  # without numbers there is no mean to subtract
    centre = like.centre if like is not None else _common(op.to_scipy()) if some else None
    if centre is not None and some:
        op = made(_less(op.to_scipy(), np.asarray(centre)), op.dtype)
    return _of_rest(op, centre)


@jax.jit
def _centred(op: Dense, centre: jax.Array | None) -> Points:
    if centre is None:
        centre = op.mean() if op.shape[0] else jnp.zeros(op.shape[1], op.dtype)
    offset = jnp.matmul(op.X, centre, precision="highest") - jnp.sum(centre * centre) / 2
    centred = Dense(op.X - centre[None])
    return Points(centred, centred.row_norms2(), offset, centre)


@jax.jit
def _of_rest(op: LinOp, centre: jax.Array | None) -> Points:
    """Points from the rows x − m, or x where there is no centre."""
    if centre is None:
        return Points(op, op.row_norms2(), jnp.zeros(op.shape[0], op.dtype), None)
    offset = op.matmat(centre[:, None])[:, 0] + jnp.sum(centre * centre) / 2
    return Points(op, op.row_norms2(), offset, centre)


def _common(X: sp.csr_array) -> jax.Array | None:
    """The means [d] of the columns whose variance is less than the square of their mean, 0 for others.

    In such a column half of the rows or more have an entry: subtracting the mean at most doubles the entries.
    """
    n, d = X.shape
    size = float(np.abs(X.data).max(initial=0))
    values = X.data.astype(np.float64) / max(size, np.finfo(np.float64).tiny)  # squares stay in range
    mean, square = (np.bincount(X.indices, v, minlength=d) / max(n, 1) for v in (values, values * values))
    mean = np.where(2 * mean**2 > square, size * mean, 0).astype(X.dtype)
    return jnp.asarray(mean) if mean.any() else None


def _less(X: sp.csr_array, centre: np.ndarray) -> sp.csr_array:
    """X − 1 mᵀ, in the precision of X."""
    columns = np.flatnonzero(centre)
    n, k = X.shape[0], len(columns)
    means = np.tile(centre[columns].astype(np.float64), n)
    full = sp.csr_array((means, np.tile(columns, n), k * np.arange(n + 1)), shape=X.shape)
    return sp.csr_array(X.astype(np.float64) - full).astype(X.dtype)


@needs_threads_of_jax
def precomputed(M, dtype=None) -> GivenProducts:
    """A kernel matrix of the training points in place of their features.

    :class:`xmcjax.kernels.Linear` is then that kernel itself; RBF and Matern measure distances in its
    feature space, ‖x − x'‖² = k(x, x) + k(x', x') − 2 k(x, x'), with d = 1.

    Args:
        M: [n, n], symmetric and positive semidefinite up to the rounding of float32, in which its values may
            have been made, whatever its dtype.
        dtype: float32 or float64; None keeps that of M.

    Raises:
        ValueError: M not square, not finite, not symmetric or not positive semidefinite.

    Example:
        >>> precomputed([[1.0, 0.5], [0.5, 1.0]]).diagonal.tolist()
        [1.0, 1.0]
    """
    M = _matrix(M, dtype)
    n = M.shape[0]
    if M.shape != (n, n):
        raise ValueError(f"expected a kernel matrix [n, n] of the training points, got shape {list(M.shape)}")
    scale = float(np.max(np.diagonal(M), initial=0))
    rounding = n * float(np.finfo(np.float32).eps) * scale
    skew = float(np.max(np.abs(M - M.T), initial=0))
    if skew > rounding:
        raise ValueError(f"expected a symmetric kernel matrix, found entries that differ by {skew:.3g}")
    try:
        np.linalg.cholesky(M + rounding * np.eye(n, dtype=M.dtype))
    except np.linalg.LinAlgError:
        # Cholesky also fails where only rounding is wrong, or `rounding` is 0, as for a matrix of zeros
        if (least := float(np.linalg.eigvalsh(M)[0])) < -rounding:
            raise ValueError(
                f"expected a positive semidefinite kernel matrix, found the eigenvalue {least:.3g}"
            ) from None
    return GivenProducts(jnp.asarray(M), jnp.asarray(np.diagonal(M).copy()))


@needs_threads_of_jax
def precomputed_test(M, like: GivenProducts, diagonal=None) -> GivenProducts:
    """Kernel values of test points with the training points.

    Args:
        M: [m, n].
        like: the training points.
        diagonal: k(x, x) of the test points, [m]; only kernels of distances need it.

    Raises:
        ValueError: M of another width than the training points, or not finite.

    Example:
        >>> train = precomputed([[1.0, 0.5], [0.5, 1.0]])
        >>> precomputed_test([[0.5, 0.25]], train).matrix.tolist()
        [[0.5, 0.25]]
    """
    M = _matrix(M, like.dtype)
    if M.shape[1] != like.n:
        raise ValueError(
            f"expected kernel values with the {like.n} training points, got {M.shape[1]} columns"
        )
    diagonal = np.full(M.shape[0], np.nan, M.dtype) if diagonal is None else _diagonal(diagonal, M)
    return GivenProducts(jnp.asarray(M), jnp.asarray(diagonal))


def _diagonal(diagonal, M: np.ndarray) -> np.ndarray:
    diagonal = _sparse.numbers(diagonal, "diagonal")
    if diagonal.shape != M.shape[:1] or not np.isfinite(diagonal).all():
        raise ValueError(f"diagonal: expected {M.shape[0]} finite numbers, got shape {list(diagonal.shape)}")
    return diagonal.astype(M.dtype)


def _matrix(M, dtype) -> np.ndarray:
    M = _sparse.dense(M, "M")
    if M.ndim != 2:
        raise ValueError(f"expected a kernel matrix of two dimensions, got {M.ndim}")
    if dtype is None:
        dtype = M.dtype if M.dtype in (np.float32, np.float64) else np.float32
    M = M.astype(linops.computed_dtype(dtype), copy=False)
    if not np.isfinite(M).all():
        row, column = np.argwhere(~np.isfinite(M))[0]
        raise ValueError(
            f"expected a finite kernel matrix, found {M[row, column]} in row {row}, column {column}"
        )
    return M
