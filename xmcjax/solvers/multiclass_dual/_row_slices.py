"""Single rows of the features under jit, for epochs that visit one instance after another.

A sparse X stays three flat arrays. Blocks of rows that are filled up to one width are those of
:class:`xmcjax.solvers._instance_twin.PaddedRows`.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._pytrees import pytree


class Row(NamedTuple):
    """One row."""

    value: jax.Array  #: dense [d], sparse [width], padded with zeros
    column: jax.Array | None  #: [width] of a sparse row

    def dot(self, W):
        """xᵀ W, [B], of W [d, B]."""
        return self.value @ (W if self.column is None else W[self.column])

    def add(self, W, u):
        """W + x uᵀ."""
        if self.column is None:
            return W + self.value[:, None] * u[None, :]
        return W.at[self.column].add(self.value[:, None] * u[None, :])


@pytree(
    data_fields=["value", "column", "start", "length"],
    meta_fields=["width"],
)
@dataclasses.dataclass(frozen=True)
class RowSlices:
    """The rows of X; made by :func:`make_row_slices`.

    A sparse X is three flat arrays; a row is a slice as long as the longest row, masked.
    """

    value: jax.Array
    column: jax.Array | None
    start: jax.Array | None
    length: jax.Array | None
    width: int

    def take(self, i) -> Row:
        """Row i."""
        if self.column is None or self.start is None or self.length is None:
            return Row(self.value[i], None)
        start = self.start[i]
        inside = jnp.arange(self.width, dtype=jnp.int32) < self.length[i]
        value = jax.lax.dynamic_slice(self.value, (start,), (self.width,))
        column = jax.lax.dynamic_slice(self.column, (start,), (self.width,))
        return Row(jnp.where(inside, value, 0), jnp.where(inside, column, 0))


def make_row_slices(X) -> RowSlices:
    """The rows of a scipy.sparse CSR matrix or of an array."""
    if not hasattr(X, "indptr"):
        return RowSlices(jnp.asarray(X), None, None, None, X.shape[1])
    length = np.diff(X.indptr).astype(np.int32)
    width = max(1, int(length.max(initial=0)))
    if X.nnz + width > np.iinfo(np.int32).max:
        raise ValueError(f"expected fewer than 2^31 stored values without the native kernels, got {X.nnz}")
    # padded, so that the slice of the last row does not slide back
    value, column = np.pad(X.data, (0, width)), np.pad(X.indices.astype(np.int32), (0, width))
    start = X.indptr[:-1].astype(np.int32)
    return RowSlices(jnp.asarray(value), jnp.asarray(column), jnp.asarray(start), jnp.asarray(length), width)
