"""Features of a small unit: the intercepts alone are within any part of the objective, and yet no answer."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import label_math
from tests.support.primal_references import Problem, margin_loss
from xmcjax import MultinomialLogisticRegression, OneVsAllClassifier
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.solvers import Status


def clusters(unit, dtype=np.float64):
    """Four of them in 20 dimensions, of which a linear model tells 99.5%."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    X = rng.normal(size=(4, 20))[y] + rng.normal(size=(400, 20))
    return (unit * X).astype(dtype), y


@pytest.mark.parametrize(
    ("loss", "dtype", "form"), [("squared_hinge", "f8", np.asarray), ("logistic", "f4", sp.csr_array)]
)
def test_labels_use_features_of_a_small_unit(loss, dtype, form):
    for unit in (3e-4, 1e-4, *([1e-6] if dtype == "f8" else [])):
        X, y = clusters(unit, dtype)
        model = OneVsAllClassifier(loss=loss).fit(form(X), y)
        assert (model.status_ == Status.CONVERGED).all()
        assert model.score(form(X), y) > 0.99


def test_what_the_weights_gain_is_nearly_all_there_is_to_gain():
    X, y = clusters(3e-4)
    functions = margin_loss("squared_hinge", np.where(y == 1, 1.0, -1.0), 1.0, 1.0)
    model = OneVsAllClassifier(clip=0).fit(X, y)
    problem = Problem(X, 1.0, 1.0)
    least = problem.minimum(*functions, 1)
    # of 100 positives and 300 negatives, whose losses are (1 − b)² and (1 + b)²
    bias = 2 * (100 - 300) / (1 + 2 * 400)
    at_best_bias = 100 * (1 - bias) ** 2 + 300 * (1 + bias) ** 2 + bias**2 / 2
    weights = problem.point(model.coef_[[1]].T, model.intercept_[1])
    value = problem.objective(weights, *functions)
    assert at_best_bias - least < 1e-3 * least
    assert value - least < 1e-3 * (at_best_bias - least)


@pytest.mark.parametrize("shares", [(0.25, 0.25, 0.25, 0.25), (0.4, 0.3, 0.2, 0.1)])
@pytest.mark.parametrize("solver", ["auto", "lbfgs"])
def test_multinomial_weights_are_those_of_the_optimum_however_little_they_gain(solver, shares):
    X, y = clusters(1.0)
    rows = np.concatenate([np.flatnonzero(y == k)[: int(250 * share)] for k, share in enumerate(shares)])
    X, y = X[rows], y[rows]
    small = MultinomialLogisticRegression(C=1.0, solver=solver).fit(1e-4 * X, y)
    # the same problem in another unit
    same = MultinomialLogisticRegression(C=1e-8, solver="newton", tol=1e-10).fit(X, y)
    assert small.status_ == Status.CONVERGED
    np.testing.assert_allclose(
        1e-4 * small.coef_, same.coef_, rtol=0.01, atol=1e-3 * np.abs(same.coef_).max()
    )
    np.testing.assert_array_equal(small.predict(1e-4 * X), same.predict(X))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_features_that_tell_nothing_leave_no_weights(fit_intercept):
    y = np.arange(12) % 3
    for X in (np.zeros((12, 2)), np.ones((12, 2))):
        for model in (OneVsAllClassifier, MultinomialLogisticRegression):
            fit = model(fit_intercept=fit_intercept).fit(X, y)
            assert np.all(np.asarray(fit.status_) == Status.CONVERGED)


def test_a_label_of_nearly_all_rows_or_few_converges_as_far_as_its_type_goes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3)).astype(np.float32)
    Y = np.zeros((len(X), 3), np.int8)
    Y[:, 0] = Y[:3, 1] = Y[:-3, 2] = 1
    for C in (1.0, 1000.0):
        assert (OneVsAllClassifier(C=C).fit(X, sp.csr_array(Y)).status_ == Status.CONVERGED).all()


@pytest.mark.parametrize(("unit", "dtype"), [(1e-3, "f4"), (1e-5, "f8")])
def test_rare_classes_are_no_reason_to_stall(unit, dtype):
    X = (unit * np.random.default_rng(0).normal(size=(200_000, 2))).astype(dtype)
    y = np.zeros(len(X), int)
    y[:2] = 1, 2
    model = MultinomialLogisticRegression().fit(X, y)
    assert model.status_ == Status.CONVERGED and model.n_iter_ <= 12


def test_the_objective_of_a_bias_without_weights():
    rng = np.random.default_rng(0)
    positive, negative, biases = rng.uniform(0, 9, 70), rng.uniform(0, 9, 70), rng.normal(size=70)
    for loss in (loss for loss in MARGIN_LOSSES.values() if loss.smooth):
        for r in (-1.0, 0.0, 2.0):
            found = label_math.of_bias(loss, biases, positive, negative, r)
            losses = positive * np.asarray(loss.value(biases)) + negative * np.asarray(loss.value(-biases))
            np.testing.assert_allclose(found, losses + max(r, 0) / 2 * biases**2, rtol=1e-5)
