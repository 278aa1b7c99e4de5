"""LC and DM: what their bounds promise from iteration to iteration, and where they end."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import multinomial_helpers as helpers
import numpy as np
import pytest
import scipy.optimize
from scipy.special import expit, logsumexp

from xmcjax.solvers import Status, multinomial
from xmcjax.solvers.multinomial import _blocks, dm

LC = ["lc", "lc_extrapolated"]


def run(problem, method, hp, W0=None):
    """Every state of a run, and how it ended."""
    states = []
    solution = multinomial.solve(
        problem, method, hp, W0=W0, observe=lambda state, record: states.append(jax.tree.map(np.array, state))
    )
    return states, solution


@pytest.mark.parametrize("method", LC)
@pytest.mark.parametrize("start", ["zero", "random", "far"])
def test_lc_never_raises_g_and_its_bound_lies_above(method, start):
    X, y = helpers.sparse_set()
    scale = {"zero": 0.0, "random": 1.0, "far": 100.0}[start]
    W0 = None if start == "zero" else scale * np.random.default_rng(0).normal(size=(40, 7))
    states, solution = run(helpers.problem(X, y, 1.0), method, multinomial.HParams(1e-4, 2000), W0)
    values = np.array([state.value for state in states])
    assert np.all(np.diff(values) <= 0)
    for state in states[1:30]:
        assert state.bound >= state.value * (1 - 1e-12)
        # a is that of the weights, also where sums leave the range in which they are summed plainly
        np.testing.assert_allclose(state.memory.log_a, -logsumexp(X @ state.W, axis=1), atol=1e-9)
        assert float(state.value) == pytest.approx(helpers.objective(X, y, state.W, 0, 1.0), rel=1e-10)
        expected = np.linalg.norm(helpers.gradient(X, y, state.W, 0, 1.0)[0], axis=0)
        np.testing.assert_allclose(state.memory.norms, expected, rtol=1e-7, atol=1e-10)
    assert solution.status == Status.CONVERGED
    assert solution.value == pytest.approx(helpers.reference(X, y, 1.0)[0], rel=1e-5)


@pytest.mark.parametrize("method", LC)
def test_lc_with_weights_and_intercept(method):
    X, y = helpers.sparse_set()
    weight = np.random.default_rng(3).choice([0.0, 0.5, 2.0], len(y))
    weight[:7] = 1
    problem = helpers.problem(X, y, 1.0, intercept=True, weight=weight)
    states, solution = run(problem, method, multinomial.HParams(1e-6, 1000))
    assert solution.status == Status.CONVERGED
    assert np.all(np.diff([float(state.value) for state in states]) <= 0)
    expected = helpers.reference(X, y, 1.0, intercept=True, weight=weight)[0]
    assert solution.value == pytest.approx(expected, rel=1e-9)


def test_lc_on_some_digits():
    X, y = helpers.digits()
    X, y = X[:250], y[:250]
    problem = helpers.problem(X, y, 1.0)
    expected = helpers.reference(X, y, 1.0)[0]
    iterations = []
    for method in LC:
        solution = multinomial.solve(problem, method, multinomial.HParams(1e-4, 2000))
        assert solution.status == Status.CONVERGED
        assert solution.value == pytest.approx(expected, rel=1e-4)
        iterations.append(solution.history[-1].steps)
    assert iterations[1] < iterations[0] / 4


@pytest.mark.slow
@pytest.mark.parametrize("start", ["zero", "random"])
def test_lc_on_all_digits(start):
    X, y = helpers.digits()
    W0 = None if start == "zero" else np.random.default_rng(0).normal(size=(64, 10))
    solution = multinomial.solve(helpers.problem(X, y, 1.0), "lc", multinomial.HParams(1e-4, 20_000), W0=W0)
    values = np.array([record.value for record in solution.history])
    assert solution.status == Status.CONVERGED
    assert np.all(np.diff(values) <= 0)
    assert solution.value == pytest.approx(helpers.reference(X, y, 1.0)[0], rel=1e-4)


def test_lc_in_float32_ends_at_its_rounding():
    X, y = helpers.sparse_set(dtype=np.float32)
    states, solution = run(helpers.problem(X, y, 0.1), "lc", multinomial.HParams(0.0, 500))
    assert solution.status in (Status.LINE_SEARCH_FAILED, Status.MAX_STEPS)
    assert np.all(np.diff([float(state.value) for state in states]) <= 0)
    assert solution.value == pytest.approx(helpers.reference(X.astype(float), y, 0.1)[0], rel=1e-4)


def test_blocks_of_classes_change_nothing(monkeypatch):
    X, y = helpers.sparse_set()
    W = np.random.default_rng(0).normal(size=(40, 7))
    expected = multinomial.solve(helpers.problem(X, y, 1.0), "lc", multinomial.HParams(1e-5, 300))
    problem = helpers.problem(X.toarray(), y, 1.0, intercept=True)
    sums = [np.asarray(a) for a in _blocks.log_sums(problem, jnp.asarray(W), jnp.zeros(7))]
    norms = np.asarray(_blocks.gradient_norms(problem, jnp.asarray(W), jnp.zeros(7), sums[0]))
    monkeypatch.setattr(_blocks, "LANES", 3)  # two full blocks and one of a single class
    jax.clear_caches()
    split = multinomial.solve(helpers.problem(X, y, 1.0), "lc", multinomial.HParams(1e-5, 300))
    assert len(split.history) == len(expected.history)
    np.testing.assert_allclose(split.W, expected.W, rtol=1e-9, atol=1e-12)
    for one, other in zip(_blocks.log_sums(problem, jnp.asarray(W), jnp.zeros(7)), sums, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    found = _blocks.gradient_norms(problem, jnp.asarray(W), jnp.zeros(7), sums[0])
    np.testing.assert_allclose(found, norms, rtol=1e-12)
    jax.clear_caches()


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
    x0 = np.zeros(40 * 7 + 90)
    options = dict(maxiter=5000, maxfun=10_000, ftol=1e-15, gtol=1e-9)
    best = scipy.optimize.minimize(
        dm_objective, x0, (X, y, 1.0), jac=True, method="L-BFGS-B", options=options
    )
    for W0 in (None, np.random.default_rng(0).normal(size=(40, 7))):
        states, solution = run(helpers.problem(X, y, 1.0), "dm", multinomial.HParams(1e-6, 2000), W0)
        assert solution.status == Status.CONVERGED
        assert solution.bound == pytest.approx(best.fun, rel=1e-8)
        assert np.all(np.diff([float(state.bound) for state in states]) <= 0)
        assert all(state.bound >= state.value for state in states)
        # G at that minimum is not the least
        assert solution.value == pytest.approx(helpers.objective(X, y, solution.W, 0, 1.0), rel=1e-10)
        assert solution.value > 1.01 * helpers.reference(X, y, 1.0)[0]


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
