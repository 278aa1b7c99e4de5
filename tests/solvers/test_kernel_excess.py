"""How far the objective of a kernel fit is from its minimum: bounds, and fits that end by them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from xmcjax import KernelLogisticClassifier, kernels
from xmcjax.solvers import Status, kernel_multinomial
from xmcjax.solvers.kernel_multinomial import OneVsRest, Softmax, SomeClasses

N, C = 30, 3


def problem_of(likelihood, X, weight=None):
    family = kernels.class_kernels(kernels.gram(kernels.Linear(), kernels.points(X)), 2.0, 1.0, C)
    return kernel_multinomial.kernel_problem(family, None, weight, likelihood=likelihood)


@pytest.mark.parametrize("name", ["softmax", "rest", "some"])
def test_the_gap_is_that_of_the_dual(name):
    """Φ(α) less the bound is below the minimum, and the bound is 0 where α is the slope."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        y = np.eye(C)[rng.integers(0, 2, N)][..., None]
        likelihood = dict(
            softmax=Softmax(jnp.asarray(y)),
            rest=OneVsRest(jnp.asarray(y)),
            some=SomeClasses(Softmax(jnp.asarray(y[:, :2])), jnp.array([[0], [1]]), C),
        )[name]
        weight = rng.uniform(0.5, 2, N)
        problem = problem_of(likelihood, rng.normal(size=(N, 2)), weight)
        end = kernel_multinomial.run(
            problem, kernel_multinomial.HParams(1e-12), kernel_multinomial.init(problem)
        )
        s = weight[:, None, None]
        for size in (0.0, 1e-4, 1e-2, 1.0):
            noise = likelihood.in_range(jnp.asarray(size * rng.normal(size=(N, C, 1))))
            alpha = end.alpha + noise
            u = problem.kernel.matmat(alpha)
            value = jnp.sum(weight[:, None] * likelihood.losses(u)) + jnp.sum(alpha * u) / 2
            gaps, beta = likelihood.fenchel_gap(u, alpha / s)
            outside = alpha - s * beta
            bound = jnp.sum(weight[:, None] * gaps) + jnp.sum(outside * problem.kernel.matmat(outside)) / 2
            assert (gaps >= -1e-12).all()
            assert value - float(end.value[0]) <= bound + 1e-10
            # of α = −s ∂ℓ/∂u
            gaps, beta = likelihood.fenchel_gap(u, -likelihood.slope(u, likelihood.probabilities(u)))
            np.testing.assert_allclose(gaps, 0, atol=1e-12)
            np.testing.assert_allclose(beta, -likelihood.slope(u, likelihood.probabilities(u)), atol=1e-12)
        assert bound > 1 and float(end.residual[0]) <= 1e-12


@pytest.mark.parametrize(("v", "sigma2", "mean"), [(10.0, 1.0, 1e4), (1e3, 0.0, 1e3), (1e4, 0.0, 100.0)])
@pytest.mark.parametrize("likelihood", ["softmax", "one_vs_rest"])
def test_a_linear_kernel_of_features_with_a_large_mean(likelihood, v, sigma2, mean):
    """Rounding of K̃r along the mean is no sign of a minimum that is far; by L-BFGS of the weights.

    Nor is that of u, without a bias: the step that removes what K̃ does not see of r moves Φ by more than its
    own rounding.
    """
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(200, 3))
    y = np.argmax(Z @ rng.normal(size=(3, C)) + rng.normal(size=(200, C)), axis=1)
    options = dict(likelihood=likelihood, v=v, sigma2=sigma2)
    model = KernelLogisticClassifier("linear", **options).fit(Z + mean, y)  # without a warning
    assert model.status_ == Status.CONVERGED and model.n_iter_ < 50
    bias = np.ones((200, int(sigma2)))
    Q, R = np.linalg.qr(np.hstack([np.sqrt(v) * (Z + mean), bias]))
    target = np.eye(C)[y]

    def primal(W):
        W = W.reshape(-1, C)
        u = Q @ W
        w = np.linalg.solve(R, W)  # weights of the features, of which the penalty is
        if likelihood == "softmax":
            log_z = np.logaddexp.reduce(u, axis=1)
            losses, pi = log_z.sum() - (u * target).sum(), np.exp(u - log_z[:, None])
        else:
            losses, pi = np.logaddexp(0, u).sum() - (u * target).sum(), 1 / (1 + np.exp(-u))
        slope = Q.T @ (pi - target) + np.linalg.solve(R.T, w)
        return losses + (w**2).sum() / 2, slope.ravel()

    found = minimize(
        primal, np.zeros(len(R) * C), jac=True, method="L-BFGS-B", options=dict(maxiter=5000, ftol=1e-15)
    )
    assert abs(model.objective_ - found.fun) <= 1e-6 * found.fun


def test_a_fit_that_rounding_ends_is_told_of_the_means():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), np.arange(200) % C
    with pytest.warns(UserWarning, match="for a linear kernel features with means of about 0"):
        KernelLogisticClassifier("linear").fit(X + 1e6, y)
