"""What all methods share: their state, when they stop, where they start."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xmcjax.solvers._base import Status
from xmcjax.solvers.multinomial import _blocks
from xmcjax.solvers.multinomial._problem import Problem, all_sum


class HParams(NamedTuple):
    """Numbers of the stopping rule.

    Attributes:
        tolerance: ‖∇G‖ ≤ tolerance · ‖∇G(0)‖ ends a run (of DM: the gradient of its own objective).
        max_steps: outer iterations.
    """

    tolerance: float = 1e-4
    max_steps: int = 1000


class State(NamedTuple):
    """After an outer iteration of any of the methods."""

    W: jax.Array  #: [d, K]
    bias: jax.Array  #: [K], 0 without intercept
    value: jax.Array  #: G
    gradient_norm: jax.Array  #: ‖∇G‖
    bound: jax.Array  #: of LC and DM the value of their bound; G elsewhere
    stationarity: jax.Array  #: what the stopping rule compares: ‖∇G‖, of DM that of its own objective
    scale: jax.Array  #: ‖∇G(0)‖, 1 where that is nothing but rounding
    status: jax.Array  #: int32, of :class:`xmcjax.solvers.Status`
    steps: jax.Array  #: int32, outer iterations made
    inner: jax.Array  #: int32, inner steps made; what they are depends on the method
    memory: Any  #: what the method keeps from one iteration to the next


class Start(NamedTuple):
    """The state before the first iteration, its memory left to the method, and what comes with it."""

    state: State
    log_sums: jax.Array  #: log Σ_k e^{z_ik}, [n]
    norms: jax.Array  #: ‖∇G‖ of each class, [K]


def start(problem: Problem, hp: HParams, W0, b0, width: int | None = None) -> Start:
    """The weights, the objective and its gradient that a run begins with.

    Args:
        problem: to be solved.
        hp: of the stopping rule.
        W0: [d, K], or None for 0.
        b0: [K], or None for 0.
        width: columns of this device, where W0 is None; K by default.

    Raises:
        ValueError: weights of another shape.
    """
    dtype, d = problem.op.dtype, problem.op.shape[1]
    width = problem.classes if width is None else width
    W = jnp.zeros((d, width), dtype) if W0 is None else jnp.array(W0, dtype)
    bias = jnp.zeros(W.shape[1:], dtype) if b0 is None else jnp.array(b0, dtype)
    if W.shape != (d, width) or bias.shape != (width,):
        raise ValueError(f"expected starting weights [{d}, {problem.classes}], got {list(W.shape)}")
    log_sums, own = _blocks.log_sums(problem, W, bias)
    norms = _blocks.gradient_norms(problem, W, bias, log_sums)
    if W0 is None and b0 is None:
        at_zero = norms
    else:
        uniform = jnp.full_like(log_sums, math.log(problem.classes))
        at_zero = _blocks.gradient_norms(problem, jnp.zeros_like(W), jnp.zeros_like(bias), uniform)
    penalty, norm, scale = all_sum(
        problem,
        jnp.stack([problem.l2 / 2 * jnp.sum(W * W), jnp.sum(norms * norms), jnp.sum(at_zero * at_zero)]),
    )
    value, norm, scale = penalty + jnp.sum(problem.weight * (log_sums - own)), jnp.sqrt(norm), jnp.sqrt(scale)
    rounding = 8 * jnp.finfo(dtype).eps * jnp.sqrt(jnp.sum(problem.weight**2))
    state = State(
        W=W,
        bias=bias,
        value=value,
        gradient_norm=norm,
        bound=value,
        stationarity=norm,
        scale=jnp.where(scale > rounding, scale, 1).astype(dtype),
        status=jnp.int32(Status.RUNNING),
        steps=jnp.int32(0),
        inner=jnp.int32(0),
        memory=None,
    )
    return Start(state._replace(status=next_status(hp, state)), log_sums, norms)


def next_status(hp: HParams, state: State):
    """RUNNING, or how the run ended with this state."""
    ended = jnp.where(state.steps >= hp.max_steps, Status.MAX_STEPS, Status.RUNNING)
    small = state.stationarity <= jnp.asarray(hp.tolerance, state.W.dtype) * state.scale
    ended = jnp.where(small, Status.CONVERGED, ended)
    finite = jnp.isfinite(state.value) & jnp.isfinite(state.stationarity)
    return jnp.where(finite, ended, Status.NONFINITE).astype(jnp.int32)
