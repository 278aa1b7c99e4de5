"""newton_cg: the native step against the step in JAX, both against L-BFGS.

A step compiles in seconds where it is not native, so most tests share one shape.
"""

from __future__ import annotations

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import objectives
from tests.support.problems import BACKENDS, lanes_problem, needs_native
from xmcjax import linops, losses
from xmcjax.penalties import L1, L2, HuberPenalty
from xmcjax.solvers import Status, newton_cg

SMOOTH = list(losses.SMOOTH_LOSSES)
N, D, LANES = 80, 30, 5


def problem(X, y, loss="squared_hinge", backend="native", tolerance=1e-9, weight=1.0, shift=0.0):
    if backend != "native":  # one shape, one compilation
        weight, shift = (np.broadcast_to(np.asarray(a, float), y.shape) for a in (weight, shift))
    op = linops.make(X, backend=backend)
    options = dict(tolerance=tolerance, weight=weight, shift=shift)
    return newton_cg.lane_problem(op, y, losses.MARGIN_LOSSES[loss], **options)


def start(p, w0=None, b0=0.0, hp=None):
    """The lanes after the step that takes the starting weights."""
    return newton_cg.advance(p, hp or newton_cg.HParams(), newton_cg.init(p, w0, b0))


def solve(p, hp=None, w0=None, b0=0.0):
    s = start(p, w0, b0, hp)
    while newton_cg.moving(np.asarray(s.status)).any():
        s = newton_cg.advance(p, hp or newton_cg.HParams(), s)
    return s


def copy(state):
    """Safe from `advance`, which gives the buffers of its argument away."""
    return jax.tree.map(jnp.array, state)


@functools.cache
def jnp_history(loss, l2_bias):
    """Of 19 lanes: a lane alone takes the same steps."""
    return four_steps(loss, l2_bias, "jnp", 19)


def four_steps(loss, l2_bias, backend, lanes):
    X, y = lanes_problem(lanes=19)
    rng = np.random.default_rng(3)
    weight, shift = rng.random((len(y), 1)) + 0.5, rng.normal(size=(len(y), 19)) / 10
    w0 = rng.normal(size=(X.shape[1], 19))
    hp = newton_cg.HParams(l2=0.3, l2_bias=l2_bias, preconditioner=0.01 if l2_bias else 0.0)
    p = problem(X, y[:, :lanes], loss, backend, 1e-8, weight, shift[:, :lanes])
    s = newton_cg.init(p, w0[:, :lanes], 0.5 if l2_bias >= 0 else 0.0)
    history = []
    for _ in range(4):
        s = newton_cg.advance(p, hp, s)
        history.append(jax.tree.map(np.array, s))
    return history


@needs_native
@pytest.mark.parametrize("l2_bias", [1.0, 0.0, -1.0])
@pytest.mark.parametrize("loss", SMOOTH)
def test_native_step_equals_the_jnp_step(loss, l2_bias):
    for lanes in (1, 5, 16, 19):
        histories = four_steps(loss, l2_bias, "native", lanes), jnp_history(loss, l2_bias)
        for ours, reference in zip(*histories, strict=True):
            reference = jax.tree.map(lambda a, lanes=lanes: a[..., :lanes], reference)
            chex.assert_trees_all_close(ours, reference, rtol=1e-7, atol=1e-8)


