"""The cross-validated criterion: its gradient by central differences and by implicit differentiation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.kernel_models import FOLDS, LANES, TIGHT, C, N, data, dense, model
from xmcjax import kernels
from xmcjax.solvers import Status, kernel_multinomial
from xmcjax.solvers.kernel_multinomial import Hyperparameters


def folds_of(kernel, likelihood="softmax"):
    train = kernel_multinomial.fold_weights(FOLDS, LANES, np.float64)
    problem = kernel_multinomial.kernel_problem(kernel, data()[1], train, likelihood=likelihood)
    return problem, 1 - train


def criterion(lanes, test, start=None):
    """With a start always, so that one compilation serves a whole search."""
    start = jnp.zeros((N, C, LANES)) if start is None else start
    return kernel_multinomial.cv_criterion(lanes, test, TIGHT, start)


def rebuilt(kernel, h):
    """K̃ at hyperparameters h, with its matrices made anew."""
    if isinstance(kernel.gram, kernels.Factored):
        gram = kernel.gram.at(h.kernel)
    else:
        memory = 0 if kernel.gram.stored is None else 1e9
        gram = kernels.gram(h.kernel, kernel.gram.points, memory=memory)
    return dataclasses.replace(h.inside(kernel), gram=gram)


# in slow runs also a tree without stored matrices, 1rest on features, a matrix B
CASES = [
    ("flat", "softmax"),
    ("low rank", "softmax"),
    pytest.param("tiles", "softmax", marks=pytest.mark.slow),
    pytest.param("linear", "one_vs_rest", marks=pytest.mark.slow),
    pytest.param("factors", "softmax", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "likelihood"), CASES)
def test_gradient_is_the_central_difference(name, likelihood):
    kernel = model(name)
    lanes, test = folds_of(kernel, likelihood)
    found = criterion(lanes, test)
    assert (np.asarray(found.state.status) == Status.CONVERGED).all()
    leaves, form = jax.tree.flatten(Hyperparameters.of(kernel))
    slopes = jax.tree.leaves(found.gradient)
    h = 1e-4
    for place, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
        for i in np.ndindex(leaf.shape):
            values = []
            for factor in (np.exp(h), np.exp(-h)):
                changed = np.array(leaf)
                changed[i] *= factor
                moved = [*leaves[:place], jnp.asarray(changed), *leaves[place + 1 :]]
                other = rebuilt(kernel, jax.tree.unflatten(form, moved))
                again = dataclasses.replace(lanes, kernel=other)
                again = criterion(again, test, found.state.alpha)
                values.append(float(again.value.sum()))
            difference = (values[0] - values[1]) / (2 * h)
            np.testing.assert_allclose(slope[i] * leaf[i], difference, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["low rank", pytest.param("flat", marks=pytest.mark.slow)])
def test_gradient_is_that_of_implicit_differentiation(name):
    kernel = model(name)
    lanes, test = folds_of(kernel)

    @jax.jit
    def implicit(h, lanes):
        def value(h):
            inside = dataclasses.replace(lanes, kernel=h.inside(lanes.kernel))
            u = inside.kernel.matmat(kernel_multinomial.fit(inside, TIGHT))
            return jnp.sum(test * inside.likelihood.losses(u))

        return jax.value_and_grad(value)(h)

    found = criterion(lanes, test)
    value, gradient = implicit(Hyperparameters.of(kernel), lanes)
    np.testing.assert_allclose(value, found.value.sum(), rtol=1e-10)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(found.gradient), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)


def test_criterion_is_the_sum_over_folds():
    kernel = model("flat")
    _, y, _ = data()
    found = criterion(*folds_of(kernel))
    alpha = np.asarray(found.state.alpha)
    u = (dense(kernel) @ alpha.reshape(N * C, LANES)).reshape(N, C, LANES)
    losses = np.log(np.exp(u).sum(axis=1)) - u[np.arange(N), y]
    np.testing.assert_allclose(found.value, [losses[k == FOLDS, k].sum() for k in range(LANES)], rtol=1e-8)


def test_jit_and_vmap():
    """Of whole criteria as functions of a hyperparameter, whose fits end by their residuals there."""
    X = kernels.points(np.random.default_rng(0).normal(size=(N, 3)))
    train = kernel_multinomial.fold_weights(FOLDS, LANES, np.float64)

    def psi(w):
        family = kernels.class_kernels(kernels.gram(kernels.RBF(w), X, memory=0), 2.0, 0.5, C)
        problem = kernel_multinomial.kernel_problem(family, data()[1], train)
        return kernel_multinomial.cv_criterion(problem, 1 - train, TIGHT).value

    scales = np.array([0.3, 2.0])
    expected = np.stack([psi(w) for w in scales])
    np.testing.assert_allclose(jax.jit(psi)(scales[0]), expected[0], rtol=1e-8)
    np.testing.assert_allclose(jax.vmap(psi)(jnp.asarray(scales)), expected, rtol=1e-8)


def test_weights_alone_may_be_traced_and_the_tolerance_may_be_0():
    problem, test = folds_of(model("flat"))
    expected = kernel_multinomial.cv_criterion(problem, test, TIGHT).value
    found = jax.jit(lambda weight: kernel_multinomial.cv_criterion(problem, weight, TIGHT).value)(test)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    found = kernel_multinomial.cv_criterion(problem, test, TIGHT._replace(tolerance=0.0)).value
    np.testing.assert_allclose(found, expected, rtol=1e-8)
