"""Sizes that arrays are filled up to: a program of JAX is compiled for each size, and these are few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

# Parts of a power of two that arrays are filled up to: by an eighth at most where they have many entries.
_PARTS = 8
# Most numbers of an array that is filled up for a program that takes less time than its compilation, and the
# fewest rows that it is filled up to.
_NUMBERS, _ROWS = 1 << 18, 128


def filled_length(entries: int, least: int = 1024) -> int:
    """The length that an array of so many entries is filled up to: one of few lengths.

    Example:
        >>> filled_length(3), filled_length(5000), filled_length(5600)
        (1024, 5120, 6144)
    """
    unit = max(least, (1 << max(entries - 1, 0).bit_length()) // (2 * _PARTS))
    return max(-(-entries // unit), 1) * unit


def rows_behind(shape: tuple[int, ...]) -> int:
    """How many rows fill up an array of this shape for a program of rows; 0 where it has many numbers."""
    return filled_length(shape[0], _ROWS) - shape[0] if 0 < np.prod(shape) <= _NUMBERS else 0


def repeated(a: np.ndarray, behind: int) -> np.ndarray:
    """The array with its last row so many times more; a number as it is."""
    return np.pad(a, [(0, behind), *[(0, 0)] * (np.ndim(a) - 1)], mode="edge") if np.ndim(a) else a


def rows_and_entries(X: Any, length: Callable[[int], int]) -> tuple[int, int]:
    """(The fewest rows, entries in new rows) with which :func:`with_rows` fills up the entries of CSR.

    Args:
        X: [n, d], CSR or an array.
        length: gives the length to which a number of entries is filled up.
    """
    (n, d), entries = X.shape, length(X.nnz) - X.nnz if sp.issparse(X) else 0
    return (n - (-entries // d), entries) if d else (n, 0)


def with_rows(X: Any, rows: int, entries: int = 0) -> Any:
    """X with rows of zeros behind.

    Args:
        X: [n, d], CSR or an array.
        rows: of the matrix in the end, n or more.
        entries: of value 0 that a CSR matrix has in the new rows, d in each at most.
    """
    n, d = X.shape
    if rows == n:
        return X
    if not sp.issparse(X):
        return np.pad(X, [(0, rows - n), (0, 0)])
    new = sp.csr_matrix((np.zeros(entries, X.dtype), divmod(np.arange(entries), d)), (rows - n, d))
    return sp.vstack([X, new], format="csr")
