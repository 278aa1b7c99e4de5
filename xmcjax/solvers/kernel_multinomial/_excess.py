"""A fit whose objective is near its minimum too, which small residuals do not promise where K̃ is large.

The gradient of Φ is K̃ r with r = α + g, and its Hessian K̃ + K̃ W K̃ is no less than K̃ where the likelihood is
convex. Hence Φ(α) − min Φ ≤ ½ rᵀK̃ r.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._fork import needs_threads_of_jax
from xmcjax._options import Real
from xmcjax.solvers._base import Status
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem, without_lone_axis
from xmcjax.solvers.kernel_multinomial._run import run
from xmcjax.solvers.kernel_multinomial._state import State, objective, residuals
from xmcjax.solvers.kernel_multinomial._systems import HParams

# How often a fit goes on that ended above the excess.
_ATTEMPTS = 3


@needs_threads_of_jax
def run_to_excess(
    problem: KernelProblem,
    hp: HParams,
    state: State,
    excess: float,
    observe: Callable[[State], None] | None = None,
) -> State:
    """As :func:`run`, and until ½ rᵀK̃ r ≤ excess · Φ: the relative tolerance of the objective.

    A lane that ends in another way has converged as well where ½ rᵀK̃ r ≤ tolerance² · Φ.

    Args:
        problem: of one lane.
        hp: limits and tolerances; a lane that has reached the tolerance and not the excess goes on to a
            smaller one.
        state: where to start.
        excess: of Φ over its minimum, relative.
        observe: of :func:`run`.

    Raises:
        TypeError, ValueError: an excess that is no finite number above 0.

    Returns:
        The end, with u = K̃α multiplied out; the status is STALLED where the precision allows no smaller
        excess.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import init, kernel_problem
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> problem = kernel_problem(family, [0, 1, 1])
        >>> Status(int(run_to_excess(problem, HParams(), init(problem), excess=1e-3).status[0])).name
        'CONVERGED'
    """
    excess = Real(above=0).check("excess", excess)
    tolerance = float(hp.tolerance)
    state = run(problem, hp, state, observe)
    for _ in range(_ATTEMPTS):
        if _of_the_lane(state.status) != Status.CONVERGED:
            return _judged(problem, state, tolerance)
        above = _relative_excess(problem, state) / excess
        if above <= 1:
            return state
        if not np.isfinite(above):
            break
        # r falls with the tolerance, and rᵀK̃ r with its square
        hp = hp._replace(tolerance=_of_the_lane(state.residual) / (2 * math.sqrt(above)))
        begin = state._replace(
            status=jnp.full_like(state.status, Status.RUNNING),
            checks=jnp.zeros_like(state.checks),
            checked=jnp.full_like(state.checked, jnp.inf),
        )
        again = run(problem, hp, begin, observe)
        if _of_the_lane(again.status) == Status.LINE_SEARCH_FAILED:
            break
        state = again
    if _of_the_lane(state.status) == Status.CONVERGED and _relative_excess(problem, state) <= excess:
        return state
    return _judged(problem, state._replace(status=jnp.full_like(state.status, Status.STALLED)), tolerance)


def _judged(problem: KernelProblem, state: State, tolerance: float) -> State:
    """A state that was not said to have converged, with its own objective: it has where Φ is at its minimum.

    Of K̃ without full rank, ‖r‖∞ has a part that no product sees and rounding keeps up.
    """
    if _of_the_lane(state.status) == Status.NONFINITE:
        return state
    state = _multiplied_out(problem.matrices_only(), state)
    if _relative_excess(problem, state) <= tolerance**2:
        state = state._replace(status=jnp.full_like(state.status, Status.CONVERGED))
    return state


def _relative_excess(problem: KernelProblem, state: State) -> float:
    """½ rᵀK̃ r / Φ."""
    return _of_the_lane(_excess(problem.matrices_only(), state)) / max(_of_the_lane(state.value), 1e-300)


def _of_the_lane(numbers: jax.Array):
    return np.asarray(numbers)[0].item()


@jax.jit
@without_lone_axis
def _multiplied_out(problem: KernelProblem, state: State) -> State:
    """With u = K̃α and Φ of α itself: of a run that did not converge, u has been added up step by step."""
    u = problem.kernel.matmat(state.alpha)
    return state._replace(u=u, value=objective(problem, state.alpha, u), fresh=jnp.ones_like(state.fresh))


@jax.jit
@without_lone_axis
def _excess(problem: KernelProblem, state: State) -> jax.Array:
    """½ rᵀK̃ r, [B]."""
    r = residuals(problem, state.alpha, state.u, problem.likelihood.probabilities(state.u))
    return jnp.sum(r * problem.kernel.matmat(r), axis=(0, 1)) / 2
