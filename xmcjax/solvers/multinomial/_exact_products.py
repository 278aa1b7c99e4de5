"""Products with the features of a problem in float64, whatever their dtype is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax.linops import Csr, Dense
from xmcjax.solvers import _products

# Numbers of the dense rows that are multiplied at once, which stay in a cache. There are at least as many
# rows as columns of the other matrix, because BLAS rearranges that matrix for each product.
_NUMBERS_AT_ONCE = 1 << 17


class SparseFeatures:
    """Products with CSR features.

    Args:
        X: the features.
        threads: of a product; their number changes no bit.
    """

    def __init__(self, X: sp.csr_array, threads: int):
        self._X, self._threads = X, threads

    def products(self, *Vs: np.ndarray) -> list[np.ndarray]:
        """X V of each [d, K]."""
        return [_products.product(self._X, V.astype(np.float64, copy=False), self._threads) for V in Vs]

    def transposed(self, *Rs: np.ndarray) -> list[np.ndarray]:
        """Xᵀ R of each [n, K]."""
        return [_products.transposed(self._X, R, self._threads) for R in Rs]

    def scored(self, w: np.ndarray, *Vs: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """X V of each [d, K], and |X| w, [n]."""
        return self.products(*Vs), abs(self._X) @ w

    def squared_transposed(self, R: np.ndarray) -> np.ndarray:
        """Xᵀ with its entries squared, times R [n, K]."""
        return _squared(self._X).T @ R


class DenseFeatures:
    """Products with dense features, of which some rows at a time are made float64, and never all of X.

    Args:
        X: the features.
    """

    def __init__(self, X: np.ndarray):
        self._X = X

    def products(self, *Vs: np.ndarray) -> list[np.ndarray]:
        """X V of each [d, K], by one pass over X."""
        return self.scored(None, *Vs)[0]

    def scored(self, w: np.ndarray | None, *Vs: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """X V of each [d, K], and |X| w, [n], where w is given."""
        n = len(self._X)
        found, sizes, room = [np.empty((n, V.shape[1])) for V in Vs], np.empty(n), None
        for part, rows in self._parts(max(V.shape[1] for V in Vs)):
            for V, out in zip(Vs, found, strict=True):
                np.matmul(rows, V, out=out[part])
            if w is not None:
                room = np.empty_like(rows) if room is None else room
                np.matmul(np.abs(rows, out=room[: len(rows)]), w, out=sizes[part])
        return found, sizes

    def transposed(self, *Rs: np.ndarray) -> list[np.ndarray]:
        """Xᵀ R of each [n, K]."""
        found = [np.zeros((R.shape[1], self._X.shape[1])) for R in Rs]
        for part, rows in self._parts(max(R.shape[1] for R in Rs)):
            for R, out in zip(Rs, found, strict=True):
                out += R[part].T @ rows  # BLAS reads rows in their order, which for few columns is faster
        return [out.T for out in found]

    def squared_transposed(self, R: np.ndarray) -> np.ndarray:
        """Xᵀ with its entries squared, times R [n, K]."""
        found = np.zeros((R.shape[1], self._X.shape[1]))
        for part, rows in self._parts(R.shape[1]):
            found += R[part].T @ np.square(rows)
        return found.T

    def _parts(self, columns: int) -> Iterator[tuple[slice, np.ndarray]]:
        """The rows of X, part by part in float64, with their places; the next part overwrites the last."""
        n, d = self._X.shape
        most = min(max(_NUMBERS_AT_ONCE // max(d, 1), columns, 1), max(n, 1))
        room = None if self._X.dtype == np.float64 else np.empty((most, d))
        for first in range(0, n, most):
            part = slice(first, min(first + most, n))
            rows = self._X[part]
            if room is not None:
                np.copyto(room[: len(rows)], rows)
                rows = room[: len(rows)]
            yield part, rows


def features_of(op, threads: int) -> DenseFeatures | SparseFeatures:
    """The products of an operator whose numbers are at hand."""
    if isinstance(op, Dense):
        return DenseFeatures(np.asarray(op.X))
    assert isinstance(op, Csr)
    return SparseFeatures(_sparse.csr(op.to_scipy().astype(np.float64)), threads)


def _squared(X):
    return X.multiply(X).tocsr()
