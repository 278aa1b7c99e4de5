"""The piecewise linear bounds of section 3.1 of paper 002."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from experiments.papers.p002 import piecewise
from tests.support.experiments import assert_drawn, written


@pytest.mark.parametrize("pieces", [2, 3, 4, 9])
def test_the_best_pieces_of_two_terms_have_equal_errors(pieces):
    slopes, offsets, error = piecewise.two_terms(pieces)
    x = np.linspace(-40, 40, 400_001)
    below = np.logaddexp(0, x) - (slopes * x[:, None] + offsets).max(axis=1)
    assert len(slopes) == pieces and np.all(np.diff(slopes) > 0) and below.min() >= -1e-12
    # where two neighbours meet, and nowhere more than there
    meet = -np.diff(offsets) / np.diff(slopes)
    at = np.logaddexp(0, meet) - (slopes * meet[:, None] + offsets).max(axis=1)
    np.testing.assert_allclose(at, error, rtol=1e-6)
    assert below.max() <= error * (1 + 1e-6)
    if pieces == 2:
        assert error == pytest.approx(np.log(2))


@pytest.mark.parametrize("classes", [2, 3, 7, 8])
def test_a_tree_is_above_and_its_subgradient_supports_it(classes):
    rng = np.random.default_rng(0)
    Z = 3 * rng.standard_normal((400, classes))
    values, P = piecewise.upper(Z, 5)
    exact = scipy.special.logsumexp(Z, axis=1)
    assert np.all(values >= exact - 1e-12)
    assert np.all(values <= exact + np.ceil(np.log2(classes)) * piecewise.two_terms(5)[2] + 1e-12)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    assert P.min() >= 0
    # convex: no other point is below the plane
    other = Z + rng.standard_normal(Z.shape)
    assert np.all(piecewise.upper(other, 5)[0] >= values + (P * (other - Z)).sum(axis=1) - 1e-9)


@pytest.mark.parametrize("pieces", [2, 3, 5])
def test_the_number_of_pieces_of_a_tree(pieces):
    """Two pieces of a node are one of its sides, the others are each pair of both."""
    counts = [1]
    for _ in range(3):
        counts.append((pieces - 2) * counts[-1] ** 2 + 2 * counts[-1])
    for level, count in enumerate(counts[1:], 1):
        assert piecewise.log10_of_pieces(pieces, 2**level) == pytest.approx(np.log10(count))


def test_a_smooth_objective_is_minimised_and_one_with_kinks_is_not(tmp_path):
    few = dict(pieces=(2, 8), classes=(2, 8), searched=(2,), points=200, evaluations=500, iterations=60)
    result = piecewise.run(piecewise.Options(**few, out=tmp_path))
    best, (two, eight) = result["problem"]["best"], result["fits"]
    # every bound is above, and at weights of 0 all classes are at a kink of two pieces
    assert best["value"] <= min(two["G"], eight["G"]) and eight["G"] < eight["value"] < two["value"]
    assert two["iterations"] == 0 and best["slope"] < eight["slope"]
    (search,) = result["searches"]
    # the points miss the worst place a little
    assert 0.9 * piecewise.two_terms(4)[2] <= search["end"] < search["by_classes"]
    stored, text = written(tmp_path, "piecewise", result, piecewise.markdown(result))
    assert stored["two"][0]["error"] == pytest.approx(np.log(2)) and "| 2 | 0.6931 / 0.3 |" in text
    assert_drawn(tmp_path / "piecewise.png", lambda axes: piecewise.draw(result, axes))
