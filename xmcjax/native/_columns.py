"""Some columns of a matrix as rows, and back: NumPy would read a cache line for every number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xmcjax.native._calls import InPlace


def take_columns(matrix: np.ndarray, columns: Sequence[int]) -> np.ndarray:
    """matrix[:, columns].T, [k, rows], of a C-contiguous float32 or float64 matrix.

    Raises:
        ValueError: a matrix of another kind, or a number that is no column of it.
    """
    which = _places(columns)
    rows = np.empty((len(which), len(matrix)), matrix.dtype)
    InPlace.once("take_columns", matrix=matrix, which=which, rows=rows)
    return rows


def put_columns(matrix: np.ndarray, columns: Sequence[int], rows: np.ndarray) -> None:
    """matrix[:, columns] = rows.T, of C-contiguous matrices of one type, float32 or float64.

    Raises:
        ValueError: matrices of other kinds or shapes, or a number that is no column of the first.
    """
    InPlace.once("put_columns", matrix=matrix, which=_places(columns), rows=rows)


def _places(columns: Sequence[int]) -> np.ndarray:
    which = np.array(columns, np.int64)
    narrow = which.astype(np.int32)
    if np.any(narrow != which):
        raise ValueError(f"expected the number of a column, got {which[narrow != which][0]}")
    return narrow
