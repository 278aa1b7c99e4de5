"""Joint L-BFGS on G, five corrections, as the paper's baseline (section 4); Liu and Nocedal, 1989."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers.multinomial._problem import WHOLE, Evaluation, Form, Problem
from xmcjax.solvers.multinomial._state import HParams, State, following, starting_state, starting_weights

CORRECTIONS = 5
# Over a mesh the compiler splits the vectors of optax; only G and its gradient are told how to be split.
SPLIT_BY_COMPILER = True


class Memory(NamedTuple):
    """What a step of L-BFGS hands to the next."""

    optimiser: Any  #: of optax
    gradient: Any  #: of (W, b), as the form keeps them


@functools.cache
def _optimiser():
    import optax

    return optax.lbfgs(memory_size=CORRECTIONS)


@functools.cache
def _value(evaluate: Callable[..., Evaluation]):
    """G, whose derivative is what `evaluate` gives with it: (weights, problem) -> G."""

    @jax.custom_vjp
    def value(weights, problem: Problem):
        return evaluate(problem, *weights).value

    def forward(weights, problem):
        now = evaluate(problem, *weights)
        return now.value, (now.gradient, now.bias_gradient)

    def backward(gradients, cotangent):
        return jax.tree.map(lambda g: cotangent * g, gradients), None

    value.defvjp(forward, backward)
    return value


def _strong(optimiser):
    """The optimiser's state without weak types. A step does not keep them, and would be compiled twice."""
    return jax.tree.map(lambda a: jnp.asarray(a, a.dtype), optimiser)


@needs_threads_of_jax
def init(
    problem: Problem,
    hp: HParams,
    W0=None,
    b0=None,
    width: int | None = None,
    form: Form = WHOLE,
) -> State:
    """The state at the starting weights; `state.inner` counts values and gradients of G.

    Args:
        problem, hp, W0, b0: of every method.
        width: columns of W; None for K.
        form: of the weights, which may be split over a mesh.
    """
    W, bias = starting_weights(problem, W0, b0, width)
    weights = form.kept(W), bias
    now = form.evaluate(problem, *weights)
    at_zero = now.norm
    if W0 is not None or b0 is not None:
        at_zero = form.evaluate(problem, *jax.tree.map(jnp.zeros_like, weights)).norm
    state = starting_state(problem, hp, W, bias, now.value, now.norm, at_zero)
    memory = Memory(_strong(_optimiser().init(weights)), (now.gradient, now.bias_gradient))
    return state._replace(memory=memory)


@needs_threads_of_jax
def step(problem: Problem, hp: HParams, state: State, form: Form = WHOLE) -> State:
    """One step with its line search (zoom); the arguments are those of :func:`init`."""
    import optax

    memory: Memory = state.memory
    weights = form.kept(state.W), state.bias

    def value_fn(weights):
        # the line search of optax takes float64 steps wherever JAX has them
        return _value(form.evaluate)(jax.tree.map(lambda w: w.astype(problem.op.dtype), weights), problem)

    with jax.numpy_dtype_promotion("standard"):  # optax mixes int32 and int64
        updates, optimiser = _optimiser().update(
            memory.gradient,
            memory.optimiser,
            weights,
            value=state.value,
            grad=memory.gradient,
            value_fn=value_fn,
        )
        W, bias = optax.apply_updates(weights, updates)
    search = optimiser[-1]
    value = search.value.astype(W.dtype)
    gradient = jax.tree.map(lambda g: g.astype(W.dtype), search.grad)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradient))
    trials = search.info.num_linesearch_steps.astype(jnp.int32)
    memory, failed = Memory(optimiser, gradient), search.learning_rate == 0
    made = dict(value=value, norm=norm, inner=trials, memory=memory, failed=failed)
    return following(hp, state, form.columns(W), bias, **made)
