"""The line search of Schultheis and Babbar, 2022, section 5, as an option of newton_cg."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from tests.support import objectives
from tests.support.problems import BACKENDS, lanes_problem
from xmcjax import linops, losses
from xmcjax.solvers import SOLVERS, Status, newton_cg

LANES = 5
ALPHA, ETA = 0.5, 0.01
BACKTRACKING = newton_cg.HParams(backtracking=ALPHA, armijo=ETA, max_backtracks=20)


def problem(loss="squared_hinge", backend="native", tolerance=1e-7, scale=1.0):
    X, y = lanes_problem(lanes=LANES)
    op = linops.make(scale * X, backend=backend)
    return newton_cg.lane_problem(op, y, losses.MARGIN_LOSSES[loss], tolerance=tolerance)


def kink(p):
    """Starting weights with which all negatives lie just outside of the loss, as bias:1."""
    return newton_cg.init(p, None, -1.0)


def value(p, w, b):
    """f of weights [d, B] in NumPy."""
    X = np.asarray(p.op.matmat(np.eye(p.op.shape[1], dtype=w.dtype)))
    return objectives.lanes(X, np.asarray(p.y), w, b, "squared_hinge")


def history(p, hp, state):
    """States from the start on, copied: `advance` gives its argument away."""
    states = []
    for _ in range(200):
        state = newton_cg.advance(p, hp, state)
        states.append(jax.tree.map(np.array, state))
        if not newton_cg.moving(states[-1].status).any():
            return states
    raise AssertionError("no end")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loss", list(losses.SMOOTH_LOSSES))
def test_the_optimum_is_that_of_the_exact_search(loss, backend):
    solver = SOLVERS["newton_cg"]
    p = problem(loss, backend)
    exact, shrunk = (solver.run(p, hp) for hp in (newton_cg.HParams(), BACKTRACKING))
    assert set(np.asarray(shrunk.status).tolist()) <= {Status.CONVERGED, Status.LINE_SEARCH_FAILED}
    np.testing.assert_allclose(shrunk.value, exact.value, rtol=1e-8)
    np.testing.assert_allclose(shrunk.weights.w, exact.weights.w, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_step_is_the_first_that_falls_enough(backend):
    """By f itself: the multiplier t is a power of α, t has Armijo's decrease and t/α has not."""
    p = problem(backend=backend)
    states = history(p, BACKTRACKING, kink(p))
    powers = ALPHA ** np.arange(21)
    shorter = 0
    np.testing.assert_array_equal(states[0].bias, -1)  # a start is taken as it is
    for before, after in itertools.pairwise(states):
        moves = newton_cg.moving(before.status) & (after.status != Status.LINE_SEARCH_FAILED)
        t = after.multiplier
        assert np.isin(t[moves], powers).all()
        w, b, d, d_b = before.w, before.bias, before.direction, before.direction_bias
        np.testing.assert_allclose((w + t * d)[:, moves], after.w[:, moves], rtol=1e-12, atol=1e-12)
        f = value(p, w, b)

        def falls(t, w=w, b=b, d=d, d_b=d_b, f=f, slope=before.slope):
            return value(p, w + t * d, b + t * d_b) - f - ETA * t * slope

        rounding = 1e-13 * np.abs(f)
        assert (falls(t) <= rounding)[moves].all()
        # where t < 1, the multiplier before it was too long
        again = moves & (t < 1)
        assert (falls(t / ALPHA) > -rounding)[again].all()
        shorter += again.sum()
    assert shorter > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_factor(backend):
    p = problem(backend=backend)
    states = history(p, BACKTRACKING._replace(backtracking=0.25), kink(p))
    multipliers = {float(t) for s in states[1:] for t in s.multiplier[s.multiplier > 0]}
    assert multipliers <= set((0.25 ** np.arange(21)).tolist()) and min(multipliers) < 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_search_without_halvings_fails_where_the_whole_step_is_too_long(backend):
    """At the kink the quadratic model sees the positives alone, and its step is far too long."""
    p = problem(backend=backend)
    states = history(p, BACKTRACKING._replace(max_backtracks=0), kink(p))
    failed = states[-1].status == Status.LINE_SEARCH_FAILED
    assert failed.any() and (states[-1].multiplier[failed] == 0).all()
