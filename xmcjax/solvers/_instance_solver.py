"""Dual ascent over instances as one of ``SOLVERS``.

A solution has no derivative. Its weights are piecewise smooth in the data and in C: they have a kink wherever
a dual variable reaches or leaves its bound, and at the optimum of a hinge many dual variables are at such a
point. A derivative of ``run`` is refused in one sentence.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax.linops import Csr
from xmcjax.solvers import instance_dual
from xmcjax.solvers._protocol import Solution, Solver

_NO_DERIVATIVE = (
    "expected a solver with a derivative, got instance_dual: weights of hinge losses have kinks wherever an "
    "instance reaches or leaves a margin; take newton_cg with a smooth loss, or multinomial"
)


def _init(problem: instance_dual.Problem, hp, key=None, **options) -> instance_dual.State:
    return instance_dual.init(problem, jax.random.key(0) if key is None else key, **options)


def _ended(problem: instance_dual.Problem, hp, state) -> Solution:
    """The weights are [lanes, m, d]; of inner products the coefficients, [lanes, n, m]."""
    # the run gives the buffers of its state away
    state = _init(problem, hp) if state is None else jax.tree.map(jnp.array, state)
    state = instance_dual.run(problem, hp, state)
    if isinstance(problem.op, instance_dual.Gram):
        weights = jnp.asarray(instance_dual.coefficients(problem, state))
    else:
        weights = jnp.swapaxes(state.weights, 1, 2) if isinstance(problem.op, Csr) else state.weights
    return Solution(weights, state.primal, state.status, state)


SOLVER = Solver(
    problem=instance_dual.problem,
    hparams=instance_dual.HParams,
    init=_init,
    step=instance_dual.step,
    ended=_ended,
    derivative=_NO_DERIVATIVE,
    pure=False,
)
