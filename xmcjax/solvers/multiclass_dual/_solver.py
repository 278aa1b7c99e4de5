"""Multi-class SVMs as one of ``SOLVERS``, without a derivative."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax.linops import Csr, Dense
from xmcjax.solvers._base import Status
from xmcjax.solvers._certified import certified
from xmcjax.solvers._formulations import Formulation
from xmcjax.solvers._progress import starting_point
from xmcjax.solvers._protocol import Solution, Solver, Weights, check_state, kinks
from xmcjax.solvers.multiclass_dual._epochs import HParams, State, init, run_epochs, step
from xmcjax.solvers.multiclass_dual._problem import MulticlassProblem, check_limits, multiclass_problem
from xmcjax.solvers.multiclass_dual._solve import Solution as OwnSolution
from xmcjax.solvers.multiclass_dual._solve import run


def _continued(problem: MulticlassProblem, state: State) -> State:
    """The start at the dual variables of a state, which may be outside of the dual set of this problem."""
    check_state(state, State, alpha=(len(problem.y), problem.classes))
    y, C = np.asarray(problem.y), np.asarray(problem.C, np.float64)
    alpha = starting_point(state.alpha, y, problem.classes, problem.formulation, C)
    return init(problem, state.key, alpha.toarray())._replace(epoch=state.epoch)


def _ended(problem: MulticlassProblem, hp: HParams, state: State | OwnSolution | None) -> Solution:
    """Solves from a state by epochs in plain JAX, and without one by the methods that suit the features.

    These methods return a solution of :func:`run` as diagnostics; given one, they start from its α.
    """
    check_limits(hp.tol, hp.max_epochs)
    op = problem.op
    if isinstance(op, Csr):
        X, backend, threads = op.to_scipy(), "native" if op.native else "jnp", op.threads
    else:
        assert isinstance(op, Dense)
        X, backend, threads = np.asarray(op.X), "dense", 1
    y, C = np.asarray(problem.y), np.asarray(problem.C, np.float64) if problem.C.ndim else float(problem.C)
    if not (state is None or isinstance(state, OwnSolution)):
        state = run_epochs(problem, hp, _continued(problem, state))
        state = _proved(state, X, y, problem.formulation, C, float(hp.tol))
        weights = Weights(state.W, jnp.zeros(state.W.shape[1], state.W.dtype))
        return Solution(weights, state.primal, state.status, state)
    found = run(
        X,
        y,
        formulation=problem.formulation.name,
        C=C,
        classes=problem.classes,
        tol=float(hp.tol),
        max_epochs=int(hp.max_epochs),
        shrinking=bool(hp.shrinking),
        backend=backend,
        threads=threads,
        start=None if state is None else state.alpha,
    )
    W = jnp.asarray(found.W)
    value, status = jnp.asarray(found.primal, W.dtype), jnp.asarray(int(found.status), jnp.int32)
    return Solution(Weights(W, jnp.zeros(W.shape[1], W.dtype)), value, status, found)


def _proved(state: State, X, y: np.ndarray, formulation: Formulation, C, tol: float) -> State:
    """A state that has ended, with the weights of its dual variables and their gap in float64."""
    status = int(state.status)
    if status == Status.NONFINITE:
        return state
    found = certified(X, y, sp.csr_array(np.asarray(state.alpha)), formulation, C, tol)
    if found.gap <= tol:
        status = Status.CONVERGED
    elif status == Status.CONVERGED:
        status = Status.STALLED  # rounding keeps the gap above
    numbers = dict(W=found.W, primal=found.primal, dual=found.dual, gap=found.gap)
    of_dtype = {name: jnp.asarray(value, state.W.dtype) for name, value in numbers.items()}
    return state._replace(status=jnp.int32(status), **of_dtype)


SOLVER = Solver(
    problem=multiclass_problem,
    hparams=HParams,
    init=lambda problem, hp, **start: init(problem, **start),
    step=step,
    ended=_ended,
    derivative=kinks("multiclass_dual"),
    pure=False,
)
