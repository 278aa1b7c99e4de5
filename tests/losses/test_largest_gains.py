"""The k largest gains in float64, which on a CPU the native kernel finds."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.problems import needs_native
from xmcjax import losses
from xmcjax.losses import gains
from xmcjax.native import twins


@functools.cache
def value_and_slope(k):
    def of(z, y):
        return jnp.sum(losses.topk_hinge(z, y, k))

    return jax.jit(lambda z, y: (losses.topk_hinge(z, y, k), jax.grad(of)(z, y)))


def scores(kind):
    rng = np.random.default_rng(3)
    z = rng.normal(size=(6, 200))
    if kind == "ties":
        z = np.round(2 * z) / 2 + 0.0
    elif kind == "rising":
        z = np.sort(z, axis=1)
    elif kind == "closed":
        z[:, 20:] = -np.inf
    elif kind == "extreme":
        z[0, 3], z[1, 7], z[2, 9], z[3] = np.inf, np.nan, -np.nan, 1e308
        z[4, ::2] = -0.0
    return jnp.asarray(z), jnp.asarray(rng.integers(0, 15, 6))


@needs_native
@pytest.mark.parametrize("k", [2, 65, 129, 199])
@pytest.mark.parametrize("kind", ["usual", "ties", "rising", "closed", "extreme"])
def test_the_kernel_finds_what_its_twin_finds(kind, k):
    z, y = scores(kind)
    found = value_and_slope(k)(z, y)
    with twins():
        expected = value_and_slope(k)(z, y)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)


@needs_native
def test_a_program_for_a_cpu_calls_the_kernel():
    z, y = scores("usual")

    def called(z, k):
        return "best_labels" in jax.jit(lambda z: losses.topk_hinge(z, y, k)).lower(z).as_text()

    assert called(z, 5) and called(z, 100) and not called(z.astype(jnp.float32), 5)
    batch = jax.jit(jax.vmap(lambda z, y: losses.topk_entropy(z, y, 3)))
    np.testing.assert_allclose(batch(z, y), losses.topk_entropy(z, y, 3), rtol=1e-14)
    assert "best_labels" in batch.lower(z, y).as_text()
    curvature = jax.jvp(jax.grad(lambda z: jnp.sum(losses.topk_entropy(z, y, 3))), (z,), (jnp.ones_like(z),))
    np.testing.assert_allclose(curvature[1], 0, atol=1e-14)  # only differences of scores count


@pytest.mark.parametrize("shape", [(5,), (0, 5), (2, 5), (2, 3, 5)])
def test_smoothed_losses_of_numpy_have_the_shape_of_their_gains(shape):
    h = np.random.default_rng(0).normal(size=shape)
    found = gains.smooth_topk_hinge(h, 2, 0.5, "alpha")
    np.testing.assert_allclose(found, gains.smooth_topk_hinge(jnp.asarray(h), 2, 0.5, "alpha"), rtol=1e-12)
    assert isinstance(found, np.ndarray) and found.shape == shape[:-1]
