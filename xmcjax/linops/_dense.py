"""Features as a dense array."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._fork import methods_need_threads_of_jax
from xmcjax._platform import default_platform
from xmcjax._pytrees import pytree
from xmcjax.linops._base import LinOp
from xmcjax.linops._checks import check_arrays, checked_places
from xmcjax.native import aligned_copy


@methods_need_threads_of_jax
@pytree(data_fields=["X"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Dense:
    """X as an array [n, d]; every product is a matrix product of the device.

    Example:
        >>> import numpy as np
        >>> from xmcjax import linops
        >>> op = linops.make(np.float32([[1, 0], [2, 3]]))
        >>> type(op).__name__, op.matmat(np.float32([[1], [1]])).tolist()
        ('Dense', [[1.0], [5.0]])
    """

    X: jax.Array

    @property
    def shape(self) -> tuple[int, int]:
        n, d = self.X.shape
        return n, d

    @property
    def dtype(self):
        return self.X.dtype

    def matmat(self, V: jax.Array) -> jax.Array:
        check_arrays(self, "matmat", V=V)
        return jnp.matmul(self.X, V, precision="highest")

    def rmatmat(self, C: jax.Array) -> jax.Array:
        check_arrays(self, "rmatmat", C=C)
        return _transposed_product(self.X, C)

    def gram_matmat(self, D: jax.Array, V: jax.Array) -> jax.Array:
        check_arrays(self, "gram_matmat", D=D, V=V)
        return self.rmatmat(D * self.matmat(V))

    def inner(self, places: jax.Array, other: LinOp) -> jax.Array:
        return other.matmat(self.X[checked_places(self, places, other)].T).T

    def squared_rmatmat(self, D: jax.Array) -> jax.Array:
        check_arrays(self, "squared_rmatmat", D=D)
        return _transposed_product(self.X * self.X, D)

    def row_norms2(self) -> jax.Array:
        return jnp.sum(self.X * self.X, axis=1)

    def mean(self) -> jax.Array:
        return jnp.mean(self.X, axis=0)

    def take_rows(self, rows) -> Dense:
        # NumPy checks the indices: JAX takes other rows for those beyond the end
        return Dense(self.X[np.atleast_1d(np.arange(self.shape[0])[rows])])


def _transposed_product(X: jax.Array, C: jax.Array) -> jax.Array:
    """XᵀC, [d, l]."""
    if C.shape[1] == 1:  # XLA has a faster product of a row than of a column on CPUs
        return jnp.matmul(C.T, X, precision="highest").T
    return jnp.matmul(X.T, C, precision="highest")


def on_the_device(X, dtype: np.dtype) -> jax.Array:
    """A copy of an array on the default device, or the array itself where JAX has it there already.

    There is one copy, in a fifth of the time of JAX's own.
    """
    if default_platform() != "cpu" or not isinstance(X, np.ndarray):
        return jnp.asarray(X, dtype)
    return jax.device_put(aligned_copy(X, dtype))
