"""Squared norms of rows, and whether numbers are within the range of a dtype."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import ranges


def _features(n=37, d=11):
    """CSR with rows without entries, the first and the last among them, and entries that are in no order."""
    X = sp.random(n, d, 0.4, format="csr", random_state=0)
    X = sp.csr_matrix(X.multiply((np.arange(n) % 3 > 0)[:, None] & (np.arange(n) < n - 2)[:, None]))
    X.eliminate_zeros()
    for first, last in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        X.indices[first:last], X.data[first:last] = X.indices[first:last][::-1], X.data[first:last][::-1]
    X.has_sorted_indices = False
    return X


@pytest.mark.parametrize("own", [np.float32, np.float64])
@pytest.mark.parametrize("dtype", [None, np.float32, np.float64])
@pytest.mark.parametrize("form", [lambda X: X, lambda X: X.toarray()], ids=["csr", "dense"])
def test_squared_norms_of_rows(own, dtype, form, monkeypatch):
    monkeypatch.setattr(ranges, "_NUMBERS_AT_ONCE", 50)
    X = _features().astype(own)
    indices = X.indices.copy()
    found = ranges.squared_norms(form(X), dtype)
    assert found.dtype == (own if dtype is None else dtype)
    np.testing.assert_allclose(found, (X.toarray().astype(float) ** 2).sum(axis=1), rtol=1e-6)
    np.testing.assert_array_equal(X.indices, indices)


@pytest.mark.parametrize("shape", [(0, 4), (3, 4), (3, 0)])
def test_squared_norms_of_nothing(shape):
    for X in (np.zeros(shape), sp.csr_matrix(shape)):
        np.testing.assert_array_equal(ranges.squared_norms(X), np.zeros(shape[0]))


@pytest.mark.parametrize("form", [sp.csr_matrix, np.asarray])
def test_a_squared_norm_beyond_a_dtype_names_its_row(form):
    X = np.array([[1.0, 2.0], [0.0, 0.0], [1e25, 0.0]])
    ranges.check_norms(form(X), np.float64)
    with pytest.raises(ValueError, match="finite float32, which that of row 2 is not"):
        ranges.check_norms(form(X), np.float32)
