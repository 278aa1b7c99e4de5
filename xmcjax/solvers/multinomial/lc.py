"""The log-concavity bound, class by class (Gopal and Yang 2013, Algorithm 1).

log γ ≤ a γ − log a − 1 with γ_i = Σ_k e^{z_ik} makes of G a bound that splits into classes,

    F(W, a) = λ/2 ‖W‖² + Σ_i c_i (Σ_k e^{z_ik + log a_i} − log a_i − 1 − z_{i,y_i}),

tight at a_i = 1/γ_i. Each iteration solves the class problems as lanes of newton_cg, whose steps
never raise F, and sets log a ← log a − log Σ_k e^{z_k + log a}. So G never rises, however far the
lanes are solved: to a tenth of the gradient that they start with. a_i begins at 1/K, W at 0.

The classes of a mesh need one all-reduce of n sums per iteration, and two numbers more for ‖∇G‖; where
a sum leaves [1e-20, 1e20], they need a second all-reduce with the maximum.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax.losses import poisson
from xmcjax.solvers.multinomial import _blocks
from xmcjax.solvers.multinomial._class_lanes import solve_lanes, tolerances
from xmcjax.solvers.multinomial._problem import (
    Problem,
    all_sum,
    centred,
    mean_over_classes,
    open_columns,
)
from xmcjax.solvers.multinomial._state import (
    HParams,
    State,
    following,
    starting_state,
    starting_weights,
    where_good,
)

# Part of their first gradient to which the class problems are solved.
ACCURACY = 0.1

CLASS_AXES = {"log_a": None, "norms": 0}


class Memory(NamedTuple):
    """What an iteration of LC hands to the next."""

    log_a: jax.Array  #: [n]
    norms: jax.Array  #: ‖∇G‖ of each class, [K]


@needs_threads_of_jax
def init(problem: Problem, hp: HParams, W0=None, b0=None, width: int | None = None) -> State:
    """The state at the starting weights; `state.inner` counts Newton steps, over all classes."""
    W, bias = starting_weights(problem, W0, b0, width)
    log_sums, own = _blocks.log_sums(problem, W, bias)
    norms = _blocks.gradient_norms(problem, W, bias, log_sums)
    at_zero = norms
    if W0 is not None or b0 is not None:
        uniform = jnp.full_like(log_sums, math.log(problem.classes))
        at_zero = _blocks.gradient_norms(problem, jnp.zeros_like(W), jnp.zeros_like(bias), uniform)
    penalty, norm, at_zero = all_sum(
        problem,
        jnp.stack([problem.l2 / 2 * jnp.sum(W * W), jnp.sum(norms * norms), jnp.sum(at_zero * at_zero)]),
    )
    value = penalty + jnp.sum(problem.weight * (log_sums - own))
    state = starting_state(problem, hp, W, bias, value, jnp.sqrt(norm), jnp.sqrt(at_zero))
    return state._replace(memory=Memory(-log_sums, norms))


@needs_threads_of_jax
def step(problem: Problem, hp: HParams, state: State) -> State:
    """One pass over the classes, and the best a after it."""

    def remember(made: Pass, norms):
        return Memory(made.log_a, norms)

    return advanced(problem, hp, state, state.memory.log_a, ACCURACY, remember, centre=False)


class Pass(NamedTuple):
    """What a pass over the classes leaves."""

    W: jax.Array
    bias: jax.Array
    log_a: jax.Array  #: −log Σ_k e^{z_ik}, [n]
    value: jax.Array  #: G
    bound: jax.Array  #: F at the new W and the a that it was solved for
    newton_steps: jax.Array


def over_classes(
    problem: Problem, hp: HParams, state: State, log_a, accuracy: float, *, centre: bool
) -> Pass:
    """Solves the class problems for a, and then for a in turn.

    `centre` takes the mean m over the classes from W, for which G pays and which no probability needs: with
    W ← W − m 1ᵀ and log a ← log a + X m the sum z + log a stays, and F and G fall by ½λK ‖m‖².
    """
    tolerance = tolerances(problem, accuracy, hp.tolerance, state.scale, state.memory.norms)

    def visit(seen: _blocks.Block, carry):
        W, bias, sums, own, steps = carry
        solved = solve_lanes(problem, poisson, log_a, W, bias, tolerance, seen)
        shifted = solved.Z + log_a[:, None]
        sums = sums + jnp.sum(jnp.where(seen.open, jnp.exp(shifted), 0), axis=1)
        # z_y + log a, small near the optimum, where z_y alone is not
        own = own + _blocks.block_own_scores(problem, shifted, seen)
        return solved.W, solved.bias, sums, own, steps + solved.newton_steps

    zero = jnp.zeros_like(log_a)
    carry = (state.W, state.bias, zero, zero, jnp.int32(0))
    W, bias, sums, own, newton_steps = _blocks.over_blocks(problem, state.W.shape[1], visit, carry)

    # the all-reduce: n sums and three numbers, and d sums for the mean
    rest = [problem.l2 / 2 * jnp.sum(W * W), jnp.sum(problem.weight * own), newton_steps.astype(sums.dtype)]
    parts = [sums, jnp.stack(rest), jnp.sum(W, axis=1) if centre else jnp.zeros(0, sums.dtype)]
    n = sums.shape[0]
    together = all_sum(problem, jnp.concatenate(parts))
    sums, (penalty, fit, newton_steps), total = together[:n], together[n : n + 3], together[n + 3 :]
    fine = jnp.all((sums >= 1e-20) & (sums <= 1e20))
    log_sums = jax.lax.cond(
        fine, lambda: jnp.log(sums), lambda: log_a + _blocks.log_sums(problem, W, bias)[0]
    )
    mean = total / problem.classes
    # ‖W − m 1ᵀ‖² = ‖W‖² − K ‖m‖²
    penalty = penalty - problem.l2 / 2 * problem.classes * jnp.sum(mean * mean)
    # log a ← log a − log Σ_k e^{z_k + log a}
    value = penalty - fit + jnp.sum(problem.weight * log_sums)
    bound = penalty - fit + jnp.sum(problem.weight * jnp.expm1(log_sums))
    log_a = log_a - log_sums
    # a moves with the means that are subtracted
    if centre:
        log_a = log_a + problem.op.matmat(mean[:, None])[:, 0]
        W = jnp.where(open_columns(problem, W.shape[1]), W - mean[:, None], 0)
    if problem.intercept:
        log_a = log_a + mean_over_classes(problem, bias)
        bias = centred(problem, bias)
    return Pass(W, bias, log_a, value, bound, newton_steps.astype(jnp.int32))


def advanced(
    problem: Problem, hp: HParams, state: State, log_a, accuracy: float, remember, *, centre: bool
) -> State:
    """The state after a pass with the given a, if G does not rise and F is finite; else `state`, ended.

    `remember(pass, norms)` makes the memory.
    """
    made = over_classes(problem, hp, state, log_a, accuracy, centre=centre)
    norms = _blocks.gradient_norms(problem, made.W, made.bias, -made.log_a)
    norm = jnp.sqrt(all_sum(problem, jnp.sum(norms * norms)))
    numbers = dict(value=made.value, norm=norm, bound=made.bound, inner=made.newton_steps)
    after = following(hp, state, made.W, made.bias, **numbers, memory=remember(made, norms))
    # false for NaN; an a far from the weights' own may let F overflow
    good = (made.value <= state.value) & jnp.isfinite(made.bound)
    return where_good(good, after, state)
