"""The smooth top-k hinge by hand, and in γ."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.losses import examples
from xmcjax.losses import smooth_topk_hinge


def test_by_hand():
    y = jnp.asarray(0)
    # one violation of s = 1.5: s²/2γ up to s = γ, s − γ/2 beyond
    z = jnp.asarray([0.0, 0.5, -9.0, -9.0])
    for gamma, value in ((1.0, 1.0), (1.5, 0.75), (3.0, 0.375)):
        np.testing.assert_allclose(smooth_topk_hinge(z, y, 1, gamma), value)
        np.testing.assert_allclose(smooth_topk_hinge(z, y, 1, gamma, "beta"), value)
    # k = 2 and b = (3, 1, 1): x = (1/2, 1/4, 1/4) from the threshold 1/2, ⟨b, x⟩ − ‖x‖²/2 = 2 − 3/16
    z = jnp.asarray([0.0, 2.0, 0.0, 0.0])
    value, g = jax.value_and_grad(lambda z: smooth_topk_hinge(z, y, 2))(z)
    np.testing.assert_allclose(value, 2 - 3 / 16)
    np.testing.assert_allclose(g, [-1, 0.5, 0.25, 0.25])
    # with one violation alone alpha needs a second entry as large: b = (2, −3, −3) has none worth it
    z = jnp.asarray([0.0, 1.0, -4.0, -4.0])
    assert smooth_topk_hinge(z, y, 2) == 0
    np.testing.assert_allclose(smooth_topk_hinge(z, y, 2, variant="beta"), 2 / 2 - 1 / 8)


@pytest.mark.parametrize("variant", ["alpha", "beta"])
def test_gamma_may_be_traced_and_has_a_derivative(variant):
    z, y = examples()
    f = jax.jit(lambda gamma: jnp.sum(smooth_topk_hinge(z, y, 3, gamma, variant)))
    h = 1e-6
    for gamma in (0.3, 2.0):
        difference = (f(gamma + h) - f(gamma - h)) / (2 * h)
        np.testing.assert_allclose(jax.grad(f)(gamma), difference, rtol=1e-6)
    for gamma in (0.0, -1.0, jnp.nan):
        assert np.isnan(f(gamma))
