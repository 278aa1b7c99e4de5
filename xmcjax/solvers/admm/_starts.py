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

# A state counts as one of this problem if its numbers differ from those of this problem by at most this part
# of the largest.
_ALIKE = 1e-3


@needs_threads_of_jax
def init(problem: Problem, alpha=None) -> State:
    """All lanes at equal dual variables, of the size that has the largest D.

    Args:
        problem: of the lanes.
        alpha: dual variables [n, m] to start from, sparse or dense, the same for all lanes; brought into the
            dual set of each lane first, and shortened to the multiple with the largest D. Equal dual
            variables take their place where these have a larger D. None for equal ones.

    Raises:
        ValueError, TypeError: dual variables of another shape, or not finite.
        DeviceMemoryError: lanes that do not fit into the free memory of the device, where it tells that. The
            text says how many would fit: give the others to further problems.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> lanes = admm.problem(linops.make(np.eye(3, dtype=np.float32)), [0, 1, 2], C=[0.1, 1.0])
        >>> np.round(np.asarray(init(lanes, np.full((3, 3), 0.5)).dual[0, 1], np.float64), 3).tolist()
        [0.0, 0.333, 0.333]
    """
    check_memory(problem, _start, advance, HParams())
    given = None if alpha is None else _given(problem, alpha)
    # dual variables that are all 0 give no ρ
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
        with np.errstate(over="ignore"):  # D is NaN where α overflows, and equal ones take its place
            out[:, lane] = begin.toarray()
    return out


@jax.jit
def _start(problem: Problem) -> State:
    return _start_from(problem, *_shortened(problem, _alike(problem)))


@jax.jit
def _start_given(problem: Problem, alpha: jax.Array) -> State:
    """The state at given dual variables or at equal ones, whichever have the larger D.

    Given ones are mostly of an earlier run, and better. Those of a run with shorter features are far too
    large, and the steps would need hundreds to make them small.
    """
    given, dual = _shortened(problem, alpha)
    alike, of_alike = _shortened(problem, _alike(problem))
    worse = ~(dual >= of_alike)  # or NaN
    better = jnp.where(worse[:, None], alike, given)
    return _start_from(problem, better, jnp.where(worse, of_alike, dual))


def _alike(problem: Problem) -> jax.Array:
    """Equal dual variables, as large as the dual set allows, [n, lanes, m]."""
    rows = rows_of(problem)
    count: Any = problem.classes if problem.members is None else counts(problem, rows.C.dtype)
    # where the sum of a row is at most C, each variable is an equal part of C
    each = rows.C / (count - 1) if isinstance(problem.formulation, TopKBeta) else rows.C
    return jnp.where(_variables(problem, rows), each, jnp.zeros((), rows.C.dtype))


def _variables(problem: Problem, rows: LaneRows) -> jax.Array:
    """Whether there is a variable, [n, lanes, m]: rows and classes that a lane leaves out have none."""
    there = jnp.broadcast_to(rows.there, (*rows.y.shape, problem.classes))
    there &= problem.formulation.exists(there, rows.y)
    return there if problem.members is None else there & problem.members


def _shortened(problem: Problem, alpha: jax.Array) -> tuple[jax.Array, jax.Array]:
    """s α of the largest D with s ≤ 1, and that D; with α the dual sets hold s α too."""
    rows = rows_of(problem)
    V, total = sums_of(problem, rows, alpha), lane_sums(alpha)
    # D(s α) = s Σα − ½ s² (‖V‖² + Σ ridge α²)
    curved = lane_sums(V * V) + 2 * (total - gain_of(problem, rows, alpha))
    long = curved > total
    factor = jnp.where(long, total / jnp.where(curved > 0, curved, 1), 1)
    return factor[:, None] * alpha, jnp.where(long, factor * total / 2, total - curved / 2)


@jax.jit
def continued(problem: Problem, state: State) -> State:
    """Running lanes that begin at the best dual variables of a state.

    Where these are inside the dual set, and V is that of these features, the steps go on where the state left
    them. Otherwise the state is of another problem, and the lane begins as from given dual variables.
    """
    form, rows, alpha = problem.formulation, rows_of(problem), state.best_dual
    there = _variables(problem, rows)
    # the projection onto the dual set; where the set has no upper bounds, it shortens α by a thousandth
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
    """The state at the dual variables `alpha`, whose D is `dual`."""
    form, rows, dtype = problem.formulation, rows_of(problem), alpha.dtype
    V = sums_of(problem, rows, alpha)
    variables = lane_sums(alpha * form.metric(alpha))
    scores = lane_sums(problem.eigenvalue[:, None, None] * V * V)
    rho = 3 * jnp.sqrt(variables / jnp.where(scores > 0, scores, 1))
    # C where α = 0 or a sum overflows: the first step of a row of mean length then goes to its bound
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
