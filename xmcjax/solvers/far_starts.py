"""Lanes that started far from where they end: X w + b is computed anew before they count as converged.

A step adds to the scores, z ← z + t m + β, so that they keep the rounding of the largest ones on the way, ε
times those of the start. That is little where the weights of the start have about the size of those at the
end. Where they are far larger, gradient and value at the end are those of other scores than X w + b.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax.native import varying_like
from xmcjax.solvers._base import Status

#: How many times as large as the weights at the end a start may be and leave no more than a little rounding.
FARTHER = 16.0
#: z is taken for X w + b if they differ by at most this many times ε times the largest score, or times 1.
ROUNDINGS = 32.0
#: A bound on the scores of a start up to which their rounding is taken for none.
LARGE = 128.0


def size(w, bias):
    """‖(w, b)‖ of each lane, [B], without the squares of large numbers."""
    largest = jnp.maximum(jnp.max(jnp.abs(w), axis=0, initial=0), jnp.abs(bias))
    scale = jnp.where(largest > 0, largest, 1)
    return scale * jnp.sqrt(jnp.sum((w / scale) ** 2, axis=0) + (bias / scale) ** 2)


def largest_start(state, before):
    """The size of the largest weights of each lane since z was multiplied out, as far as it is known, [B].

    Args:
        state: between two steps.
        before: the result before some steps, [B]; 0 where nothing is known.
    """
    fresh = state.status == Status.FRESH
    starts = size(state.direction, state.direction_bias)
    return jnp.where(fresh, starts, jnp.maximum(before, size(state.w, state.bias)))


def multiplied_out(problem, start, state):
    """The state, in which lanes whose scores are not those of their weights start again from the weights.

    Args:
        problem: of the lanes.
        start: of :func:`largest_start`, before the steps that led here.
        state: of lanes of which some have ended.
    """
    far = (state.status == Status.CONVERGED) & (start > FARTHER * size(state.w, state.bias))
    # in shard_map vmap makes X vary where it selects between the branches, which know of none then
    op = varying_like(problem.op, far)

    def looked_at():
        again = far & drifted(op.matmat(jnp.where(far, state.w, 0)) + state.bias, state.z)
        return state._replace(
            direction=jnp.where(again, state.w, state.direction),
            direction_bias=jnp.where(again, state.bias, state.direction_bias),
            status=jnp.where(again, Status.FRESH, state.status).astype(jnp.int32),
        )

    return jax.lax.cond(jnp.any(far), looked_at, lambda: state)


def drifted(exact, z):
    """Whether z [n, B] is farther from X w + b, which is `exact`, than rounding; [B], of NumPy or JAX."""
    most = ROUNDINGS * np.finfo(z.dtype).eps * abs(exact).max(axis=0, initial=0).clip(1)
    return ~(abs(exact - z).max(axis=0, initial=0) <= most)
