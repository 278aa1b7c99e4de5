"""Where the steps of :mod:`xmcjax.solvers.admm` begin: at equal dual variables, or at given ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers._base import Status
from xmcjax.solvers._formulation_base import with_values
from xmcjax.solvers._formulations import TopKBeta
from xmcjax.solvers._progress import checked_start, starting_point
from xmcjax.solvers._search import MARGIN
from xmcjax.solvers.admm._memory import check_memory
from xmcjax.solvers.admm._problem import Problem
from xmcjax.solvers.admm._steps import HParams, State, advance
from xmcjax.solvers.admm._sums import LaneRows, counts, gain_of, lane_maxima, lane_sums, rows_of, sums_of

# Of the largest number: by how much those of a state differ at most that is taken for one of this problem.
_ALIKE = 1e-3


@needs_threads_of_jax
def init(problem: Problem, alpha=None) -> State:
    """All lanes at equal dual variables, as large as is best.

    Args:
        problem: of the lanes.
        alpha: dual variables [n, m] to start from, sparse or dense, the same for all lanes; brought into the
            dual set of each first, and shortened to the best of their multiples. None for the start that is
            said, which also takes their place where its D is larger.

    Raises:
        ValueError, TypeError: dual variables of another shape, or not finite.
        DeviceMemoryError: lanes that do not fit into what is free on the device, where that tells, and how
            many would: give them to further problems.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> lanes = admm.problem(linops.make(np.eye(3, dtype=np.float32)), [0, 1, 2], C=[0.1, 1.0])
        >>> np.round(np.asarray(init(lanes, np.full((3, 3), 0.5)).dual[0, 1], np.float64), 3).tolist()
        [0.0, 0.333, 0.333]
    """
    check_memory(problem, _start, advance, HParams())
    given = None if alpha is None else _given(problem, alpha)
    # of dual variables that are 0 no ρ can be told
    return _start(problem) if given is None or not given.any() else _start_given(problem, jnp.asarray(given))


def _given(problem: Problem, alpha) -> np.ndarray:
    """Dual variables in the dual set of each lane, [n, lanes, m]."""
    n, m = len(problem.y[0]), problem.classes
    out, alpha = np.zeros((n, problem.lanes, m), problem.op.dtype), checked_start(alpha, (n, m))
    rows = np.repeat(np.arange(n), np.diff(alpha.indptr))
    for lane in range(problem.lanes):
        y, bound = np.asarray(problem.y[lane]), np.asarray(problem.bound[lane], np.float64)
        there = bound[rows] > 0
        if problem.members is not None:
            there &= np.asarray(problem.members[lane])[alpha.indices]
        of_lane = with_values(alpha, np.where(there, alpha.data, 0))
        begin = starting_point(of_lane, y, m, problem.formulation, bound, problem.k)
        with np.errstate(over="ignore"):  # D of what is beyond the dtype is no number, and not taken
            out[:, lane] = begin.toarray()
    return out


@jax.jit
def _start(problem: Problem) -> State:
    return _start_from(problem, *_shortened(problem, _alike(problem)))


@jax.jit
def _start_given(problem: Problem, alpha: jax.Array) -> State:
    """At the better of dual variables, which those of an earlier run mostly are, and equal ones.

    Those of shorter features are far too large, and would become small in hundreds of steps.
    """
    given, dual = _shortened(problem, alpha)
    alike, of_alike = _shortened(problem, _alike(problem))
    worse = ~(dual >= of_alike)  # or no number
    better = jnp.where(worse[:, None], alike, given)
    return _start_from(problem, better, jnp.where(worse, of_alike, dual))


def _alike(problem: Problem) -> jax.Array:
    """Equal dual variables, as large as the dual set has them, [n, lanes, m]."""
    rows = rows_of(problem)
    count: Any = problem.classes if problem.members is None else counts(problem, rows.C.dtype)
    # of sums that are at most C an equal part
    each = rows.C / (count - 1) if isinstance(problem.formulation, TopKBeta) else rows.C
    return jnp.where(_variables(problem, rows), each, jnp.zeros((), rows.C.dtype))


def _variables(problem: Problem, rows: LaneRows) -> jax.Array:
    """Whether there is a variable, [n, lanes, m]: not of a row or a class that a lane leaves out."""
    there = jnp.broadcast_to(rows.there, (*rows.y.shape, problem.classes))
    there &= problem.formulation.exists(there, rows.y)
    return there if problem.members is None else there & problem.members


def _shortened(problem: Problem, alpha: jax.Array) -> tuple[jax.Array, jax.Array]:
    """s α of the largest D with s ≤ 1, and that D: the dual sets hold all shorter ones."""
    rows = rows_of(problem)
    V, total = sums_of(problem, rows, alpha), lane_sums(alpha)
    # D(s α) = s Σα − ½ s² (‖V‖² + Σ ridge α²)
    curved = lane_sums(V * V) + 2 * (total - gain_of(problem, rows, alpha))
    long = curved > total
    factor = jnp.where(long, total / jnp.where(curved > 0, curved, 1), 1)
    return factor[:, None] * alpha, jnp.where(long, factor * total / 2, total - curved / 2)


@jax.jit
def continued(problem: Problem, state: State) -> State:
    """Running lanes that begin at the best dual variables of a state as at given ones.

    Where they were in it, and V is that of these features, the steps go on where they were; else the state is
    that of another problem, and they begin anew.
    """
    form, rows, alpha = problem.formulation, rows_of(problem), state.best_dual
    there = _variables(problem, rows)
    # the projection; of a set without upper bounds it shortens by a thousandth
    nearest = form.row_map(
        jnp.where(there, form.metric(alpha), -jnp.inf), rows.y, 1e-3 * rows.C, rows.C, problem.k
    )
    inside = jnp.where(there, nearest, 0)
    start = _start_given(problem, inside)._replace(since=state.steps, steps=state.steps)
    if state.weights.shape != start.weights.shape:
        return start

    def equal(a, b):
        return lane_maxima(jnp.abs(a - b)) <= _ALIKE * lane_maxima(jnp.abs(a))

    kept = equal(alpha, inside) & equal(state.sums, sums_of(problem, rows, state.dual))
    fields = ("dual", "weights", "sums", "rho", "first_rho")
    old, new = ({name: getattr(s, name) for name in fields} for s in (state, start))
    here = jax.tree.map(lambda a, b: jnp.where(kept if a.ndim == 1 else kept[:, None], a, b), old, new)
    return start._replace(**here)


def _start_from(problem: Problem, alpha: jax.Array, dual: jax.Array) -> State:
    """At dual variables and their D."""
    form, rows, dtype = problem.formulation, rows_of(problem), alpha.dtype
    V = sums_of(problem, rows, alpha)
    variables = lane_sums(alpha * form.metric(alpha))
    scores = lane_sums(problem.eigenvalue[:, None, None] * V * V)
    rho = 3 * jnp.sqrt(variables / jnp.where(scores > 0, scores, 1))
    # α = 0, or sums beyond their dtype: the first step of a row of mean length goes to its bound
    rho = jnp.where((scores > 0) & (rho > 0) & jnp.isfinite(rho), rho, jnp.mean(rows.C, axis=(0, 2)))

    def number(value):
        return jnp.full_like(rho, value)

    def count(value):
        return jnp.full_like(rho, value, jnp.int32)

    return State(
        dual=alpha,
        weights=-V,
        sums=V,
        best_dual=alpha,
        best_weights=-V,
        rho=rho,
        first_rho=rho,
        primal=number(jnp.inf),
        dual_objective=dual,
        gap=number(jnp.inf),
        target=number(MARGIN if dtype == jnp.float32 else 1),
        fallen=number(jnp.inf),
        risen=number(0),
        since=count(0),
        steps=count(0),
        status=count(Status.RUNNING),
    )
