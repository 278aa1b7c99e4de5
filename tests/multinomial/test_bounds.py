"""LC and DM: what their bounds promise from iteration to iteration, and where they end."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logsumexp
from sklearn.datasets import load_digits

from tests.support import multinomial as helpers
from tests.support.objectives import least
from xmcjax.solvers import Status, multinomial
from xmcjax.solvers.multinomial import dm

LC = ["lc", "lc_extrapolated"]


def run(problem, method, hp, W0=None):
    """Every state of a run, and how it ended."""
    states = []
    solution = multinomial.run(
        problem, method, hp, W0=W0, observe=lambda state, record: states.append(jax.tree.map(np.array, state))
    )
    return states, solution


def check_state(state, X, y):
    """a is that of the weights, also where sums leave the range in which they are summed plainly."""
    np.testing.assert_allclose(state.memory.log_a, -logsumexp(X @ state.W, axis=1), atol=1e-9)
    assert float(state.value) == pytest.approx(helpers.objective(X, y, state.W, 0, 1.0), rel=1e-10)
    expected = np.linalg.norm(helpers.gradient(X, y, state.W, 0, 1.0)[0], axis=0)
    np.testing.assert_allclose(state.memory.norms, expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("method", LC)
@pytest.mark.parametrize("start", ["zero", "random", "far"])
def test_lc_never_raises_g_and_its_bound_lies_above(method, start):
    X, y = helpers.sparse_set()
    scale = {"zero": 0.0, "random": 1.0, "far": 100.0}[start]
    W0 = scale * np.random.default_rng(0).normal(size=(40, 7))
    states, solution = run(helpers.problem(X, y, 1.0), method, multinomial.HParams(1e-4, 2000), W0)
    values = np.array([state.value for state in states])
    assert np.all(np.diff(values) <= 0)
    for state in states[1:30]:
        assert state.bound >= state.value * (1 - 1e-12)
        check_state(state, X, y)
    assert solution.status == Status.CONVERGED
    assert solution.value == pytest.approx(helpers.minimum(X, y, 1.0), rel=1e-5)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("classes", [2, 7])
def test_weights_of_extrapolated_lc_have_no_mean_over_the_classes(intercept, classes):
    """It costs G and changes no probability; of two classes only the difference of the weights is kept."""
    X, y = helpers.sparse_set(classes=classes)
    W0 = np.random.default_rng(0).normal(size=(40, classes))
    problem = helpers.problem(X, y, 0.03, intercept=intercept)
    states, _ = run(problem, "lc_extrapolated", multinomial.HParams(1e-6, 20), W0)
    for state in states[1:]:
        np.testing.assert_allclose(state.W.sum(1), 0, atol=1e-12 * np.abs(state.W).sum())
        found = helpers.objective(X, y, state.W, state.bias, 0.03)
        assert float(state.value) == pytest.approx(found, rel=1e-10)
        log_sums = logsumexp(X @ state.W + state.bias, axis=1)
        np.testing.assert_allclose(state.memory.log_a, -log_sums, atol=1e-9)
    assert np.all(np.diff([float(state.value) for state in states]) <= 0)


def test_extrapolation_saves_most_iterations():
    X, y = helpers.sparse_set()
    problem = helpers.problem(X, y, 0.03)
    W0 = np.zeros((40, 7))
    runs = [multinomial.run(problem, method, multinomial.HParams(1e-4, 5000), W0=W0) for method in LC]
    assert [solution.status for solution in runs] == [Status.CONVERGED] * 2
    assert runs[1].history[-1].steps < runs[0].history[-1].steps / 4


@pytest.mark.parametrize("every", [10, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("start", ["zero", "random"])
def test_lc_on_digits_at_lambda_1(start, every):
    X, y = load_digits(return_X_y=True)
    X, y = X[::every] / 16, y[::every].astype(np.int32)
    W0 = (start == "random") * np.random.default_rng(0).normal(size=(64, 10))
    solution = multinomial.run(helpers.problem(X, y, 1.0), "lc", multinomial.HParams(1e-4, 20_000), W0=W0)
    assert solution.status == Status.CONVERGED
    assert np.all(np.diff([record.value for record in solution.history]) <= 0)
    assert solution.value == pytest.approx(helpers.minimum(X, y, 1.0), rel=1e-4)
    last = solution.history[-1]
    print(f"{len(y)} digits from {start}: {last.steps} iterations, {last.seconds:.0f} s")


def test_blocks_of_classes_hold_every_class_once():
    # one full block of 64 lanes, and one that reaches back into it
    classes = 64 + 7
    X, y = helpers.sparse_set(n=100, d=80, classes=classes)
    W0 = np.random.default_rng(0).normal(size=(80, classes))
    states, _ = run(helpers.problem(X, y, 1.0), "lc", multinomial.HParams(1e-4, 3), W0)
    assert len(states) == 4
    for state in states:
        check_state(state, X, y)
    assert np.all(np.diff([float(state.value) for state in states]) < 0)


def dm_objective(x, X, y, lam):
    """F and its gradient in (W, a)."""
    n, classes = len(y), 7
    W, a = x[:-n].reshape(-1, classes), x[-n:]
    shifted = X @ W - a[:, None]
    own = (X @ W)[np.arange(n), y]
    value = lam / 2 * np.sum(W**2) + np.sum(a + np.logaddexp(0, shifted).sum(1) - own)
    slope = expit(shifted)
    gradient_a = 1 - slope.sum(1)
    slope[np.arange(n), y] -= 1
    return value, np.concatenate([(lam * W + X.T @ slope).ravel(), gradient_a])


def test_dm_reaches_the_minimum_of_its_own_objective():
    X, y = helpers.sparse_set()
    best = least(lambda x: dm_objective(x, X, y, 1.0), 40 * 7 + 90)
    for scale in (0, 1):
        W0 = scale * np.random.default_rng(0).normal(size=(40, 7))
        states, solution = run(helpers.problem(X, y, 1.0), "dm", multinomial.HParams(1e-6, 2000), W0)
        assert solution.status == Status.CONVERGED
        assert solution.bound == pytest.approx(best, rel=1e-8)
        assert np.all(np.diff([float(state.bound) for state in states]) <= 0)
        assert all(state.bound >= state.value for state in states)
        # G at that minimum is not the least
        assert solution.value == pytest.approx(helpers.objective(X, y, solution.W, 0, 1.0), rel=1e-10)
        assert solution.value > 1.01 * helpers.minimum(X, y, 1.0)


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("classes", [2, 7])
def test_a_of_the_dm_bound(scale, classes):
    rng = np.random.default_rng(0)
    X, y = helpers.sparse_set(classes=classes)
    problem = helpers.problem(X, y, 1.0)
    Z = scale * rng.normal(size=(90, classes))
    Z[0] = 0
    a = np.asarray(jax.jit(dm.best_a)(problem, jnp.asarray(Z)))
    np.testing.assert_allclose(expit(Z - a[:, None]).sum(1), 1, atol=1e-9)
    assert a[0] == pytest.approx(np.log(classes - 1), abs=1e-12)


@pytest.mark.parametrize("method", [*LC, "dm"])
def test_scores_of_1e4_neither_overflow_nor_give_nan(method):
    X, y = helpers.sparse_set()
    W0 = np.random.default_rng(0).choice([-1e4, 1e4], (40, 7))
    states, _ = run(helpers.problem(X, y, 0.1), method, multinomial.HParams(1e-5, 5), W0)
    assert len(states) > 2
    for state in states:
        assert all(np.all(np.isfinite(a)) for a in (state.W, state.value, state.bound, state.gradient_norm))
