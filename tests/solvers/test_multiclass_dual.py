"""Dual ascent in plain JAX, and what multi-class SVMs refuse."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.problems import BACKENDS, svm_minimum, svm_problem
from xmcjax.solvers import SOLVERS, Status
from xmcjax.solvers import multiclass_dual as md
from xmcjax.solvers.multiclass_dual import round_count, round_pairs

C = 0.7
SOLVER = SOLVERS["multiclass_dual"]
TIGHT = md.HParams(tol=1e-12, max_epochs=20000)


def converged(problem, hp=TIGHT, seed=0):
    state = md.run_epochs(problem, hp, md.init(problem, jax.random.key(seed)))
    assert state.status == Status.CONVERGED
    return state


@pytest.fixture
def ww():
    X, y = svm_problem()
    return md.multiclass_problem(X, y, formulation="ww", C=C)


@pytest.mark.parametrize("formulation", ["ww", "llw"])
def test_a_row_of_zeros_ends_at_the_bound(formulation):
    X, y = svm_problem()
    X = sp.csr_matrix(X) if formulation == "llw" else X
    problem = md.multiclass_problem(X, y, formulation=formulation, C=C)
    state = converged(problem)
    np.testing.assert_array_equal(state.alpha[3], np.where(np.arange(3) == y[3], 0, C))
    np.testing.assert_allclose(md.weights(problem, state.alpha), state.W, atol=1e-12)
    np.testing.assert_allclose(state.primal, svm_minimum(formulation, C), rtol=1e-9)


def test_weights_of_llw_sum_to_zero():
    X, y = svm_problem()
    problem = md.multiclass_problem(sp.csr_matrix(X), y, formulation="llw", C=C)
    state = md.init(problem, jax.random.key(0))
    for epochs in (1, 2, 5):  # not only at the optimum
        running = state._replace(status=jnp.int32(Status.RUNNING))
        state = md.run_epochs(problem, md.HParams(1e-9, epochs), running)
        np.testing.assert_allclose(state.W.sum(axis=1), 0, atol=1e-13)


def test_shrinking_changes_the_way_and_not_the_end(ww):
    state, shrunk = md.init(ww, jax.random.key(0)), []
    while state.status != Status.CONVERGED:
        state = state._replace(status=jnp.int32(Status.RUNNING))
        state = md.run_epochs(ww, TIGHT._replace(max_epochs=int(state.epoch) + 1), state)
        shrunk.append(float(state.shrunk))
    assert max(shrunk) > 0.1
    assert shrunk[-1] == 0  # an epoch over everything confirms
    full = converged(ww, TIGHT._replace(shrinking=False))
    np.testing.assert_allclose(state.W, full.W, atol=1e-7)
    np.testing.assert_array_equal(md.run_epochs(ww, TIGHT, state).W, state.W)  # a state that has ended


def test_the_order_comes_from_the_key(ww):
    hp = TIGHT._replace(max_epochs=2)
    once, again, other = (md.run_epochs(ww, hp, md.init(ww, jax.random.key(k))) for k in (1, 1, 2))
    np.testing.assert_array_equal(once.W, again.W)
    assert np.abs(once.W - other.W).max() > 1e-6
    assert once.status == Status.MAX_STEPS


def test_problems_as_lanes():
    X, y = svm_problem()
    problem = md.multiclass_problem(sp.csr_matrix(X), y, formulation="llw", C=C)
    state = md.init(problem, jax.random.key(0))

    def after_an_epoch(C):
        return md.step(dataclasses.replace(problem, C=C), TIGHT, state).W

    both = jax.jit(jax.vmap(after_an_epoch))(jnp.array([0.1, C]))
    one = md.run_epochs(problem, TIGHT._replace(max_epochs=1), state)
    np.testing.assert_allclose(both[1], one.W, atol=1e-12)
    assert np.abs(both[0] - both[1]).max() > 0.01


@pytest.mark.parametrize("backend", BACKENDS)
def test_where_ascent_is_slow_newtons_method_goes_on(backend):
    X, y = svm_problem()
    X = X * np.geomspace(1e-2, 1e2, 4)  # coordinate ascent would take thousands of epochs
    options = dict(formulation="ww", C=C, tol=1e-5, backend=backend)
    found = md.run(X, y, max_epochs=400, **options)
    assert found.status == Status.CONVERGED and found.gap < 1e-5
    assert 0 < found.newton_steps < 370
    assert 0 < found.density_alpha < 1 and found.alpha.shape == (20, 3)
    again = md.run(X, y, max_epochs=5, **options)
    assert (again.status, again.newton_steps) == (Status.MAX_STEPS, 0)
    assert again.epochs == 5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("formulation", md.FORMULATIONS)
def test_an_ascent_that_is_ended_early_is_not_worse_than_no_weights(formulation, backend):
    rng = np.random.default_rng(0)
    X, y = 5e3 + 1e3 * rng.normal(size=(40, 3)), np.arange(40) % 4
    given = dict(formulation=formulation, C=1e4, max_epochs=1, backend=backend)
    found, none = md.run(X, y, **given), md.run(1e-30 * X, y, **given)
    assert found.status == Status.MAX_STEPS and none.status == Status.CONVERGED
    assert found.primal <= (1 + 1e-3) * none.primal
    assert np.any(found.W)


@pytest.mark.parametrize("formulation", md.FORMULATIONS)
def test_a_row_that_is_all_but_zero_in_float32_ends_as_one_of_zeros(formulation):
    X = np.array([[1, 0.5], [-1, 0.3], [1e-18, 0], [0, 0]], np.float32)
    problem = md.multiclass_problem(X, [0, 1, 1, 1], formulation=formulation, C=0.01)
    state = converged(problem, md.HParams(tol=1e-3, max_epochs=500))
    np.testing.assert_array_equal(state.alpha[2], state.alpha[3])
    assert np.isfinite(state.alpha).all() and state.alpha[2].any()


@pytest.mark.parametrize("classes", [2, 3, 4, 7, 8, 9, 16, 63, 200])
def test_every_round_is_a_perfect_matching_and_all_rounds_cover_each_pair_once(classes):
    """The schedule of Weston-Watkins: a 1-factorization of the complete graph."""
    met = np.zeros((classes, classes), int)
    for r in range(round_count(classes)):
        first, second = round_pairs(classes, r)
        # all classes but the one that rests where C is odd
        assert len(set(first) | set(second)) == 2 * len(first) == classes - classes % 2
        met[first, second] += 1
    assert (met + met.T == 1 - np.eye(classes)).all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("formulation", ["ww", "cs"])
def test_what_a_state_has_converged_to_is_so_in_float64(formulation, seed):
    """Large features and C, where gains are small differences of large scores."""
    rng = np.random.default_rng(seed)
    X, y = (1e4 * rng.standard_normal((4, 3))).astype(np.float32), np.arange(4) % 3
    for C in (1.0, 1e3, 1e6):
        problem, hp = SOLVER.problem(X, y, formulation=formulation, C=C), SOLVER.hparams(tol=1e-3)
        found = SOLVER.run(problem, hp, SOLVER.init(problem, hp))
        primal = dual_references.objective(np.asarray(found.weights.w), X, y, formulation, 1, C)
        np.testing.assert_allclose(found.value, primal, rtol=1e-6)
        least = md.run(X.astype(np.float64), y, formulation=formulation, C=C, tol=1e-8).primal
        assert (primal <= least * (1 + 1e-3)) == (found.status == Status.CONVERGED)


@pytest.mark.parametrize("wrong", [dict(tol=np.nan), dict(tol=0.0), dict(max_epochs=0)])
def test_limits_are_checked_with_a_state_too(wrong):
    problem = SOLVER.problem(*svm_problem(), formulation="ww", C=C)
    hp = SOLVER.hparams(**wrong)
    for state in (None, SOLVER.init(problem, hp)):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SOLVER.run(problem, hp, state)
