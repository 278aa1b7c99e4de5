"""The method as one of ``SOLVERS``, without a derivative."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from xmcjax.solvers._protocol import Solution, Solver, kinks
from xmcjax.solvers.admm._problem import Problem, problem
from xmcjax.solvers.admm._run import proved
from xmcjax.solvers.admm._steps import HParams, State, init, step, weights


def _ended(problem: Problem, hp: HParams, state: State | None) -> Solution:
    """Weights [lanes, d, m]; of inner products the coefficients of the rows, [lanes, n, m]."""
    state, proofs = proved(problem, hp, init(problem) if state is None else state)
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