@needs_native
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rare_labels_of_features_far_from_zero(seed):
    """Few rows are near a margin and the bias moves far: the box of the search need not hold (0, 0)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1_500, 6)) + 30
    scores = (X - 30) @ rng.normal(size=(6, LANES)) + rng.normal(size=(1_500, LANES))
    y = np.where(scores > np.quantile(scores, [0.9, 0.92, 0.95, 0.98, 0.99], axis=0).diagonal(), 1, -1)
    options = dict(loss=losses.MARGIN_LOSSES["squared_hinge"], weight=0.01, tolerance=1e-6)
    ours = newton_cg.lane_problem(linops.make(sp.csr_matrix(X)), y, **options)
    theirs = newton_cg.lane_problem(linops.make(X), y, **options)
    hp = newton_cg.HParams(l2_bias=0.0)
    s, steps = newton_cg.init(ours), 0
    while newton_cg.moving(np.asarray(s.status)).any():
        twin = newton_cg.advance(theirs, hp, copy(s))
        s, steps = newton_cg.advance(ours, hp, s), steps + 1
        for name in ("multiplier", "bias", "value", "status"):
            np.testing.assert_allclose(getattr(s, name), getattr(twin, name), rtol=1e-4, atol=1e-6)
    assert set(np.asarray(s.status)) == {Status.CONVERGED} and steps < 30
    best = [objectives.lane_minimum(X, column, "squared_hinge", 0.01, l2_bias=0.0) for column in y.T]
    np.testing.assert_allclose(s.value, best, rtol=1e-5)


@needs_native
@pytest.mark.parametrize("shape", [(1, 1), (N, 1), (1, LANES)])
def test_weights_and_shifts_broadcast_in_the_native_step(shape):
    X, y = lanes_problem()
    rng = np.random.default_rng(4)
    weight, shift = rng.random(shape) + 0.5, rng.normal(size=shape) / 5
    whole = [np.ascontiguousarray(np.broadcast_to(a, y.shape)) for a in (weight, shift)]
    ours, reference = (solve(problem(X, y, weight=w, shift=s)) for w, s in ((weight, shift), whole))
    chex.assert_trees_all_equal(ours, reference)


def weighted():
    """Features, targets, weights of rows and lanes, shifts of rows."""
    X, y = lanes_problem()
    rng = np.random.default_rng(1)
    return X, y, rng.random(y.shape) + 0.2, rng.normal(size=(len(y), 1)) / 5


@functools.cache
def minima(loss):
    """Of the lanes of weighted()."""
    X, y, weight, shift = weighted()
    lanes = range(y.shape[1])
    return [objectives.lane_minimum(X, y[:, l], loss, weight[:, l], shift[:, 0], 0.5, 0.7) for l in lanes]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loss", SMOOTH)
def test_optimum_equals_scipy(loss, backend):
    X, y, weight, shift = weighted()
    p = problem(X, y, loss, backend, weight=weight, shift=shift)
    s = solve(p, newton_cg.HParams(l2=0.5, l2_bias=0.7))
    assert set(np.asarray(s.status)) == {Status.CONVERGED}
    ours = objectives.lanes(X, y, np.asarray(s.w), np.asarray(s.bias), loss, weight, shift, 0.5, 0.7)
    np.testing.assert_allclose(s.value, ours, rtol=1e-12)
    np.testing.assert_allclose(ours, minima(loss), rtol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loss", SMOOTH)
def test_features_far_from_zero(loss, backend):
    """What the bias step leaves of the bias's slope weighs as much as the features are large."""
    X, y = lanes_problem()
    X.data += 100
    norm = np.linalg.norm(np.append(X.T @ y, y.sum(0)[None], axis=0).astype(float), axis=0)
    tolerance = newton_cg.gradient_tolerance(0.01, (y > 0).sum(0), N, norm)
    rng = np.random.default_rng(5)
    s = solve(problem(X, y, loss, backend, tolerance), w0=rng.normal(size=(D, LANES)) / 10)
    assert set(np.asarray(s.status)) == {Status.CONVERGED}
    best = solve(problem(X, y, loss, backend))
    np.testing.assert_allclose(s.value, best.value, rtol=1e-2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("l2_bias", [1e-6, 1e-3, 0.0])
def test_a_bias_that_is_regularised_little(l2_bias, backend):
    """What is left of its slope counts beside its own λ_b and curvature, not beside the λ of the weights."""
    X, y = np.full((4, 1), 1e-3), np.ones((4, 1), int)
    p = problem(
        X if backend == "dense" else sp.csr_matrix(X), y, backend=backend, tolerance=1e-2, weight=1e-4
    )
    s = solve(p, newton_cg.HParams(l2_bias=l2_bias))
    best = objectives.lane_minimum(X, y[:, 0], "squared_hinge", 1e-4, l2_bias=l2_bias)
    assert s.status[0] == Status.CONVERGED and s.value[0] <= 1.01 * best + 1e-12


@pytest.mark.parametrize("loss", SMOOTH)
def test_the_gradient_norm(loss):
    X, y = lanes_problem()
    s = start(problem(X, y, loss, "dense"), np.full((D, LANES), 0.1), 0.2)
    w, b = np.asarray(s.w), np.asarray(s.bias)
    slope, slope_bias = objectives.lanes_slope(X, y, w, b, loss)
    np.testing.assert_allclose(
        s.gradient_norm, np.linalg.norm(np.vstack([w + slope, b + slope_bias]), axis=0)
    )


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("loss", "penalty"),
    [*((loss, L2()) for loss in SMOOTH), ("squared_hinge", L1()), ("squared_hinge", HuberPenalty(0.1))],
)
def test_a_lane_keeps_its_bits_in_any_company(loss, penalty, dtype):
    """One lane, a padded tile and full tiles, with neighbours that share its rows or do not."""
    X, y = lanes_problem(n=400, d=50, lanes=40, dtype=dtype)
    op = linops.make(X, backend="native")

    def fit(lanes):
        options = dict(tolerance=1e-3, penalty=penalty)
        return solve(newton_cg.lane_problem(op, y[:, lanes], losses.MARGIN_LOSSES[loss], **options))

    def kept(state):
        names = ("w", "bias", "value", "steps", "cg_steps", "status")
        return [np.asarray(getattr(state, name)) for name in names]

    whole = fit(np.arange(40))
    for lanes in ([0], [5, 0, 9], [23, 17, 3, 0], list(range(16)), list(range(39, 18, -1))):
        chex.assert_trees_all_equal(kept(fit(np.array(lanes))), [a[..., lanes] for a in kept(whole)])


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_lane_that_is_searched_alone_keeps_its_bits(dtype):
    """With weights and shifts of its own rows; 401 rows fill no whole register."""
    X, y = lanes_problem(n=401, d=50, lanes=16, dtype=dtype)
    rng = np.random.default_rng(8)
    weight, shift = rng.uniform(0.5, 2, y.shape), rng.normal(size=y.shape)
    op, loss = linops.make(X, backend="native"), losses.logistic

    def fit(lanes):
        options = dict(weight=weight[:, lanes], shift=shift[:, lanes], tolerance=1e-3)
        state = solve(newton_cg.lane_problem(op, y[:, lanes], loss, **options))
        return [np.asarray(getattr(state, name)) for name in ("w", "bias", "value", "steps")]

    whole = fit(np.arange(16))
    chex.assert_trees_all_equal(fit(np.array([3])), [a[..., [3]] for a in whole])


