"""Matrices as their arrays, and through a pipe between two processes without a copy of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import Connection

import numpy as np
import scipy.sparse as sp

# Bytes of an array that are sent at once.
_PIECE = 1 << 26


def arrays_of(matrix) -> tuple[str, list[np.ndarray]]:
    """The form of a matrix, dense, CSR or CSC, and its arrays."""
    if sp.issparse(matrix):
        return matrix.format, [matrix.data, matrix.indices, matrix.indptr]
    return "dense", [np.ascontiguousarray(matrix)]


def of_arrays(form: str, arrays: Sequence[np.ndarray], shape: Sequence[int]):
    """The matrix that :func:`arrays_of` took apart."""
    if form == "dense":
        return arrays[0]
    return {"csr": sp.csr_matrix, "csc": sp.csc_array}[form](tuple(arrays), shape=tuple(shape))


def send_matrix(connection: Connection, matrix) -> None:
    """A matrix, dense, CSR or CSC, that :func:`receive_matrix` makes again."""
    form, arrays = arrays_of(matrix)
    connection.send((form, matrix.shape, [(a.dtype.str, a.shape) for a in arrays]))
    for array in arrays:
        view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        for first in range(0, len(view), _PIECE):
            connection.send_bytes(view[first : first + _PIECE])


def receive_matrix(connection: Connection):
    """The matrix that is sent, in memory that this process is the first to touch."""
    form, shape, kinds = connection.recv()
    arrays = [np.empty(size, np.dtype(dtype)) for dtype, size in kinds]
    for array in arrays:
        view = array.reshape(-1).view(np.uint8).data
        for first in range(0, len(view), _PIECE):
            connection.recv_bytes_into(view[first : first + _PIECE])
    return of_arrays(form, arrays, shape)
