"""Joint truncated Newton with conjugate gradients and matrix-free products with the Hessian of G.

A product with V [d, K] is λ V + Xᵀ (c ∘ (P ∘ U − P ∘ (P∘U 1) 1ᵀ)), U = X V: two products with X and
a few passes over [n, K]. CG stops early (Dembo and Steihaug, 1983), far from the optimum at half the
gradient; the line search runs on the scores, X is not multiplied again.

Eliminating b from the Newton system of the jointly convex relaxation Σ_k e^{z_k − b} + b − 1 of the
log-concavity bound gives the same system: this is that method too.

On a mesh one CG step costs one all-reduce of n sums.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers._backtrack import backtrack
from xmcjax.solvers._cg import cg
from xmcjax.solvers.multinomial._problem import (
    Evaluation,
    Problem,
    all_sum,
    centred,
    evaluate_at,
    log_normaliser,
    own_scores,
)
from xmcjax.solvers.multinomial._state import HParams, State, following, start

MAX_CG = 250
ARMIJO = 1e-4
MAX_BACKTRACKS = 30

# Which axis of an array of the memory is that of the classes.
CLASS_AXES = {"Z": 1, "log_sums": None, "gradient": 1, "bias_gradient": 0}


class Memory(NamedTuple):
    """What a Newton step hands to the next."""

    Z: jax.Array  #: [n, K]
    log_sums: jax.Array  #: [n], log Σ_k e^{z_ik}
    gradient: jax.Array  #: [d, K]
    bias_gradient: jax.Array  #: [K]


@needs_threads_of_jax
def init(problem: Problem, hp: HParams, W0=None, b0=None, width: int | None = None) -> State:
    """The state at the starting weights; `state.inner` counts CG steps."""
    state, Z, log_sums, now = start(problem, hp, W0, b0, width)
    return state._replace(memory=Memory(Z, log_sums, now.gradient, now.bias_gradient))


@needs_threads_of_jax
def step(problem: Problem, hp: HParams, state: State) -> State:
    """One Newton step."""
    return moved(problem, hp, state, *_direction(problem, state))


def moved(problem: Problem, hp: HParams, state: State, direction, cg_steps) -> State:
    """The state after a line search along a direction of descent.

    Args:
        problem, hp, state: as of :func:`step`.
        direction: [d+1, K], the last row for b.
        cg_steps: CG steps that the direction took, [].
    """
    memory: Memory = state.memory
    D, db = direction[:-1], direction[-1]
    db = centred(problem, db) if problem.intercept else jnp.zeros_like(db)
    U = problem.op.matmat(D) + db[None, :]
    slope = all_sum(problem, jnp.sum(memory.gradient * D) + jnp.sum(memory.bias_gradient * db))
    t, failed = _search(problem, state, D, U, slope)

    W, bias = state.W + t * D, state.bias + t * db
    Z = memory.Z + t * U  # −∞ stays where it was
    log_sums = log_normaliser(problem, Z)
    now: Evaluation = evaluate_at(problem, W, Z, log_sums)
    memory = Memory(Z, log_sums, now.gradient, now.bias_gradient)
    made = dict(value=now.value, norm=now.norm, inner=cg_steps, memory=memory, failed=failed)
    return following(hp, state, W, bias, **made)


def hessian(problem: Problem, Z, log_sums):
    """V ↦ (∇²G) V of [d+1, K], the last row for b, at scores whose log Σ_k e^{z_ik} is known."""
    c, P = problem.weight[:, None], jnp.exp(Z - log_sums[:, None])

    def product(V):
        U = problem.op.matmat(V[:-1])
        if problem.intercept:
            U = U + V[-1:]
        # c (diag(p) − p pᵀ) u
        R = P * U
        R = c * (R - P * all_sum(problem, jnp.sum(R, axis=1))[:, None])
        last = jnp.sum(R, axis=0) if problem.intercept else jnp.zeros_like(V[-1])
        return jnp.concatenate([problem.l2 * V[:-1] + problem.op.rmatmat(R), last[None, :]])

    return product


def solve_system(problem: Problem, product, right, *, tolerance, max_steps):
    """(x with ∇²G x = right, CG steps), x and right [d+1, K]; `product` is that of :func:`hessian`."""
    x, steps, _ = cg(
        product,
        right,
        jnp.ones((), right.dtype),
        jnp.ones(1, bool),
        tolerance=tolerance,
        max_steps=max_steps,
        dot=lambda a, b: all_sum(problem, jnp.sum(a * b))[None],
    )
    return x, steps[0]


def _direction(problem: Problem, state: State):
    """(−H⁻¹∇G as [d+1, K], the last row for b; CG steps)."""
    memory: Memory = state.memory
    product = hessian(problem, memory.Z, memory.log_sums)
    gradient = jnp.concatenate([memory.gradient, memory.bias_gradient[None, :]])
    forcing = jnp.minimum(0.5, jnp.sqrt(state.gradient_norm / state.scale))
    return solve_system(problem, product, -gradient, tolerance=forcing, max_steps=MAX_CG)


def _search(problem: Problem, state: State, D, U, slope):
    """(t, failed): the largest t of 1, ½, ¼, … with G(t) − G(0) ≤ η t G'(0), on the scores."""
    memory: Memory = state.memory
    WD, DD = all_sum(problem, jnp.stack([jnp.sum(state.W * D), jnp.sum(D * D)]))
    own = all_sum(problem, own_scores(problem, U))
    rounding = 4 * jnp.finfo(U.dtype).eps / 2 * jnp.abs(state.value)

    def change(t):
        # row by row, so that the difference keeps its digits near the optimum
        losses = log_normaliser(problem, memory.Z + t * U) - memory.log_sums - t * own
        return jnp.sum(problem.weight * losses) + problem.l2 * t * (WD + t / 2 * DD)

    searches = jnp.asarray(True)
    return backtrack(change, slope, rounding, searches, armijo=ARMIJO, max_backtracks=MAX_BACKTRACKS)
