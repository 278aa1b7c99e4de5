"""Steps until every lane has ended, and certificates in float64 of what the lanes come to."""

from __future__ import annotations

import dataclasses
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import number_from_0, whole_number
from xmcjax._cores import usable_cores
from xmcjax._fork import needs_threads_of_jax
from xmcjax._pytrees import is_traced
from xmcjax._settings import settings_here
from xmcjax.linops import host_features
from xmcjax.solvers._base import Status
from xmcjax.solvers._certified import Certified, certified, certified_kernel
from xmcjax.solvers._host_loop import ALL, run_in_calls
from xmcjax.solvers._instance_problem import Gram
from xmcjax.solvers._progress import ALL_ROWS, Observe, Progress
from xmcjax.solvers.admm._problem import Problem
from xmcjax.solvers.admm._steps import HParams, State, advance

# Number of lanes from which on lanes that have ended are left out.
_HALVED = 4
# Bytes of memory for lanes that are certified at the same time.
_TOGETHER = 2 << 30
# How often a lane goes on that has converged by its own gap but not by the certified one.
_ATTEMPTS = 3


def _running(state: State) -> np.ndarray:
    """The lanes that are not at their end."""
    return np.flatnonzero(np.asarray(state.status) == Status.RUNNING)


def _to_the_end(problem: Problem, hp: HParams, state: State, told) -> State:
    """Steps until every lane has ended; when half of them have, the others go on by themselves."""
    half = problem.lanes // 2 if problem.lanes >= _HALVED else 0
    state = run_in_calls(advance, lambda state: len(_running(state)) > half, problem, hp, state, told)
    running = _running(state)
    if not len(running):
        return state
    # always half of the lanes, filled up with ended ones, so that few sizes are compiled
    ended = np.setdiff1d(np.arange(problem.lanes), running)
    chosen = np.sort(np.concatenate([running, ended[: half - len(running)]]))
    part, fewer = _chosen(problem, state, chosen)
    fewer = _to_the_end(part, hp, fewer, None)
    return jax.tree.map(lambda a, b: _put(a, chosen, b), state, fewer)


@jax.jit
def _chosen(problem: Problem, state: State, lanes) -> tuple[Problem, State]:
    """The problem and the state of some lanes."""
    members = None if problem.members is None else problem.members[lanes]
    part = dataclasses.replace(problem, y=problem.y[lanes], bound=problem.bound[lanes], members=members)
    return part, jax.tree.map(lambda a: a[lanes] if a.ndim == 1 else a[:, lanes], state)


def _put(a: jax.Array, lanes: np.ndarray, b: jax.Array) -> jax.Array:
    return a.at[lanes].set(b) if a.ndim == 1 else a.at[:, lanes].set(b)


@needs_threads_of_jax
def run(problem: Problem, hp: HParams, state: State) -> State:
    """Steps until every lane has ended.

    Lanes of float32 are certified in float64 on the host once they have ended. A lane is CONVERGED where its
    certified gap is at most ``hp.tol``, goes on where it is not, and is STALLED where rounding keeps the gap
    above. In float64, and in jit and vmap, the gap that the steps find is the one that counts.

    The state is not checked: it must be a state of this problem, and lanes that have ended stay as they are.
    Give a state of another C or of other features to ``SOLVERS["admm"].run``, or its dual variables to
    :func:`xmcjax.solvers.admm.init`.

    Raises:
        ValueError: `tol` or `max_steps` below 0.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> lanes = admm.problem(linops.make(np.eye(3, dtype=np.float32)), [0, 1, 2], C=[0.1, 1.0])
        >>> run(lanes, admm.HParams(), admm.init(lanes)).status.tolist()
        [1, 1]
    """
    return proved(problem, hp, state)[0]


def proved(
    problem: Problem, hp: HParams, state: State, observe: Observe | None = None
) -> tuple[State, dict[int, Certified]]:
    """As :func:`run`, with the certificates of the lanes that it certified, by their numbers.

    Args:
        problem, hp, state: of :func:`run`.
        observe: called with the progress of the first lane after each call of the device; or None.
    """
    traced = is_traced((problem, hp, state))
    if not traced:
        number_from_0("tol", hp.tol)
        whole_number("max_steps", hp.max_steps, 0)

    def told(state: State) -> None:
        if observe is not None:
            at = functools.partial(dual_variables, problem, state, 0)
            observe(Progress(ALL_ROWS, int(state.steps[0]), float(state.gap[0]), at))

    proofs: dict[int, Certified] = {}
    attempts = np.zeros(problem.lanes, int)
    while True:
        if traced:  # one call makes all steps
            return advance(problem, hp, state, ALL), proofs
        state = _to_the_end(problem, hp, state, told)
        if problem.op.dtype == np.float32:
            state = _verified(problem, hp, state, attempts, proofs)
        if not len(_running(state)):
            return state, proofs


