"""A fit whose objective is near its minimum too, which small residuals do not promise where K̃ is large.

The gradient of Φ is K̃ r with r = α + g, and its Hessian K̃ + K̃ W K̃ is no less than K̃ where the likelihood is
convex. Hence Φ(α) − min Φ ≤ ½ rᵀK̃ r.

Where K̃ is large along some direction, as along the vector of ones for a linear kernel of features with a
large mean, rounding alone makes this bound more than a small part of Φ, though Φ hardly changes there: W K̃
is as large. By duality, for any β in the range of −s ∂ℓ/∂u,

    Φ(α) − min Φ ≤ Σ_i s_i (ℓ_i(u_i) + ℓ*_i(−β_i/s_i) + β_iᵀu_i/s_i) + ½ (α − β)ᵀK̃ (α − β),

which is the bound above for β = α − r. With the β nearest to α, K̃ only multiplies the part of α out of range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._fork import needs_threads_of_jax
from xmcjax._options import Real
from xmcjax.solvers._base import Status
from xmcjax.solvers.kernel_multinomial._likelihoods import WithConjugate
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem, without_lone_axis
from xmcjax.solvers.kernel_multinomial._run import run
from xmcjax.solvers.kernel_multinomial._some_classes import SomeClasses
from xmcjax.solvers.kernel_multinomial._state import (
    ROUNDED,
    State,
    objective,
    residual_size,
    residuals,
    rounding_of,
)
from xmcjax.solvers.kernel_multinomial._systems import HParams, hessian, solve_system

# Default of the relative excess of Φ over its minimum, in units of the tolerance.
_EXCESS = 10
# How often a fit goes on after it has ended above the excess.
_ATTEMPTS = 3
# _POLISHES: whole Newton steps at the end of a fit that has not converged. _POLISH: relative tolerance of
# their CG; with a larger one they lead away. _POLISH_CG: how many times the usual CG steps they may take.
_POLISHES, _POLISH, _POLISH_CG = 5, 1e-8, 10


@needs_threads_of_jax
def run_to_excess(
    problem: KernelProblem,
    hp: HParams,
    state: State,
    excess: float | None = None,
    observe: Callable[[State], None] | None = None,
) -> State:
    """As :func:`run`, and until Φ is above its minimum by at most excess · Φ.

    A lane that has not converged, and is not at the limit of steps, makes a few whole Newton steps more, by
    which it may converge.

    Args:
        problem: of any number of lanes.
        hp: limits and tolerances; lanes that have reached the tolerance and not the excess go on to a
            smaller one.
        state: where to start.
        excess: of Φ over its minimum, relative; None for ten times the tolerance.
        observe: of :func:`run`.

    Raises:
        TypeError, ValueError: an excess that is no finite number above 0.

    Returns:
        The state at the end; STALLED where the precision allows no smaller excess. Where a lane has not
        converged, u = K̃α is multiplied out and Φ is that of α.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import init, kernel_problem
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> problem = kernel_problem(family, [0, 1, 1])
        >>> Status(int(run_to_excess(problem, HParams(), init(problem), excess=1e-3).status[0])).name
        'CONVERGED'
    """
    if excess is None:
        excess = max(_EXCESS * float(hp.tolerance), float(jnp.finfo(problem.kernel.dtype).eps))
    excess = Real(above=0).check("excess", excess)
    first = hp
    state = run(problem, hp, state, observe)
    for attempt in range(_ATTEMPTS + 1):
        above = _relative_excess(problem, state, excess) / excess
        far = _have_status(state, Status.CONVERGED) & ~(above <= 1)
        on = far & np.isfinite(above)
        if attempt == _ATTEMPTS or not on.any():
            state = _with_status(state, far, Status.STALLED)
            break
        # r falls with the tolerance, and rᵀK̃ r with its square
        wanted = np.asarray(state.residual, np.float64)[on] / (2 * np.sqrt(above[on]))
        hp = hp._replace(tolerance=float(wanted.min()))
        begin = _with_status(state, on, Status.RUNNING)
        begin = begin._replace(
            checks=jnp.where(on, 0, state.checks), checked=jnp.where(on, jnp.inf, state.checked)
        )
        again = run(problem, hp, begin, observe)
        failed = on & _have_status(again, Status.LINE_SEARCH_FAILED)
        state = _chosen(failed, _with_status(state, far, Status.STALLED), again)
    return _judged(problem, first, state, excess)


def _judged(problem: KernelProblem, hp: HParams, state: State, excess: float) -> State:
    """The state with u and Φ computed anew from α in the lanes that did not converge.

    Below the limit of steps a lane may still converge by a few whole Newton steps: where K̃ has not full
    rank, r has a part that no product with K̃ sees, and CG does not find it. Without that part Φ may be
    larger at first, because rounding can have made Φ smaller than that of any function.
    """
    matrices = problem.matrices_only()
    others = ~_have_status(state, Status.CONVERGED, Status.NONFINITE)
    if not others.any():
        return state
    state = _chosen(others, _multiplied_out(matrices, state), state)
    others &= ~_have_status(state, Status.MAX_STEPS)
    polished = state
    for number in range(_POLISHES):
        if not others.any():
            break
        first = number == 0
        # the first step has the limits of the fit, and descends: its result is taken in any case
        limit = hp.max_cg if first else _POLISH_CG * hp.max_cg
        polished = _polished(matrices, hp._replace(max_cg=limit), polished, first)
        residual = np.asarray(polished.residual)
        near = others & (residual <= ROUNDED * float(hp.tolerance))
        near &= _relative_excess(problem, polished, excess) <= excess
        better = near & ((residual < np.asarray(state.residual)) | ~_have_status(state, Status.CONVERGED))
        state = _with_status(_chosen(others if first else better, polished, state), near, Status.CONVERGED)
        others &= ~(near & (residual <= float(hp.tolerance)))
    return state


def _relative_excess(problem: KernelProblem, state: State, enough: float) -> np.ndarray:
    """A bound of Φ over its minimum, as a part of Φ, [B]; the smaller of two where one is not enough."""
    matrices = problem.matrices_only()
    value = np.maximum(np.asarray(state.value, np.float64), 1e-300)
    excess = np.asarray(_excess(matrices, state), np.float64) / value
    likelihood = problem.likelihood
    of_classes = likelihood.likelihood if isinstance(likelihood, SomeClasses) else likelihood
    if (excess <= enough).all() or not isinstance(of_classes, WithConjugate):
        return excess
    return np.fmin(excess, np.asarray(_excess_by_duality(matrices, state), np.float64) / value)


def _have_status(state: State, *statuses: Status) -> np.ndarray:
    """Lanes with one of these statuses, bool [B]."""
    return np.isin(np.asarray(state.status), statuses)


def _with_status(state: State, lanes: np.ndarray, status: Status) -> State:
    return state._replace(status=jnp.where(lanes, jnp.int32(status), state.status))


def _chosen(lanes: np.ndarray, yes: State, no: State) -> State:
    """`yes` in the given lanes, `no` in the others; the last axis of every array is that of the lanes."""
    if lanes.all() or not lanes.any():
        return yes if lanes.all() else no
    return jax.tree.map(lambda a, b: jnp.where(lanes, a, b), yes, no)


class _At(NamedTuple):
    """What is known at an α."""

    u: jax.Array
    pi: jax.Array
    r: jax.Array
    residual: jax.Array
    value: jax.Array


def _at(problem: KernelProblem, alpha: jax.Array) -> _At:
    u = problem.kernel.matmat(alpha)
    pi = problem.likelihood.probabilities(u)
    r = residuals(problem, alpha, u, pi)
    return _At(u, pi, r, residual_size(problem, r), objective(problem, alpha, u))


@jax.jit
@without_lone_axis
def _multiplied_out(problem: KernelProblem, state: State) -> State:
    """The state with u = K̃α multiplied out, which a run has added up step by step."""
    here = _at(problem, state.alpha)
    fresh = jnp.ones_like(state.fresh)
    return state._replace(u=here.u, value=here.value, residual=here.residual, fresh=fresh)


@jax.jit
@without_lone_axis
def _polished(problem: KernelProblem, hp: HParams, state: State, descends) -> State:
    """The state after a whole Newton step; with `descends` only if the residual falls and Φ does not rise.

    With K̃δ from CG the step is δ = −r − W K̃δ, which removes the part of r that no product with K̃ sees. The
    rounding of u limits that of Φ: where r is small, the derivative of Φ in u is −α/2.
    """
    here = _at(problem, state.alpha)
    W, limits = hessian(problem, here.u, here.pi), dict(tolerance=_POLISH, max_steps=hp.max_cg)
    Kr, lanes = problem.kernel.matmat(here.r), jnp.ones(state.status.shape, bool)
    solved = solve_system(problem, W, here.pi, -here.r, -Kr, lanes, **limits)
    alpha = state.alpha - here.r - W(solved.Kx)
    there = _at(problem, alpha)
    rounding = rounding_of(here.value, alpha, here.u)
    rounding = rounding + jnp.sum(jnp.abs(alpha) * _rounded(problem, alpha), axis=(0, 1)) / 2
    no_larger = there.value <= here.value + rounding
    better = (there.residual < here.residual) & no_larger | ~jnp.asarray(descends)
    return state._replace(
        alpha=jnp.where(better, alpha, state.alpha),
        u=jnp.where(better, there.u, here.u),
        value=jnp.where(better, there.value, here.value),
        residual=jnp.where(better, there.residual, here.residual),
        cg_steps=state.cg_steps + solved.steps,
        fresh=jnp.ones_like(state.fresh),
    )


@jax.jit
@without_lone_axis
def _excess(problem: KernelProblem, state: State) -> jax.Array:
    """½ rᵀK̃ r, [B]."""
    r = residuals(problem, state.alpha, state.u, problem.likelihood.probabilities(state.u))
    return jnp.sum(r * problem.kernel.matmat(r), axis=(0, 1)) / 2


@jax.jit
@without_lone_axis
def _excess_by_duality(problem: KernelProblem, state: State) -> jax.Array:
    """The bound for the β nearest to α, plus what rounding of u may hide, [B]."""
    likelihood: Any = problem.likelihood
    kernel, weight = problem.kernel, problem.weight[:, None]
    gaps, beta = likelihood.fenchel_gap(state.u, state.alpha / jnp.where(weight > 0, weight, 1))
    outside = jnp.where(weight > 0, state.alpha - weight * beta, 0)
    bound = jnp.sum(problem.weight * gaps, axis=0)
    bound = bound + jnp.sum(outside * kernel.matmat(outside), axis=(0, 1)) / 2
    # ∂²ℓ/∂u² is ½ at most
    rounded = _rounded(problem, state.alpha)
    return bound + jnp.sum(weight * rounded * rounded, axis=(0, 1)) / 4


def _rounded(problem: KernelProblem, alpha: jax.Array) -> jax.Array:
    """By how much u = K̃α may be rounded, [n, C, B]."""
    return jnp.finfo(alpha.dtype).eps * problem.kernel.matmat(jnp.abs(alpha))
