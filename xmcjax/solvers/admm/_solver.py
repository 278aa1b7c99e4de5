"""The method as one of ``SOLVERS``, without a derivative."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from xmcjax.solvers._protocol import Solution, Solver, check_state, kinks
from xmcjax.solvers.admm._problem import Problem, problem
from xmcjax.solvers.admm._run import proved
from xmcjax.solvers.admm._starts import continued, init
from xmcjax.solvers.admm._steps import HParams, State, step, weights


def _continued(problem: Problem, state) -> State:
    """Running lanes at the dual variables of a state; these may be outside of this problem's dual set."""
    shape = problem.y.shape[1], problem.lanes, problem.classes
    check_state(state, State, dual=shape, best_dual=shape, status=(problem.lanes,))
    return continued(problem, state)


def _ended(problem: Problem, hp: HParams, state: State | None) -> Solution:
    """Weights [lanes, d, m]; of inner products the coefficients of the rows, [lanes, n, m]."""
    state, proofs = proved(problem, hp, init(problem) if state is None else _continued(problem, state))
    W = weights(problem, state)
    if proofs:
        W = np.array(W)
        for lane, found in proofs.items():
            W[lane] = found.W
    return Solution(jnp.asarray(W), state.primal, state.status, state)


SOLVER = Solver(
    problem=problem,
    hparams=HParams,
    init=lambda problem, hp, **start: init(problem, **start),
    step=step,
    ended=_ended,
    derivative=kinks("admm"),
    pure=True,
)
