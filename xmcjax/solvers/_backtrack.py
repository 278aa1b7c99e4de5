"""Backtracking line search of many problems at once, one per lane."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def backtrack(change, slope, rounding, lanes, *, armijo, max_backtracks, factor=0.5):
    """The largest t of 1, α, α², … with f(t) − f(0) ≤ η t f'(0); t = 0 where none is found.

    `change` gives f(t) − f(0) of all lanes, summed row by row, so that it keeps its digits near the
    optimum; `rounding` is the error it may still have. `slope` is f'(0), [B]; `lanes` says which
    lanes search; `factor` is α. Returns t, [B], and which lanes failed.
    """

    def unfinished(carry):
        return jnp.any(carry[1])

    def trial(carry):
        t, searching, count = carry
        searching = searching & ~(change(t) <= armijo * t * slope + rounding)
        shorter = jnp.where(count < max_backtracks, factor * t, 0).astype(t.dtype)
        return jnp.where(searching, shorter, t), searching & (count < max_backtracks), count + 1

    carry = (lanes.astype(slope.dtype), lanes, jnp.int32(0))
    t, _, _ = jax.lax.while_loop(unfinished, trial, carry)
    return t, lanes & (t == 0)
