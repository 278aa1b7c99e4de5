"""One proximal Newton step of lanes whose penalty is not ½ ‖w‖²: the twin of native/newton/simd_penalised.cc.

J. Lee, Y. Sun, M. Saunders, "Proximal Newton-type methods for minimizing composite functions", 2014; G. Yuan,
C. Ho, C. Lin, "An improved GLMNET for l1-regularized logistic regression", 2012.

The model of f at w, b keeps the penalty as it is,

    min_{p, p_b}  gᵀp + g_b p_b + ½ Σ_i D_i (x_iᵀp + p_b)² + R(w + p) + R_b(b + p_b).

The native step solves it by coordinate descent over the columns of the active rows. Lanes on a device
have no cheap access to columns: here it is solved by accelerated proximal gradient steps (A. Beck,
M. Teboulle, "A fast iterative shrinkage-thresholding algorithm for linear inverse problems", 2009) that
restart where they turn back (B. O'Donoghue, E. Candès, "Adaptive restart for accelerated gradient
schemes", 2015).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax.native import varying_like
from xmcjax.solvers._backtrack import backtrack
from xmcjax.solvers._base import Status

# The same numbers in native/newton/simd_penalised.cc, which says more about them.
LEAST_CURVATURE = 0.1
MOST_BIAS_MOVES = 20
FARTHEST_BIAS = 2.0
# Products with XᵀDX that estimate its largest eigenvalue.
POWER_STEPS = 8
# Gradient steps for one of the coordinate sweeps that ``max_cg`` counts.
STEPS_PER_SWEEP = 10


def proximal_step(problem, hp, state):
    """One step of every lane that is fresh or running; arguments and result as of ``newton_cg.step``."""
    op, loss, penalty, dtype = problem.op, problem.loss, problem.penalty, problem.op.dtype
    y = problem.y.astype(dtype)
    c, o = problem.weight, problem.shift
    fresh = state.status == Status.FRESH
    lanes = fresh | (state.status == Status.RUNNING)
    has_bias = jnp.asarray(hp.l2_bias >= 0)
    lam, lam_bias = jnp.asarray(hp.l2, dtype), jnp.maximum(jnp.asarray(hp.l2_bias, dtype), 0)
    epsilon = jnp.finfo(dtype).eps / 2

    def losses(z):
        return c * loss.score_value(z + o, y)

    def of_weights(w):  # R
        return lam * jnp.sum(penalty.value(w), axis=0)

    def of_bias(b):
        return lam_bias * penalty.value(b)

    w, z = jnp.where(fresh, 0, state.w), jnp.where(fresh, 0, state.z)
    bias = jnp.where(fresh, 0, state.bias)
    p, p_bias = state.direction, state.direction_bias
    m = op.matmat(p) + p_bias
    before = jnp.where(fresh, 0, losses(z))

    def change(t):  # f(w + t p) − f(w)
        of_penalties = of_weights(w + t * p) - of_weights(w) + of_bias(bias + t * p_bias) - of_bias(bias)
        return jnp.sum(losses(z + t * m) - before, axis=0) + of_penalties

    t, failed = backtrack(
        change,
        state.slope,
        4 * epsilon * jnp.abs(state.value),
        lanes & ~fresh,
        armijo=hp.armijo,
        max_backtracks=hp.max_backtracks,
    )
    t = lowered(change, t, lanes & ~fresh & ~failed & (t < 1), hp.max_backtracks)
    t = jnp.where(fresh, 1, t).astype(dtype)
    w, z, bias = w + t * p, z + t * m, bias + t * p_bias
    solved = lanes & ~failed

    move = has_bias & solved
    beta = _best_shift(problem, penalty, z, bias, lam_bias, 0.1 * problem.tolerance, move)
    z, bias = z + beta, bias + beta

    value, slope, curvature = losses(z), c * loss.score_grad(z + o, y), c * loss.score_curv(z + o, y)
    active = jnp.sum((slope != 0) | (curvature != 0), axis=0, dtype=jnp.int32)
    # the curvature of the parabola that touches φ and its minimum, where φ itself is nearly straight
    touching = jnp.where(value > 0, slope * slope / (2 * jnp.where(value > 0, value, 1)), 0)
    D = jnp.where(solved, jnp.maximum(curvature, LEAST_CURVATURE * touching), 0)
    f = jnp.sum(value, axis=0) + of_weights(w) + of_bias(bias)
    g = op.rmatmat(jnp.where(solved, slope, 0))
    g_bias = jnp.where(has_bias, jnp.sum(jnp.where(solved, slope, 0), axis=0), 0)
    v = penalty.violation(g, w, lam)
    v_bias = jnp.where(has_bias, penalty.violation(g_bias, bias, lam_bias), 0)
    norm = jnp.sqrt(jnp.sum(v * v, axis=0) + v_bias**2)

    steps = state.steps + (lanes & ~fresh).astype(jnp.int32)
    small = norm <= problem.tolerance
    status = jnp.where(~small & (steps >= hp.max_steps), Status.MAX_STEPS, Status.RUNNING)
    status = jnp.where(norm == 0, Status.CONVERGED, status)
    status = jnp.where(jnp.isfinite(f) & jnp.isfinite(norm), status, Status.NONFINITE)
    status = jnp.where(failed, Status.LINE_SEARCH_FAILED, status)
    running = lanes & (status == Status.RUNNING)

    model = _Model(op, D, g, g_bias, w, bias, lam, lam_bias, has_bias)
    next_p, next_bias, sweeps = _minimum(model, penalty, running, hp)
    following = w + next_p, bias + next_bias
    of_penalties = of_weights(following[0]) - of_weights(w) + of_bias(following[1]) - of_bias(bias)
    next_slope = jnp.sum(g * next_p, axis=0) + g_bias * next_bias + of_penalties
    moved = op.matmat(next_p) + next_bias
    decrease = -(next_slope + jnp.sum(D * moved * moved, axis=0) / 2)

    settled = small & (decrease <= jnp.asarray(hp.decrement, dtype) * jnp.abs(f))
    ended = jnp.where(
        settled, Status.CONVERGED, jnp.where(steps >= hp.max_steps, Status.MAX_STEPS, Status.RUNNING)
    )
    status = jnp.where(running, ended, status)
    status = jnp.where(lanes, status, state.status).astype(jnp.int32)
    running = status == Status.RUNNING

    def keep(mask, new, old):
        return jnp.where(mask, new, old)

    return state._replace(
        w=keep(lanes, w, state.w),
        z=keep(lanes, z, state.z),
        direction=keep(running, next_p, 0),
        bias=keep(lanes, bias, state.bias),
        direction_bias=keep(running, next_bias, 0),
        slope=keep(running, next_slope, 0),
        value=keep(solved, f, state.value),
        gradient_norm=keep(solved, norm, state.gradient_norm),
        multiplier=keep(lanes, jnp.where(failed, 0, t), state.multiplier),
        status=status,
        steps=keep(lanes, steps, state.steps),
        cg_steps=state.cg_steps + sweeps,
        active=keep(solved, active, state.active),
    )


def lowered(change, t, lanes, most):
    """t, halved as long as f falls, at most `most` times: t may be far behind the minimum."""

    def unfinished(carry):
        return jnp.any(carry[2]) & (carry[3] < most)

    def halve(carry):
        t, here, going, count = carry
        half = change(t / 2)
        going = going & (half < here)
        return jnp.where(going, t / 2, t), jnp.where(going, half, here), going, count + 1

    return jax.lax.while_loop(unfinished, halve, (t, change(t), lanes, jnp.int32(0)))[0]


def _best_shift(problem, penalty, z, bias, lam_bias, tolerance, lanes):
    """β that minimises Σ c ℓ(z + β) + R_b(b + β), by Newton steps that are halved where f would rise."""
    y, c, o, loss = problem.y.astype(z.dtype), problem.weight, problem.shift, problem.loss

    def at(beta):
        terms = loss.score_value, loss.score_grad, loss.score_curv
        value, slope, curvature = (jnp.sum(c * term(z + beta + o, y), axis=0) for term in terms)
        return value + lam_bias * penalty.value(bias + beta), slope, curvature

    def unfinished(carry):
        *_, moving, count = carry
        return jnp.any(moving) & (count < MOST_BIAS_MOVES)

    def move(carry):
        beta, (value, slope, curvature), part, moving, count = carry
        b = bias + beta
        left = penalty.violation(slope, b, lam_bias)
        h = jnp.maximum(curvature, jnp.abs(slope) / FARTHEST_BIAS)
        safe = jnp.where(h > 0, h, 1)
        shift = jnp.clip(
            penalty.minimiser(safe, safe * b - slope, lam_bias) - b, -FARTHEST_BIAS, FARTHEST_BIAS
        )
        moving = moving & (left > tolerance) & (h > 0)
        candidate = beta + jnp.where(moving, part * shift, 0)
        found = at(candidate)
        better = found[0] <= value
        keep = moving & better
        sums = tuple(
            jnp.where(keep, new, old) for new, old in zip(found, (value, slope, curvature), strict=True)
        )
        part = jnp.where(better, jnp.ones_like(part), part / 2)
        return jnp.where(keep, candidate, beta), sums, part, moving, count + 1

    beta = jnp.zeros_like(bias)
    carry = varying_like((beta, at(beta), jnp.ones_like(bias), lanes, jnp.int32(0)), (z, bias, lanes))
    return jax.lax.while_loop(unfinished, move, carry)[0]


class _Model(NamedTuple):
    """The quadratic model of the lanes."""

    op: object
    D: jax.Array  #: [n, B]
    g: jax.Array  #: [d, B]
    g_bias: jax.Array  #: [B]
    w: jax.Array
    bias: jax.Array
    lam: jax.Array
    lam_bias: jax.Array
    has_bias: jax.Array

    def product(self, p, p_bias):
        """(XᵀD(Xp + p_b), 1ᵀD(Xp + p_b))."""
        margins = self.D * (self.op.matmat(p) + p_bias)  # type: ignore[attr-defined]
        return self.op.rmatmat(margins), jnp.where(self.has_bias, jnp.sum(margins, axis=0), 0)  # type: ignore[attr-defined]


def _norm2(p, p_bias):
    return jnp.sum(p * p, axis=0) + p_bias**2


def _minimum(model: _Model, penalty, lanes, hp):
    """(p, p_b, sweeps) of the lanes that go on, 0 in the others."""
    d, dtype = model.g.shape[0], model.g.dtype

    def power(_, carry):
        p, p_bias, _ = carry
        product = model.product(p, p_bias)
        norm = jnp.sqrt(_norm2(*product))
        scale = jnp.where(norm > 0, 1 / jnp.where(norm > 0, norm, 1), 0)
        return product[0] * scale, product[1] * scale, norm

    # a start that is nearly orthogonal to no eigenvector
    start = jnp.broadcast_to(jnp.cos(jnp.arange(d, dtype=dtype))[:, None] + 1.5, model.g.shape)
    size = jnp.sqrt(_norm2(start, jnp.where(model.has_bias, 1, 0).astype(dtype)))
    unit = start / size, jnp.where(model.has_bias, 1 / size, 0) * jnp.ones_like(model.bias)
    first = varying_like((*unit, jnp.zeros_like(model.bias)), (model.g, model.bias))
    *_, largest = jax.lax.fori_loop(0, POWER_STEPS, power, first)
    L = jnp.maximum(1.1 * largest, jnp.finfo(dtype).tiny * 1e10)

    def proximal(L, x, x_bias, product):
        """The minimiser of the model's upper bound of curvature L at p = x − w, whose product is given."""
        gradient, gradient_bias = model.g + product[0], model.g_bias + product[1]
        new = penalty.minimiser(L, L * x - gradient, model.lam)
        new_bias = penalty.minimiser(L, L * x_bias - gradient_bias, model.lam_bias)
        return new, jnp.where(model.has_bias, new_bias, x_bias)

    limit = hp.max_cg * STEPS_PER_SWEEP

    def unfinished(carry):
        *_, open_, _, count = carry
        return jnp.any(open_) & (count < limit)

    def step(carry):
        x, y, momentum, L, first, open_, steps, count = carry
        new = proximal(L, y[0], y[1], model.product(y[0] - model.w, y[1] - model.bias))
        moved = new[0] - y[0], new[1] - y[1]
        size = _norm2(*moved)
        product = model.product(*moved)
        curved = jnp.sum(moved[0] * product[0], axis=0) + moved[1] * product[1]
        holds = curved <= L * size * (1 + 1e-6)  # the bound that L stands for
        first = jnp.where(count == 0, L * jnp.sqrt(size), first)
        turns = jnp.sum((y[0] - new[0]) * (new[0] - x[0]), axis=0) + (y[1] - new[1]) * (new[1] - x[1]) > 0
        next_momentum = jnp.where(turns, 1, (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2)
        pull = jnp.where(turns, 0, (momentum - 1) / next_momentum)
        ahead = new[0] + pull * (new[0] - x[0]), new[1] + pull * (new[1] - x[1])
        done = holds & (L * jnp.sqrt(size) <= hp.cg_tolerance * 0.1 * first) & (count > 0)
        take = open_ & holds

        def choose(a, b):
            return tuple(jnp.where(take, new, old) for new, old in zip(a, b, strict=True))

        return (
            choose(new, x),
            choose(ahead, y),
            jnp.where(take, next_momentum, momentum),
            jnp.where(open_ & ~holds, 2 * L, L),
            first,
            open_ & ~done,
            steps + open_.astype(jnp.int32),
            count + 1,
        )

    here = model.w, model.bias
    one = jnp.ones_like(model.bias)
    counts = jnp.zeros(lanes.shape, jnp.int32)
    carry = varying_like((here, here, one, L, one, lanes, counts, jnp.int32(0)), (model.g, L, lanes))
    x, *_, steps, _ = jax.lax.while_loop(unfinished, step, carry)
    p = jnp.where(lanes, x[0] - model.w, 0)
    return p, jnp.where(lanes, x[1] - model.bias, 0), -(-steps // STEPS_PER_SWEEP)
