"""Losses of one's own, of which a solver knows the value alone."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from xmcjax import OneVsAllClassifier, linops
from xmcjax.losses import LaneLoss, MarginLoss
from xmcjax.solvers import Status
from xmcjax.solvers.newton_cg import lane_problem


@dataclasses.dataclass(frozen=True)
class Huber(MarginLoss):
    name: ClassVar[str] = "own_huber"

    def value(self, m):
        return jnp.where(m >= 1, 0.0, jnp.where(m < 0.7, 0.85 - m, (1 - m) ** 2 / 0.6))


@dataclasses.dataclass(frozen=True)
class SquaredPerceptron(MarginLoss):
    name: ClassVar[str] = "squared_perceptron"

    def value(self, m):
        return jnp.square(jnp.maximum(-m, 0.0))


@dataclasses.dataclass(frozen=True)
class Shifted(MarginLoss):
    name: ClassVar[str] = "shifted_logistic"

    def value(self, m):
        return jax.nn.softplus(3.0 - m)


def problem():
    rng = np.random.default_rng(5)
    X = 10 * rng.normal(size=(300, 6)).astype(np.float32)
    return X, np.argmax(X @ rng.normal(size=(6, 3)) + 10 * rng.normal(size=(300, 3)), axis=1)


def objective(loss, C, X, t):
    """½ ‖w‖² + ½ b² + C Σ φ and its gradient in (w, b), in float64."""
    X = np.c_[X.astype(np.float64), np.ones(len(X))]

    @jax.jit
    def f(w):
        return w @ w / 2 + C * jnp.sum(loss.value(t * (X @ w)))

    return jax.value_and_grad(f)


@pytest.mark.parametrize("loss", [Huber(), SquaredPerceptron(), Shifted()], ids=lambda loss: loss.name)
def test_a_loss_without_a_largest_curvature_is_minimised(loss):
    (X, y), C = problem(), 1e4
    fit = OneVsAllClassifier(loss=loss, C=C, tol=1e-4, clip=0).fit(X, y)
    for k in range(3):
        f = objective(loss, C, X, np.where(y == k, 1.0, -1.0))
        peer = minimize(
            lambda w, f=f: [np.asarray(part, np.float64) for part in f(w)],
            np.zeros(7),
            jac=True,
            method="L-BFGS-B",
            options=dict(maxiter=5000, maxfun=20000, ftol=1e-14, gtol=1e-8),
        )
        value = float(f(np.append(fit.coef_[k], fit.intercept_[k]).astype(np.float64))[0])
        assert value <= (1 + 1e-5) * peer.fun
    assert np.all(fit.status_ == Status.CONVERGED)


def own(value, **more):
    """A loss of this value and these other members."""
    members = {"name": "ours", "value": lambda self, m: value(m), **more}
    return dataclasses.dataclass(frozen=True)(type("Ours", (MarginLoss,), members))()


@dataclasses.dataclass(frozen=True)
class Weighted(MarginLoss):
    weights: object = None

    def value(self, m):
        return jax.nn.softplus(-m)


class Plain(MarginLoss):
    def __init__(self, scale):
        self.scale = scale

    def value(self, m):
        return jax.nn.softplus(-self.scale * m)


def softplus(m):
    return jax.nn.softplus(-m)


WRONG = {
    "no array": (own(lambda m: None), "ours: expected a value .* float32 .*, got NoneType"),
    "another shape": (own(jnp.sum), r"ours: expected a value .* float32 \[256, 1\], got float32 \[\]"),
    "whole numbers": (own(lambda m: jnp.where(m < 1, 1, 0)), "ours: expected a value .*, got int32"),
    "another dtype": (
        own(lambda m: softplus(m).astype(jnp.float16)),
        "ours: expected a value .*, got float16",
    ),
    "one at a time": (
        own(lambda m: 1 - m if m < 1 else 0 * m),
        "ours: .* JAX works out .* ValueError",
    ),
    "NumPy": (
        own(lambda m: np.exp(-m)),
        "ours: .* JAX works out .* TracerArrayConversionError",
    ),
    "an error": (own(lambda m: m.other), "ours: .* AttributeError .*: .* no attribute other"),
    "NaN": (
        own(lambda m: jnp.where(m > 5, jnp.nan, softplus(m))),
        "ours: .* value at the margin 5.05, got",
    ),
    "NaN of JAX": (own(lambda m: jnp.sqrt(jnp.maximum(m, 0.0))), "ours: .* slope .*, got nan"),
    "sigmoid": (own(lambda m: jax.nn.sigmoid(-m)), "ours: expected a convex loss .* at the margin -1.33, "),
    "a jump": (own(lambda m: jnp.where(m < 0.5, 2.0 - m, 0.0)), "ours: expected a convex loss .* 0.421, "),
    "concave": (own(lambda m: -(m**2)), "ours: expected values of at least 0, got -254.5.* margin -16;"),
    "unbounded": (own(lambda m: -m), "ours: expected values of at least 0, got -15.9.* margin 15.9;"),
    "another slope": (own(softplus, grad=lambda self, m: -jax.nn.sigmoid(m)), "ours: .* convex loss and its"),
    "curvature": (
        own(softplus, most_curvature=property(lambda self: 0.2)),
        "ours: expected a most_curvature of at least 0.249866.* margin 0.0463, got 0.2",
    ),
    "a method": (own(softplus, most_curvature=lambda self: 0.25), "ours: most_curvature: expected a number"),
    "an array": (Weighted(np.ones(3)), "Weighted: expected a frozen dataclass .*unhashable"),
    "no field": (Plain(2.0), "Plain: expected a frozen dataclass .* got the attribute scale"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_loss_that_cannot_be_minimised_is_refused_by_its_name(case):
    loss, sentence = WRONG[case]
    with pytest.raises((TypeError, ValueError), match="^loss " + sentence) as caught:
        OneVsAllClassifier(loss=loss).fit(np.eye(4, dtype=np.float32), [0, 1, 2, 2])
    assert "\n" not in str(caught.value)


RIGHT = {
    "hinge": lambda m: jnp.maximum(0.0, 1 - m),
    "kinks": lambda m: jnp.maximum(0.3 - 0.1 * m, jnp.maximum(0.0, 1 - m)),
    "exponential": lambda m: jnp.exp(-m),
    "naive": lambda m: jnp.log(1 + jnp.exp(-m)),
    "steep": lambda m: jnp.log(1 + jnp.exp(5 * (1 - m))) / 5,
    "of a sigmoid": lambda m: -jnp.log(jax.nn.sigmoid(m)),
    "power": lambda m: jnp.where(m < 1, jnp.where(m < 1, 1 - m, 1.0) ** 1.5, 0.0),
    "squared": lambda m: (1 - m) ** 2,
    "hyperbola": lambda m: jnp.sqrt(1 + m**2) - m,
    "cancelling": lambda m: jnp.sqrt(m**2) - jnp.abs(m) + softplus(m),
    "large": lambda m: 1e6 * softplus(m),
    "small": lambda m: 1e-9 * softplus(m),
    "far": lambda m: 1e6 + softplus(m),
    "barrier": lambda m: jnp.where(m > -10, 3 - jnp.log(jnp.where(m > -10, m + 10, 1.0) / 30), jnp.inf),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses_that_are_convex_are_taken(dtype):
    """However they are written, in either dtype, and where JAX traces."""
    op, y = linops.make(np.eye(2, dtype=dtype)), np.array([[1], [-1]])
    for value in RIGHT.values():
        loss = own(value)
        assert lane_problem(op, y, loss).loss is loss
        jax.jit(lambda y, loss=loss: lane_problem(op, y, loss).weight)(y)


def test_a_formula_that_is_of_float32_is_looked_at_in_it():
    y = np.array([[1], [-1]])
    loss = own(lambda m: softplus(-m.astype(jnp.float32)).astype(m.dtype))
    assert lane_problem(linops.make(np.eye(2, dtype=np.float32)), y, loss).loss is loss
    loss = own(lambda m: jnp.square(jnp.maximum(0, 1 - m.astype(jnp.float32))))
    assert lane_problem(linops.make(np.eye(2, dtype=np.float32)), y, loss).loss is loss
    with pytest.raises(TypeError, match=r"^loss ours: expected a value .* float64 .*, got float32"):
        lane_problem(linops.make(np.eye(2)), y, loss)


def test_a_class_that_compares_what_it_derives_from_its_fields_is_taken():
    @dataclasses.dataclass(frozen=True)
    class Scaled(MarginLoss):
        scale: float

        def __post_init__(self):
            object.__setattr__(self, "square", self.scale**2)

        def value(self, m):
            return vars(self)["square"] * jax.nn.softplus(-m)

    class Double(Scaled):
        name = "double"

    y = np.array([[1], [-1]])
    assert lane_problem(linops.make(np.eye(2)), y, Double(2.0)).loss == Double(2.0)


def test_a_loss_of_the_score_may_be_below_0():
    """Of the solver itself, which certifies nothing by it; it has to be convex for both targets."""

    class Count(LaneLoss):
        name = "count"

        def score_value(self, s, y):
            return jnp.exp(s) - jnp.where(y > 0, s + 3.0, 0.0)

    class Mixed(LaneLoss):
        name = "mixed"

        def score_value(self, s, y):
            return jnp.where(y > 0, s**2, jnp.tanh(s))

    op, y = linops.make(np.eye(2)), np.array([[1], [-1]])
    assert lane_problem(op, y, Count()).y.shape == (2, 1)
    with pytest.raises(ValueError, match=r"^loss mixed: expected a convex loss .* for the target -1, "):
        lane_problem(op, y, Mixed())
