"""The smooth top-k hinge by hand, and in γ."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.losses import M, examples
from xmcjax.losses import smooth_topk_hinge, smooth_topk_hinge_conjugate


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


def test_bad_gammas():
    z, y = jnp.zeros((2, M), jnp.float32), jnp.asarray([0, 1])
    for f in (smooth_topk_hinge, smooth_topk_hinge_conjugate):
        for gamma, found in ((0, "0"), (-1.0, r"-1\.0"), (np.nan, "nan"), (np.inf, "inf")):
            with pytest.raises(ValueError, match=f"expected a finite gamma > 0, got {found}"):
                f(z, y, 2, gamma)
        with pytest.raises(ValueError, match=r"expected gamma as one number, got the shape \(2,\)"):
            f(z, y, 2, jnp.ones(2))
        for gamma in (1e-40, 1e300):
            with pytest.raises(
                ValueError, match=r"gamma from 1.18e-38 to 3.4e\+38, the range of float32, got"
            ):
                f(z, y, 2, gamma)
        for gamma in (1j, True, None, "1"):
            with pytest.raises(TypeError, match="expected a real gamma"):
                f(z, y, 2, gamma)
    assert partial(smooth_topk_hinge, z, y, 2)(1).dtype == jnp.float32
