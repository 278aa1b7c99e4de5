"""What all methods share: their state, when they stop, where they start."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xmcjax.solvers._base import Status
from xmcjax.solvers.multinomial._problem import (
    Evaluation,
    Problem,
    evaluate_at,
    log_normaliser,
    norm_at_zero,
    scores,
)


class HParams(NamedTuple):
    """Numbers of the stopping rule.

    Attributes:
        tolerance: a run has converged where it is certain that G − min G ≤ tolerance · G (of DM: in its own
            objective). Where W lowers G by only the part g, compared with the best b alone, G − min G must
            be at most g² G, as far as rounding allows. 0: the gradient alone decides.
        max_steps: outer iterations.
        gradient_tolerance: a run must also have ‖∇G‖ ≤ gradient_tolerance · ‖∇G(0)‖. None: block_newton has
            no such condition, as it knows its decrement; the other methods take the tolerance.

    Example:
        >>> HParams(tolerance=1e-6).max_steps
        1000
    """

    tolerance: float = 1e-4
    max_steps: int = 1000
    gradient_tolerance: float | None = None


class State(NamedTuple):
    """The state after an outer iteration of any of the methods.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers.multinomial import HParams, initial, multinomial_problem
        >>> problem = multinomial_problem(linops.make([[1.0], [-1.0]]), [0, 1], lam=1.0)
        >>> state = initial(problem, HParams(), None, None, method="newton")
        >>> state.W.shape, round(float(state.value), 3)  # 2 log 2
        ((1, 2), 1.386)
    """

    W: jax.Array  #: [d, K]
    bias: jax.Array  #: [K], 0 without intercept
    value: jax.Array  #: G
    gradient_norm: jax.Array  #: ‖∇G‖
    bound: jax.Array  #: of LC and DM the value of their bound; G elsewhere
    stationarity: jax.Array  #: what the stopping rule compares: ‖∇G‖, or ‖∇F‖ of DM's own objective F
    scale: jax.Array  #: ‖∇G(0)‖, 1 where that is nothing but rounding
    status: jax.Array  #: int32, of :class:`xmcjax.solvers.Status`
    steps: jax.Array  #: int32, outer iterations made
    inner: jax.Array  #: int32, inner steps made; what they are depends on the method
    memory: Any  #: what the method keeps from one iteration to the next


def starting_weights(problem: Problem, W0, b0, width: int | None = None, module: Any = jnp):
    """(W, b) with which a run begins, [d, width] and [width].

    Args:
        problem: to be solved.
        W0: [d, width], or None for 0.
        b0: [width], or None for 0.
        width: columns of this device; None for K.
        module: jnp, or np, with which nothing is compiled.

    Raises:
        ValueError: weights of another shape.
    """
    dtype, d = problem.op.dtype, problem.op.shape[1]
    width = problem.classes if width is None else width
    W = module.zeros((d, width), dtype) if W0 is None else module.array(W0, dtype)
    bias = module.zeros(width, dtype) if b0 is None else module.array(b0, dtype)
    if W.shape != (d, width) or bias.shape != (width,):
        raise ValueError(f"expected starting weights [{d}, {problem.classes}], got {list(W.shape)}")
    return W, bias


def starting_state(problem: Problem, hp: HParams, W, bias, value, norm, at_zero) -> State:
    """The state before the first iteration, its memory left to the method.

    Args:
        problem: to be solved.
        hp: of the stopping rule.
        W, bias: [d, K] and [K].
        value, norm: G and ‖∇G‖ there.
        at_zero: ‖∇G(0)‖.
    """
    dtype = W.dtype
    squares = problem.op.row_norms2() + int(problem.intercept)
    rounding = 8 * jnp.finfo(dtype).eps * jnp.sqrt(jnp.sum(problem.weight**2 * squares))
    state = State(
        W=W,
        bias=bias,
        value=value,
        gradient_norm=norm,
        bound=value,
        stationarity=norm,
        scale=jnp.where(at_zero > rounding, at_zero, 1).astype(dtype),
        status=jnp.int32(Status.RUNNING),
        steps=jnp.int32(0),
        inner=jnp.int32(0),
        memory=None,
    )
    return state._replace(status=next_status(hp, state))


def following(
    hp: HParams, state: State, W, bias, *, value, norm, inner, memory, bound=None, failed: Any = False
) -> State:
    """The state after one more iteration.

    Args:
        hp: of the stopping rule.
        state: before it.
        W, bias: the weights after it.
        value, norm: G and ‖∇G‖ there.
        inner: inner steps of the iteration.
        memory: for the next iteration.
        bound: of LC; None for G.
        failed: whether a line search found no step, which ends a run that would go on.
    """
    state = state._replace(
        W=W,
        bias=bias,
        value=value,
        gradient_norm=norm,
        bound=value if bound is None else bound,
        stationarity=norm,
        steps=state.steps + 1,
        inner=state.inner + inner,
        memory=memory,
    )
    status = next_status(hp, state)
    ended = jnp.where(failed & (status == Status.RUNNING), Status.LINE_SEARCH_FAILED, status)
    return state._replace(status=ended.astype(jnp.int32))


def where_good(good, after: State, before: State) -> State:
    """`after` where the iteration was good, else `before`, with which the run ends."""
    ended = before._replace(steps=after.steps, inner=after.inner, status=jnp.int32(Status.LINE_SEARCH_FAILED))
    return jax.tree.map(lambda a, b: jnp.where(good, a, b), after, ended)


class Start(NamedTuple):
    """The state before the first iteration, its memory left to the method, and what comes with it."""

    state: State
    Z: jax.Array  #: [n, K]
    log_sums: jax.Array  #: log Σ_k e^{z_ik}, [n]
    now: Evaluation


def start(problem: Problem, hp: HParams, W0, b0, width: int | None = None) -> Start:
    """Where a method begins that keeps all scores; the arguments are those of :func:`starting_weights`."""
    W, bias = starting_weights(problem, W0, b0, width)
    Z = scores(problem, W, bias)
    log_sums = log_normaliser(problem, Z)
    now = evaluate_at(problem, W, Z, log_sums)
    at_zero = now.norm if W0 is None and b0 is None else norm_at_zero(problem, W.shape[1])
    return Start(starting_state(problem, hp, W, bias, now.value, now.norm, at_zero), Z, log_sums, now)


def next_status(hp: HParams, state: State):
    """RUNNING, or how the run ended with this state."""
    ended = jnp.where(state.steps >= hp.max_steps, Status.MAX_STEPS, Status.RUNNING)
    least = hp.tolerance if hp.gradient_tolerance is None else hp.gradient_tolerance
    small = state.stationarity <= jnp.asarray(least, state.W.dtype) * state.scale
    ended = jnp.where(small, Status.CONVERGED, ended)
    finite = jnp.isfinite(state.value) & jnp.isfinite(state.stationarity)
    return jnp.where(finite, ended, Status.NONFINITE).astype(jnp.int32)
