"""Logarithms of probabilities beside those in more digits."""

import numpy as np
import pytest

from tests.support.internals import links
from tests.support.memory import peak_of


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_sigmoid_has_all_digits_in_both_tails(dtype):
    """And of inf and nan what they are, without a word."""
    rng = np.random.default_rng(0)
    z = np.concatenate([np.linspace(-80, 80, 2001), 100 * rng.normal(size=500), [0.0, -0.0, 1e-30, -1e4]])
    z = z.astype(dtype)[None, :]
    before = z.copy()
    found = links.log_sigmoid(z)
    assert found.dtype == dtype and found.shape == z.shape
    np.testing.assert_array_equal(z, before)
    more = z.astype(np.longdouble)
    expected = np.where(more > 0, -np.log1p(np.exp(-abs(more))), more - np.log1p(np.exp(-abs(more))))
    tiny = float(np.finfo(dtype).tiny)
    np.testing.assert_allclose(found, expected, rtol=4 * float(np.finfo(dtype).eps), atol=tiny)
    ends = links.log_sigmoid(np.array([np.inf, -np.inf, np.nan], dtype))
    np.testing.assert_array_equal(ends, [0, -np.inf, np.nan])


def reference(link, z):
    """p and log p of scores without rows of −∞ alone, in more digits."""
    z = z.astype(np.longdouble)
    log_sigma = np.minimum(z, 0) - np.log1p(np.exp(-abs(z)))
    if link == "sigmoid":
        return np.exp(log_sigma), log_sigma
    z = z if link == "softmax" else log_sigma
    below = z - z.max(axis=1, keepdims=True)
    log_p = below - np.log(np.exp(below).sum(axis=1, keepdims=True))
    return np.exp(log_p), log_p


def hard_scores(n_labels, dtype):
    """Rows of scores of every size, of both signs or low ones only, with ties and labels never predicted."""
    rng = np.random.default_rng(n_labels)
    z = rng.normal(size=(30, n_labels)) * np.repeat([0.1, 1, 30, 1e4, 1e30], 6)[:, None]
    z[1::6] = -abs(z[1::6])
    z[2::6] -= 1000
    z[3::6] = z[3::6, :1]
    z[4::6, n_labels // 2 :] = -np.inf
    return z.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_labels", [2, 5, 32, 33, 40_000])
@pytest.mark.parametrize("link", ["softmax", "sigmoid", "one_of"])
def test_probabilities_have_all_digits(link, n_labels, dtype):
    z = hard_scores(n_labels, dtype)
    expected, log_expected = reference(link, z)
    p, log_p = links.probabilities(link, z.copy()), links.log_probabilities(link, z.copy())
    assert p.dtype == log_p.dtype == dtype
    limits = np.finfo(dtype)
    # the difference of two scores, rounded, is an exponent
    ulps = 8 + 2 * abs(np.where(np.isfinite(log_expected), log_expected, 0))
    assert (
        abs(p - expected) <= ulps * float(limits.eps) * expected + 2 * float(limits.smallest_subnormal)
    ).all()
    np.testing.assert_allclose(log_p, log_expected, rtol=8 * float(limits.eps), atol=8 * float(limits.eps))
    if link != "sigmoid":
        np.testing.assert_allclose(p.sum(axis=1, dtype=float), 1, rtol=16 * float(limits.eps))


@pytest.mark.parametrize("function", ["probabilities", "log_probabilities"])
@pytest.mark.parametrize("link", ["softmax", "one_of"])
def test_a_row_without_a_label_that_can_be_predicted_has_no_probability(link, function):
    z = np.float32([[-np.inf] * 3, [0, -np.inf, np.nan]])
    none, one = (0, 1) if function == "probabilities" else (-np.inf, 0)
    found = getattr(links, function)(link, z)
    np.testing.assert_array_equal(found, [[none] * 3, [one, none, none]])


@pytest.mark.parametrize("function", ["probabilities", "log_probabilities"])
@pytest.mark.parametrize("link", ["softmax", "one_of"])
def test_probabilities_of_some_labels_are_those_among_all(link, function):
    z = hard_scores(40, np.float32)
    expected = getattr(links, function)(link, z.copy())[:, [7, 3]]
    np.testing.assert_array_equal(getattr(links, function)(link, z[:, [7, 3]].copy(), z.copy()), expected)


@pytest.mark.parametrize("function", ["probabilities", "log_probabilities"])
@pytest.mark.parametrize("link", ["softmax", "sigmoid", "one_of"])
def test_probabilities_take_the_place_of_the_scores(link, function):
    """Beside them there is room for a few rows only."""
    z = np.random.default_rng(0).normal(size=(2000, 1000))
    found, peak = peak_of(lambda: getattr(links, function)(link, z))
    assert found is z and peak < z.nbytes / 8
