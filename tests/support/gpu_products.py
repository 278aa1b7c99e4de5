"""What tests of kernels for a GPU multiply: uneven rows, operators of pieces, and the products by name."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax import linops
from xmcjax.linops import Grouped

_SOME = linops.make(sp.csr_matrix((1, 1), dtype=np.float32), backend="gpu")
assert isinstance(_SOME, Grouped)
Rows = type(_SOME.rows)
PRODUCTS = {
    "matmat": lambda F, D, V: F.matmat(V),
    "rmatmat": lambda F, D, V: F.rmatmat(D),
    "gram_matmat": lambda F, D, V: F.gram_matmat(D, V),
    "squared_rmatmat": lambda F, D, V: F.squared_rmatmat(D),
}


def uneven(dtype=np.float32, n=150, d=83):
    """Empty rows and columns, full ones, some of exactly one group, and many entries of a few."""
    rng = np.random.default_rng(0)
    filled = rng.random((n, d)) < 0.6 * rng.random((n, 1)) ** 3
    filled[[0, 7, n - 1]] = False
    filled[:, [0, 11, d - 1]] = False
    filled[20, 1:-1] = filled[1:-1, 4] = True
    filled[21] = np.arange(d) < 8
    return sp.csr_matrix(np.where(filled, rng.normal(size=(n, d)), 0).astype(dtype))


def grouped(X, piece=64, kernels="interpreted"):
    return Grouped(Rows.of(X, piece), Rows.of(X.T.tocsr(), piece), X.shape, kernels)


def check_what_is_skipped(kernels):
    """NaN in rows that D leaves out, and in columns that only filled-up groups name, goes nowhere."""
    F = grouped(sp.csr_matrix(np.array([[0.0, 2, 0], [0, 0, 3]])), kernels=kernels)
    V = np.array([[np.nan], [1.0], [np.nan]])
    np.testing.assert_array_equal(F.matmat(V), [[2.0], [np.nan]])
    np.testing.assert_array_equal(F.gram_matmat(np.array([[1.0], [0.0]]), V), [[0.0], [4.0], [0.0]])
