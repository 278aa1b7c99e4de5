"""Dual coordinate ascent over instances, with many cheap visits to the few variables that need them.

The dual variable of instance i is a distribution q_i over the classes; with Y the one-hot classes

    D(Q) = −λ/2 ‖W‖² − Σ_i c_i Σ_k q_ik log q_ik,    λ W = Xᵀ (c ∘ (Y − Q)),

and Q = P at the optimum. A visit makes q_i optimal, the others being fixed: with s = c_i ‖x_i‖²/λ,

    log q_k + s q_k = z_k + s q_k^old − ν,   Σ_k q_k = 1,

Newton's method in q and ν (Yu, Huang and Lin, "Dual coordinate descent methods for logistic
regression and maximum entropy models", 2011, solve it by sweeps over the classes). Visits need one row
of Z and change few rows of W, so that only the part of W that the row touches is moved.

Where s q_ik > 1 the coupling through W outweighs the entropy, and one visit per epoch is too few;
elsewhere one is enough. A round is an epoch over everything, and then epochs over the entries with
s q_ik > 1 alone, for as much work again. On text there are one or two such entries per instance.

An intercept b moves after each round by log(Σ_i c_i y_ik / Σ_i c_i q_ik), which is 0 at the optimum.

The objective D rises from visit to visit; G at W of the state need not fall. G − D(P) is
‖∇G‖²/(2λ), so that the gradient is a certificate. Rounds are native calls (native/softmax/simd_softmax.cc).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax import native
from xmcjax._fork import needs_threads_of_jax
from xmcjax.linops import Dense
from xmcjax.solvers.multinomial._problem import (
    Problem,
    centred,
    evaluate,
    log_normaliser,
    norm_at_zero,
    scores,
    targets,
)
from xmcjax.solvers.multinomial._state import HParams, State, following, starting_state, starting_weights

ROUNDS = 2  # between two evaluations of G


class Memory(NamedTuple):
    """What a round of dual ascent hands to the next."""

    log_q: jax.Array  #: [n, K]
    squared_norms: jax.Array  #: ‖x_i‖², [n]
    key: jax.Array  #: of the order of the visits


@needs_threads_of_jax
def init(problem: Problem, hp: HParams, W0=None, b0=None, seed: int = 0) -> State:
    """The state before the first round; `state.inner` counts epochs.

    Args:
        problem: with CSR features on the native kernels.
        hp: of the stopping rule.
        W0: [d, K]; the dual starts from its probabilities. None starts near the targets.
        b0: [K], or None.
        seed: of the order of the visits.

    Raises:
        ValueError: features without native kernels.
    """
    if not problem.native:
        here = 'make them there, in jax.default_device(jax.devices("cpu")[0])'
        remedy = f"found others: {here}"
        if isinstance(problem.op, Dense):
            remedy = "found dense ones: give a sparse matrix"
        elif not native.available():
            remedy = "found no kernels, of which `xmcjax info` says why: install them"
        raise ValueError(
            f"dual: expected CSR features on the native kernels of the CPU, {remedy}, or take newton"
        )
    W, bias = starting_weights(problem, W0, b0)
    squared_norms = problem.op.row_norms2()
    Y = targets(problem, problem.classes).astype(problem.op.dtype)
    if W0 is None:
        # Large s: the data decide, Q = Y; small s: the regulariser does, Q is uniform.
        s = jnp.mean(problem.weight * squared_norms) / problem.l2
        share = 1 / (1 + s / jnp.log(jnp.asarray(problem.classes, s.dtype)))
        log_q = jnp.log(share / problem.classes + (1 - share) * Y)
    else:
        Z = scores(problem, W, bias)
        log_q = Z - log_normaliser(problem, Z)[:, None]
    W = problem.op.rmatmat(problem.weight[:, None] * (Y - jnp.exp(log_q))) / problem.l2
    now = evaluate(problem, W, bias)
    at_zero = norm_at_zero(problem, problem.classes)
    state = starting_state(problem, hp, W, bias, now.value, now.norm, at_zero)
    return state._replace(memory=Memory(log_q, squared_norms, jax.random.key_data(jax.random.key(seed))))


@needs_threads_of_jax
def step(problem: Problem, hp: HParams, state: State) -> State:
    """`ROUNDS` rounds, and G."""
    memory: Memory = state.memory
    W, log_q, bias, inner = state.W, memory.log_q, state.bias, jnp.int32(0)
    key = jax.random.wrap_key_data(memory.key)
    for _ in range(ROUNDS):
        key, now = jax.random.split(key)
        order = jax.random.permutation(now, problem.y.shape[0]).astype(jnp.int32)
        visited = native.call(
            "softmax_round",
            X=problem.csr,
            weight=problem.weight,
            squared_norms=memory.squared_norms,
            bias=bias,
            order=order,
            l2=problem.l2,
            W=W,
            log_p=log_q,
        )
        W, log_q = visited["W"], visited["log_p"]
        inner = inner + 1 + visited["counts"][1]
        if problem.intercept:
            bias = centred(problem, bias + _intercept_step(problem, memory, log_q))
    memory = Memory(log_q, memory.squared_norms, jax.random.key_data(key))
    now = evaluate(problem, W, bias)
    return following(hp, state, W, bias, value=now.value, norm=now.norm, inner=inner, memory=memory)


def _intercept_step(problem: Problem, memory: Memory, log_q):
    c = problem.weight
    wanted = jax.ops.segment_sum(c, problem.y, problem.classes)
    q = jnp.exp(log_q)
    s = (c * memory.squared_norms / problem.l2)[:, None]
    # Σ_i c_i q / (1 + s q): the curvature in b that is left when q_i answers a change of b
    found, curvature = c @ q, c @ (q / (1 + s * q))
    return jnp.clip((wanted - found) / jnp.maximum(curvature, jnp.finfo(q.dtype).tiny), -1, 1)
