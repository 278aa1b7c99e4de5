"""Products with the base kernel matrices M⁽¹⁾ … M⁽ᴸ⁾ of n points, stored or made anew in tiles.

Seeger, "Cross-validation optimization for structured Hessian kernel methods", 2006, sections
6.2, 9.3 and appendix D.2. The derivative in the hyperparameters needs no stored matrix either: with
cotangent U of M S it is Σ U ∘ (∂M S), tile by tile.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from xmcjax import native
from xmcjax._arguments import number
from xmcjax._cores import usable_cores
from xmcjax._fork import methods_need_threads_of_jax
from xmcjax._pytrees import is_traced, pytree, unmarked
from xmcjax.kernels._functions import Kernel, Linear, check_columns, stack
from xmcjax.kernels._points import GivenProducts, Points, check_points, check_test_points
from xmcjax.linops import Csr, Dense, Grouped, constant_values

# Bytes of one tile [L, rows, n]: it should stay in the processor's caches and be worth a matrix product.
_TILE_BYTES = 1 << 22
# Most columns with which a product best reads only the upper half of a stored, symmetric matrix.
_FEW_COLUMNS = 6


@functools.partial(methods_need_threads_of_jax, but=("matrices_only", "for_prediction"))
@pytree(
    data_fields=["kernel", "points", "stored"],
    meta_fields=["count", "rows"],
)
@dataclasses.dataclass(frozen=True)
class Gram:
    """L base kernels on n training points, made by :func:`gram`.

    Attributes:
        kernel: a :class:`xmcjax.kernels.Kernel` with leaves [L].
        points: the training points, :class:`Points` or :class:`GivenProducts`.
        stored: [L, n, n], a matrix that was given [n, n], or None where each product makes them anew.
        count: L.
        rows: of a tile.

    Example:
        >>> from xmcjax.kernels import RBF, gram, points
        >>> products = gram(RBF(1.0), points([[0.0], [1.0]]))
        >>> print(products.matrices()[0].round(2))
        [[1.   0.61]
         [0.61 1.  ]]
    """

    kernel: Any
    points: Any
    stored: jax.Array | None
    count: int
    rows: int

    @property
    def n(self) -> int:
        return self.points.n if self.stored is None else self.stored.shape[-1]

    @property
    def dtype(self) -> Any:
        return self.points.dtype if self.stored is None else self.stored.dtype

    def matrices_only(self) -> Gram:
        """The stored matrices without the points that they are of, so that a program compiled for
        products with them serves all kernels and features; itself where none are stored.
        """
        return self if self.stored is None else dataclasses.replace(self, kernel=None, points=None)

    @property
    def linear(self) -> bool:
        """Whether products go through the features instead of a matrix."""
        made_anew = self.stored is None and isinstance(self.points, Points)
        return made_anew and self.kernel.linear_scale is not None

    def for_prediction(self) -> Gram:
        """The kernels without the matrices of the training points, which only fits need."""
        return dataclasses.replace(self, stored=None)

    def matmat(self, S: jax.Array) -> jax.Array:
        """M⁽ˡ⁾ S_l for all l, [n, L, k], of S [n, L, k]; differentiable in S, the hyperparameters and the
        numbers of the points, in reverse mode.

        Raises:
            TypeError: S that is no array, or of another dtype than the points.
            ValueError: S of another shape.
        """
        self._check(S)
        if self.linear:
            return self._through_features(self.points, S, lambda T: T)
        return _product(self.kernel, self.points, self.points, self.stored, S, self.rows)

    def sandwich(self, S: jax.Array, between) -> jax.Array:
        """M between(S) where L = 1, [n, 1, k].

        Args:
            S: [n, 1, k].
            between: a linear map of columns that takes [r, k] to [r, k] for any number r of rows:
                it commutes with M, and is applied between the factors of M where these have fewer rows.
        """
        self._check(S)
        if self.linear:
            return self._through_features(self.points, S, between)
        return self.matmat(between(S[:, 0])[:, None])

    def cross(self, points, S: jax.Array, between=None) -> jax.Array:
        """M⁽ˡ⁾(points, training points) S_l, [m, L, k], of S [n, L, k].

        Args:
            points: m test points, made by ``points(T, like=training points)``, since a set that is made
                without `like` is less its own mean; or by ``precomputed_test(M, training points)``.
            S: [n, L, k].
            between: where L = 1, as for :meth:`sandwich`.

        Raises:
            TypeError: S that is no array, or of another dtype than the points, or what is no points.
            ValueError: points that were made in another way; a mean that JAX traces is not looked at.
        """
        self._check(S)
        check_test_points(points, self.points)
        if self.linear:
            return self._through_features(points, S, between or (lambda T: T))
        S = S if between is None else between(S[:, 0])[:, None]
        return cross_product(self.kernel, points, self.points, S)

    def matrices(self) -> jax.Array:
        """M⁽¹⁾ … M⁽ᴸ⁾, [L, n, n], stored or made for this call."""
        if self.stored is None:
            return _matrices(self.kernel, self.points, count=self.count, rows=self.rows)
        return _of_all(self.stored)

    def _check(self, S) -> None:
        check_columns(S, self.n, self.count)
        if jax.dtypes.canonicalize_dtype(S.dtype) != self.dtype:
            raise TypeError(f"expected columns of {self.dtype}, the precision of the kernel, got {S.dtype}")

    def _through_features(self, rows, S: jax.Array, between) -> jax.Array:
        # s X (between(X'ᵀ S)); with x = (x − m) + m: X'ᵀ S = (X' − m)ᵀ S + m 1ᵀS and X T = (X − m) T + 1 mᵀT
        points, lanes = self.points, S.shape[2]
        S = S.reshape(self.n, self.count * lanes)  # the columns of all L kernels
        assert isinstance(points, Points)
        narrow = points.op.shape[1] <= points.n
        S = S if narrow else between(S)
        T = _of_features("rmatmat", points.op, S)
        if points.centre is not None:
            T = T + points.centre[:, None] * jnp.sum(S, axis=0, keepdims=True)
        T = between(T) if narrow else T
        out = _of_features("matmat", rows.op, T)
        if points.centre is not None:
            out = out + jnp.matmul(points.centre, T, precision="highest")[None]
        scale = jnp.asarray(self.kernel.linear_scale, out.dtype)
        return scale.reshape(1, -1, 1) * out.reshape(out.shape[0], self.count, lanes)


def gram(kernel: Kernel, points: Points | GivenProducts, *, memory: float = 2**31) -> Gram:
    """The base kernels of a kernel function on training points.

    Args:
        kernel: its hyperparameters are numbers, or arrays [L] for L base kernels.
        points: the training points.
        memory: bytes that the matrices may take; where they need more, each product makes
            them anew, tile by tile.

    Raises:
        TypeError: features in the place of points.
        ValueError: a hyperparameter that is not above 0, or stacks of different lengths.

    Example:
        >>> from xmcjax.kernels import RBF, points
        >>> gram(RBF(1.0), points([[0.0], [1.0]])).matmat(jnp.ones((2, 1, 1), jnp.float32)).shape
        (2, 1, 1)
    """
    check_points(points)
    kernel, count = stack(kernel, points.dtype)
    n, width = points.n, jnp.dtype(points.dtype).itemsize
    rows = _tile_rows(n, n, count, points.dtype)
    made = Gram(kernel, points, None, count, rows)
    if isinstance(kernel, Linear) and isinstance(points, GivenProducts):
        return dataclasses.replace(made, stored=points.matrix)
    if kernel.linear_scale is not None and isinstance(points, Points):
        # X (Xᵀ S) against M S, by the numbers they read
        op = points.op
        stored_numbers = 2 * op.entries if isinstance(op, (Csr, Grouped)) else n * op.shape[1]
        if 2 * stored_numbers < n * n:
            return made
    if count * n * n * width > number("memory", memory):
        return made
    return dataclasses.replace(made, stored=_matrices(kernel, points, count=count, rows=rows))


def _tile_rows(m: int, n: int, count: int, dtype) -> int:
    return max(1, min(m, _TILE_BYTES // max(1, count * n * jnp.dtype(dtype).itemsize)))


def _tile(kernel: Kernel, A, B, start, rows: int, count: int) -> jax.Array:
    """k_l(a, b) for `rows` points of A and all of B, [L, rows, B.n]."""
    pairs = A.pairs(start, rows, B)
    return jax.vmap(lambda k: k.value(pairs), axis_size=count)(kernel)


def _over_tiles(add, first, n: int, rows: int):
    """A loop over the tiles of n rows, if any; `add` takes the carry and two places in a tile.

    These are its first row, and its first row that no tile before had: the last two tiles may overlap.
    """
    if not n:
        return first
    new = jnp.arange(-(-n // rows), dtype=jnp.int32) * rows
    return jax.lax.scan(
        lambda carry, begin: (add(carry, *begin), None), first, (jnp.minimum(new, n - rows), new)
    )[0]


@functools.partial(jax.jit, static_argnames=("count", "rows"))
def _matrices(kernel, points, *, count: int, rows: int) -> jax.Array:
    n = points.n

    def write(out, start, _):
        tile = _tile(kernel, points, points, start, rows, count)
        return jax.lax.dynamic_update_slice_in_dim(out, tile, start, axis=1)

    out = native.varying_like(jnp.zeros((count, n, n), points.dtype), (kernel, points))
    return _over_tiles(write, out, n, rows)


def _of_all(stored: jax.Array) -> jax.Array:
    """Stored matrices as [L, n, n], which within a program makes no copy."""
    return stored if stored.ndim == 3 else stored[None]


def _stacked_product(matrices: jax.Array, S: jax.Array) -> jax.Array:
    """M_l S_l for each of L matrices, [rows, L, k]: one batched product, as many programs have hundreds."""
    columns = jnp.moveaxis(S, 1, 0)
    return jnp.moveaxis(jnp.matmul(_of_all(matrices), columns, precision="highest"), 0, 1)


def _stored_product(matrices: jax.Array, S: jax.Array) -> jax.Array:
    """:func:`_stacked_product` with symmetric matrices, of which few columns read only the upper half."""
    if S.shape[2] > _FEW_COLUMNS or not native.available():
        return _stacked_product(matrices, S)

    def on_host(matrices, S):
        M = _of_all(matrices)
        return native.call("symmetric_matmat", M=M, S=S, threads=usable_cores())["out"]

    return jax.lax.platform_dependent(matrices, S, cpu=on_host, default=_stacked_product)


def cross_product(kernel, A, B, S: jax.Array) -> jax.Array:
    """k_l(A, B) S_l for all l, [A.n, L, k], tile by tile."""
    return _product(kernel, A, B, None, S, _tile_rows(A.n, B.n, S.shape[1], A.dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _product(kernel, A, B, stored, S: jax.Array, rows: int) -> jax.Array:
    """k_l(A, B) S_l for all l, [A.n, L, k]; from `stored` where that is given (then A is B)."""
    return _product_in_tiles(kernel, A, B, S, rows=rows) if stored is None else _stored_product(stored, S)


@functools.partial(jax.jit, static_argnames="rows")
def _product_in_tiles(kernel, A, B, S: jax.Array, *, rows: int) -> jax.Array:
    count, m = S.shape[1], A.n

    def write(out, start, _):
        part = _stacked_product(_tile(kernel, A, B, start, rows, count), S)
        return jax.lax.dynamic_update_slice_in_dim(out, part, start, axis=0)

    out = native.varying_like(jnp.zeros((m, count, S.shape[2]), A.dtype), (kernel, A, B, S))
    return _over_tiles(write, out, m, rows)


def _product_forward(kernel, A, B, stored, S, rows):
    values, moving = zip(*map(unmarked, (kernel, A, B, stored, S)), strict=True)
    return _product(*values, rows), (values, tuple(() if flag else None for flag in moving))


def _product_backward(rows, residual, U):
    (kernel, A, B, stored, S), flags = residual
    of_kernel, of_A, of_B, of_stored, of_S = (flag is not None for flag in flags)
    count, m = S.shape[1], S.shape[0] if A is None else A.n
    if isinstance(U, jax.custom_derivatives.SymbolicZero):
        U = jnp.zeros((m, count, S.shape[2]), S.dtype)
    stored_bar = None
    if of_stored and A is None:  # matrices alone; else the points have the derivative
        stored_bar = jnp.einsum("ilk,jlk->lij", U, S, precision="highest").reshape(stored.shape)
    # symmetric, and by a product that can be differentiated once more
    S_bar = _product(kernel, A, B, stored, U, rows) if of_S and stored is not None else None
    in_tiles = of_S and stored is None
    points = {name: given for name, given, wanted in (("A", A, of_A), ("B", B, of_B)) if wanted}
    moved, fixed = _parted(points)
    leaves, form = jax.tree.flatten(kernel)

    def add(carry, start, new):
        part = jax.lax.dynamic_slice_in_dim(U, start, rows)
        part = jnp.where((start + jnp.arange(rows, dtype=jnp.int32) >= new)[:, None, None], part, 0)
        d_leaves, d_points, d_S = carry
        if of_kernel:
            # Σ U ∘ ((∂M/∂h) S), one hyperparameter of all L kernels after the other
            def at(*leaves):
                return _tile(jax.tree.unflatten(form, leaves), A, B, start, rows, count)

            for i, leaf in enumerate(leaves):
                change = [
                    jnp.ones_like(other) if other is leaf else jnp.zeros_like(other) for other in leaves
                ]
                slope = jax.jvp(at, leaves, change)[1]
                d_leaves[i] += jnp.sum(part * _stacked_product(slope, S), axis=(0, 2))
        if points:
            weights = jnp.einsum("ilk,jlk->lij", part, S, precision="highest")

            def of_points(moved):
                whole = _merged(moved, fixed)
                return _tile(kernel, whole.get("A", A), whole.get("B", B), start, rows, count)

            d_points = jax.tree.map(jnp.add, d_points, jax.vjp(of_points, moved)[1](weights)[0])
        if in_tiles:
            tile = _tile(kernel, A, B, start, rows, count)
            d_S = d_S + _stacked_product(jnp.swapaxes(tile, 1, 2), part)
        return d_leaves, d_points, d_S

    first = (
        [jnp.zeros_like(leaf) for leaf in leaves],
        jax.tree.map(jnp.zeros_like, moved),
        jnp.zeros_like(S) if in_tiles else None,
    )
    if of_kernel or points or in_tiles:
        first = native.varying_like(first, (kernel, A, B, S, U))
        d_leaves, d_points, d_S = _over_tiles(add, first, m, rows)
        kernel_bar = jax.tree.unflatten(form, d_leaves) if of_kernel else None
        S_bar = d_S if in_tiles else S_bar
    else:
        kernel_bar, d_points = None, {}
    return kernel_bar, d_points.get("A"), d_points.get("B"), stored_bar, S_bar


_product.defvjp(_product_forward, _product_backward, symbolic_zeros=True)


def _parted(tree) -> tuple[Any, Any]:
    """The leaves that have derivatives, and those that have none; None stands where the others are."""
    moved = jax.tree.map(lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else None, tree)
    fixed = jax.tree.map(lambda leaf: None if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf, tree)
    return moved, fixed


def _merged(moved, fixed) -> Any:
    """The tree of both parts."""
    return jax.tree.map(lambda a, b: b if a is None else a, moved, fixed, is_leaf=lambda leaf: leaf is None)


# For each product with sparse features, the one with the transpose.
_TRANSPOSED = {"matmat": "rmatmat", "rmatmat": "matmat"}


def _of_features(product: str, op, V: jax.Array) -> jax.Array:
    """X V or Xᵀ V by the name of the product."""
    if isinstance(op, Dense):
        return getattr(op, product)(V)
    if not op.values_vary:
        return _sparse_product(product, False, constant_values(product, op), V)
    return _sparse_product(product, is_traced(op), op, V)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _sparse_product(product: str, varies: bool, op, V: jax.Array) -> jax.Array:
    return getattr(op, product)(V)


def _sparse_forward(product, varies, op, V):
    return _sparse_product(product, varies, op, V), (op, V if varies else None)


def _sparse_backward(product, varies, residual, U):
    """The derivative in V by the kernels of the transpose; in X by the rule of `op`, in plain JAX."""
    op, V = residual
    op_bar = jax.vjp(lambda op: getattr(op, product)(V), op)[1](U)[0] if varies else None
    return op_bar, _sparse_product(_TRANSPOSED[product], varies, op, U)


_sparse_product.defvjp(_sparse_forward, _sparse_backward)
