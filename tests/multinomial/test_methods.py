"""Every method against scikit-learn's minimum."""

from __future__ import annotations

import itertools

import multinomial_helpers as helpers
import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax.native import _ffi
from xmcjax.solvers import Status, multinomial

native = pytest.mark.skipif(not _ffi.available(), reason="no native kernels")
# what minimises G itself, and to which relative accuracy
EXACT = {"auto": 1e-6, "newton": 1e-6, "lbfgs": 1e-6, "dual": 1e-6, "admm": 1e-4}
TIGHT = multinomial.HParams(1e-6, 2000)


def methods(**accuracy):
    return [
        pytest.param(name, bound, marks=native if name == "dual" else ()) for name, bound in accuracy.items()
    ]


@pytest.mark.parametrize(("method", "accuracy"), methods(**EXACT))
def test_digits_at_lambda_1_as_scikit_learn(method, accuracy):
    X, y = helpers.digits()
    expected, W, _ = helpers.reference(X, y, 1.0)
    problem = helpers.problem(sp.csr_matrix(X) if method == "dual" else X, y)
    hp = multinomial.HParams(1e-4, 2000) if method == "admm" else TIGHT
    solution = multinomial.solve(problem, method, hp)
    assert solution.status == Status.CONVERGED
    found = helpers.objective(X, y, solution.W, solution.bias, 1.0)
    assert found == pytest.approx(expected, rel=accuracy)
    assert solution.value == pytest.approx(found, rel=1e-12)
    np.testing.assert_allclose(solution.W, W, atol=0.05 if method == "admm" else 1e-3)
    norm = np.sqrt(sum(np.sum(g**2) for g in helpers.gradient(X, y, np.asarray(solution.W), 0, 1.0)[:1]))
    assert solution.gradient_norm == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize(("method", "accuracy"), methods(**EXACT))
@pytest.mark.parametrize("lam", [10.0, 0.01])
def test_sparse_weighted_with_intercept_as_scikit_learn(method, accuracy, lam):
    X, y = helpers.sparse_set()
    weight = np.random.default_rng(3).choice([0.0, 0.5, 2.0], len(y))
    weight[:7] = 1
    expected, _, b = helpers.reference(X, y, lam, intercept=True, weight=weight)
    problem = helpers.problem(X, y, lam, intercept=True, weight=weight)
    hp = multinomial.HParams(1e-4, 2000) if method == "admm" else TIGHT
    solution = multinomial.solve(problem, method, hp)
    assert solution.status == Status.CONVERGED
    assert helpers.objective(X, y, solution.W, solution.bias, lam, weight) == pytest.approx(
        expected, rel=accuracy
    )
    shift = np.mean(np.asarray(solution.bias) - b)  # b is free up to a constant
    np.testing.assert_allclose(solution.bias - shift, b, atol=0.1 if method == "admm" else 0.02)


@pytest.mark.parametrize("method", ["auto", "newton", "lbfgs", pytest.param("dual", marks=native)])
def test_from_a_random_start(method):
    X, y = helpers.sparse_set()
    expected = helpers.reference(X, y, 0.1)[0]
    W0 = np.random.default_rng(0).normal(size=(40, 7))
    solution = multinomial.solve(helpers.problem(X, y, 0.1), method, TIGHT, W0=W0)
    assert solution.value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("method", ["newton", pytest.param("dual", marks=native)])
def test_float32_ends_with_a_status(method):
    X, y = helpers.sparse_set(dtype=np.float32)
    solution = multinomial.solve(helpers.problem(X, y, 0.1), method, multinomial.HParams(0.0, 300))
    # the gradient never is exactly 0: the run ends at the rounding of float32 or at its limit
    assert solution.status in (Status.LINE_SEARCH_FAILED, Status.MAX_STEPS, Status.CONVERGED)
    expected = helpers.reference(X.astype(float), y, 0.1)[0]
    assert helpers.objective(X.astype(float), y, solution.W, 0, 0.1) == pytest.approx(expected, rel=1e-5)


def test_features_without_a_class_signal_of_zero_gradient():
    X, y = np.zeros((6, 2)), np.array([0, 1, 2, 0, 1, 2])
    solution = multinomial.solve(helpers.problem(X, y, 1.0, intercept=True), "newton")
    assert solution.status == Status.CONVERGED
    assert solution.history[-1].steps == 0


def test_history_is_told_to_the_observer():
    X, y = helpers.sparse_set()
    seen = []
    solution = multinomial.solve(
        helpers.problem(X, y, 1.0), "newton", observe=lambda state, record: seen.append(record)
    )
    assert seen == solution.history
    assert [record.steps for record in seen] == list(range(len(seen)))
    values = [record.value for record in seen]
    assert values == sorted(values, reverse=True)
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(seen))
