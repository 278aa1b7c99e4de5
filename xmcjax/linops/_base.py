"""The operator protocol: all that a solver may use of a feature matrix."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from xmcjax._fork import methods_need_threads_of_jax
from xmcjax._platform import default_platform
from xmcjax.linops._checks import check_arrays, checked_places
from xmcjax.native import aligned_copy


def put(a: np.ndarray) -> jax.Array:
    """A copy on the device, not a view of the host array, which may be written to again; it compiles nothing.

    ``device_put`` may use the memory of a host array that happens to be aligned, even with
    ``may_alias=False``.

    Example:
        >>> put(np.float32([1, 2])).tolist()
        [1.0, 2.0]
    """
    return jax.device_put(aligned_copy(a, a.dtype) if default_platform() == "cpu" else np.array(a))


@runtime_checkable
class LinOp(Protocol):
    """A feature matrix X of n rows and d columns on a device, applied to blocks of lanes.

    An operator is a pytree: it is passed to jitted functions as an argument, never closed over. Its products
    take arrays in its dtype; they can be differentiated in them by JAX, forward and in reverse, and in the
    values of X where the backend is not "gpu". Derivatives of kernels' products are made in plain JAX.

    Example:
        >>> import numpy as np
        >>> from xmcjax import linops
        >>> op = linops.make(np.float32([[1, 2], [0, 3]]))
        >>> op.matmat(np.float32([[1], [1]])).tolist(), op.rmatmat(np.float32([[1], [1]])).tolist()
        ([[3.0], [3.0]], [[1.0], [5.0]])
    """

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        ...

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        ...

    def matmat(self, V: jax.Array) -> jax.Array:
        """X V, [n, B], of V [d, B]."""
        ...

    def rmatmat(self, C: jax.Array) -> jax.Array:
        """Xᵀ C, [d, B], of C [n, B]; zero entries of C cost nothing on CPU."""
        ...

    def gram_matmat(self, D: jax.Array, V: jax.Array) -> jax.Array:
        """Xᵀ(D ∘ (X V)), [d, B], in one pass; zero entries of D cost nothing on CPU."""
        ...

    def inner(self, places: jax.Array, other: LinOp) -> jax.Array:
        """X_p Yᵀ, [len(p), m], of the rows of X at places p, from 0 to n−1, with all rows of Y [m, d]."""
        ...

    def squared_rmatmat(self, D: jax.Array) -> jax.Array:
        """(X∘X)ᵀ D, [d, B]: the diagonals of Xᵀ diag(D) X."""
        ...

    def row_norms2(self) -> jax.Array:
        """‖x_i‖², [n]."""
        ...

    def mean(self) -> jax.Array:
        """The mean row x̄, [d]."""
        ...

    def take_rows(self, rows) -> LinOp:
        """The operator of the given rows, in that order (on the host, not under jit)."""
        ...


@methods_need_threads_of_jax
class SparseProducts:
    """What the operators of sparse features have in common.

    The products of kernels are differentiated by those of :meth:`in_jax`, forward, in reverse and again.
    """

    shape: tuple[int, int]
    dtype: Any

    #: whether the products can be differentiated in the values of X too
    values_vary = True

    def matmat(self, V: jax.Array) -> jax.Array:
        check_arrays(self, "matmat", V=V)
        return self._differentiable("_matmat", V)

    def rmatmat(self, C: jax.Array) -> jax.Array:
        check_arrays(self, "rmatmat", C=C)
        return self._differentiable("_rmatmat", C)

    def gram_matmat(self, D: jax.Array, V: jax.Array) -> jax.Array:
        check_arrays(self, "gram_matmat", D=D, V=V)
        return self._differentiable("_gram_matmat", D, V)

    def inner(self, places: jax.Array, other: LinOp) -> jax.Array:
        places = checked_places(self, places, other)
        # rows of X as columns of an array: Xᵀ E, E the columns p of the identity
        picked = (jnp.arange(self.shape[0], dtype=jnp.int32)[:, None] == places[None]).astype(self.dtype)
        return other.matmat(self.rmatmat(picked)).T

    def mean(self) -> jax.Array:
        n = self.shape[0]
        return self.rmatmat(jnp.ones((n, 1), self.dtype))[:, 0] / n

    def _differentiable(self, product: str, *arrays: jax.Array | LinOp) -> jax.Array:
        if self._in_plain_jax:
            return getattr(self, product)(*arrays)
        return _by_kernel(product, self, *arrays)

    if TYPE_CHECKING:

        @property
        def _in_plain_jax(self) -> bool: ...

        def in_jax(self) -> SparseProducts: ...


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _by_kernel(product: str, op: SparseProducts, *arrays: jax.Array | LinOp) -> jax.Array:
    return getattr(op, product)(*arrays)


@functools.partial(_by_kernel.defjvp, symbolic_zeros=True)
def _by_kernel_jvp(product: str, primals, tangents):
    leaves, tree = jax.tree.flatten(primals)
    tangents = tree.flatten_up_to(tangents)
    varies = [i for i, t in enumerate(tangents) if not isinstance(t, SymbolicZero)]
    op, name = primals[0], product.removeprefix("_")
    if not op.values_vary and min(varies) < len(jax.tree.leaves(op)):
        raise _without_derivatives(name)

    def plain(*varying):
        given = dict(enumerate(leaves)) | dict(zip(varies, varying, strict=True))
        op, *arrays = jax.tree.unflatten(tree, list(given.values()))
        return getattr(op.in_jax(), name)(*arrays)

    moved = jax.jvp(plain, [leaves[i] for i in varies], [tangents[i] for i in varies])[1]
    return _by_kernel(product, *primals), moved


def _without_derivatives(product: str) -> TypeError:
    return TypeError(
        f'{product}: expected features of backend="dense", "native" or "jnp" for derivatives '
        'in the values of X, found those of backend="gpu"'
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def constant_values(product: str, op: SparseProducts) -> SparseProducts:
    """The operator, for a rule that has no derivatives in its values: TypeError where they are asked for.

    Args:
        product: which the error names.
        op: whose `values_vary` is false.
    """
    return op


@constant_values.defjvp
def _constant_values_jvp(product: str, primals, tangents):
    raise _without_derivatives(product)