def _verified(
    problem: Problem, hp: HParams, state: State, attempts: np.ndarray, proofs: dict[int, Certified]
) -> State:
    """The state with certified gaps of lanes that have ended; `attempts` counts how often each went on."""
    status, target, since = (np.array(a) for a in (state.status, state.target, state.since))
    primal, dual, gap = (np.array(a) for a in (state.primal, state.dual_objective, state.gap))
    open_ = [lane for lane in range(problem.lanes) if lane not in proofs and status[lane] != Status.NONFINITE]
    for lane, found in zip(open_, _proved_together(problem, state, open_, hp.tol), strict=True):
        if found.gap <= hp.tol:
            status[lane] = Status.CONVERGED
        elif status[lane] == Status.CONVERGED:  # the steps took rounding for progress
            attempts[lane] += 1
            if attempts[lane] <= _ATTEMPTS and state.steps[lane] < hp.max_steps:
                status[lane], target[lane], since[lane] = Status.RUNNING, target[lane] / 4, state.steps[lane]
                continue
            status[lane] = Status.STALLED
        proofs[lane] = found
        primal[lane], dual[lane], gap[lane] = found.primal, found.dual, found.gap
    numbers = dict(target=target, primal=primal, dual_objective=dual, gap=gap)
    counts = dict(status=status, since=since)
    return state._replace(**{name: jnp.asarray(a) for name, a in (numbers | counts).items()})


def _proved_together(problem: Problem, state: State, lanes: list[int], tol: float) -> list[Certified]:
    """The proofs of some lanes, each by a thread: most of the work is arithmetic that releases the GIL."""
    # X in float64, and four arrays of the size of the dual variables
    of_one = 8 * (problem.op.shape[0] * problem.op.shape[1] + 4 * problem.y.shape[1] * problem.classes)
    threads = min(len(lanes), usable_cores(), max(1, _TOGETHER // of_one))
    if threads < 2:
        return [proof(problem, state, lane, tol) for lane in lanes]
    here = settings_here()

    def work(lane: int) -> Certified:
        with here(None):
            return proof(problem, state, lane, tol)

    with ThreadPoolExecutor(threads, "xmcjax-proof") as pool:
        return list(pool.map(work, lanes))


@needs_threads_of_jax
def proof(problem: Problem, state: State, lane: int, tol: float) -> Certified:
    """The best dual variables and weights of a lane, with objectives in float64.

    Args:
        problem: of the lanes.
        state: of the lanes; its best dual variables and weights are certified.
        lane: number of the lane.
        tol: as for :func:`xmcjax.solvers._certified.certified`.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> lanes = admm.problem(linops.make(np.eye(3, dtype=np.float32)), [0, 1, 2], C=[0.1, 1.0])
        >>> state = run(lanes, admm.HParams(tol=1e-4), admm.init(lanes))
        >>> bool(proof(lanes, state, 1, 1e-4).gap < 1e-4)
        True
    """
    number_from_0("tol", tol)
    alpha, y = dual_variables(problem, state, lane), np.asarray(problem.y[lane])
    bound, form, k = np.asarray(problem.bound[lane], np.float64), problem.formulation, problem.k
    with np.errstate(over="ignore", invalid="ignore"):  # the status says so
        W = np.asarray(problem.rotation, np.float64) @ np.asarray(state.best_weights[:, lane], np.float64)
    kept: Any = slice(None)
    if problem.members is not None:
        kept = np.flatnonzero(np.asarray(problem.members[lane]))
        y = np.minimum(np.searchsorted(kept, y), len(kept) - 1)  # rows of other classes do not count
        alpha = sp.csr_array(alpha[:, kept])
    W = W[:, kept]
    if isinstance(problem.op, Gram):
        found = certified_kernel(np.asarray(problem.op.K), y, alpha, form, bound, k, W)
    else:
        found = certified(host_features(problem.op), y, alpha, form, bound, tol, form.centred(W), k)
    if problem.members is None:
        return found
    whole = np.zeros((len(W), problem.classes), found.W.dtype)
    whole[:, kept] = found.W
    alpha = found.alpha.tocoo()
    shape = alpha.shape[0], problem.classes
    places = alpha.row, kept[alpha.col]
    return found._replace(W=whole, alpha=sp.csr_array((alpha.data, places), shape=shape))


@needs_threads_of_jax
def dual_variables(problem: Problem, state: State, lane: int) -> sp.csr_array:
    """The best α of a lane, float64 [n, m].

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> lanes = admm.problem(linops.make(np.eye(3, dtype=np.float32)), [0, 1, 2], C=[0.1, 1.0])
        >>> dual_variables(lanes, admm.init(lanes), 0).shape
        (3, 3)
    """
    whole_number("lane", lane, 0, problem.lanes - 1)
    return sp.csr_array(np.asarray(state.best_dual[:, lane], np.float64))
