"""Newton's method for kernel multinomial regression, on lanes.

Paper 003, section 6.1 (algorithm 3). With the residual r = α + g the Newton step δ = α' − α solves
(I + W K̃) δ = −r, which is eq. 4 less α. A step costs one product with K̃ and one more for each step of
CG; K̃δ falls off, and the line search in u needs none. Nothing is divided by a probability: where π_ic
vanishes so does its row of W, and α'_ic = y_ic − π_ic, which is what the thresholds of appendix A set
by hand.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax.solvers._backtrack import backtrack
from xmcjax.solvers._base import Status
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem
from xmcjax.solvers.kernel_multinomial._systems import solve_system


class HParams(NamedTuple):
    """Numbers of the method; all are traced, so none costs a compilation.

    Attributes:
        tolerance: a lane has converged when ‖α + g‖∞ ≤ tolerance: its α then are the differences
            between targets and probabilities to that precision.
        max_steps: k₁ of the paper, Newton steps a lane.
        max_cg: k₂, CG steps a Newton step.
        max_cg_gradient: k₃, CG steps of the system behind a gradient or an implicit derivative.
        cg_tolerance: CG of a Newton step stops at this, relative, and at the square root of ‖α + g‖∞.
        armijo: η of the sufficient decrease.
        max_backtracks: halvings of a step.
    """

    tolerance: float = 1e-5
    max_steps: int = 100
    max_cg: int = 200
    max_cg_gradient: int = 500
    cg_tolerance: float = 0.1
    armijo: float = 1e-4
    max_backtracks: int = 30


class State(NamedTuple):
    """Of B lanes."""

    alpha: jax.Array  #: [n, C, B]; 0 in rows of weight 0
    u: jax.Array  #: [n, C, B], K̃ α, of all rows: those of weight 0 are predictions
    value: jax.Array  #: [B], Φ
    residual: jax.Array  #: [B], ‖α + g‖∞
    multiplier: jax.Array  #: [B], of the last Newton direction
    status: jax.Array  #: int32 [B], of :class:`xmcjax.solvers.Status`
    steps: jax.Array  #: int32 [B], Newton steps
    cg_steps: jax.Array  #: int32 [B]
    fresh: jax.Array  #: bool [B], whether u was multiplied out and not added up


@jax.jit
def init(problem: KernelProblem, alpha=None) -> State:
    """The lanes at α, or at 0.

    Args:
        problem: of B lanes.
        alpha: where to start, [n, C, B] or [n, C, 1]; brought into the range of W first, and not
            taken by a lane for which 0 is better.
    """
    n, C = problem.y.shape[:2]
    lanes, dtype = problem.weight.shape[1], problem.kernel.dtype
    start = u = jnp.zeros((n, C, lanes), dtype)
    value = _objective(problem, start, u)
    if alpha is not None:
        alpha = jnp.broadcast_to(jnp.asarray(alpha, dtype), start.shape)
        alpha = jnp.where(problem.weight[:, None] > 0, _in_range(alpha), 0)
        given_u = problem.kernel.matmat(alpha)
        given_value = _objective(problem, alpha, given_u)
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
        status=count + Status.RUNNING,
        steps=count,
        cg_steps=count,
        fresh=jnp.ones(lanes, bool),
    )


def step(problem: KernelProblem, hp: HParams, state: State) -> State:
    """One Newton step of every lane that is running; the others stay as they are."""
    kernel, y, weight = problem.kernel, problem.y, problem.weight[:, None]
    alpha, u = state.alpha, state.u
    pi = jax.nn.softmax(u, axis=1)
    r = alpha + weight * (pi - y)  # α + g
    residual = jnp.max(jnp.abs(r), axis=(0, 1))

    running = state.status == Status.RUNNING
    small = residual <= hp.tolerance
    # u has been added up step by step: before a lane ends it is multiplied out, in the product
    # that other lanes need anyway, and looked at once more
    check = running & small & ~state.fresh
    stuck = running & ~small & (state.steps >= hp.max_steps)
    moving = running & ~small & ~stuck

    b = jnp.where(moving, -r, 0)
    product = kernel.matmat(jnp.where(check, alpha, b))
    Kb = jnp.where(moving, product, 0)
    u = jnp.where(check, product, u)

    forcing = jnp.minimum(jnp.asarray(hp.cg_tolerance, u.dtype), jnp.sqrt(residual))
    direction, along, cg_steps = solve_system(
        problem, pi, b, Kb, moving, tolerance=forcing, max_steps=hp.max_cg
    )

    # dΦ/dα = K̃ r
    slope = -jnp.sum(Kb * direction, axis=(0, 1))
    first, second = jnp.sum(direction * u, axis=(0, 1)), jnp.sum(direction * along, axis=(0, 1))
    partition = jax.nn.logsumexp(u, axis=1)
    gain = jnp.sum(y * along, axis=1)

    def change(t):  # Φ(α + t (α' − α)) − Φ(α)
        rows = problem.weight * (jax.nn.logsumexp(u + t * along, axis=1) - partition - t * gain)
        return jnp.sum(rows, axis=0) + t * first + t * t / 2 * second

    rounding = 4 * jnp.finfo(u.dtype).eps * (jnp.abs(state.value) + jnp.sum(jnp.abs(alpha * u), axis=(0, 1)))
    t, failed = backtrack(change, slope, rounding, moving, armijo=hp.armijo, max_backtracks=hp.max_backtracks)
    # below the rounding of Φ a step can only be judged by the residual
    failed = failed | (moving & (-slope <= rounding) & (residual >= state.residual))
    alpha = jnp.where(moving, _in_range(alpha + t * direction), alpha)
    u = u + t * along
    value = jnp.where(moving, _objective(problem, alpha, u), state.value)

    status = jnp.where(small & state.fresh, Status.CONVERGED, Status.RUNNING)
    status = jnp.where(stuck, Status.MAX_STEPS, status)
    status = jnp.where(failed, Status.LINE_SEARCH_FAILED, status)
    status = jnp.where(jnp.isfinite(residual) & jnp.isfinite(value), status, Status.NONFINITE)
    return State(
        alpha=alpha,
        u=u,
        value=value,
        residual=jnp.where(running, residual, state.residual),
        multiplier=jnp.where(moving, t, state.multiplier),
        status=jnp.where(running, status, state.status).astype(jnp.int32),
        steps=state.steps + moving.astype(jnp.int32),
        cg_steps=state.cg_steps + cg_steps,
        fresh=jnp.where(moving, False, state.fresh | check),
    )


@jax.jit
def run(problem: KernelProblem, hp: HParams, state: State) -> State:
    """Steps until every lane has ended."""
    return jax.lax.while_loop(
        lambda s: jnp.any(s.status == Status.RUNNING), lambda s: step(problem, hp, s), state
    )


def _in_range(alpha: jax.Array) -> jax.Array:
    """The nearest α with Σ_c α_ic = 0: the range of W."""
    return alpha - jnp.mean(alpha, axis=1, keepdims=True)


def _objective(problem: KernelProblem, alpha: jax.Array, u: jax.Array) -> jax.Array:
    # Φ = Σ_i s_i (lse(u_i) − y_iᵀu_i) + ½ αᵀu
    rows = problem.weight * (jax.nn.logsumexp(u, axis=1) - jnp.sum(problem.y * u, axis=1))
    return jnp.sum(rows, axis=0) + jnp.sum(alpha * u, axis=(0, 1)) / 2
