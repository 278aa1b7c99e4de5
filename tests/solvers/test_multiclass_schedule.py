"""The schedule of Weston-Watkins: a 1-factorization of the complete graph."""

import jax.numpy as jnp
import numpy as np
import pytest

from xmcjax.solvers.multiclass_dual import partner, round_count, round_pairs


@pytest.mark.parametrize("classes", range(2, 201))
def test_every_round_is_a_perfect_matching_and_all_rounds_cover_each_pair_once(classes):
    everyone = np.arange(classes)
    met = np.zeros((classes, classes), int)
    for r in range(round_count(classes)):
        other = partner(classes, everyone, r)
        np.testing.assert_array_equal(partner(classes, other, r), everyone)  # a matching
        assert np.count_nonzero(other == everyone) == classes % 2  # one rests where C is odd
        met[everyone, other] += 1
        first, second = round_pairs(classes, r)
        np.testing.assert_array_equal(other[first], second)
        assert len(set(first) | set(second)) == 2 * len(first) == classes - classes % 2
    assert (met[~np.eye(classes, dtype=bool)] == 1).all()
    assert (met.diagonal() == classes % 2).all()


@pytest.mark.parametrize("classes", [2, 3, 8, 9])
def test_pairs_in_jax(classes):
    for r in range(round_count(classes)):
        traced = round_pairs(classes, jnp.int32(r), jnp)
        for ours, theirs in zip(traced, round_pairs(classes, r), strict=True):
            np.testing.assert_array_equal(ours, theirs)
