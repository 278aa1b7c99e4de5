"""Multi-class SVMs as one of ``SOLVERS``, without a derivative."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from xmcjax.linops import Csr, Dense
from xmcjax.solvers._protocol import Solution, Solver, Weights, kinks
from xmcjax.solvers.multiclass_dual._epochs import HParams, State, init, run_epochs, step
from xmcjax.solvers.multiclass_dual._problem import MulticlassProblem, multiclass_problem
from xmcjax.solvers.multiclass_dual._solve import run


def _ended(problem: MulticlassProblem, hp: HParams, state: State | None) -> Solution:
    """From a state by epochs in plain JAX; else by whichever of the methods suits the features."""
    if state is not None:
        state = run_epochs(problem, hp, state)
        weights = Weights(state.W, jnp.zeros(state.W.shape[1], state.W.dtype))
        return Solution(weights, state.primal, state.status, state)
    op = problem.op
    if isinstance(op, Csr):
        X, backend, threads = op.to_scipy(), "native" if op.native else "jnp", op.threads
    else:
        assert isinstance(op, Dense)
        X, backend, threads = np.asarray(op.X), "dense", 1
    found = run(
        X,
        np.asarray(problem.y),
        formulation=problem.formulation.name,
        C=np.asarray(problem.C, np.float64) if problem.C.ndim else float(problem.C),
        classes=problem.classes,
        tol=float(hp.tol),
        max_epochs=int(hp.max_epochs),
        shrinking=bool(hp.shrinking),
        backend=backend,
        threads=threads,
    )
    W = jnp.asarray(found.W)
    value, status = jnp.asarray(found.primal, W.dtype), jnp.asarray(int(found.status), jnp.int32)
    return Solution(Weights(W, jnp.zeros(W.shape[1], W.dtype)), value, status, found)


SOLVER = Solver(
    problem=multiclass_problem,
    hparams=HParams,
    init=lambda problem, hp, **start: init(problem, **start),
    step=step,
    ended=_ended,
    derivative=kinks("multiclass_dual"),
    pure=False,
)
