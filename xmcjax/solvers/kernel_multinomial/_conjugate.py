"""Nonlinear conjugate gradients for kernel multinomial regression with many classes, on lanes.

Hestenes and Stiefel, "Methods of conjugate gradients for solving linear systems", 1952, in the form for any
function (Nocedal and Wright, "Numerical optimization", eq. 5.46), in the inner product of K̃. With
r = α + g the gradient of Φ in that inner product, Δr its change and p the last direction,

    β = max(0, ⟨Δr, r⟩ / ⟨Δr, p⟩),   p' = −r + βp,   ⟨a, b⟩ = aᵀK̃b,   u + tK̃p' searched for its minimum:

one product K̃r per step, where CG of a Newton step makes many for a direction that is then searched once. r, p
and their products need no more than single precision. α and u are kept in the precision of the problem. Steps
add tK̃p to u, which is multiplied out anew, u = K̃α, where the residual has become small. A lane whose rᵀK̃r
falls too slowly goes on by Newton's method.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax.native import varying_like
from xmcjax.solvers._base import Status
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem
from xmcjax.solvers.kernel_multinomial._state import (
    ROUNDED,
    Phase,
    State,
    objective,
    residual_size,
    residuals,
)
from xmcjax.solvers.kernel_multinomial._systems import HParams, hessian

# A search ends where the slope is at most this part of the slope at its beginning.
_FLAT = 0.25
# The next t of a search is at most this many times the last one.
_FARTHER = 4
# A lane stays at this method if rᵀK̃r falls to the part _FALL in _WINDOW steps.
_WINDOW, _FALL = 40, 0.01
# If the residual with u multiplied out is above this part of the last such one, u was not precise enough.
_PROGRESS = 0.5


class At(NamedTuple):
    """What is known at α and u, without another pass over them."""

    pi: jax.Array  #: [n, C, B]
    r: jax.Array  #: α + g, [n, C, B], in the precision of directions
    losses: jax.Array  #: Σ_i s_i ℓ_i, [B]
    alpha_u: jax.Array  #: αᵀu, [B]
    r_p: jax.Array  #: ⟨r, p⟩, [B], of the last direction p
    r0_p: jax.Array  #: ⟨r, p⟩ before the step along p
    p_p: jax.Array  #: ⟨p, p⟩, [B]


def conjugate_step(problem: KernelProblem, hp: HParams, state: State) -> State:
    """One step of every lane that is at this method; u is multiplied out if no lane has a step to make."""
    state, at = _seen(problem, state)
    return jax.lax.cond(
        jnp.any(_moving(state, hp)),
        lambda: _descended(problem, hp, state, at)[0],
        lambda: _checked(problem, hp, state),
    )


def conjugate_steps(problem: KernelProblem, hp: HParams, state: State, count) -> State:
    """At most `count` steps of the lanes that are at this method, until all have ended or left it."""

    def unfinished(made):
        return (made[0] < count) & jnp.any(made[1].running(Phase.CONJUGATE))

    def descend_and_check(made):
        made = jax.lax.while_loop(
            lambda made: (made[0] < count) & jnp.any(_moving(made[1], hp)),
            lambda made: (made[0] + 1, *_descended(problem, hp, *made[1:])),
            (made[0], *_seen(problem, made[1])),
        )
        return made[0] + 1, _checked(problem, hp, made[1])

    return jax.lax.while_loop(unfinished, descend_and_check, (jnp.int32(0), state))[1]


def _seen(problem: KernelProblem, state: State) -> tuple[State, At]:
    """The state with its residual, and what else is known at its u."""
    alpha, u, wide = state.alpha, state.u, state.u.dtype
    pi = problem.likelihood.probabilities(u)
    r = residuals(problem, alpha, u, pi)
    residual = residual_size(problem, r)
    p, r0, Kp = (a.astype(wide) for a in (state.direction, state.gradient, state.K_direction))
    products = [jnp.sum(a * b, axis=(0, 1)) for a, b in ((alpha, u), (r, Kp), (r0, Kp), (p, Kp))]
    here = state.running(Phase.CONJUGATE)
    checked = jnp.where(here & state.fresh & jnp.isinf(state.checked), residual, state.checked)
    state = state._replace(residual=jnp.where(here, residual, state.residual), checked=checked)
    return state, At(pi, r.astype(state.direction.dtype), _losses(problem, u), *products)


def _losses(problem: KernelProblem, u: jax.Array) -> jax.Array:
    return jnp.sum(problem.weight * problem.likelihood.losses(u), axis=0)


def _limited(state: State, hp: HParams) -> jax.Array:
    # a Newton step makes max_cg steps of CG
    return state.cg_steps // jnp.maximum(hp.max_cg, 1) + state.steps >= hp.max_steps


def _moving(state: State, hp: HParams) -> jax.Array:
    """bool [B], the lanes with a step to make before u is multiplied out."""
    seen = jnp.where(state.fresh, state.residual <= hp.tolerance, state.due(hp.tolerance))
    return state.running(Phase.CONJUGATE) & ~seen & ~_limited(state, hp) & jnp.isfinite(state.residual)


def _checked(problem: KernelProblem, hp: HParams, state: State) -> State:
    """u multiplied out in the lanes that have no step to make, and how they go on."""
    here = state.running(Phase.CONJUGATE) & ~_moving(state, hp)
    small = state.residual <= hp.tolerance

    def multiplied(state: State) -> State:
        alpha = jnp.where(here, problem.likelihood.in_range(state.alpha), state.alpha)
        u = jnp.where(here, problem.kernel.matmat(alpha), state.u)
        pi = problem.likelihood.probabilities(u)
        residual = residual_size(problem, residuals(problem, alpha, u, pi))
        return state._replace(
            alpha=alpha,
            u=u,
            value=jnp.where(here, objective(problem, alpha, u), state.value),
            residual=jnp.where(here, residual, state.residual),
        )

    before = state
    state = jax.lax.cond(jnp.any(here & ~state.fresh), multiplied, lambda state: state, state)
    checks = state.checks + (here & small & ~before.fresh).astype(jnp.int32)
    done = state.residual <= hp.tolerance
    if problem.single is None:  # products in full precision allow no smaller residual
        done = done | (checks > 1) & (state.residual <= ROUNDED * hp.tolerance)
    stuck = ~done & _limited(state, hp)
    vain = ~done & ~stuck & ~before.fresh & (state.residual > _PROGRESS * state.checked)
    status = jnp.where(done, Status.CONVERGED, jnp.where(stuck, Status.MAX_STEPS, Status.RUNNING))
    finite = jnp.isfinite(state.residual) & jnp.isfinite(state.value)
    status = jnp.where(finite, status, Status.NONFINITE)
    return _handed(
        state._replace(
            status=jnp.where(here, status, state.status).astype(jnp.int32),
            fresh=state.fresh | here,
            checks=checks,
            checked=jnp.where(here, state.residual, state.checked),
        ),
        here & vain,
    )


def _handed(state: State, lanes: jax.Array) -> State:
    """The state with these lanes at Newton's method."""
    return state._replace(
        phase=jnp.where(lanes, Phase.NEWTON, state.phase).astype(jnp.int32),
        checks=jnp.where(lanes, 0, state.checks),
        checked=jnp.where(lanes, jnp.inf, state.checked),
        window=jnp.where(lanes, 0, state.window),
    )


