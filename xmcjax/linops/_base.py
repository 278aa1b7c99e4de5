"""The operator protocol: all that a solver may use of a feature matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._fork import methods_need_threads_of_jax


def put(a: np.ndarray) -> jax.Array:
    """A copy on the device, not a view of the host array, which may be written to again; it compiles nothing.

    ``device_put`` may use the memory of a host array that happens to be aligned, even with
    ``may_alias=False``.

    Example:
        >>> put(np.float32([1, 2])).tolist()
        [1.0, 2.0]
    """
    return jax.device_put(np.array(a))


@runtime_checkable
class LinOp(Protocol):
    """A feature matrix X of n rows and d columns on a device, applied to blocks of lanes.

    An operator is a pytree: it is passed to jitted functions as an argument, never closed over.

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
    """What the operators of sparse features have in common."""

    shape: tuple[int, int]
    dtype: Any

    def _check(self, name: str, a: jax.Array, rows: int) -> None:
        # the kernels would read beyond the end, and a gather in JAX repeat the last row
        if a.ndim != 2 or a.shape[0] != rows:
            raise ValueError(f"expected {name} [{rows}, lanes], got {list(a.shape)}")

    if TYPE_CHECKING:

        def rmatmat(self, C: jax.Array) -> jax.Array: ...

    def mean(self) -> jax.Array:
        n = self.shape[0]
        return self.rmatmat(jnp.ones((n, 1), self.dtype))[:, 0] / n
