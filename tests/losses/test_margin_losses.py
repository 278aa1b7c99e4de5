"""Losses of the margin: values, slopes and curvatures, in every dtype and under every transform."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.functions import FORMULAS
from tests.support.functions import MARGINS as LOSSES
from xmcjax import losses
from xmcjax.losses import HuberHinge, MarginLoss

# where φ' or φ'' jumps
KINKS = {
    "squared_hinge": [1.0],
    "logistic": [],
    "hinge": [1.0],
    "huber_hinge": [0.0, 1.0],
    "narrow_huber": [0.75, 1.0],
}
EXTREMES = [0.0, 1.0, -1.0, 50.0, -50.0, 1e4, -1e4]


def margins(name, width=0.0):
    """From −4 to 4 with the kinks, or farther from them than `width`."""
    m = np.unique(np.concatenate([np.linspace(-4, 4, 161), KINKS[name]]))
    far = [np.abs(m - kink) > width for kink in KINKS[name]] if width else []
    return m[np.all(far, axis=0)] if far else m


def test_losses_are_static_arguments_of_jit():
    for loss in losses.MARGIN_LOSSES.values():
        assert loss == type(loss)() and hash(loss) == hash(type(loss)())
    assert list(losses.SMOOTH_LOSSES) == ["squared_hinge", "logistic", "huber_hinge"]


def test_a_loss_of_ones_own_is_its_value():
    @dataclasses.dataclass(frozen=True)
    class Exponential(MarginLoss):
        name: ClassVar[str] = "exponential"

        def value(self, m):
            return jnp.exp(-m)

    m, y = jnp.asarray([[-1.5, 0.3], [2.0, 0.0]]), jnp.asarray([[1.0, -1.0], [-1.0, 1.0]])
    ours = Exponential()
    np.testing.assert_allclose(ours.grad(m), -np.exp(-m), rtol=1e-15)
    np.testing.assert_allclose(ours.curv(m), np.exp(-m), rtol=1e-15)
    np.testing.assert_allclose(ours.score_grad(m, y), -y * np.exp(-y * m), rtol=1e-15)
    np.testing.assert_allclose(ours.score_curv(m, y), np.exp(-y * m), rtol=1e-15)
    assert ours.native is None
    for given in (m.tolist(), np.asarray(m).astype(">f8")):
        np.testing.assert_array_equal(ours.value(given), ours.value(m))
        np.testing.assert_array_equal(ours.grad(given), ours.grad(m))
    with pytest.raises(TypeError, match="m: expected an array of real numbers, found values of type <U1"):
        ours.value(["a"])


def test_targets_of_the_mean_separating_start():
    targets = {name: loss.negative_mean_target for name, loss in losses.MARGIN_LOSSES.items()}
    assert targets["squared_hinge"] == -2 and targets["logistic"] == -3


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_and_curvatures_are_derivatives(name):
    h, loss = 1e-6, LOSSES[name]
    m = jnp.asarray(margins(name, width=1e-3))
    assert len(m) > 150
    for f, derivative in ((loss.value, loss.grad), (loss.grad, loss.curv)):
        difference = (f(m + h) - f(m - h)) / (2 * h)
        np.testing.assert_allclose(derivative(m), difference, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_at_a_kink_the_slope_is_a_subgradient(name):
    """φ(m + s) ≥ φ(m) + φ'(m) s, and φ falls and is convex everywhere."""
    loss, m = LOSSES[name], jnp.asarray(margins(name))
    value, grad = loss.value(m), loss.grad(m)
    line = value[:, None] + grad[:, None] * (m[None] - m[:, None])
    assert np.all(value[None] >= line - 1e-12)
    assert np.all(grad <= 0) and np.all(np.diff(grad) >= -1e-15) and np.all(loss.curv(m) >= 0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", LOSSES)
def test_extreme_margins(name, dtype):
    m = np.array(EXTREMES)
    loss, x = LOSSES[name], jnp.asarray(m, dtype)
    for f in (loss.value, loss.grad, loss.curv):
        assert np.isfinite(f(x)).all()
    eps = float(jnp.finfo(dtype).eps)
    tiny = float(jnp.finfo(dtype).tiny)
    np.testing.assert_allclose(loss.value(x), FORMULAS[name](m), rtol=8 * eps, atol=8 * tiny)
    assert float(loss.grad(x)[-1]) == pytest.approx(-20002 if name == "squared_hinge" else -1)
    assert float(loss.grad(x)[-2]) == float(loss.curv(x)[-2]) == 0  # 1e4: far behind
    assert np.isfinite(jax.grad(lambda x: loss.value(x).sum())(x)).all()


def test_the_logistic_loss_keeps_its_digits():
    """e^{−m} for large m, where log(1 + e^{−m}) written naively is 0."""
    m = jnp.asarray([30.0, 40.0, 80.0], jnp.float32)
    np.testing.assert_allclose(losses.logistic.value(m), np.exp(-np.array([30.0, 40, 80])), rtol=1e-5)
    np.testing.assert_allclose(losses.logistic.grad(m), -np.exp(-np.array([30.0, 40, 80])), rtol=1e-5)
    np.testing.assert_allclose(losses.logistic.curv(-m), np.exp(-np.array([30.0, 40, 80])), rtol=1e-5)


def test_nan_is_handed_on():
    for loss in LOSSES.values():
        assert np.isnan(loss.value(jnp.asarray(jnp.nan))) and np.isnan(loss.grad(jnp.asarray(jnp.nan)))


def test_plain_numbers_are_taken():
    for loss in LOSSES.values():
        for f in (loss.value, loss.grad, loss.curv):
            np.testing.assert_allclose(f(0.5), f(jnp.asarray([0.5]))[0], rtol=1e-15)


def test_the_width_of_the_huber_hinge():
    m = jnp.linspace(-2.0, 3.0, 101)
    close = HuberHinge(delta=1e-6).value(m)
    np.testing.assert_allclose(close, losses.hinge.value(m), atol=1e-6)
    assert dataclasses.replace(losses.huber_hinge, delta=2.0) != losses.huber_hinge


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, ">i4", bool])
@pytest.mark.parametrize("name", losses.MARGIN_LOSSES)
def test_margins_of_whole_numbers_are_real_ones(name, dtype):
    loss, m = losses.MARGIN_LOSSES[name], np.array([0, 1, 2, 100, 100], dtype)
    m[-1] = -m[-1] if np.dtype(dtype).kind == "i" else 0
    for f in (loss.value, loss.grad, loss.curv):
        np.testing.assert_allclose(f(m), f(m.astype(np.float64)), rtol=1e-6)
    assert loss.value(-3) == loss.value(-3.0)


