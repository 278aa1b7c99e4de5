"""Losses of scores that are large, far apart or tiny: values and slopes keep their digits and stay finite."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.losses import (
    CASES,
    ROWS,
    M,
    compiled,
    expected,
    softmax,
)
from xmcjax import losses


def test_the_truncated_entropy_of_a_class_far_below_has_the_slope_of_all_others():
    """Its value has no digits for the log of the number of those classes; in float64 both have."""
    for m, low in ((10, 1e9), (200, 1e7)):
        z = jnp.asarray(np.random.default_rng(5).normal(size=m)).at[0].set(-low)
        slope = jax.grad(losses.truncated_topk_entropy)
        g, wide = slope(z.astype(jnp.float32), jnp.asarray(0), 3), slope(z + low, jnp.asarray(0), 3)
        np.testing.assert_allclose(g[0], -1, rtol=1e-5)
        if low == 1e7:
            np.testing.assert_allclose(g, wide, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("most", [20.0, 1e8, 1e30])
def test_the_topk_entropy_with_one_class_far_above_the_others(most, dtype):
    """That class and the next are at 1/k, and the others share the rest as a softmax."""
    z = jnp.asarray([-1e8, most, 1, 0, 0, 3], dtype)
    rest = np.exp([1.0, 0, 0]) / np.sum(np.exp([1.0, 0, 0])) / 3
    value, g = jax.jit(jax.value_and_grad(lambda z: losses.topk_entropy(z, jnp.asarray(0), 3)))(z)
    np.testing.assert_allclose(g, [-1, 1 / 3, *rest, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(value, 1e8 + (most + 3 + np.log(np.e + 2)) / 3 + np.log(3), rtol=1e-6)
    tied, low = jnp.asarray([-1e9, 1, -1e9, -1e9, -1e9, -1e9], dtype), [-1, 1 / 3, *[1 / 6] * 4]
    np.testing.assert_allclose(
        jax.jit(jax.grad(losses.topk_entropy), static_argnums=2)(tied, 0, 3), low, rtol=1e-6
    )


@pytest.mark.parametrize("variant", ["alpha", "beta"])
@pytest.mark.parametrize("gamma", [1e-6, 1.0, 3.0])
def test_smooth_losses_of_scores_beyond_which_their_dtype_has_no_quotient(variant, gamma):
    smooth = partial(losses.smooth_topk_hinge, variant=variant)
    most, y = float(jnp.finfo(jnp.float32).max), jnp.asarray(1)
    z = jnp.asarray([1e36, 0, 5e35], jnp.float32)
    value, g = jax.value_and_grad(smooth)(z, y, 1, gamma)
    np.testing.assert_allclose(value, 1e36, rtol=1e-6)
    np.testing.assert_array_equal(g, [1, -1, 0])
    value, g = jax.value_and_grad(smooth)(z, y, 2, gamma)
    np.testing.assert_allclose(value, 7.5e35, rtol=1e-6)
    np.testing.assert_array_equal(g, [0.5, -1, 0.5])
    # differences that are beyond it
    for z in ([most, -most / 2, 0], [most, -most, most / 3]):
        value, g = jax.value_and_grad(smooth)(jnp.asarray(z, jnp.float32), y, 1, gamma)
        assert value == jnp.inf
        np.testing.assert_array_equal(g, [1, -1, 0])
    masked = partial(smooth, where=jnp.asarray([True, True, False]))
    value, g = jax.value_and_grad(masked)(jnp.asarray([most, -most, 0], jnp.float32), y, 1, gamma)
    assert value == jnp.inf
    np.testing.assert_array_equal(g, [1, -1, 0])


def test_the_sparsemax_loss_of_differences_beyond_the_dtype_has_the_slope_of_the_largest():
    z = jnp.asarray([-3e38, 1e38, 3e38], jnp.float32)
    value, g = jax.value_and_grad(losses.sparsemax)(z, jnp.asarray(0))
    assert value == jnp.inf
    np.testing.assert_array_equal(g, [-1, 0, 1])


def test_the_topk_entropy_of_others_that_are_farther_apart_than_their_dtype_reaches():
    z = jnp.asarray([0, 3e38, -3e38, -3.2e38], jnp.float32)
    value, g = jax.value_and_grad(losses.topk_entropy)(z, jnp.asarray(0), 2)
    np.testing.assert_allclose(value, np.log(2), rtol=1e-6)  # of ½ 3e38 − ½ 3e38
    np.testing.assert_allclose(g, [-0.5, 0.25, 0.25, 0], rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_large_scores(name):
    """±1e4, where a naive exponential is infinite; and differences of 1 between scores of 1e4."""
    numbers = np.array([1e4, 1e4 - 1, 1e4 - 2, 0, 0, 1, 2, -1e4, -1e4])
    if name == "lc_bound":  # e^{z + log a} is infinite itself
        numbers = np.minimum(numbers, 80)
    z = np.random.default_rng(20).permuted(np.tile(numbers, (ROWS, 1)), axis=1)
    y = jnp.arange(ROWS) % M
    reference = expected(CASES[name].reference, z, y)
    for dtype, rtol in ((jnp.float64, 1e-12), (jnp.float32, 1e-5)):
        found, g = compiled(name)(jnp.asarray(z, dtype), y)
        assert np.isfinite(found).all() and np.isfinite(g).all()
        np.testing.assert_allclose(np.asarray(found, np.float64), reference, rtol=rtol, atol=1e-6)


def test_small_losses_keep_their_digits():
    z = jnp.asarray([[20.0, 0, -1, -2], [40.0, 0, -1, -2]], jnp.float32)
    y = jnp.asarray([0, 0])
    small = expected(softmax, z, y)
    assert 0 < small[1] < 1e-16
    np.testing.assert_allclose(losses.softmax_cross_entropy(z, y), small, rtol=4e-6)
    g = jax.grad(lambda z: jnp.sum(losses.softmax_cross_entropy(z, y)))(z)
    np.testing.assert_allclose(g[:, 0], -small, rtol=4e-6)


def test_the_slope_of_the_cross_entropy_has_its_digits_at_large_losses():
    # differences from the largest score, not from that of the label, which is far below
    z = jnp.asarray([[-1e4, 0.0, 0.3, -2.0], [-jnp.inf, 0.0, 0.3, -2.0]], jnp.float32)
    y = jnp.asarray([0, 0])
    value, slope = jax.value_and_grad(lambda z: jnp.sum(losses.softmax_cross_entropy(z, y)))(z)
    assert value == jnp.inf
    expected = np.exp(np.float64(z[0, 1:]))
    np.testing.assert_allclose(slope, np.tile([-1, *expected / expected.sum()], (2, 1)), rtol=3e-7)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(
    "loss",
    [
        losses.softmax_cross_entropy,
        losses.sparsemax,
        partial(losses.topk_entropy, k=2),
        partial(losses.truncated_topk_entropy, k=2),
    ],
)
def test_scores_whose_differences_overflow(loss, dtype):
    most = 0.9 * float(jnp.finfo(dtype).max)
    rows = {(-most, most, 0.0): ((0, 0, 0), 0)}
    if not isinstance(loss, partial):  # of which two classes count
        rows[most, -most, 0.0] = (1, -1, 0), jnp.inf
    if loss is not losses.sparsemax:  # whose sums of the two overflow again
        rows[most, -most, most] = (0.5, -1, 0.5), jnp.inf
    if loss is losses.softmax_cross_entropy:
        rows[most, -most, 0.95 * most] = (1, -1, 0), jnp.inf
    both = jax.jit(lambda z: (*jax.value_and_grad(loss)(z, 1), jax.hessian(loss)(z, 1)))
    for scores, (slope, value) in rows.items():
        found, gradient, hessian = both(jnp.asarray(scores, dtype))
        assert found == value and np.all(np.isfinite(hessian))
        np.testing.assert_allclose(gradient, slope, atol=1e-6)


@pytest.mark.parametrize("loss", [losses.softmax_cross_entropy, partial(losses.topk_entropy, k=2)])
def test_scores_whose_differences_overflow_where_nothing_is_compiled_as_a_whole(loss):
    most = 0.9 * float(jnp.finfo(jnp.float32).max)
    value, slope = jax.value_and_grad(loss)(jnp.float32([most, -most, most]), 1)
    assert value == jnp.inf
    np.testing.assert_allclose(slope, [0.5, -1, 0.5], atol=1e-6)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_gradients_of_the_entropies_are_in_the_dual_set_at_any_scale(k):
    """Margins of 1,000 have four digits behind the point in float32, the probabilities seven."""
    rng = np.random.default_rng(k)
    numbers, y = rng.standard_normal((200, 8)), jnp.asarray(rng.integers(0, 8, 200))
    slope = jax.jit(jax.grad(lambda z: losses.topk_entropy(z, y, k).sum()))
    for scale in (1.0, 1e3, 1e6):
        z = jnp.asarray(scale * numbers, jnp.float32)
        x = slope(z)
        assert jnp.isfinite(losses.topk_entropy_conjugate(x, y, k)).all()
        np.testing.assert_allclose(x.sum(axis=1), 0, atol=1e-6)
        # as the margins, differences of scores, are rounded
        np.testing.assert_allclose(x, slope(z.astype(jnp.float64)), atol=1e-6 + scale * 1e-7)
