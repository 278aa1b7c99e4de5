"""Penalties other than ½ ‖w‖²: their formulas, and what holds at the optima of lanes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from tests.support import objectives
from tests.support.objectives import PENALTIES, rho
from tests.support.problems import needs_native
from xmcjax import linops, losses
from xmcjax.penalties import L1, ElasticNet, HuberPenalty
from xmcjax.solvers import Status, newton_cg

BACKENDS = [pytest.param("native", marks=needs_native), "dense"]
OTHERS = PENALTIES[1:]
N, D, LANES, C = 120, 40, 4, 2.0


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
def test_values(penalty):
    w = np.linspace(-3, 3, 601)
    np.testing.assert_allclose(penalty.value(jnp.asarray(w)), rho(penalty, w), atol=1e-15)


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
def test_the_derivative_of_a_value_is_no_push_from_zero(penalty):
    """0 is the least value: a weight that starts there and has no data stays there in a gradient method."""
    slope = jax.vmap(jax.grad(penalty.value))(jnp.asarray([0.0, -0.0, -2.0, 2.0]))
    assert slope[0] == slope[1] == 0 and slope[2] == -slope[3] < 0


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
@pytest.mark.parametrize(("h", "lam"), [(0.3, 1.0), (1.0, 0.2), (50.0, 3.0)])
def test_the_minimiser_is_the_best_of_many(penalty, h, lam):
    grid = np.linspace(-6, 6, 240_001)
    for u in (-4.0, -0.7, -0.01, 0.0, 0.2, 1.3, 5.0):
        found = float(penalty.minimiser(jnp.asarray(h), jnp.asarray(h * u), lam))
        values = h / 2 * (grid - u) ** 2 + lam * rho(penalty, grid)
        assert abs(found - grid[np.argmin(values)]) < 1e-4
        # and its slope balances the penalty's
        assert float(penalty.violation(jnp.asarray(h * (found - u)), jnp.asarray(found), lam)) < 1e-12


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
def test_the_violation_is_the_distance_to_the_subdifferential(penalty):
    lam, small = 0.7, 1e-7
    for w in (-2.0, -0.3, 0.0, 0.004, 1.5):
        low, high = (float(rho(penalty, w + s) - rho(penalty, w)) / s for s in (-small, small))
        for g in (-3.0, -0.5, 0.0, 0.2, 2.0):
            distance = max(lam * low + g, -(lam * high + g), 0)
            found = float(penalty.violation(jnp.asarray(g), jnp.asarray(w), lam))
            assert abs(found - distance) < 1e-4


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
@pytest.mark.parametrize("lam", [1.0, 0.3])
def test_the_conjugate_is_the_best_of_many(penalty, lam):
    w = np.linspace(-40, 40, 320_001)
    for v in (-1.5, -1.1, -0.2, 0.0, 0.1, 0.29, 0.31, 2.0):
        found = float(penalty.conjugate(jnp.asarray(v), lam))
        values = v * w - lam * rho(penalty, w)
        if 0 < np.argmax(values) < len(w) - 1:
            assert abs(found - values.max()) < 1e-6
        else:  # it rises for ever
            assert found == np.inf


def data(dtype=np.float64):
    rng = np.random.default_rng(0)
    X = sp.random(N, D, 0.3, format="csr", random_state=0, dtype=np.float64)
    W = rng.normal(size=(D, LANES)) * (rng.random((D, LANES)) < 0.2)
    scores = X @ W + 0.3 * rng.normal(size=(N, LANES))
    return X.astype(dtype), np.where(scores > np.quantile(scores, 0.75, axis=0), 1, -1).astype(np.int8)


def solve(X, y, penalty, loss="squared_hinge", backend="native", C=C, l2_bias=1.0, tolerance=1e-9, **more):
    op = linops.make(X, backend=backend)
    tolerance = np.broadcast_to(tolerance, LANES).astype(op.dtype)  # of one shape, for one program
    options = dict(weight=jnp.full((1, 1), C, op.dtype), tolerance=tolerance, penalty=penalty)
    problem = newton_cg.lane_problem(op, y, losses.MARGIN_LOSSES[loss], **options)
    state = newton_cg.run(problem, newton_cg.HParams(l2_bias=l2_bias, **more), newton_cg.init(problem))
    return state, np.asarray(state.w, float), np.asarray(state.bias, float)


# A loss enters a step by its slope and curvature, a penalty by its minimiser: the penalties of other numbers
# have the loss with a curvature everywhere and one with kinks. In JAX each case compiles for seconds.
WAYS = [(loss, 1.0) for loss in losses.SMOOTH_LOSSES] + [("logistic", 0.0), ("logistic", -1.0)]
FEWER = [("logistic", 1.0), ("squared_hinge", 1.0)]
OTHER_NUMBERS = (ElasticNet(0.05), HuberPenalty(0.01))
CASES = [
    *(
        pytest.param(penalty, *way, "native", marks=needs_native)
        for penalty in OTHERS
        for way in (FEWER if penalty in OTHER_NUMBERS else WAYS)
    ),
    *((penalty, "logistic", 1.0, "dense") for penalty in (L1(), ElasticNet(0.5), HuberPenalty(1.0))),
]


@pytest.mark.parametrize(("penalty", "loss", "l2_bias", "backend"), CASES)
def test_the_optimality_condition_holds(penalty, loss, l2_bias, backend):
    """0 ∈ ∂f at the end, and the state says what is true; at the default tolerance f is close to that."""
    X, y = data()
    state, w, b = solve(X, y, penalty, loss, backend, l2_bias=l2_bias)
    assert set(np.asarray(state.status)) == {Status.CONVERGED}
    slope, slope_bias = objectives.lanes_slope(X, y, w, b, loss, C)
    found = penalty.violation(jnp.asarray(slope), jnp.asarray(w), 1.0)
    np.testing.assert_allclose(found, 0, atol=1e-7)
    if l2_bias >= 0:
        found = penalty.violation(jnp.asarray(slope_bias), jnp.asarray(b), l2_bias)
        np.testing.assert_allclose(found, 0, atol=1e-7)
    else:
        assert not b.any()
    best = objectives.lanes(X, y, w, b, loss, C, l2_bias=l2_bias, penalty=penalty)
    np.testing.assert_allclose(state.value, best)
    np.testing.assert_allclose(state.z, X @ w + b, atol=1e-9)
    at_zero = 2 * np.linalg.norm(np.vstack([X.T @ y, y.sum(0)]), axis=0)
    rare = np.minimum((y > 0).sum(0), (y < 0).sum(0))
    # plain JAX compiles anew for each
    for dtype in (np.float64, np.float32) if backend == "native" or penalty == L1() else (np.float64,):
        tolerance = 0.01 * rare / N * at_zero
        with jax.numpy_dtype_promotion("standard"):
            state, w, b = solve(
                X.astype(dtype), y, penalty, loss, backend, l2_bias=l2_bias, tolerance=tolerance
            )
        assert set(np.asarray(state.status)) == {Status.CONVERGED}
        loose = objectives.lanes(X, y, w, b, loss, C, l2_bias=l2_bias, penalty=penalty)
        np.testing.assert_allclose(loose, best, rtol=1e-3)


@needs_native
def test_the_elastic_net_is_that_of_scikit_learn():
    X, y = data()
    _, w, b = solve(X, y, ElasticNet(0.4), "logistic", l2_bias=0.0)
    for lane in range(LANES):
        options = dict(solver="saga", l1_ratio=0.4, C=C, tol=1e-9, max_iter=100_000, random_state=0)
        theirs = LogisticRegression(**options).fit(X, y[:, lane])
        np.testing.assert_allclose(w[:, lane], theirs.coef_[0], atol=1e-3)
        np.testing.assert_allclose(b[lane], theirs.intercept_[0], atol=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_statuses(backend):
    X, y = data()
    state, w, _ = solve(X, y, L1(), backend=backend, max_steps=1)
    assert set(np.asarray(state.status)) == {Status.MAX_STEPS} and w.any()
    # a loss that weighs nothing beside the penalty: zero is optimal, exactly
    state, w, b = solve(X, y, L1(), backend=backend, C=1e-4)
    assert set(np.asarray(state.status)) == {Status.CONVERGED}
    assert not w.any() and not b.any() and not np.asarray(state.steps).any()
    with np.errstate(over="ignore"):
        state, *_ = solve(X * 1e200, y, L1(), backend=backend)
    assert set(np.asarray(state.status)) <= {Status.NONFINITE, Status.LINE_SEARCH_FAILED}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("penalty", OTHERS, ids=repr)
def test_a_label_of_every_row_is_left_by_the_bias_alone(penalty, backend):
    """The first shift of the bias ends where no row has a loss, at a penalty that is far from its least."""
    X, _ = data()
    y, C = np.ones((N, LANES), np.int8), 1e4  # the program of the cases above
    tolerance = 0.01 * C * np.linalg.norm(np.r_[X.T @ y[:, 0], N])
    state, w, b = solve(X, y, penalty, "huber_hinge", backend, C=C, tolerance=tolerance)
    assert set(np.asarray(state.status)) == {Status.CONVERGED}
    found = objectives.lanes(X, y, w, b, "huber_hinge", C, l2_bias=1.0, penalty=penalty)
    best = min(
        objectives.lanes(X, y, 0 * w, np.full(LANES, at), "huber_hinge", C, l2_bias=1.0, penalty=penalty)[0]
        for at in np.linspace(0.9, 1.1, 201)
    )
    assert np.all(found < 1.01 * best)