@pytest.mark.parametrize("dtype", [np.int8, np.int32])
@pytest.mark.parametrize("name", losses.MARGIN_LOSSES)
def test_scores_and_duals_of_whole_numbers_are_real_ones(name, dtype):
    """The margin of the least number, and the square of a dual, are beyond the dtype."""
    loss, most = losses.MARGIN_LOSSES[name], np.iinfo(dtype)
    s, y = np.array([most.min, most.max, 0], dtype), np.array([-1, 1, -1], dtype)
    for f in (loss.score_value, loss.score_grad, loss.score_curv):
        np.testing.assert_allclose(f(s, y), f(s.astype(float), y.astype(float)), rtol=1e-6)
    np.testing.assert_allclose(loss.score_value(np.uint8([3]), -1), loss.score_value(3.0, -1))
    duals = np.array([most.min, -1, 0, most.max], dtype)
    for given in (duals, jnp.asarray(duals)):
        np.testing.assert_allclose(loss.conjugate(given), loss.conjugate(duals.astype(float)), rtol=1e-6)


def test_the_huber_hinge_multiplies_no_two_margins():
    assert HuberHinge(delta=1000.0).value(jnp.float16(-500)) == np.float16(125.5)
    far = jnp.float32([-1e20, -jnp.inf])
    np.testing.assert_allclose(HuberHinge(delta=1e25).value(far), [5e14, np.inf], rtol=1e-6)
    assert np.all(jax.vmap(jax.grad(losses.huber_hinge.value))(far) == -1)
