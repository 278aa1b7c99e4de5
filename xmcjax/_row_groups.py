"""Rows of a matrix some at a time, by how many entries they have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp


def groups(indptr: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Rows side by side, first and last + 1, with about `most` entries together, or one row that has more."""
    first, rows = 0, len(indptr) - 1
    while first < rows:
        last = int(np.searchsorted(indptr, int(indptr[first]) + most, side="right")) - 1
        last = min(max(last, first + 1), rows)
        yield first, last
        first = last


def groups_of(X: Any, most: int) -> Iterator[tuple[int, int]]:
    """:func:`groups` of a matrix, checked CSR, or an array [n, d], all of whose places are entries."""
    n, d = X.shape
    return groups(X.indptr if sp.issparse(X) else np.arange(n + 1) * d, most)
