"""The minimum spanning tree of labels against Prim's algorithm on the complete graph."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xmcjax.inits import label_tree


def distances(Y, weight=None):
    """Hamming distances of all pairs of labels, the empty label last."""
    s = np.ones(len(Y)) if weight is None else weight
    columns = np.column_stack([Y, np.zeros(len(Y))]).T
    return np.abs(columns[:, None] - columns[None]) @ s


def least_total(lengths):
    """The weight of a minimum spanning tree, by Prim's algorithm from the last node."""
    reach, total = lengths[-1].copy(), 0.0
    outside = set(range(len(lengths) - 1))
    while outside:
        nearest = min(outside, key=reach.__getitem__)
        total += reach[nearest]
        outside.remove(nearest)
        reach = np.minimum(reach, lengths[nearest])
    return total


def check(Y, weight=None):
    parents = label_tree(sp.csc_array(Y.astype(np.float32)), weight)
    count = Y.shape[1]
    assert parents.shape == (count,) and parents.min(initial=-1) >= -1 and parents.max(initial=-1) < count
    for label in range(count):  # every label hangs on the root
        for _ in range(count):
            label = parents[label] if label >= 0 else label
        assert label == -1
    lengths = distances(Y, weight)
    total = lengths[np.arange(count), parents].sum()
    np.testing.assert_allclose(total, least_total(lengths), rtol=1e-12)
    return parents


matrices = hnp.arrays(bool, st.tuples(st.integers(1, 8), st.integers(1, 7)))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(matrices, st.none() | st.integers(0, 1000))
def test_the_total_is_the_least(Y, seed):
    """Of rows that weigh the same, and of rows with weights."""
    check(Y, None if seed is None else np.random.default_rng(seed).random(len(Y)) + 0.01)


@pytest.mark.parametrize("seed", range(3))
def test_larger_matrices(seed):
    rng = np.random.default_rng(seed)
    Y = rng.random((60, 40)) < rng.random(40) * 0.3
    Y[:, 5] = Y[:, 6] = Y[:, 7]  # duplicates
    Y[:, 8:10] = 0  # no positives
    Y[:, 10] = 1
    check(Y)


def test_labels_on_the_same_rows_hang_together():
    Y = np.zeros((30, 3))
    Y[:20, 0] = Y[:20, 2] = 1
    Y[20:, 1] = 1
    parents = check(Y)
    assert parents[1] == -1
    assert sorted([parents[0], parents[2]]) in ([-1, 0], [-1, 2])


def test_a_label_hangs_on_the_one_it_lies_in():
    Y = np.zeros((30, 2))
    Y[:20, 0] = Y[:15, 1] = 1
    assert check(Y).tolist() == [1, -1]
