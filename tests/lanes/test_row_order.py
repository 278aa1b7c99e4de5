"""Rows are trained on by their lengths, and nobody sees it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.lanes import small, train, vector
from tests.support.problems import needs_native


def uneven(seed=0):
    """Rows of 0 to 40 entries, two of them alike, and weights of the rows."""
    X, Y = small(n=150, labels=12, dtype=np.float64, seed=seed)
    rng = np.random.default_rng(seed)
    X = sp.random(150, 100, 0.4, format="csr", random_state=seed) / 4
    X.data[np.repeat(rng.random(150), np.diff(X.indptr)) < 0.5] = 0
    X.eliminate_zeros()
    return X, Y, np.where(rng.random(150) < 0.2, 0, rng.integers(1, 4, 150).astype(float))


@needs_native
@pytest.mark.parametrize("wide", [False, True])
def test_rows_of_any_length_in_any_order(wide):
    X, Y, weight = uneven()
    if wide:
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    lengths = np.diff(X.indptr)
    assert lengths.min() == 0 and len(set(lengths)) > 10 and (np.diff(lengths) < 0).any()
    order = np.random.default_rng(1).permutation(150)
    options = dict(sample_weight=weight, labels=np.array([3, 0, 7, 5]), tol=1e-4)
    kept = X.copy()
    plain, _ = train(X, Y, backend="jnp", **options)
    ours, _ = train(X, Y, backend="native", **options)
    again, _ = train(X[order], Y[order], backend="native", **(options | dict(sample_weight=weight[order])))
    assert list(ours) and plain.keys() == ours.keys() == again.keys()
    for label, reference in plain.items():
        for result in (ours[label], again[label]):
            assert result.value == pytest.approx(reference.value, rel=1e-4)
            np.testing.assert_allclose(vector(result, 100), vector(reference, 100), atol=2e-2)
    np.testing.assert_array_equal(X.indptr, kept.indptr)
    np.testing.assert_array_equal(X.data, kept.data)


@pytest.mark.parametrize("what", ["X", "Y"])
def test_rows_that_end_before_they_begin(what):
    X, Y = small()
    wrong = sp.csr_matrix((np.ones(6, np.float32), np.zeros(6, np.int32), [0, 5, 2, 6]), shape=(3, 4))
    right = {"X": X[:3], "Y": Y[:3]}
    with pytest.raises(ValueError, match=r"indptr|index pointer"):
        train(**(right | {what: wrong}), sample_weight=np.array([1.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match=r"indptr|index pointer"):
        train(**(right | {what: wrong}))
