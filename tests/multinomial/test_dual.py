"""Rounds of dual ascent: the native kernel against its twin, and the ascent."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import multinomial as helpers
from tests.support.problems import needs_native
from tests.support.softmax_round_twin import softmax_round
from xmcjax import linops
from xmcjax.native import call, twins
from xmcjax.solvers import Status, multinomial
from xmcjax.solvers.multinomial import auto, dual

pytestmark = needs_native


def start(X, y, lam, classes, dtype, weight):
    """Dual variables near the targets, and their weights."""
    q = np.full((len(y), classes), 0.1 / classes)
    q[np.arange(len(y)), y] += 0.9
    Y = np.eye(classes)[y]
    W = X.T @ (weight[:, None] * (Y - q)) / lam
    return jnp.asarray(W, dtype), jnp.asarray(np.log(q), dtype)


@pytest.mark.parametrize(("classes", "dtype"), [(45, np.float32), (45, np.float64)])
@pytest.mark.parametrize("lam", [10.0, 0.05])
def test_round_equals_its_twin(classes, dtype, lam):
    X, y = helpers.sparse_set(n=60, d=50, classes=classes, dtype=dtype)
    X = sp.csr_matrix(X.multiply((np.arange(60) != 5)[:, None])).astype(dtype)  # an instance without features
    rng = np.random.default_rng(0)
    weight = rng.choice([0.0, 1.0, 2.0], len(y))
    bias = rng.normal(size=classes)
    order = rng.permutation(len(y)).astype(np.int32)
    W, log_q = start(X.astype(float), y, lam, classes, dtype, weight)
    op = linops.make(X, backend="native")
    assert isinstance(op, linops.Csr)
    shared = tuple(jnp.asarray(a, dtype) for a in (weight, op.row_norms2(), bias))
    rest = (jnp.asarray(order), jnp.asarray(lam, dtype), W, log_q)
    names = "weight", "squared_norms", "bias", "order", "l2", "W", "log_p"
    given = dict(zip(names, (*shared, *rest), strict=True))
    made = jax.jit(functools.partial(call, "softmax_round"))(X=op.arrays, **given)
    mine = made["W"], made["log_p"], made["counts"]
    twin = jax.jit(softmax_round)(jnp.asarray(X.toarray()), *shared, *rest)
    accuracy = 2e-4 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(mine[0], twin[0], rtol=accuracy, atol=accuracy * np.abs(twin[0]).max())
    np.testing.assert_allclose(jnp.exp(mine[1]), jnp.exp(twin[1]), atol=accuracy)
    pairs, epochs, steps, skipped = (np.asarray(a) for a in zip(mine[2], twin[2], strict=True))
    if dtype == np.float64:
        assert pairs[0] == pairs[1] and epochs[0] == epochs[1] and steps[0] == steps[1]
    assert skipped.max() == 0
    if lam < 1:
        assert epochs[0] > 0  # the entries that need more visits are there


def test_the_dual_objective_rises_and_the_gap_is_the_gradient():
    X, y = helpers.sparse_set()
    lam = 0.05
    problem = helpers.problem(X, y, lam)
    hp = multinomial.HParams(1e-10, 200)
    state = multinomial.initial(problem, hp, None, None, method="dual")

    def dual(state):
        q = np.exp(np.asarray(state.memory.log_q))
        np.testing.assert_allclose(q.sum(1), 1, rtol=1e-9)
        W = X.T @ (np.eye(7)[y] - q) / lam
        np.testing.assert_allclose(state.W, W, atol=1e-9)
        return -lam / 2 * np.sum(W**2) - np.sum(q * np.log(q))

    values = [dual(state)]
    while int(state.status) == Status.RUNNING:
        state = multinomial.advance(problem, hp, state, method="dual")
        values.append(dual(state))
    assert int(state.status) == Status.CONVERGED
    assert np.all(np.diff(values) > -1e-9)
    assert float(state.value) == pytest.approx(values[-1], rel=1e-9)


def test_order_of_visits_follows_the_seed_and_nothing_else():
    X, y = helpers.sparse_set()
    problem = helpers.problem(X, y, 0.1)
    hp, step = multinomial.HParams(1e-9, 500), jax.jit(dual.step)
    states = [dual.init(problem, hp, seed=seed) for seed in (0, 0, 1)]
    once = [np.asarray(step(problem, hp, state).W) for state in states]
    np.testing.assert_array_equal(once[0], once[1])
    assert (once[0] != once[2]).any()
    # every order ends at the one optimum
    for k in range(3):
        while int(states[k].status) == Status.RUNNING:
            states[k] = step(problem, hp, states[k])
    np.testing.assert_array_equal(states[0].W, states[1].W)
    np.testing.assert_allclose(states[0].W, states[2].W, atol=1e-6)


def test_auto_goes_over_to_newton_where_dual_ascent_stops_gaining():
    assert auto.following("dual", [1.0] * auto.PATIENCE) == "dual"
    assert auto.following("dual", [1.0] * (auto.PATIENCE + 1)) == "newton"
    assert auto.following("dual", [0.9**k for k in range(40)]) == "dual"
    assert auto.following("newton", [1.0] * 99) == "newton"


def test_auto_chooses_by_the_features(monkeypatch):
    X, y = helpers.sparse_set()
    assert auto.first(helpers.problem(X, y)) == "block_newton"
    assert auto.first(helpers.problem(X, y), compiled=True) == "newton"
    monkeypatch.setattr(auto, "MANY_WEIGHTS", 280)
    assert auto.first(helpers.problem(X, y)) == "dual"
    assert auto.first(helpers.problem(X.toarray(), y)) == "block_newton"
    # badly conditioned: dual ascent begins, Newton ends
    problem = helpers.problem(X * 100, y, 1e-3, intercept=True)
    W0 = np.zeros((40, 7))
    solution = multinomial.run(problem, "auto", multinomial.HParams(1e-9, 500), W0=W0)
    assert solution.status == Status.CONVERGED
    expected = multinomial.run(problem, "newton", multinomial.HParams(1e-9, 500), W0=W0)
    assert solution.value == pytest.approx(expected.value, rel=1e-6)


def test_dual_wants_native_features():
    X, y = helpers.sparse_set()
    with pytest.raises(ValueError, match="take newton"):
        multinomial.run(helpers.problem(X.toarray(), y), "dual")
    with twins(), pytest.raises(ValueError, match="found no kernels, of which `xmcjax info` says why"):
        multinomial.run(helpers.problem(X, y), "dual")
