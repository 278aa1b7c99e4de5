"""Newton's method for kernel multinomial regression, on lanes.

Seeger 2006, section 6.1 (algorithm 3). With the residual r = α + g the Newton step δ = α' − α solves
(I + W K̃) δ = −r, which is eq. 4 less α. A step costs one product with K̃ and one more for each step of
CG; K̃δ falls off, and the line search in u needs none. Nothing is divided by a probability: where π_ic
vanishes so does its row of W, and α'_ic = y_ic − π_ic, which is what the thresholds of appendix A set
by hand. Where the line search had to shorten a direction, CG of the next directions ends at its length, or at
the length taken where that was less than half. With variances in the thousands, as a search of
hyperparameters gives them to the top of a tree, whole directions lead far beyond where the Newton model
holds, and shortened ones make little of their CG steps. Where W is not positive semidefinite, CG stops at the
first direction without positive curvature; if that is its very first one, the step is −r.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax.solvers._backtrack import backtrack
from xmcjax.solvers._base import Status
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem
from xmcjax.solvers.kernel_multinomial._state import (
    ROUNDED,
    Phase,
    State,
    objective,
    residual_size,
    residuals,
    rounding_of,
)
from xmcjax.solvers.kernel_multinomial._systems import HParams, hessian, solve_system

# Growth of the radius after a step that reached it and was taken whole.
_GROWTH = 4
# With products in single precision, the residual has to fall to the part _PROGRESS in _WINDOW steps, and each
# time that u is multiplied out.
_WINDOW, _PROGRESS = 5, 0.5
# If the residual stays above this part of the last one, and Φ does not fall, no product with K̃ sees it.
_STAYS = 0.99


def newton_step(problem: KernelProblem, hp: HParams, state: State) -> State:
    """One Newton step of every lane that has come to this method; the others stay as they are."""
    kernel, likelihood = problem.kernel, problem.likelihood
    alpha, u = state.alpha, state.u
    pi = likelihood.probabilities(u)
    r = residuals(problem, alpha, u, pi)
    residual = residual_size(problem, r)

    rough = problem.single is not None
    running = state.running(Phase.NEWTON) if rough else state.running(Phase.NEWTON, Phase.PRECISE)
    small = residual <= hp.tolerance
    # u has been added up step by step: before a lane ends, u is multiplied out, in the product that other
    # lanes need anyway, and the residual looked at once more. Where rounding alone lifts the residual above
    # the tolerance a second time, α is as good as such products can tell
    done = small if rough else small | (state.checks > 1) & (residual <= ROUNDED * hp.tolerance)
    done = done & state.fresh
    ends = running & (state.window == _WINDOW)
    vain = (state.fresh & (residual > _PROGRESS * state.checked)) | (
        ends & (residual > _PROGRESS * state.energy)
    )
    vain = vain & running & rough & ~done
    checked = jnp.where(running & state.fresh, residual, state.checked)
    # a lane that another method has handed on begins with u multiplied out
    due = state._replace(residual=residual, checked=checked).due(hp.tolerance) if rough else small
    due = due | jnp.isinf(checked)
    check = running & due & ~state.fresh
    stuck = running & ~check & ~done & (state.steps >= hp.max_steps)
    moving = running & ~check & ~done & ~stuck & ~vain

    b = jnp.where(moving, -r, 0)
    if rough:
        u = jax.lax.cond(jnp.any(check), lambda u: jnp.where(check, kernel.matmat(alpha), u), lambda u: u, u)
        Kb = jnp.where(moving, problem.product(b), 0)
    else:
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
    blocked = moving & ~(slope < 0)
    direction, along = jnp.where(blocked, b, direction), jnp.where(blocked, Kb, along)
    slope = jnp.where(blocked, -jnp.sum(Kb * b, axis=(0, 1)), slope)
    first, second = jnp.sum(direction * u, axis=(0, 1)), jnp.sum(direction * along, axis=(0, 1))
    losses = likelihood.losses(u)

    def change(t):  # Φ(α + t (α' − α)) − Φ(α)
        rows = problem.weight * (likelihood.losses(u + t * along) - losses)
        return jnp.sum(rows, axis=0) + t * first + t * t / 2 * second

    rounding = rounding_of(state.value, alpha, u)
    # a loss is a difference of two numbers as large as u is, however small it is itself: a fall below the
    # rounding of heavy rows cannot be told from none, and the whole direction is taken
    of_losses = 4 * jnp.finfo(u.dtype).eps * jnp.sum(problem.weight * jnp.max(jnp.abs(u), axis=1), axis=0)
    slack = jnp.where(-slope <= of_losses, jnp.maximum(rounding, of_losses), rounding)
    t, failed = backtrack(change, slope, slack, moving, armijo=hp.armijo, max_backtracks=hp.max_backtracks)
    # below the rounding of Φ a step can only be judged by the residual, with u added up both times
    stays = ~state.fresh & (residual >= _STAYS * state.residual)
    failed = failed | (moving & (-slope <= rounding) & stays)
    # a direction that had to be shortened is about as long as the Newton model holds, or longer: the next one
    # may not be longer, and only as long as the length taken where that was less than half
    length = jnp.sqrt(jnp.maximum(second, 0))
    radius = jnp.where(cut, _GROWTH * length, state.radius)
    radius = jnp.where(t < 1, length * jnp.where(t < 0.5, t, 1), radius)
    alpha = jnp.where(moving, likelihood.in_range(alpha + t * direction), alpha)
    u = u + t * along
    value = jnp.where(running, objective(problem, alpha, u), state.value)

    # what single precision does not bring to its end goes on in double precision
    handed = running & rough & (vain | failed)
    status = jnp.where(done, Status.CONVERGED, Status.RUNNING)
    status = jnp.where(stuck, Status.MAX_STEPS, status)
    status = jnp.where(failed & ~handed, Status.LINE_SEARCH_FAILED, status)
    status = jnp.where(jnp.isfinite(residual) & jnp.isfinite(value), status, Status.NONFINITE)
    return state._replace(
        alpha=alpha,
        u=u,
        value=value,
        residual=jnp.where(running, residual, state.residual),
        multiplier=jnp.where(moving, t, state.multiplier),
        radius=jnp.where(handed, jnp.inf, jnp.where(moving & (t > 0), radius, state.radius)),
        status=jnp.where(running, status, state.status).astype(jnp.int32),
        phase=jnp.where(handed, Phase.PRECISE, state.phase).astype(jnp.int32),
        steps=state.steps + moving.astype(jnp.int32),
        cg_steps=state.cg_steps + cg_steps,
        fresh=jnp.where(moving, False, state.fresh | check),
        checks=jnp.where(handed, 0, state.checks + (check & small).astype(jnp.int32)),
        checked=jnp.where(handed, jnp.inf, checked),
        energy=jnp.where(running & (ends | (state.window == 0)), residual, state.energy),
        window=jnp.where(running, jnp.where(ends, 1, state.window + 1), state.window),
    )
