"""Newton's method for kernel multinomial regression, on lanes.

Seeger 2006, section 6.1 (algorithm 3). With the residual r = α + g the Newton step δ = α' − α solves
(I + W K̃) δ = −r, which is eq. 4 less α. A step costs one product with K̃ and one more for each step of
CG; K̃δ falls off, and the line search in u needs none. Nothing is divided by a probability: where π_ic
vanishes so does its row of W, and α'_ic = y_ic − π_ic, which is what the thresholds of appendix A set
by hand. Where the line search had to shorten a direction, CG of the next ones ends at its length, or, where
less than a half of it was taken, at the length taken: of variances in the thousands, as a search gives
them to the top of a tree, whole directions lead far beyond where the model holds, and shortened ones make
little of their CG steps.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers._backtrack import backtrack
from xmcjax.solvers._base import Status
from xmcjax.solvers._host_loop import run_in_calls
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem, without_lone_axis
from xmcjax.solvers.kernel_multinomial._systems import HParams, hessian, solve_system

# Of the radius, after a step that reached it and was taken whole.
_GROWTH = 4
# Times the tolerance that the residual may keep where products with K̃ are not precise enough for less.
_ROUNDED = 10


class State(NamedTuple):
    """Of B lanes."""

    alpha: jax.Array  #: [n, C, B]; 0 in rows of weight 0
    u: jax.Array  #: [n, C, B], K̃ α, of all rows: those of weight 0 are predictions
    value: jax.Array  #: [B], Φ
    residual: jax.Array  #: [B], ‖α + g‖∞
    multiplier: jax.Array  #: [B], of the last Newton direction
    radius: jax.Array  #: [B], ‖·‖_K̃ of the longest direction asked for
    status: jax.Array  #: int32 [B], of :class:`xmcjax.solvers.Status`
    steps: jax.Array  #: int32 [B], Newton steps
    cg_steps: jax.Array  #: int32 [B]
    fresh: jax.Array  #: bool [B], whether u was multiplied out and not added up
    checks: jax.Array  #: int32 [B], how often it was for a residual that was small


@needs_threads_of_jax
def init(problem: KernelProblem, alpha=None) -> State:
    """The lanes at α, or at 0.

    Args:
        problem: of B lanes.
        alpha: where to start, [n, C, B] or [n, C, 1]; brought into the range of W first, and not
            taken by a lane for which 0 is better.
    """
    n, C, _ = problem.likelihood.shape
    # an argument: the compiler would work out by itself what follows from a constant
    zeros = jnp.zeros((n, C, problem.weight.shape[1]), problem.kernel.dtype)
    return _init(problem.matrices_only(), zeros, alpha)


@jax.jit
@without_lone_axis
def _init(problem: KernelProblem, zeros: jax.Array, alpha) -> State:
    lanes, dtype = problem.weight.shape[1:], problem.kernel.dtype
    start = u = zeros
    value = objective(problem, start, u)
    if alpha is not None:
        alpha = jnp.broadcast_to(jnp.asarray(alpha, dtype), start.shape)
        alpha = jnp.where(problem.weight[:, None] > 0, problem.likelihood.in_range(alpha), 0)
        given_u = problem.kernel.matmat(alpha)
        given_value = objective(problem, alpha, given_u)
        better = given_value < value
        start, u = jnp.where(better, alpha, start), jnp.where(better, given_u, u)
        value = jnp.where(better, given_value, value)
    zero, count = jnp.zeros(lanes, dtype), jnp.zeros(lanes, jnp.int32)
    return State(
        alpha=start,
        u=u,
        value=value,
        residual=zero + jnp.inf,
        multiplier=zero,
        radius=zero + jnp.inf,
        status=count + Status.RUNNING,
        steps=count,
        cg_steps=count,
        fresh=jnp.ones(lanes, bool),
        checks=count,
    )


@needs_threads_of_jax
def step(problem: KernelProblem, hp: HParams, state: State) -> State:
    """One Newton step of every lane that is running; the others stay as they are."""
    kernel, likelihood = problem.kernel, problem.likelihood
    alpha, u = state.alpha, state.u
    pi = likelihood.probabilities(u)
    r = alpha + problem.weight[:, None] * likelihood.slope(pi)  # α + g
    residual = jnp.max(jnp.abs(r), axis=(0, 1))

    running = state.status == Status.RUNNING
    small = residual <= hp.tolerance
    # u has been added up step by step: before a lane ends it is multiplied out, in the product
    # that other lanes need anyway, and looked at once more. Where both agree but for rounding, and
    # that alone is above the tolerance a second time, α is as good as such products can tell
    done = small | (state.checks > 1) & (residual <= _ROUNDED * hp.tolerance)
    done = done & state.fresh
    check = running & small & ~state.fresh
    stuck = running & ~small & ~done & (state.steps >= hp.max_steps)
    moving = running & ~small & ~done & ~stuck

    b = jnp.where(moving, -r, 0)
    product = kernel.matmat(jnp.where(check, alpha, b))
    Kb = jnp.where(moving, product, 0)
    u = jnp.where(check, product, u)

    forcing = jnp.minimum(jnp.asarray(hp.cg_tolerance, u.dtype), jnp.sqrt(residual))
    W = hessian(problem, u, pi)
    direction, along, cg_steps, cut = solve_system(
        problem, W, pi, b, Kb, moving, tolerance=forcing, max_steps=hp.max_cg, radius=state.radius
    )

    # dΦ/dα = K̃ r
    slope = -jnp.sum(Kb * direction, axis=(0, 1))
    first, second = jnp.sum(direction * u, axis=(0, 1)), jnp.sum(direction * along, axis=(0, 1))
    losses = likelihood.losses(u)

    def change(t):  # Φ(α + t (α' − α)) − Φ(α)
        rows = problem.weight * (likelihood.losses(u + t * along) - losses)
        return jnp.sum(rows, axis=0) + t * first + t * t / 2 * second

    rounding = 4 * jnp.finfo(u.dtype).eps * (jnp.abs(state.value) + jnp.sum(jnp.abs(alpha * u), axis=(0, 1)))
    t, failed = backtrack(change, slope, rounding, moving, armijo=hp.armijo, max_backtracks=hp.max_backtracks)
    # below the rounding of Φ a step can only be judged by the residual, of u made in the same way
    worse = ~state.fresh & (residual >= state.residual)
    failed = failed | (moving & (-slope <= rounding) & worse)
    # a direction that had to be shortened is about as long as the Newton model holds, or longer: no longer
    # one is asked for, and where a half was not enough, one that CG ends at the length taken
    length = jnp.sqrt(jnp.maximum(second, 0))
    radius = jnp.where(cut, _GROWTH * length, state.radius)
    radius = jnp.where(t < 1, length * jnp.where(t < 0.5, t, 1), radius)
    alpha = jnp.where(moving, likelihood.in_range(alpha + t * direction), alpha)
    u = u + t * along
    value = jnp.where(moving, objective(problem, alpha, u), state.value)

    status = jnp.where(done, Status.CONVERGED, Status.RUNNING)
    status = jnp.where(stuck, Status.MAX_STEPS, status)
    status = jnp.where(failed, Status.LINE_SEARCH_FAILED, status)
    status = jnp.where(jnp.isfinite(residual) & jnp.isfinite(value), status, Status.NONFINITE)
    return State(
        alpha=alpha,
        u=u,
        value=value,
        residual=jnp.where(running, residual, state.residual),
        multiplier=jnp.where(moving, t, state.multiplier),
        radius=jnp.where(moving & (t > 0), radius, state.radius),
        status=jnp.where(running, status, state.status).astype(jnp.int32),
        steps=state.steps + moving.astype(jnp.int32),
        cg_steps=state.cg_steps + cg_steps,
        fresh=jnp.where(moving, False, state.fresh | check),
        checks=state.checks + check.astype(jnp.int32),
    )


@needs_threads_of_jax
def run(problem: KernelProblem, hp: HParams, state: State) -> State:
    """Steps until every lane has ended."""

    def running(state: State) -> bool:
        return bool(np.any(np.asarray(state.status) == Status.RUNNING))

    return run_in_calls(_at_most, running, problem.matrices_only(), hp, state)


@jax.jit
@without_lone_axis
def _at_most(problem: KernelProblem, hp: HParams, state: State, count) -> State:
    return jax.lax.while_loop(
        lambda made: (made[0] < count) & jnp.any(made[1].status == Status.RUNNING),
        lambda made: (made[0] + 1, step(problem, hp, made[1])),
        (jnp.int32(0), state),
    )[1]


def objective(problem: KernelProblem, alpha: jax.Array, u: jax.Array) -> jax.Array:
    # Φ = Σ_i s_i ℓ_i(u_i) + ½ αᵀu
    return (
        jnp.sum(problem.weight * problem.likelihood.losses(u), axis=0) + jnp.sum(alpha * u, axis=(0, 1)) / 2
    )
