"""The schedule of Weston-Watkins: a 1-factorization of the complete graph, and the lanes that play it."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xmcjax.solvers.multiclass_dual import partner, round_count, round_pairs
from xmcjax.solvers.multiclass_dual._schedule import segments


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


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(1, 40), min_size=2, max_size=40))
def test_segments_hold_every_round(sizes):
    sizes = np.array(sizes)
    cut = segments(sizes)
    assert cut[0][0] == len(sizes) // 2
    steps_of_lane = np.zeros(len(sizes) // 2, int)
    for lanes, steps in cut:
        steps_of_lane[:lanes] += steps
    most = np.zeros_like(steps_of_lane)
    for r in range(round_count(len(sizes))):
        first, second = round_pairs(len(sizes), r)
        needed = np.sort(sizes[first] + sizes[second])[::-1]
        assert (steps_of_lane >= needed).all()
        most = np.maximum(most, needed)
    assert steps_of_lane[0] == most[0]  # and no step is for nothing
