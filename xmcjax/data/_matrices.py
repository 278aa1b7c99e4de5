"""The checked, canonical form of the matrices that the writers and the npz format hold."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from xmcjax.data._text import value_dtype

Sparse: TypeAlias = "sp.sparray | sp.spmatrix"


def canonical(matrix: Sparse, name: str) -> sp.csr_matrix:
    """CSR with sorted rows, no duplicates and no explicit zeros; the argument is left as it is.

    Raises:
        TypeError: not a sparse matrix of two dimensions.
    """
    if not sp.issparse(matrix) or matrix.ndim != 2:
        raise TypeError(f"{name} must be a sparse matrix of two dimensions, got {type(matrix).__name__}")
    csr = sp.csr_matrix(matrix)
    if not csr.has_canonical_format or (csr.data == 0).any():
        csr = sp.csr_matrix(matrix, copy=True)
        csr.sum_duplicates()
        csr.eliminate_zeros()
    return csr


def canonical_features(X: Sparse) -> sp.csr_matrix:
    """Canonical X of float32 or float64 with finite values."""
    X = canonical(X, "X")
    value_dtype(X.dtype)
    finite = np.isfinite(X.data)
    if not finite.all():
        row, column, value = _first(X, ~finite)
        raise ValueError(f"X must be finite, but X[{row}, {column}] is {value}")
    return X


def canonical_labels(Y: Sparse) -> sp.csr_matrix:
    """Canonical Y with ones only."""
    Y = canonical(Y, "Y")
    ones = Y.data == 1
    if not ones.all():
        row, column, value = _first(Y, ~ones)
        raise ValueError(f"Y must hold zeros and ones, but Y[{row}, {column}] is {value}")
    return Y


def check_rows(X: sp.csr_matrix, y: sp.csr_matrix | np.ndarray) -> None:
    if X.shape[0] != y.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, but the labels have {y.shape[0]}")


def _first(matrix: sp.csr_matrix, mask: np.ndarray) -> tuple[int, int, object]:
    """Row, column and value of the first entry in the mask."""
    entry = int(np.argmax(mask))
    row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
    return row, int(matrix.indices[entry]), matrix.data[entry]
