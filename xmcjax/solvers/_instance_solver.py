"""Dual ascent over instances as one of ``SOLVERS``, without a derivative."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax.linops import Csr
from xmcjax.solvers import instance_dual
from xmcjax.solvers._protocol import Solution, Solver, kinks


def _ended(problem: instance_dual.Problem, hp, state) -> Solution:
    """The weights are [lanes, m, d]; of inner products the coefficients, [lanes, n, m]."""
    # the run gives the buffers of its state away
    state = instance_dual.init(problem) if state is None else jax.tree.map(jnp.array, state)
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
