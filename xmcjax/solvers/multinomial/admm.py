"""ADMM on the scores: consensus Z = X W + 1 bᵀ (Gopal and Yang 2013, section 3.4; Boyd and others, 2011).

With the scaled dual U and the penalty ρ

    W, b ← argmin λ/2 ‖W‖² + ρ/2 ‖X W + 1 bᵀ − Z + U‖²        one ridge regression, K right-hand sides
    z_i ← argmin c_i (log Σ_k e^{z_k} − z_{y_i}) + ρ/2 ‖z − v_i‖²,  V = X W + 1 bᵀ + U
    U ← U + X W + 1 bᵀ − Z.

The ridge regression is solved by CG from the W before, to a hundredth of its residual. At the minimum
over z, z = v + (c/ρ)(e_y − p) with p = softmax(z): with s = c/ρ

    log p + s p = v + s e_y − ν,   Σ_k p_k = 1,

is solved by Newton's method in p and ν. ρ begins at ρ₀ = c (1 − 1/K) / K, the curvature of the loss at equal
probabilities, near which it comes to rest. It is doubled or halved where the residuals of the constraint,
‖X W − Z‖, and of the dual, in its unit ρ/ρ₀ ‖ΔZ‖, are a factor of ten apart (Boyd, section 3.4.1): in the
first iterations only, because convergence needs a fixed ρ. The objective of the state is that of W, not of Z.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax.native import ref
from xmcjax.solvers._cg import cg
from xmcjax.solvers.multinomial._problem import (
    Problem,
    all_sum,
    centred,
    evaluate_at,
    open_columns,
    squared_norm,
    targets,
)
from xmcjax.solvers.multinomial._state import HParams, State, following, start

MAX_CG = 50
CG_TOLERANCE = 0.01
ADAPTED = 200  # iterations in which ρ moves

CLASS_AXES = {"Z": 1, "U": 1, "log_p": 1, "rho": None}


class Memory(NamedTuple):
    """What an iteration of ADMM hands to the next."""

    Z: jax.Array  #: [n, K]
    U: jax.Array  #: [n, K]
    log_p: jax.Array  #: of the last Z, [n, K]; where the next begins
    rho: jax.Array  #: []


@needs_threads_of_jax
def init(problem: Problem, hp: HParams, W0=None, b0=None, width: int | None = None) -> State:
    """The state at the starting weights; `state.inner` counts CG steps, over all classes."""
    begin = start(problem, hp, W0, b0, width)
    Z = jnp.where(open_columns(problem, begin.Z.shape[1]), begin.Z, 0)
    log_p = Z - begin.log_sums[:, None]
    memory = Memory(Z, jnp.zeros_like(Z), log_p, _curvature(problem).astype(Z.dtype))
    return begin.state._replace(memory=memory)


@needs_threads_of_jax
def step(problem: Problem, hp: HParams, state: State) -> State:
    """One iteration."""
    Z, U, log_p, rho = state.memory
    W, bias, cg_steps = _ridge(problem, state, Z - U, rho)
    scores = problem.op.matmat(W) + bias[None, :]
    V = scores + U
    next_Z, log_p = _prox(problem, V, rho, log_p)
    U = V - next_Z

    apart = squared_norm(problem, jnp.where(open_columns(problem, Z.shape[1]), scores - next_Z, 0))
    unit = (rho / _curvature(problem)) ** 2
    moved = unit * squared_norm(problem, jnp.where(open_columns(problem, Z.shape[1]), next_Z - Z, 0))
    factor = jnp.where(apart > 100 * moved, 2.0, jnp.where(moved > 100 * apart, 0.5, 1.0))
    factor = jnp.where(state.steps < ADAPTED, factor, 1.0).astype(rho.dtype)

    open_scores = jnp.where(open_columns(problem, Z.shape[1]), scores, -jnp.inf)
    now = evaluate_at(problem, W, open_scores)
    memory, inner = Memory(next_Z, U / factor, log_p, rho * factor), all_sum(problem, cg_steps)
    return following(hp, state, W, bias, value=now.value, norm=now.norm, inner=inner, memory=memory)


def _curvature(problem: Problem):
    """c (1 − 1/K) / K, with the mean c of the rows whose weight is above 0."""
    counted = jnp.maximum(jnp.sum((problem.weight > 0).astype(problem.weight.dtype)), 1)
    return jnp.sum(problem.weight) / counted * (problem.classes - 1) / problem.classes**2


def _ridge(problem: Problem, state: State, wanted, rho):
    """(W, b, CG steps) of argmin λ/2 ‖W‖² + ρ/2 ‖X W + 1 bᵀ − wanted‖²."""
    op, l2 = problem.op, problem.l2

    def product(V):  # on [d+1, K], the last row for b
        fitted = op.matmat(V[:-1]) + (V[-1:] if problem.intercept else 0)
        last = jnp.sum(fitted, axis=0) if problem.intercept else V[-1]
        return jnp.concatenate([l2 * V[:-1] + rho * op.rmatmat(fitted), rho * last[None, :]])

    missing = wanted - op.matmat(state.W) - state.bias[None, :]
    last = rho * jnp.sum(missing, axis=0) if problem.intercept else jnp.zeros_like(state.bias)
    right = jnp.concatenate([rho * op.rmatmat(missing) - l2 * state.W, last[None, :]])
    open_ = open_columns(problem, state.W.shape[1])
    change, steps, _ = cg(
        product, right, jnp.ones((), right.dtype), open_, tolerance=CG_TOLERANCE, max_steps=MAX_CG
    )
    change = jnp.where(open_, change, 0)
    bias = centred(problem, state.bias + change[-1]) if problem.intercept else state.bias
    return state.W + change[:-1], bias, jnp.sum(steps, dtype=jnp.int32)


def _prox(problem: Problem, V, rho, log_p):
    """(Z, log P): argmin_z c (log Σ e^z − z_y) + ρ/2 ‖z − v‖² in each row."""
    s = problem.weight / rho
    own = targets(problem, V.shape[1])
    t = V + jnp.where(own, s[:, None], 0)
    chosen = jnp.broadcast_to(open_columns(problem, V.shape[1]), V.shape)
    total = jnp.ones_like(s)
    found, steps = ref.solve_rows(t, s, total, log_p, chosen, lambda x: all_sum(problem, x))
    log_p = jnp.where((steps > 0)[:, None], found, log_p)
    # z = v + (c/ρ)(e_y − p)
    return V + s[:, None] * (own.astype(V.dtype) - jnp.where(chosen, jnp.exp(log_p), 0)), log_p
