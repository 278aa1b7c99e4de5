"""Every method against scikit-learn's minimum."""

from __future__ import annotations

import dataclasses
import itertools

import jax.numpy as jnp
import multinomial_helpers as helpers
import numpy as np
import pytest

from xmcjax.data import load_svmlight
from xmcjax.native import available
from xmcjax.solvers import Status, multinomial

native = pytest.mark.skipif(not available(), reason="no native kernels")
TIGHT = multinomial.HParams(1e-6, 2000)


@pytest.mark.parametrize(("method", "accuracy"), [("auto", 1e-6), ("lbfgs", 1e-6), ("admm", 1e-4)])
def test_digits_at_lambda_1_as_scikit_learn(method, accuracy):
    X, y = helpers.digits()
    problem = helpers.problem(X, y, intercept=True)
    hp = multinomial.HParams(1e-3 if method == "admm" else 1e-6, 2000)
    weights = np.random.default_rng(3).choice([0.0, 0.5, 2.0], len(y))
    for weight in (np.ones(len(y)), weights):
        problem = dataclasses.replace(problem, weight=jnp.asarray(weight))
        expected, W, b = helpers.reference(X, y, 1.0, intercept=True, weight=weight)
        solution = multinomial.run(problem, method, hp)
        assert solution.status == Status.CONVERGED
        found = helpers.objective(X, y, solution.W, solution.bias, 1.0, weight)
        assert found == pytest.approx(expected, rel=accuracy)
        assert solution.value == pytest.approx(found, rel=1e-12)
        np.testing.assert_allclose(solution.W, W, atol=0.05 if method == "admm" else 1e-3)
        shift = np.mean(np.asarray(solution.bias) - b)  # b is free up to a constant
        np.testing.assert_allclose(solution.bias - shift, b, atol=0.1 if method == "admm" else 0.02)
        gradients = helpers.gradient(X, y, np.asarray(solution.W), np.asarray(solution.bias), 1.0, weight)
        norm = np.sqrt(sum(np.sum(g**2) for g in gradients))
        assert solution.gradient_norm == pytest.approx(norm, rel=1e-6)


# G over its minimum, and tolerance of the gradient, where they are not 1e-6. The bound of dm is not tight: it
# ends where the bound is least.
OTHERS = {"admm": (1e-4, 1e-3), "lc": (1e-5, 1e-4), "dm": (0.15, 1e-4)}


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=native) if m == "dual" else m for m in multinomial.CHOICES]
)
def test_every_method_of_the_table_as_scikit_learn(method):
    X, y = helpers.sparse_set()
    expected, W, _ = helpers.reference(X, y, 1.0)
    accuracy, tol = OTHERS.get(method, (1e-6, 1e-6))
    solution = multinomial.run(helpers.problem(X, y), method, multinomial.HParams(tol, 3000))
    assert solution.status == Status.CONVERGED
    found = helpers.objective(X, y, solution.W, 0, 1.0)
    assert expected * (1 - 1e-9) <= found <= expected * (1 + accuracy)
    assert solution.value == pytest.approx(found, rel=1e-9)
    # as good as scikit-learn's on the training set: the best classes are the same
    assert np.mean((X @ solution.W).argmax(1) == (X @ W).argmax(1)) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("method", "accuracy"), [("auto", 1e-6), ("lbfgs", 1e-6), ("admm", 1e-4)])
def test_clef_at_lambda_1_as_scikit_learn(method, accuracy, data_folder):
    X, y = load_svmlight(data_folder / "clef" / "train.libsvm.xz")
    X, y = X.toarray()[::20].astype(np.float64), np.unique(y[::20], return_inverse=True)[1]
    X = (X - X.mean(0)) / np.maximum(X.std(0), 1e-3)
    expected, _, _ = helpers.reference(X, y, 1.0)
    solution = multinomial.run(
        helpers.problem(X, y), method, multinomial.HParams(1e-4 if method == "admm" else 1e-6, 3000)
    )
    assert solution.status == Status.CONVERGED
    assert helpers.objective(X, y, solution.W, 0, 1.0) == pytest.approx(expected, rel=accuracy)


@pytest.mark.parametrize("method", ["newton", pytest.param("dual", marks=native)])
@pytest.mark.parametrize(("lam", "start"), [(10.0, 0.0), (0.01, 1.0)])
def test_sparse_weighted_with_intercept_as_scikit_learn(method, lam, start):
    # from zero weights, and from random ones
    X, y = helpers.sparse_set()
    weight = np.random.default_rng(3).choice([0.0, 0.5, 2.0], len(y))
    weight[:7] = 1
    expected, _, b = helpers.reference(X, y, lam, intercept=True, weight=weight)
    problem = helpers.problem(X, y, lam, intercept=True, weight=weight)
    W0 = start * np.random.default_rng(0).normal(size=(40, 7))
    solution = multinomial.run(problem, method, TIGHT, W0=W0)
    assert solution.status == Status.CONVERGED
    found = helpers.objective(X, y, solution.W, solution.bias, lam, weight)
    assert found == pytest.approx(expected, rel=1e-6)
    shift = np.mean(np.asarray(solution.bias) - b)
    np.testing.assert_allclose(solution.bias - shift, b, atol=0.02)


@pytest.mark.parametrize("method", ["newton", pytest.param("dual", marks=native)])
def test_float32_ends_with_a_status(method):
    X, y = helpers.sparse_set(dtype=np.float32)
    solution = multinomial.run(helpers.problem(X, y, 0.1), method, multinomial.HParams(0.0, 300))
    # the gradient never is exactly 0: the run ends at the rounding of float32 or at its limit
    assert solution.status in (Status.LINE_SEARCH_FAILED, Status.MAX_STEPS, Status.CONVERGED)
    expected = helpers.reference(X.astype(float), y, 0.1)[0]
    assert helpers.objective(X.astype(float), y, solution.W, 0, 0.1) == pytest.approx(expected, rel=1e-5)


def test_features_that_say_nothing_end_before_the_first_step():
    X, y = helpers.sparse_set()
    weight = 1 / np.bincount(y)[y]  # classes of the same size, so that b = 0 is the best
    problem = helpers.problem(0 * X, y, 1.0, intercept=True, weight=weight)
    solution = multinomial.run(problem, "newton", W0=np.zeros((40, 7)))
    assert solution.status == Status.CONVERGED
    assert solution.history[-1].steps == 0


def test_history_is_told_to_the_observer():
    X, y = helpers.sparse_set()
    seen = []
    solution = multinomial.run(
        helpers.problem(X, y, 1.0, intercept=True),
        "newton",
        W0=np.zeros((40, 7)),
        observe=lambda state, record: seen.append(record),
    )
    assert seen == solution.history
    assert [record.steps for record in seen] == list(range(len(seen)))
    values = [record.value for record in seen]
    assert values == sorted(values, reverse=True)
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(seen))