def _descended(problem: KernelProblem, hp: HParams, state: State, at: At) -> tuple[State, At]:
    """One step of the lanes that are moving."""
    moving = _moving(state, hp)
    narrow, wide = state.direction.dtype, state.u.dtype

    def in_moving(new, old):  # a lone lane is moving, or there would be no step
        return jnp.where(moving, new, old) if moving.ndim else new

    r = in_moving(at.r, jnp.zeros((), narrow))
    Kr = problem.product(r)
    p, Kp = state.direction, state.K_direction
    energy = jnp.sum(r * Kr, axis=(0, 1)).astype(wide)
    # β = max(0, ⟨Δr, r⟩ / ⟨Δr, p⟩)
    above, below = jnp.sum((r - state.gradient) * Kr, axis=(0, 1)).astype(wide), at.r_p - at.r0_p
    beta = jnp.where(below > 0, jnp.maximum(above, 0) / jnp.where(below > 0, below, 1), 0)
    beta = jnp.where(-energy + beta * at.r_p < 0, beta, 0)
    slope, p_p = -energy + beta * at.r_p, energy - 2 * beta * at.r_p + beta * beta * at.p_p
    p, Kp = beta.astype(narrow) * p - r, beta.astype(narrow) * Kp - Kr

    ends = state.window == _WINDOW
    slow = moving & ((ends & (energy > _FALL * state.energy)) | ~(energy > 0))
    t, pi, after, failed = _searched(problem, hp, state, at, Kp, p_p, slope, moving & ~slow)
    taken = moving & ~slow & ~failed
    alpha = jnp.where(taken, state.alpha + t * p.astype(wide), state.alpha)
    u = jnp.where(taken, state.u + t * Kp.astype(wide), state.u)
    new = residuals(problem, alpha, u, pi)
    residual = residual_size(problem, new)
    state = state._replace(
        alpha=alpha,
        u=u,
        residual=jnp.where(taken, residual, state.residual),
        cg_steps=state.cg_steps + moving.astype(jnp.int32),
        fresh=state.fresh & ~taken,
        direction=in_moving(p, state.direction),
        K_direction=in_moving(Kp, state.K_direction),
        gradient=in_moving(r, state.gradient),
        energy=jnp.where(moving & (ends | (state.window == 0)), energy, state.energy),
        window=jnp.where(moving, jnp.where(ends, 1, state.window + 1), state.window),
    )
    return _handed(state, slow | failed), At(pi, new.astype(narrow), *after)


