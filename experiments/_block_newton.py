"""Block-diagonal Newton for multinomial logistic regression: the curvature of the softmax, class by class.

Of the Hessian of G only the diagonal blocks, one per class, are kept, λ I + Xᵀ diag(c p_k (1 − p_k)) X; their
systems are lanes of CG, solved to a tenth of the gradient. The line search of the joint method safeguards
the step, because the steps of all classes together are no Newton step and may be too long.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from xmcjax.solvers import Status
from xmcjax.solvers._cg import cg
from xmcjax.solvers.multinomial import HParams, Problem, State, newton

ACCURACY = 0.1

init = newton.init


def step(problem: Problem, hp: HParams, state: State) -> State:
    """The steps of all classes and one line search; `state.inner` counts the CG steps of the slowest lane."""
    memory: newton.Memory = state.memory
    P = jnp.exp(memory.Z - memory.log_sums[:, None])
    curvature = problem.weight[:, None] * P * (1 - P)

    def product(V):
        U = problem.op.matmat(V[:-1]) + (V[-1:] if problem.intercept else 0)
        R = curvature * U
        last = jnp.sum(R, axis=0) if problem.intercept else jnp.zeros_like(V[-1])
        return jnp.concatenate([problem.l2 * V[:-1] + problem.op.rmatmat(R), last[None, :]])

    gradient = jnp.concatenate([memory.gradient, memory.bias_gradient[None, :]])
    one = jnp.ones((), gradient.dtype)
    lanes = jnp.ones(gradient.shape[1], bool)
    direction, steps, _ = cg(
        product, -gradient, one, lanes, tolerance=ACCURACY * one, max_steps=newton.MAX_CG
    )
    return newton.moved(problem, hp, state, direction, jnp.max(steps))


def solve(problem: Problem, hp: HParams, observe: Callable[[State], None]) -> Status:
    """Iterates from the start of Newton's method until the gradient is small enough.

    Args:
        problem: with at least two classes.
        hp: of the stopping rule.
        observe: called with each state; its arrays are valid until it returns.
    """
    state = jax.jit(init)(problem, hp)
    one_step = jax.jit(step, donate_argnames="state")
    observe(state)
    while int(state.status) == Status.RUNNING:
        state = one_step(problem, hp, state)
        observe(state)
    return Status(int(state.status))
