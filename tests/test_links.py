"""Logarithms of probabilities beside those in more digits."""

import numpy as np
import pytest

from tests.support.internals import links


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
