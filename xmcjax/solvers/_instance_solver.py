"""Dual ascent over instances as one of ``SOLVERS``, without a derivative."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax.linops import Csr
from xmcjax.solvers import instance_dual
from xmcjax.solvers._base import Status
from xmcjax.solvers._instance_start import placed
from xmcjax.solvers._progress import starting_point
from xmcjax.solvers._protocol import Solution, Solver, check_state, kinks


def _continued(problem: instance_dual.Problem, state) -> instance_dual.State:
    """Running lanes at the dual variables of a state, which may be outside of this problem's dual set."""
    lanes, n, m = problem.lanes, problem.y.shape[0], problem.classes
    slots = state.index.shape[2] if isinstance(state, instance_dual.State) else 0
    if slots and problem.rows is not None:
        raise ValueError("state: expected slots=0, which the epochs in plain JAX need")
    columns = problem.op.shape[1]
    of_lane = (columns, m) if isinstance(problem.op, Csr) else (m, columns)
    shapes = dict(dual=(lanes, n, slots or m), index=(lanes, n, slots), weights=(lanes, *of_lane))
    check_state(state, instance_dual.State, **shapes)
    y, bound = np.asarray(problem.y), np.asarray(problem.bound, np.float64)
    alphas = []
    for lane in range(lanes):
        form, k = problem.smoothed(float(problem.gamma[lane])), int(problem.k[lane])
        alpha = instance_dual.dual_variables(problem, state, lane)
        alphas.append(starting_point(alpha, y, m, form, bound[lane], k))
    unknown = jnp.full_like(state.gap, jnp.inf)
    # copies, because the run donates the buffers of its state
    state = jax.tree.map(jnp.array, state)._replace(
        primal=unknown,
        dual_objective=jnp.zeros_like(unknown),
        gap=unknown + 0,
        estimate=unknown + 0,
        ratio=jnp.ones_like(unknown),
        status=jnp.full_like(state.status, Status.RUNNING),
    )
    return placed(problem, state, alphas)


def _ended(problem: instance_dual.Problem, hp, state) -> Solution:
    """The weights are [lanes, m, d]; of inner products the coefficients, [lanes, n, m]."""
    state = instance_dual.init(problem) if state is None else _continued(problem, state)
    state = instance_dual.run(problem, hp, state)
    if isinstance(problem.op, instance_dual.Gram):
        weights = jnp.asarray(instance_dual.coefficients(problem, state))
    else:
        weights = jnp.swapaxes(state.weights, 1, 2) if isinstance(problem.op, Csr) else state.weights
    return Solution(weights, state.primal, state.status, state)


SOLVER = Solver(
    problem=instance_dual.problem,
    hparams=instance_dual.HParams,
    init=lambda problem, hp, **start: instance_dual.init(problem, **start),
    step=instance_dual.step,
    ended=_ended,
    derivative=kinks("instance_dual"),
    pure=False,
)
