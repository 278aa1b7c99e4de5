"""Some columns of a matrix as rows, and back: NumPy would read a line of the cache for every number."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from xmcjax.native import _interrupts, _library


def take_columns(matrix: np.ndarray, columns: Sequence[int]) -> np.ndarray:
    """matrix[:, columns].T, [k, rows], of a C-contiguous float32 or float64 matrix.

    Raises:
        ValueError: a matrix of another kind, or no column of it.
    """
    rows = np.empty((len(columns), matrix.shape[0]), matrix.dtype)
    _call("xmcjax_take_columns", matrix, columns, rows)
    return rows


def put_columns(matrix: np.ndarray, columns: Sequence[int], rows: np.ndarray) -> None:
    """matrix[:, columns] = rows.T, of C-contiguous matrices of one type, float32 or float64.

    Raises:
        ValueError: matrices of other kinds or shapes, or no column of the first.
    """
    _call("xmcjax_put_columns", matrix, columns, rows)


def _call(name: str, matrix: np.ndarray, columns: Sequence[int], rows: np.ndarray) -> None:
    which = np.array(columns, np.int64)
    if matrix.dtype not in (np.float32, np.float64) or not matrix.flags.c_contiguous:
        raise ValueError(f"expected a contiguous matrix of float32 or float64, got {matrix.dtype}")
    if rows.dtype != matrix.dtype or rows.shape != (len(which), len(matrix)) or not rows.flags.c_contiguous:
        expected = f"{matrix.dtype} {[len(which), len(matrix)]}"
        raise ValueError(f"expected contiguous rows of {expected}, got {rows.dtype} {list(rows.shape)}")
    if ((which < 0) | (which >= matrix.shape[1])).any():
        raise ValueError(f"expected columns from 0 to {matrix.shape[1] - 1}, got {which.tolist()}")
    library = _library.load()
    assert library is not None  # the caller has seen that it is there
    ended = getattr(library, name)(
        ctypes.c_int32(matrix.dtype == np.float64),
        ctypes.c_void_p(matrix.ctypes.data),
        *(ctypes.c_int64(size) for size in matrix.shape),
        ctypes.c_void_p(which.ctypes.data),
        ctypes.c_int64(len(which)),
        ctypes.c_void_p(rows.ctypes.data),
    )
    _interrupts.check(ended, "columns")
