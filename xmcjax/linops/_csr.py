"""Features as compressed sparse rows."""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import native
from xmcjax._fork import methods_need_threads_of_jax
from xmcjax._pytrees import pytree
from xmcjax.linops._base import LinOp, SparseProducts, put
from xmcjax.linops._checks import canonical_csr, check_arrays, checked_places
from xmcjax.native import csr_arrays, ref

CHUNK = 1 << 18


@functools.partial(methods_need_threads_of_jax, but=("take_rows", "to_scipy"))
@pytree(
    data_fields=["value", "column", "offset", "row"],
    meta_fields=["shape", "native", "threads"],
)
@dataclasses.dataclass(frozen=True)
class Csr(SparseProducts):
    """X in CSR form, made by :func:`xmcjax.linops.make`.

    With the native kernels: `value` and `column` [nnz] and `offset` int32 [n+1, 2], the halves
    of 64-bit numbers, because JAX has no 64-bit integers by default. Without: `value`, `column`
    and `row` in chunks [chunks, chunk], padded with zero values.

    Example:
        >>> import numpy as np
        >>> import scipy.sparse as sp
        >>> from xmcjax import linops
        >>> op = linops.make(sp.csr_matrix(np.float32([[1, 0], [2, 3]])))
        >>> type(op).__name__, op.rmatmat(np.float32([[1], [1]])).tolist()
        ('Csr', [[3.0], [3.0]])
    """

    value: jax.Array
    column: jax.Array
    offset: jax.Array | None
    row: jax.Array | None
    shape: tuple[int, int]
    native: bool
    threads: int

    @property
    def dtype(self):
        return self.value.dtype

    @property
    def entries(self) -> int:
        """Numbers of X that a product reads."""
        return self.value.size

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """What the native kernels take."""
        return self.value, self.column, self.offset

    @property
    def _in_plain_jax(self) -> bool:
        return not self.native

    def _matmat(self, V: jax.Array) -> jax.Array:
        if self.native:
            return native.call("csr_matmat", X=self.arrays, V=V, threads=self.threads)["out"]
        return ref.csr_matmat(self.value, self.column, self.row, V, self.shape[0])

    def _rmatmat(self, C: jax.Array) -> jax.Array:
        if self.native:
            sizes = {"d": self.shape[1]}
            return native.call("csr_rmatmat", sizes=sizes, X=self.arrays, C=C, threads=self.threads)["out"]
        return ref.csr_rmatmat(self.value, self.column, self.row, C, self.shape[1])

    def _gram_matmat(self, D: jax.Array, V: jax.Array) -> jax.Array:
        if self.native:
            return native.call("csr_gram_matmat", X=self.arrays, D=D, V=V, threads=self.threads)["out"]
        return ref.csr_gram_matmat(self.value, self.column, self.row, D, V, self.shape[0])

    def inner(self, places: jax.Array, other: LinOp) -> jax.Array:
        if self.native and isinstance(other, Csr) and other.native:
            return self._differentiable("_inner", checked_places(self, places, other), other)
        return super().inner(places, other)

    def _inner(self, places: jax.Array, other: Csr) -> jax.Array:
        X, Y = self.arrays, other.arrays
        made = native.call("csr_inner", X=X, Y=Y, place=places, features=self.shape[1], threads=self.threads)
        return made["out"]

    def squared_rmatmat(self, D: jax.Array) -> jax.Array:
        check_arrays(self, "squared_rmatmat", D=D)
        return dataclasses.replace(self, value=self.value * self.value).rmatmat(D)

    def row_norms2(self) -> jax.Array:
        ones = jnp.ones((self.shape[1], 1), self.dtype)
        return dataclasses.replace(self, value=self.value * self.value).matmat(ones)[:, 0]

    def take_rows(self, rows) -> Csr:
        return from_scipy(self.to_scipy()[np.asarray(rows)], native=self.native, threads=self.threads)

    def in_jax(self) -> Csr:
        """The same matrix with products in plain JAX, which can be differentiated in its values too.

        Raises:
            ValueError: a matrix of 2³¹ non-zeros or more, whose places plain JAX cannot count.
        """
        if self.offset is None:
            return self
        count = self.value.size
        if count > np.iinfo(np.int32).max:
            raise ValueError(f"expected fewer than 2**31 non-zeros for products in plain JAX, got {count}")
        low = self.offset[:, 0 if sys.byteorder == "little" else 1]
        rows = jnp.arange(self.shape[0], dtype=jnp.int32)
        row = jnp.repeat(rows, low[1:] - low[:-1], total_repeat_length=count)
        chunks, size = max(1, -(-count // CHUNK)), min(CHUNK, max(1, count))

        def chunked(a):
            return jnp.pad(a, (0, chunks * size - count)).reshape(chunks, size)

        value, column, row = (chunked(a) for a in (self.value, self.column, row))
        return dataclasses.replace(self, value=value, column=column, offset=None, row=row, native=False)

    def to_scipy(self):
        """The matrix as scipy.sparse CSR on the host."""
        import scipy.sparse

        if 0 in self.shape:  # where there is no place for the zeros that fill up the chunks
            return scipy.sparse.csr_matrix(self.shape, dtype=self.dtype)
        if self.offset is not None:
            indptr = np.ascontiguousarray(self.offset).view(np.int64)[:, 0]
            parts = (np.asarray(self.value), np.asarray(self.column), indptr)
            return scipy.sparse.csr_matrix(parts, shape=self.shape)
        value, column, row = (np.asarray(a).ravel() for a in (self.value, self.column, self.row))
        return scipy.sparse.csr_matrix((value, (row, column)), shape=self.shape)


def from_scipy(X, *, native: bool, threads: int) -> Csr:
    """The operator of a scipy.sparse matrix whose values have the dtype wanted."""
    X = canonical_csr(X)
    if native:
        value, column, offset = csr_arrays(X)
        return Csr(put(value), put(column), put(offset), None, X.shape, True, threads)
    column = X.indices.astype(np.int32, copy=False)
    chunks = max(1, -(-X.nnz // CHUNK))
    size = min(CHUNK, max(1, X.nnz))
    row = np.repeat(np.arange(X.shape[0], dtype=np.int32), np.diff(X.indptr))

    def chunked(a):
        return put(np.pad(a, (0, chunks * size - len(a))).reshape(chunks, size))

    return Csr(chunked(X.data), chunked(column), None, chunked(row), X.shape, False, threads)
