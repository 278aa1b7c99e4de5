"""Data, trainings and what they give, shared by the tests of lanes."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tests.support import objectives
from xmcjax.data import make_power_law
from xmcjax.lanes import OneVsAll, train_one_vs_all

# Arguments of train_one_vs_all; the others are options.
_OWN = {"sample_weight", "label_weights", "labels", "may_begin", "observe"}


def small(n=200, d=100, labels=30, dtype=np.float32, seed=0):
    """Rows of norm 1; the labels at the tail have no positives."""
    X, Y = make_power_law(n, d, labels, labels_per_row=2, exponent=1.3, seed=seed, dtype=dtype)
    X = sp.csr_matrix(X)
    X.data /= np.repeat(np.sqrt(np.asarray(X.power(2).sum(1)).ravel()), np.diff(X.indptr)).astype(dtype)
    return X, sp.csr_matrix(Y)


def train(X, Y, sink=None, **options):
    """(results by label, summary)."""
    results = {}

    def keep(result):
        assert result.label not in results
        results[result.label] = result

    own = {name: options.pop(name) for name in _OWN & options.keys()}
    return results, train_one_vs_all(X, Y, OneVsAll(**options), sink or keep, **own)


def signs(Y, label):
    """The targets ±1 of a label."""
    return 2 * Y[:, [label]].toarray().ravel() - 1


def vector(result, d):
    """The weights [d] of a result."""
    w = np.zeros(d)
    w[result.indices] = result.values
    return w


def matrix(results, d):
    """(W [d, labels], b) of all results."""
    in_order = [result for _, result in sorted(results.items())]
    return np.stack([vector(result, d) for result in in_order], axis=1), np.array([r.bias for r in in_order])


def values(X, Y, results, loss="squared_hinge", costs=1.0, l2_bias=1.0):
    """f of each label, from its weights in float64."""
    W, b = matrix(results, X.shape[1])
    return objectives.lanes(X.astype(float), 2 * Y.toarray() - 1.0, W, b, loss, costs, l2_bias=l2_bias)


def margins(X, Y, result):
    """y (Xw + b) of a label, for the weights that it has."""
    return signs(Y, result.label) * (X[:, result.indices] @ result.values.astype(float) + result.bias)


def assert_same_bits(ours, reference):
    assert ours.keys() == reference.keys()
    for label, result in reference.items():
        for name, a, b in zip(result._fields, ours[label], result, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{name} of label {label}")