def _searched(
    problem: KernelProblem, hp: HParams, state: State, at: At, Kp, p_p, slope, lanes
) -> tuple[jax.Array, jax.Array, tuple[jax.Array, ...], jax.Array]:
    """(t near the minimum of φ(t) = Φ(α + tp), π, the numbers of :class:`At`, the lanes without such a t).

    Newton's method in t, within an interval where there is a minimum; it needs no product.
    """
    likelihood, weight = problem.likelihood, problem.weight[:, None]
    wide = state.u.dtype
    alpha_p = jnp.sum(state.alpha * Kp.astype(wide), axis=(0, 1))
    rounding = 8 * jnp.finfo(wide).eps * (at.losses + jnp.abs(at.alpha_u))

    def unfinished(search):
        return jnp.any(search[-2])

    def trial(search):
        t, first, pi, _, low, high, _, searching, count = search
        q = Kp.astype(wide)
        # φ''; where it is not positive, that of the penalty
        second = jnp.sum(q * hessian(problem, state.u + t * q, pi)(q), axis=(0, 1)) + p_p
        newton = t - first / jnp.where(second > 0, second, p_p)
        inside = (newton > low) & (newton < high) & ((newton <= _FARTHER * t) | (t == 0))
        between = jnp.where(jnp.isinf(high), _FARTHER * t, (low + high) / 2)
        t = jnp.where(searching, jnp.where(inside, newton, between), t)

        u = state.u + t * q
        pi, losses = likelihood.probabilities(u), _losses(problem, u)
        # φ' = ⟨r, p⟩
        first = jnp.sum(weight * likelihood.slope(u, pi) * q, axis=(0, 1)) + alpha_p + t * p_p
        rise = losses - at.losses + t * alpha_p + t * t / 2 * p_p
        falls = rise <= hp.armijo * t * slope + rounding
        beyond = ~falls | (first > 0)
        low, high = jnp.where(beyond, low, t), jnp.where(beyond, t, high)
        searching = searching & ~(falls & (jnp.abs(first) <= -_FLAT * slope)) & (count < hp.max_backtracks)
        return t, first, pi, losses, low, high, falls, searching, count + 1

    zero = jnp.zeros_like(slope)
    start = (zero, slope, at.pi, at.losses, zero, zero + jnp.inf, lanes, lanes, jnp.int32(0))
    start = varying_like(start, (slope, state.alpha, lanes))
    t, first, pi, losses, _, _, falls, _, _ = jax.lax.while_loop(unfinished, trial, start)
    alpha_u = at.alpha_u + t * (2 * alpha_p + t * p_p)
    return t, pi, (losses, alpha_u, first, slope, p_p), lanes & ~falls
