"""Rows of which a set of classes is known: the likelihood, its minimum by scipy, and Ψ."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from tests.support import objectives
from tests.support.kernel_models import FOLDS, LANES, TIGHT, TREE, C, N, data, dense, model, sets
from xmcjax import kernels
from xmcjax.kernels import RBF
from xmcjax.solvers import SOLVERS, Status, kernel_multinomial
from xmcjax.solvers.kernel_multinomial import CvObjective, KernelModel, partial_labels

# Φ of the observed labels of the first lane where EM (Seeger 2006, section 7.3) ended: M steps were fits to
# 1e-12, and the last iteration gained no more than 1e-13 of it.
OF_EM = {"flat": 26.28626804093974, "tree": 25.02654797356709}


def losses(weight, u):
    """(Σ of the losses of the observed labels, its gradient in u) in NumPy."""
    u = u.reshape(N, C)
    inside = np.where(sets(), u, -np.inf)
    value = weight @ (logsumexp(u, axis=1) - logsumexp(inside, axis=1))
    return value, (weight[:, None] * (softmax(u, axis=1) - softmax(inside, axis=1))).ravel()


@functools.cache
def fitted(name):
    with jax.enable_x64(True):
        likelihood = partial_labels(sets())
        problem = kernel_multinomial.kernel_problem(model(name), None, data()[2], likelihood=likelihood)
        return problem, kernel_multinomial.run(problem, TIGHT, kernel_multinomial.init(problem))


@pytest.mark.parametrize("name", ["flat", "tree"])
def test_minimum_is_that_of_scipy_and_of_em(name):
    problem, state = fitted(name)
    assert (np.asarray(state.status) == Status.CONVERGED).all()
    K, weight = dense(problem.kernel), data()[2]
    size, vectors = np.linalg.eigh(K)
    E = vectors * np.sqrt(np.maximum(size, 0))  # u = Eb, αᵀK̃α = bᵀb
    for lane in range(LANES):
        found = np.asarray(state.alpha[..., lane]).ravel()
        value, slope = losses(weight[:, lane], K @ found)
        value += found @ K @ found / 2
        np.testing.assert_allclose(state.value[lane], value, rtol=1e-12)
        assert np.abs(slope + found).max() < 2e-12

        def penalised(b, weight=weight[:, lane]):
            value, slope = losses(weight, E @ b)
            return value + b @ b / 2, E.T @ slope + b

        np.testing.assert_allclose(value, objectives.least(penalised, N * C), rtol=1e-10)
    np.testing.assert_allclose(state.value[0], OF_EM[name], rtol=1e-9)


def test_slope_and_curvature_are_derivatives_of_the_losses():
    likelihood = partial_labels(sets())
    u, x = np.random.default_rng(3).standard_normal((2, N, C, LANES))
    u[0, :, 0] = 800 * np.arange(C)  # probabilities that vanish, in the set and beyond it
    pi = likelihood.probabilities(u)

    def total(u):
        return jnp.sum(likelihood.losses(u))

    slope, along = jax.jvp(jax.grad(total), (jnp.asarray(u),), (jnp.asarray(x),))
    np.testing.assert_allclose(likelihood.slope(jnp.asarray(u), pi), slope, atol=1e-12)
    np.testing.assert_allclose(likelihood.curvature(jnp.asarray(u), pi)(x), along, atol=1e-12)
    assert np.isfinite(likelihood.losses(u)).all() and (np.asarray(likelihood.losses(u)[7]) == 0).all()


def test_sets_of_one_class_are_classes():
    _, y, weight = data()
    plain = kernel_multinomial.kernel_problem(model("tree"), y, weight)
    known = dataclasses.replace(plain, likelihood=partial_labels(np.eye(C, dtype=bool)[y]))
    states = [kernel_multinomial.run(p, TIGHT, kernel_multinomial.init(p)) for p in (plain, known)]
    assert (np.asarray(states[1].status) == Status.CONVERGED).all()
    np.testing.assert_allclose(states[1].alpha, states[0].alpha, atol=1e-10)


def test_gradient_of_the_criterion_is_the_central_difference():
    X, _, _ = data()
    family = KernelModel(kernels.points(X), C, np.zeros(TREE.n_nodes, int), TREE)
    at = family.hyperparameters(2.0, RBF(0.5), 0.7)
    free = ("v", "kernel", "sigma2")
    function = CvObjective(family, partial_labels(sets()), FOLDS, at, free=free, hp=TIGHT)
    x = function.pack(at)
    value, gradient = function(x)
    assert function.unconverged == 0 and np.isfinite(value)
    for place in range(len(x)):
        step = 1e-4 * (np.arange(len(x)) == place)
        difference = (function(x + step)[0] - function(x - step)[0]) / 2e-4
        np.testing.assert_allclose(gradient[place], difference, rtol=1e-5, atol=1e-6)
    _, found = kernel_multinomial.tune(function, max_iter=3)
    assert found.value < value


def test_derivative_of_a_solution():
    problem, _ = fitted("flat")

    def value_and_weights(scale):
        kernel = dataclasses.replace(problem.kernel, v=scale * problem.kernel.v)
        found = SOLVERS["kernel_multinomial"].run(dataclasses.replace(problem, kernel=kernel), TIGHT)
        return jnp.sum(found.value) + jnp.sum(jnp.sin(found.weights))

    difference = (value_and_weights(1 + 1e-5) - value_and_weights(1 - 1e-5)) / 2e-5
    np.testing.assert_allclose(jax.grad(value_and_weights)(1.0), difference, rtol=1e-6)
