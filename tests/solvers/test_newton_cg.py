"""newton_cg: the native step against the jnp step, both against scikit-learn and scipy."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from xmcjax import linops, losses
from xmcjax.native import _ffi
from xmcjax.solvers import Status, newton_cg

native = pytest.mark.skipif(not _ffi.available(), reason="no native kernels")
BACKENDS = ["dense", "jnp", pytest.param("native", marks=native)]
SMOOTH = ["squared_hinge", "logistic", "huber_hinge"]


def data(n=80, d=30, lanes=5, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, 0.3, format="csr", random_state=seed, dtype=np.float64).astype(dtype)
    y = np.where(rng.random((n, lanes)) < 0.2, 1, -1).astype(np.int8)
    y[0] = 1  # every lane has a positive
    return X, y


def problem(X, y, loss="squared_hinge", backend="native", tolerance=1e-9, **more):
    op = linops.make(X, backend=backend)
    return newton_cg.lane_problem(op, y, losses.MARGIN_LOSSES[loss], tolerance=tolerance, **more)


def objective(X, y, w, b, loss, weight=1.0, shift=0.0, l2=1.0, l2_bias=1.0):
    z = X @ w + b
    phi = losses.MARGIN_LOSSES[loss].value(jnp.asarray(y * (z + shift)))
    return l2 / 2 * (w**2).sum(0) + l2_bias / 2 * b**2 + (weight * np.asarray(phi)).sum(0)


def solve(p, hp=None, w0=None, b0=0.0):
    return newton_cg.run(p, hp or newton_cg.HParams(), newton_cg.init(p, w0, b0))


@native
@pytest.mark.parametrize("lanes", [1, 5, 16, 19])
@pytest.mark.parametrize("l2_bias", [1.0, 0.0, -1.0])
@pytest.mark.parametrize("loss", SMOOTH)
def test_native_step_equals_the_jnp_step(loss, l2_bias, lanes):
    X, y = data(lanes=lanes)
    rng = np.random.default_rng(3)
    more = dict(weight=rng.random((len(y), 1)) + 0.5, shift=rng.normal(size=(len(y), lanes)) / 10)
    hp = newton_cg.HParams(l2=0.3, l2_bias=l2_bias, preconditioner=0.01 if l2_bias else 0.0)
    w0 = rng.normal(size=(X.shape[1], lanes))
    states = []
    for backend in ("native", "jnp"):
        p = problem(X, y, loss, backend, tolerance=1e-8, **more)
        s = newton_cg.init(p, w0, 0.5 if l2_bias >= 0 else 0.0)
        history = []
        for _ in range(4):
            s = newton_cg.advance(p, hp, s)
            history.append(jax.tree.map(np.asarray, s))
        states.append(history)
    for ours, reference in zip(*states, strict=True):
        for name, a, b in zip(ours._fields, ours, reference, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loss", SMOOTH)
def test_optimum_equals_scipy(loss, backend):
    X, y = data()
    rng = np.random.default_rng(1)
    weight, shift = rng.random(y.shape) + 0.2, rng.normal(size=(len(y), 1)) / 5
    p = problem(X, y, loss, backend, weight=weight, shift=shift)
    hp = newton_cg.HParams(l2=0.5, l2_bias=0.7)
    s = solve(p, hp)
    assert set(np.asarray(s.status)) == {Status.CONVERGED}
    ours = objective(X, y, np.asarray(s.w), np.asarray(s.bias), loss, weight, shift, 0.5, 0.7)
    np.testing.assert_allclose(s.value, ours, rtol=1e-12)
    for l in range(y.shape[1]):

        def f(v, l=l):
            args = (weight[:, l], shift[:, 0], 0.5, 0.7)
            return float(objective(X, y[:, l], v[:-1], v[-1], loss, *args))

        best = scipy.optimize.minimize(
            f, np.zeros(X.shape[1] + 1), method="L-BFGS-B", options=dict(maxiter=5000)
        )
        assert ours[l] <= best.fun * (1 + 1e-9)
        assert ours[l] >= best.fun * (1 - 1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_squared_hinge_equals_linear_svc(backend):
    X, y = data(lanes=4)
    C = 2.0
    p = problem(X, y, "squared_hinge", backend, weight=C)
    s = solve(p)
    with_one = sp.hstack([X, np.ones((X.shape[0], 1))]).tocsr()
    for l in range(4):
        svc = LinearSVC(loss="squared_hinge", dual=False, fit_intercept=False, tol=1e-8, max_iter=100000, C=C)
        svc.fit(with_one, y[:, l])
        theirs = objective(X, y[:, l], svc.coef_[0, :-1], svc.coef_[0, -1], "squared_hinge", C)
        np.testing.assert_allclose(s.value[l], theirs, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_logistic_with_a_free_bias_equals_scikit_learn(backend):
    X, y = data(lanes=3)
    s = solve(problem(X, y, "logistic", backend), newton_cg.HParams(l2_bias=0.0))
    for l in range(3):
        reference = LogisticRegression(C=1.0, tol=1e-12, solver="newton-cholesky", max_iter=1000).fit(
            X.toarray(), y[:, l]
        )
        np.testing.assert_allclose(np.asarray(s.w)[:, l], reference.coef_[0], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(s.bias[l], reference.intercept_[0], rtol=1e-5)


@pytest.mark.parametrize("loss", SMOOTH)
def test_gradient_norm_equals_finite_differences(loss):
    X, y = data(lanes=2)
    p = problem(X, y, loss, "dense")
    s = newton_cg.advance(p, newton_cg.HParams(), newton_cg.init(p, np.full((X.shape[1], 2), 0.1), 0.2))
    v = np.append(np.asarray(s.w)[:, 0], s.bias[0])

    def f(v):
        return float(objective(X, y[:, 0], v[:-1], v[-1], loss))

    h = 1e-6
    g = [(f(v + h * e) - f(v - h * e)) / (2 * h) for e in np.eye(len(v))]
    np.testing.assert_allclose(s.gradient_norm[0], np.linalg.norm(g), rtol=1e-6)


@native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", SMOOTH)
def test_a_lane_keeps_its_bits_in_any_company(loss, dtype):
    """One lane, a padded tile and full tiles, with neighbours that share its rows or do not."""
    X, y = data(n=400, d=50, lanes=24, dtype=dtype)
    op = linops.make(X, backend="native")

    def fit(lanes):
        p = newton_cg.lane_problem(op, y[:, lanes], losses.MARGIN_LOSSES[loss], tolerance=1e-3)
        return solve(p)

    whole = fit(np.arange(24))
    for lanes in ([0], [5, 0, 9], [23, 17, 3, 0], list(range(16))):
        part = fit(np.array(lanes))
        for name in ("w", "bias", "value", "steps", "cg_steps", "status"):
            np.testing.assert_array_equal(
                np.asarray(getattr(part, name)), np.asarray(getattr(whole, name))[..., lanes], err_msg=name
            )


@pytest.mark.parametrize("backend", BACKENDS)
def test_vmap_over_lanes_equals_the_lanes(backend):
    X, y = data(lanes=3)
    p = problem(X, y, backend=backend)
    hp = newton_cg.HParams()
    together = newton_cg.step(p, hp, newton_cg.step(p, hp, newton_cg.init(p)))

    def two_steps(op, y):
        q = newton_cg.lane_problem(op, y[:, None], p.loss, tolerance=1e-9)
        return newton_cg.step(q, hp, newton_cg.step(q, hp, newton_cg.init(q)))

    apart = jax.jit(jax.vmap(two_steps, in_axes=(None, 1)))(p.op, jnp.asarray(y))
    np.testing.assert_allclose(apart.w[..., 0].T, together.w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(apart.value[:, 0], together.value, rtol=1e-12)
    np.testing.assert_array_equal(apart.cg_steps[:, 0], together.cg_steps)


@pytest.mark.parametrize("backend", BACKENDS)
def test_finished_lanes_stay_as_they_are(backend):
    X, y = data(lanes=4)
    p = problem(X, y, backend=backend)
    s = newton_cg.step(p, newton_cg.HParams(), newton_cg.init(p))
    s = s._replace(status=jnp.array([0, 1, 3, 5], jnp.int32))
    t = newton_cg.step(p, newton_cg.HParams(), s)
    for name in ("w", "z", "bias", "value", "steps", "cg_steps"):
        before, after = np.asarray(getattr(s, name)), np.asarray(getattr(t, name))
        np.testing.assert_array_equal(after[..., 1:], before[..., 1:], err_msg=name)
        if name in ("w", "steps"):
            assert np.any(after[..., 0] != before[..., 0])
    np.testing.assert_array_equal(t.status[1:], [1, 3, 5])


@pytest.mark.parametrize("backend", BACKENDS)
def test_statuses(backend):
    X, y = data(lanes=2)
    hp = newton_cg.HParams(max_steps=1)
    s = solve(problem(X, y, backend=backend, tolerance=1e-12), hp)
    np.testing.assert_array_equal(s.status, [Status.MAX_STEPS] * 2)
    np.testing.assert_array_equal(s.steps, [1, 1])
    assert np.all(np.asarray(s.w) != 0, axis=0).any()  # the weights are kept on this exit
    # a direction that does not descend
    p = problem(X, y, backend=backend)
    s = newton_cg.step(p, newton_cg.HParams(), newton_cg.init(p))
    uphill = s._replace(direction=-s.direction, direction_bias=-s.direction_bias)
    t = newton_cg.step(p, newton_cg.HParams(), uphill)
    np.testing.assert_array_equal(t.status, [Status.LINE_SEARCH_FAILED] * 2)
    np.testing.assert_array_equal(t.w, s.w)
    np.testing.assert_array_equal(t.multiplier, [0, 0])
    # weights that overflow
    t = newton_cg.step(p, newton_cg.HParams(), newton_cg.init(p, np.full((X.shape[1], 2), 1e200)))
    np.testing.assert_array_equal(t.status, [Status.NONFINITE] * 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fresh_lane_forgets_what_was_there(backend):
    X, y = data(lanes=2)
    p = problem(X, y, backend=backend)
    clean = newton_cg.step(p, newton_cg.HParams(), newton_cg.init(p))
    dirty = newton_cg.init(p)._replace(
        w=jnp.full((X.shape[1], 2), jnp.nan), z=jnp.full((len(y), 2), jnp.nan), bias=jnp.full(2, jnp.nan)
    )
    for name, a, b in zip(clean._fields, newton_cg.step(p, newton_cg.HParams(), dirty), clean, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", [1, -1])
def test_targets_of_one_sign(value, backend):
    """A label without positives (or without negatives) is solved, not an error, at this level."""
    X, y = data(lanes=1)
    s = solve(problem(X, np.full_like(y, value), backend=backend, tolerance=1e-6))
    assert int(s.status[0]) == Status.CONVERGED
    assert float(s.bias[0]) * value > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32_reaches_the_default_tolerance(backend):
    X, y = data(n=300, lanes=6, dtype=np.float32)
    positives = (y > 0).sum(0)
    ones = sp.hstack([X, np.ones((300, 1))]).tocsr()
    zero_norm = 2 * np.linalg.norm(ones.T @ y.astype(np.float64), axis=0)
    tolerance = newton_cg.gradient_tolerance(0.01, positives, 300, zero_norm)
    s = solve(problem(X, y, backend=backend, tolerance=tolerance))
    assert s.w.dtype == np.float32
    assert set(np.asarray(s.status)) == {Status.CONVERGED}


def test_the_loss_is_checked():
    X, y = data()
    with pytest.raises(TypeError, match="hinge has not"):
        newton_cg.lane_problem(linops.make(X), y, losses.hinge)
    with pytest.raises(ValueError, match=r"expected targets \[80, lanes\]"):
        newton_cg.lane_problem(linops.make(X), y[1:], losses.squared_hinge)
    with pytest.raises(ValueError, match="weight"):
        newton_cg.lane_problem(linops.make(X), y, losses.squared_hinge, weight=np.ones((3, 1)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_cost_no_compilation(backend):
    X, y = data()
    p = problem(X, y, backend=backend)
    newton_cg.advance(p, newton_cg.HParams(), newton_cg.init(p))
    size = newton_cg.advance._cache_size()
    q = dataclasses.replace(p, tolerance=p.tolerance * 2, weight=p.weight * 3)
    newton_cg.advance(q, newton_cg.HParams(l2=2.0, max_steps=7, preconditioner=0.01), newton_cg.init(q))
    assert newton_cg.advance._cache_size() == size
