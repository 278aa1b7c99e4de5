"""The double majorization bound, class by class (Gopal and Yang 2013, section 3.3; Bouchard, 2007).

log Σ_k e^{z_k} ≤ a + Σ_k log(1 + e^{z_k − a}) makes of G the bound

    F(W, a) = λ/2 ‖W‖² + Σ_i c_i (a_i + Σ_k log(1 + e^{z_ik − a_i}) − z_{i,y_i}),

convex in W and a together, and not tight: its minimum is not that of G. Each iteration solves the class
problems, logistic regressions with offset −a_i, as lanes of newton_cg, and then Σ_k σ(z_ik − a_i) = 1
for a_i. The state has both F (`bound`) and G (`value`); the run ends by the gradient of F.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax.losses import logistic
from xmcjax.solvers.multinomial import _blocks
from xmcjax.solvers.multinomial._class_lanes import solve_lanes, tolerances
from xmcjax.solvers.multinomial._problem import (
    Problem,
    all_max,
    all_sum,
    centred,
    evaluate_at,
    own_scores,
    scores,
    squared_norm,
    targets,
)
from xmcjax.solvers.multinomial._state import HParams, State, following, next_status, start, where_good

MOST_STEPS_IN_A = 100
# Part of their first gradient to which the class problems are solved.
ACCURACY = 0.1

CLASS_AXES = {"a": None, "norms": 0}


class Memory(NamedTuple):
    """What an iteration of DM hands to the next."""

    a: jax.Array  #: [n]
    norms: jax.Array  #: ‖∇F‖ of each class, [K]


@needs_threads_of_jax
def init(problem: Problem, hp: HParams, W0=None, b0=None, width: int | None = None) -> State:
    """The state at the starting weights; `state.inner` counts Newton steps, over all classes."""
    begin = start(problem, hp, W0, b0, width)
    return _with_bound(problem, hp, begin.state, begin.Z)


@needs_threads_of_jax
def step(problem: Problem, hp: HParams, state: State) -> State:
    """One pass over the classes, and the best a after it."""
    tolerance = tolerances(problem, ACCURACY, hp.tolerance, state.scale, state.memory.norms)

    def visit(seen: _blocks.Block, carry):
        W, bias, steps = carry
        solved = solve_lanes(problem, logistic, -state.memory.a, W, bias, tolerance, seen)
        return solved.W, solved.bias, steps + solved.newton_steps

    carry = (state.W, state.bias, jnp.int32(0))
    W, bias, steps = _blocks.over_blocks(problem, state.W.shape[1], visit, carry)
    bias = centred(problem, bias) if problem.intercept else bias
    Z = scores(problem, W, bias)
    now = evaluate_at(problem, W, Z)
    numbers = dict(value=now.value, norm=now.norm, inner=all_sum(problem, steps))
    after = following(hp, state, W, bias, **numbers, memory=None)
    after = _with_bound(problem, hp, after, Z)
    return where_good(after.bound <= state.bound, after, state)


def _with_bound(problem: Problem, hp: HParams, state: State, Z) -> State:
    """The state with a, F and ∇F at its scores."""
    a = best_a(problem, Z)
    c, shifted = problem.weight, Z - a[:, None]
    slope = c[:, None] * (jax.nn.sigmoid(shifted) - targets(problem, Z.shape[1]).astype(Z.dtype))
    gradient = problem.l2 * state.W + problem.op.rmatmat(slope)
    squares = jnp.sum(gradient * gradient, axis=0)
    if problem.intercept:
        squares = squares + jnp.sum(slope, axis=0) ** 2
    sums = all_sum(problem, jnp.sum(jax.nn.softplus(shifted), axis=1) - own_scores(problem, Z))
    bound = problem.l2 / 2 * squared_norm(problem, state.W) + jnp.sum(c * (a + sums))
    norms = jnp.sqrt(squares)
    state = state._replace(
        bound=bound, stationarity=jnp.sqrt(all_sum(problem, jnp.sum(squares))), memory=Memory(a, norms)
    )
    return state._replace(status=next_status(hp, state))


def best_a(problem: Problem, Z):
    """a with Σ_k σ(z_k − a) = 1 in each row of Z [n, K], [n].

    Newton's method on log Σ σ, kept inside a bracket: Σ ≥ 1 at the smallest score, Σ ≤ 1 at the
    largest plus log(K − 1).
    """
    low = -all_max(problem, jnp.max(jnp.where(jnp.isfinite(Z), -Z, -jnp.inf), axis=1))
    highest = all_max(problem, jnp.max(Z, axis=1))
    high = highest + jnp.log(jnp.asarray(problem.classes - 1, Z.dtype))
    tolerance = 8 * jnp.finfo(Z.dtype).eps

    def unfinished(carry):
        *_, searching, count = carry
        return jnp.any(searching) & (count < MOST_STEPS_IN_A)

    def trial(carry):
        a, low, high, searching, count = carry
        share = jax.nn.sigmoid(Z - a[:, None])
        parts = jnp.stack([jnp.sum(share, axis=1), jnp.sum(share * (1 - share), axis=1)])
        total, slope = all_sum(problem, parts)
        low, high = jnp.where(total >= 1, a, low), jnp.where(total <= 1, a, high)
        newton = a + jnp.log(total) * total / jnp.where(slope > 0, slope, 1)
        inside = (slope > 0) & (newton > low) & (newton < high)
        trial_a = jnp.where(inside, newton, low + (high - low) / 2)
        done = (jnp.abs(total - 1) <= tolerance) | (high - low <= tolerance * (1 + jnp.abs(a)))
        searching = searching & ~done
        return jnp.where(searching, trial_a, a), low, high, searching, count + 1

    carry = (highest, low, high, jnp.ones(highest.shape, bool), jnp.int32(0))
    return jax.lax.while_loop(unfinished, trial, carry)[0]
