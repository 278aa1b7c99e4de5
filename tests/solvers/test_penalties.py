"""Penalties other than ½ ‖w‖²: their formulas, and optima of lanes against scikit-learn and scipy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from xmcjax import linops, losses
from xmcjax.native import available
from xmcjax.penalties import L1, L2, PENALTIES, ElasticNet, HuberPenalty
from xmcjax.solvers import Status, newton_cg

native = pytest.mark.skipif(not available(), reason="no native kernels")
BACKENDS = [pytest.param("native", marks=native), "dense"]
ALL = [L2(), L1(), ElasticNet(0.5), ElasticNet(0.05), HuberPenalty(1.0), HuberPenalty(0.01)]
OTHERS = ALL[1:]
N, D, LANES = 120, 40, 4
SMOOTH = ["squared_hinge", "logistic", "huber_hinge"]


# --- formulas -----------------------------------------------------------------------------------


def rho(penalty, w):
    """ρ(w), written down a second time."""
    w = np.abs(w)
    if isinstance(penalty, HuberPenalty):
        e = penalty.huber_width
        return np.where(w <= e, w**2 / (2 * e), w - e / 2)
    ratio = {"l2": 0.0, "l1": 1.0}.get(penalty.name, penalty.parameter)
    return ratio * w + (1 - ratio) * w**2 / 2


@pytest.mark.parametrize("penalty", ALL, ids=repr)
def test_values(penalty):
    w = np.linspace(-3, 3, 601)
    np.testing.assert_allclose(penalty.value(jnp.asarray(w)), rho(penalty, w), atol=1e-15)


@pytest.mark.parametrize("penalty", ALL, ids=repr)
@pytest.mark.parametrize(("h", "lam"), [(0.3, 1.0), (1.0, 0.2), (50.0, 3.0)])
def test_the_minimiser_is_the_best_of_many(penalty, h, lam):
    grid = np.linspace(-6, 6, 240_001)
    for u in (-4.0, -0.7, -0.01, 0.0, 0.2, 1.3, 5.0):
        found = float(penalty.minimiser(jnp.asarray(h), jnp.asarray(h * u), lam))
        values = h / 2 * (grid - u) ** 2 + lam * rho(penalty, grid)
        assert abs(found - grid[np.argmin(values)]) < 1e-4
        # and its slope balances the penalty's
        assert float(penalty.violation(jnp.asarray(h * (found - u)), jnp.asarray(found), lam)) < 1e-12


@pytest.mark.parametrize("penalty", ALL, ids=repr)
def test_the_violation_is_the_distance_to_the_subdifferential(penalty):
    lam, small = 0.7, 1e-7
    for w in (-2.0, -0.3, 0.0, 0.004, 1.5):
        low, high = (float(rho(penalty, w + s) - rho(penalty, w)) / s for s in (-small, small))
        for g in (-3.0, -0.5, 0.0, 0.2, 2.0):
            distance = max(lam * low + g, -(lam * high + g), 0)
            found = float(penalty.violation(jnp.asarray(g), jnp.asarray(w), lam))
            assert abs(found - distance) < 1e-4


def test_the_table():
    assert list(PENALTIES) == ["l2", "l1", "elastic_net", "huber"]
    assert all(PENALTIES[name].name == name for name in PENALTIES)
    for make in (lambda: ElasticNet(0.0), lambda: ElasticNet(1.1), lambda: HuberPenalty(0.0)):
        with pytest.raises(ValueError, match=r"expected .* got"):
            make()


# --- optima -------------------------------------------------------------------------------------


def data(dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X = sp.random(N, D, 0.3, format="csr", random_state=seed, dtype=np.float64)
    W = rng.normal(size=(D, LANES)) * (rng.random((D, LANES)) < 0.2)
    scores = X @ W + 0.3 * rng.normal(size=(N, LANES))
    y = np.where(scores > np.quantile(scores, 0.75, axis=0), 1, -1).astype(np.int8)
    return X.astype(dtype), y


def solve(X, y, penalty, loss="squared_hinge", backend="native", C=2.0, l2_bias=1.0, tolerance=1e-9, **more):
    hp = newton_cg.HParams(l2_bias=l2_bias, **more)
    op = linops.make(X, backend=backend)
    weight = jnp.full((1, 1), C, op.dtype)
    problem = newton_cg.lane_problem(
        op, y, losses.MARGIN_LOSSES[loss], weight=weight, tolerance=tolerance, penalty=penalty
    )
    state = newton_cg.run(problem, hp, newton_cg.init(problem))
    return state, np.asarray(state.w, float), np.asarray(state.bias, float)


def objective(X, y, w, b, penalty, loss, C=2.0, l2_bias=1.0):
    phi = np.asarray(losses.MARGIN_LOSSES[loss].value(jnp.asarray(y * (X @ w + b))))
    return rho(penalty, w).sum(0) + max(l2_bias, 0) * rho(penalty, b) + C * phi.sum(0)


def gradient(X, y, w, b, loss, C=2.0):
    slope = C * y * np.asarray(losses.MARGIN_LOSSES[loss].grad(jnp.asarray(y * (X @ w + b))))
    return X.T @ slope, slope.sum(0)


@pytest.mark.parametrize("penalty", OTHERS, ids=repr)
@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("l2_bias", [1.0, 0.0, -1.0])
def test_the_optimality_condition_holds(penalty, loss, l2_bias):
    """0 ∈ ∂f at the end, and the state says what is true."""
    X, y = data()
    backends = ["native"] if available() else ["dense"]
    for backend in backends:
        state, w, b = solve(X, y, penalty, loss, backend, l2_bias=l2_bias)
        assert set(np.asarray(state.status)) == {Status.CONVERGED}
        g, g_bias = gradient(X, y, w, b, loss)
        v = np.asarray(penalty.violation(jnp.asarray(g), jnp.asarray(w), 1.0))
        np.testing.assert_allclose(v, 0, atol=1e-7)
        if l2_bias >= 0:
            at = penalty.violation(jnp.asarray(g_bias), jnp.asarray(b), l2_bias)
            np.testing.assert_allclose(np.asarray(at), 0, atol=1e-7)
        else:
            assert not b.any()
        np.testing.assert_allclose(state.value, objective(X, y, w, b, penalty, loss, l2_bias=l2_bias))
        np.testing.assert_allclose(state.z, X @ w + b, atol=1e-9)


@pytest.mark.parametrize(
    ("backend", "loss"),
    [
        pytest.param("native", "squared_hinge", marks=native),
        pytest.param("native", "logistic", marks=native),
        ("dense", "logistic"),
    ],
)
@pytest.mark.parametrize("penalty", [L1(), ElasticNet(0.5), HuberPenalty(0.1)], ids=repr)
def test_both_steps_end_at_the_same_objective(backend, penalty, loss):
    """Tight, at the default of one-vs-all, and in float32."""
    X, y = data()
    _, w, b = solve(X, y, penalty, loss, "native" if available() else "dense")
    best = objective(X, y, w, b, penalty, loss)
    if backend != "native":
        _, w, b = solve(X, y, penalty, loss, backend)
        np.testing.assert_allclose(objective(X, y, w, b, penalty, loss), best, rtol=1e-8)
    at_zero = 2 * np.linalg.norm(np.vstack([X.T @ y, y.sum(0)]), axis=0)
    rare = np.minimum((y > 0).sum(0), (y < 0).sum(0))
    for dtype in (np.float64, np.float32):
        tolerance = (0.01 * rare / N * at_zero).astype(dtype)
        with jax.numpy_dtype_promotion("standard"):
            state, w, b = solve(X.astype(dtype), y, penalty, loss, backend, tolerance=tolerance)
        assert set(np.asarray(state.status)) == {Status.CONVERGED}
        np.testing.assert_allclose(objective(X, y, w, b, penalty, loss), best, rtol=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bias", ["regularised", "none"])
def test_l1_squared_hinge_equals_linear_svc(backend, bias):
    X, y = data()
    _, w, b = solve(X, y, L1(), backend=backend, l2_bias=1.0 if bias == "regularised" else -1.0)
    features = np.hstack([X.toarray(), np.ones((N, 1))]) if bias == "regularised" else X.toarray()
    for lane in range(LANES):
        svc = LinearSVC(penalty="l1", dual=False, C=2.0, fit_intercept=False, tol=1e-10, max_iter=1_000_000)
        theirs = svc.fit(features, y[:, lane]).coef_[0]
        v, at = (theirs[:-1], theirs[-1]) if bias == "regularised" else (theirs, 0.0)
        ours = objective(X, y[:, lane], w[:, lane], b[lane], L1(), "squared_hinge")
        best = objective(X, y[:, lane], v, at, L1(), "squared_hinge")
        np.testing.assert_allclose(ours, best, rtol=1e-6)
        np.testing.assert_allclose(w[:, lane], v, atol=1e-4)
        assert 0 < (w[:, lane] == 0).mean() < 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
def test_logistic_equals_scikit_learn(backend, l1_ratio):
    X, y = data()
    penalty = L1() if l1_ratio == 1 else ElasticNet(l1_ratio)
    _, w, b = solve(X, y, penalty, "logistic", backend, l2_bias=0.0)
    for lane in range(LANES):
        theirs = LogisticRegression(
            solver="saga", l1_ratio=l1_ratio, C=2.0, tol=1e-9, max_iter=100_000, random_state=0
        )
        theirs.fit(X, y[:, lane])
        ours = objective(X, y[:, lane], w[:, lane], b[lane], penalty, "logistic", l2_bias=0.0)
        v, at = theirs.coef_[0], theirs.intercept_[0]
        best = objective(X, y[:, lane], v, at, penalty, "logistic", l2_bias=0.0)
        np.testing.assert_allclose(ours, best, rtol=1e-6)
        np.testing.assert_allclose(w[:, lane], v, atol=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("width", [1.0, 0.01])
def test_huber_equals_scipy(backend, width):
    X, y = data()
    penalty = HuberPenalty(width)
    _, w, b = solve(X, y, penalty, backend=backend)
    for lane in range(LANES):

        def f(v, lane=lane):
            value = objective(X, y[:, lane], v[:-1], v[-1], penalty, "squared_hinge")
            g, g_bias = gradient(X, y[:, lane], v[:-1], v[-1], "squared_hinge")
            return value, np.append(g, g_bias) + np.clip(v / width, -1, 1)

        options = dict(maxiter=20_000, maxfun=50_000, ftol=1e-15, gtol=1e-9)
        best = scipy.optimize.minimize(f, np.zeros(D + 1), jac=True, method="L-BFGS-B", options=options)
        ours = objective(X, y[:, lane], w[:, lane], b[lane], penalty, "squared_hinge")
        np.testing.assert_allclose(ours, best.fun, rtol=1e-6)


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


@native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("penalty", [L1(), HuberPenalty(0.1)], ids=repr)
def test_a_lane_keeps_its_bits_in_any_company(dtype, penalty):
    X, y = data(dtype)
    op = linops.make(X, backend="native")

    def weights(columns):
        problem = newton_cg.lane_problem(
            op, y[:, columns], losses.squared_hinge, tolerance=1e-3, penalty=penalty
        )
        state = newton_cg.run(problem, newton_cg.HParams(), newton_cg.init(problem))
        return np.asarray(state.w), np.asarray(state.bias)

    W, b = weights([0, 1, 2, 3])
    many, biases = weights([3, 2, 1, 0] * 9)
    np.testing.assert_array_equal(many[:, :4], W[:, ::-1])
    np.testing.assert_array_equal(biases[-4:], b[::-1])
    alone, _ = weights([2])
    np.testing.assert_array_equal(alone[:, 0], W[:, 2])
