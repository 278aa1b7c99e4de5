"""Losses of one's own, of which a solver knows the value alone."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from xmcjax import OneVsAllClassifier
from xmcjax.losses import MarginLoss
from xmcjax.solvers import Status


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
