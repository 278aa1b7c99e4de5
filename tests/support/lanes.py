"""Data and a collector of results, shared by the tests of lanes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax.data import make_power_law
from xmcjax.lanes import OneVsAll, train_one_vs_all
from xmcjax.native import available

native = pytest.mark.skipif(not available(), reason="no native kernels")


def small(n=200, d=100, labels=30, dtype=np.float32, seed=0):
    """Rows of norm 1; the labels at the tail have no positives."""
    X, Y = make_power_law(n, d, labels, labels_per_row=2, exponent=1.3, seed=seed, dtype=dtype)
    X = sp.csr_matrix(X)
    X.data /= np.repeat(np.sqrt(np.asarray(X.power(2).sum(1)).ravel()), np.diff(X.indptr)).astype(dtype)
    return X, sp.csr_matrix(Y)


def train(
    X,
    Y,
    sink=None,
    *,
    sample_weight=None,
    label_weights=None,
    labels=None,
    may_begin=None,
    observe=None,
    **options,
):
    """(results by label, summary)."""
    results = {}

    def keep(result):
        assert result.label not in results
        results[result.label] = result

    summary = train_one_vs_all(
        X,
        Y,
        OneVsAll(**options),
        sink or keep,
        sample_weight=sample_weight,
        label_weights=label_weights,
        labels=labels,
        may_begin=may_begin,
        observe=observe,
    )
    return results, summary


def assert_same_bits(ours, reference):
    assert ours.keys() == reference.keys()
    for label, result in reference.items():
        for name, a, b in zip(result._fields, ours[label], result, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{name} of label {label}")