@pytest.mark.parametrize("backend", BACKENDS)
def test_finished_lanes_stay_as_they_are(backend):
    X, y = lanes_problem()
    p = problem(X, y, backend=backend)
    s = start(p)._replace(status=jnp.array([0, 1, 2, 3, 5], jnp.int32))
    t = newton_cg.advance(p, newton_cg.HParams(), copy(s))
    for name in ("w", "z", "bias", "value", "steps", "cg_steps"):
        before, after = np.asarray(getattr(s, name)), np.asarray(getattr(t, name))
        np.testing.assert_array_equal(after[..., 1:], before[..., 1:], err_msg=name)
        if name in ("w", "steps"):
            assert np.any(after[..., 0] != before[..., 0])
    np.testing.assert_array_equal(t.status[1:], [1, 2, 3, 5])


@pytest.mark.parametrize("backend", BACKENDS)
def test_statuses(backend):
    X, y = lanes_problem()
    p = problem(X, y, backend=backend, tolerance=1e-12)
    # a direction that does not descend
    s = start(p)
    uphill = s._replace(direction=-s.direction, direction_bias=-s.direction_bias)
    t = newton_cg.advance(p, newton_cg.HParams(), copy(uphill))
    np.testing.assert_array_equal(t.status, [Status.LINE_SEARCH_FAILED] * LANES)
    np.testing.assert_array_equal(t.w, s.w)
    np.testing.assert_array_equal(t.multiplier, [0] * LANES)
    # weights that overflow
    t = start(p, np.full((D, LANES), 1e200))
    np.testing.assert_array_equal(t.status, [Status.NONFINITE] * LANES)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fresh_lane_forgets_what_was_there(backend):
    X, y = lanes_problem()
    p = problem(X, y, backend=backend)
    fresh = newton_cg.init(p)
    nans = {name: jnp.full_like(getattr(fresh, name), jnp.nan) for name in ("w", "z", "bias")}
    dirty = newton_cg.advance(p, newton_cg.HParams(), fresh._replace(**nans))
    chex.assert_trees_all_equal(dirty, start(p))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tolerance_that_cannot_be_met_leaves_the_optimum(backend):
    """Also where the bias's slope has one sign on the whole way, and its bracket stays open."""
    X, y = lanes_problem()
    best = solve(problem(X, y, backend=backend))
    for C in (1.0, 1e4):
        s = solve(problem(X, y, backend=backend, tolerance=0.0, weight=C), newton_cg.HParams(max_steps=12))
        assert Status.NONFINITE not in np.asarray(s.status)
        assert np.all(np.isfinite(s.bias))
        if C == 1:
            np.testing.assert_allclose(s.value, best.value, rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loss", SMOOTH)
def test_an_offset_that_is_no_number_is_not_passed_over(loss, backend):
    X, y = lanes_problem()
    shift = np.zeros((N, LANES))
    shift[3, 1] = np.nan
    with pytest.raises(ValueError, match="shift: expected finite numbers, found NaN"):
        problem(X, y, loss, backend, shift=shift)
    # an array of JAX, which may be traced, is not looked at
    unseen = dataclasses.replace(problem(X, y, loss, backend, shift=0 * y), shift=jnp.asarray(shift))
    status = np.asarray(start(unseen).status)
    assert status[1] == Status.NONFINITE and Status.NONFINITE not in np.delete(status, 1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", [1, -1])
def test_targets_of_one_sign(value, backend):
    """A label without positives (or without negatives) is solved, not an error, at this level."""
    X, y = lanes_problem()
    s = solve(problem(X, np.full_like(y, value), backend=backend, tolerance=1e-6))
    assert set(np.asarray(s.status)) == {Status.CONVERGED}
    assert np.all(np.asarray(s.bias) * value > 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32_reaches_the_default_tolerance(backend):
    X, y = lanes_problem(n=300, dtype=np.float32)
    zero_norm = 2 * np.linalg.norm(np.vstack([X.T @ y, y.sum(0)]), axis=0)
    tolerance = newton_cg.gradient_tolerance(0.01, (y > 0).sum(0), 300, zero_norm)
    s = solve(problem(X, y, backend=backend, tolerance=tolerance))
    assert s.w.dtype == np.float32
    assert set(np.asarray(s.status)) == {Status.CONVERGED}


def test_targets_that_are_traced_are_not_seen():
    X, y = lanes_problem()
    op = linops.make(X)
    made = jax.jit(lambda y: newton_cg.lane_problem(op, y, losses.squared_hinge).y)(y * np.float32(3))
    assert made.shape == y.shape


@needs_native
def test_several_steps_in_a_call():
    p, hp = problem(*lanes_problem()), newton_cg.HParams()
    three = newton_cg.advance(p, hp, newton_cg.init(p), count=3)
    apart = newton_cg.advance(p, hp, newton_cg.advance(p, hp, start(p)))
    np.testing.assert_array_equal(three.w, apart.w)


@needs_native
@pytest.mark.parametrize("start_bias", [-1.2, 0.0])
def test_lanes_that_may_end_equal_the_jnp_step(start_bias):
    """A loose gradient: each lane ends by its decrement, with few active rows (−1.2) or many."""
    n, d, lanes = 400, 40, 20
    rng = np.random.default_rng(5)
    X = sp.random(n, d, 0.2, format="csr", random_state=5)
    y = np.where(rng.random((n, lanes)) < 0.03, 1, -1).astype(np.int8)
    y[0] = 1
    histories = []
    for backend in ("native", "jnp"):
        p = problem(X, y, backend=backend, tolerance=1e3)
        s = newton_cg.init(p, np.zeros((d, lanes)), start_bias)
        histories.append([])
        while newton_cg.moving(np.asarray(s.status)).any():
            s = newton_cg.advance(p, newton_cg.HParams(), s)
            histories[-1].append(jax.tree.map(np.array, s))
    for ours, reference in zip(*histories, strict=True):
        chex.assert_trees_all_close(ours, reference, rtol=1e-6, atol=1e-7)
    last = histories[0][-1]
    assert (last.status == Status.CONVERGED).all() and last.steps.max() >= 2
    assert (start_bias < 0) == (histories[0][0].active.max() <= n // 8)
    exact = solve(problem(X, y, tolerance=1e-9), newton_cg.HParams(decrement=1e-12))
    assert (last.value - exact.value <= 1e-3 * exact.value).all()


@pytest.mark.parametrize("wrong", [dict(weight=-1.0), dict(tolerance=np.nan), dict(tolerance=[-1.0])])
def test_numbers_below_zero_are_refused(wrong):
    X = linops.make(np.eye(2))
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected numbers from 0, found (-1|nan)"):
        newton_cg.lane_problem(X, [[1], [-1]], losses.logistic, **wrong)
