"""The checked, canonical form of the matrices that the writers and the npz format hold."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax._finite import first_place, place_not_finite
from xmcjax._sparse import Sparse, canonical_csr, dense


def canonical_features(X: Sparse, *, zeros: bool = False) -> sp.csr_matrix:
    """Canonical X of float32 or float64 with finite values; ``zeros`` says whether stored zeros are kept."""
    X = canonical_csr(X, "X", zeros=zeros)
    _check_dtype(X)
    _check_finite(X)
    return X


def dense_features(X: np.ndarray) -> np.ndarray:
    """Dense X [n, d] of float32 or float64 with finite values."""
    X = dense(X)
    _check_dtype(X)
    if X.ndim != 2:
        raise ValueError(f"X: expected features [n, d], got {X.ndim} dimension(s)")
    _check_finite(X)
    return X


def canonical_labels(Y: Sparse) -> sp.csr_matrix:
    """Canonical Y with ones only."""
    Y = canonical_csr(Y, "Y", zeros=False)
    place = first_place(Y, Y.data != 1)
    if place is not None:
        raise ValueError(f"Y must hold zeros and ones, but Y[{place[0]}, {place[1]}] is {place[2]}")
    return Y


def _check_dtype(X: sp.csr_matrix | np.ndarray) -> None:
    if X.dtype not in (np.float32, np.float64):
        raise TypeError(f"X: dtype must be float32 or float64, got {X.dtype}")


def _check_finite(X: sp.csr_matrix | np.ndarray) -> None:
    place = place_not_finite(X)
    if place is not None:
        raise ValueError(f"X must be finite, but X[{place[0]}, {place[1]}] is {place[2]}")


def check_rows(X: sp.csr_matrix | np.ndarray, y: sp.csr_matrix | np.ndarray) -> None:
    if X.shape[0] != y.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, but the labels have {y.shape[0]}")
