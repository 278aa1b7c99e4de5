"""Products of CSR matrices of float64 on the host, by the native kernels where there are such."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax import native


def product(X: sp.csr_array, V: np.ndarray, threads: int = 1) -> np.ndarray:
    """X V; the number of threads changes no bit."""
    if not native.available():
        return X @ V
    out = np.zeros((X.shape[0], V.shape[1]))
    V = np.ascontiguousarray(V)
    native.InPlace.once("csr_matmat", X=native.csr_arrays(X), V=V, threads=threads, out=out)
    return out


def transposed(X: sp.csr_array, C: np.ndarray, threads: int = 1) -> np.ndarray:
    """Xᵀ C; the number of threads changes no bit."""
    if not native.available():
        return X.T @ C
    out = np.zeros((X.shape[1], C.shape[1]))
    native.InPlace.once("csr_rmatmat", X=native.csr_arrays(X), C=C, threads=threads, out=out)
    return out
