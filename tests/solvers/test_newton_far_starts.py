"""Lanes of newton_cg that start at weights far larger than those at their minima."""

from __future__ import annotations

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from tests.support import objectives
from tests.support.problems import BACKENDS, needs_native
from xmcjax import linops, losses
from xmcjax.penalties import L1, L2, ElasticNet, HuberPenalty
from xmcjax.solvers import SOLVERS, Status
from xmcjax.solvers.far_starts import multiplied_out, size

N, D, LANES = 300, 8, 2


@functools.cache
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    scores = X @ rng.normal(size=(D, LANES)) + rng.normal(size=(N, LANES))
    return X, np.where(scores > 1, 1, -1)


def problem(backend, penalty, loss="squared_hinge"):
    X, y = data()
    op = linops.make(X if backend == "dense" else sp.csr_matrix(X), backend=backend)
    return SOLVERS["newton_cg"].problem(op, y, losses.MARGIN_LOSSES[loss], penalty=penalty, tolerance=1e-2)


def solve(made, weight=0.0):
    solver, start = SOLVERS["newton_cg"], np.full((D, LANES), weight, np.float32)
    return solver.run(made, None, solver.init(made, None, w0=start))


def objective(found, penalty, loss="squared_hinge"):
    X, y = data()
    w, b = (np.asarray(a, np.float64) for a in found.weights)
    return objectives.lanes(X.astype(np.float64), y, w, b, loss, 1.0, l2_bias=1.0, penalty=penalty)


@needs_native
@pytest.mark.parametrize("penalty", [L1(), HuberPenalty(1.0), ElasticNet(0.5)], ids=repr)
def test_the_value_is_that_of_the_weights(penalty):
    """Not a sum of changes that has the rounding of the first, which is far above it."""
    found = solve(problem("native", penalty), 1e3)
    np.testing.assert_allclose(found.value, objective(found, penalty), rtol=1e-3)


@functools.cache
def least(penalty, loss):
    """The objectives that a start at zero ends with."""
    return objective(solve(problem("dense", penalty, loss)), penalty, loss)


def check(found, penalty, loss="squared_hinge"):
    value = objective(found, penalty, loss)
    assert set(np.asarray(found.status)) == {Status.CONVERGED}
    np.testing.assert_allclose(found.value, value, rtol=1e-5)
    np.testing.assert_allclose(value, least(penalty, loss), rtol=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("penalty", "loss"), [(L2(), "squared_hinge"), (L2(), "logistic"), (L1(), "squared_hinge")]
)
def test_lanes_converge_at_the_scores_of_their_weights(penalty, loss, backend):
    """Scores that were only ever added to have the rounding of the first."""
    made = problem(backend, penalty, loss)
    for weight in (1e6, 1e8):
        check(solve(made, weight), penalty, loss)


def test_in_transformed_functions():
    made = problem("dense", L2())
    check(jax.jit(lambda weight: solve_traced(made, weight))(1e8), L2())
    of_all = jax.vmap(lambda weight: solve_traced(made, weight))(jnp.array([1e8, 0.0]))
    for place in (0, 1):
        check(jax.tree.map(lambda leaf, place=place: leaf[place], of_all), L2())


def solve_traced(made, weight):
    solver, start = SOLVERS["newton_cg"], jnp.full((D, LANES), weight, jnp.float32)
    return solver.run(made, None, solver.init(made, None, w0=start))._replace(diagnostics=None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_scores_that_are_those_of_the_weights_end_a_lane(backend):
    made, start = problem(backend, L2()), jnp.full(LANES, 1e9, jnp.float32)
    state = solve(made).diagnostics
    chex.assert_trees_all_equal(multiplied_out(made, start, state), state)
    drifted = multiplied_out(made, start, state._replace(z=state.z.at[7, 1].add(np.float32(1e-3))))
    np.testing.assert_array_equal(drifted.status, [Status.CONVERGED, Status.FRESH])
    np.testing.assert_array_equal(drifted.direction[:, 1], state.w[:, 1])
    # nor is one looked at whose start was of about that size
    near = multiplied_out(made, 2 * size(state.w, state.bias), state._replace(z=state.z + 1))
    np.testing.assert_array_equal(near.status, state.status)


def test_vmap_in_shard_map_solves_each_problem():
    """Where X is the same on all devices, and what says which lanes are far differs from lane to lane."""
    made = problem("dense", L2())

    def one(y):
        return SOLVERS["newton_cg"].run(dataclasses.replace(made, y=y)).weights.w

    Y = jnp.stack([made.y, -made.y])
    split = jax.shard_map(jax.vmap(one), mesh=Mesh(jax.devices()[:1], "y"), in_specs=P("y"), out_specs=P("y"))
    np.testing.assert_allclose(jax.jit(split)(Y)[0], solve(made).weights.w, atol=1e-4)
