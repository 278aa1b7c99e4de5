"""The twins of the C++ products in plain JAX, for machines and devices without them.

The entries come in chunks (``value``, ``column`` and ``row`` are [chunks, chunk], padded with
zero values), so that a product holds one [chunk, B] array at a time and never [nnz, B].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def csr_matmat(value, column, row, V, n: int):
    """X V, [n, B]."""

    def add(out, entries):
        value, column, row = entries
        return out.at[row].add(value[:, None] * V[column]), None

    out, _ = jax.lax.scan(add, jnp.zeros((n, V.shape[1]), value.dtype), (value, column, row))
    return out


def csr_rmatmat(value, column, row, C, d: int):
    """Xᵀ C, [d, B]."""
    return csr_matmat(value, row, column, C, d)


def csr_gram_matmat(value, column, row, D, V, n: int):
    """Xᵀ(D ∘ (X V)), [d, B]."""
    return csr_rmatmat(value, column, row, D * csr_matmat(value, column, row, V, n), V.shape[0])
