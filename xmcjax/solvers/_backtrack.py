"""Backtracking line search of many problems at once, one a lane."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def backtrack(change, slope, rounding, lanes, *, armijo, max_backtracks):
    """The largest t of 1, ½, ¼, … with f(t) − f(0) ≤ η t f'(0); t = 0 where none is found.

    `change` gives f(t) − f(0) of all lanes, summed row by row, so that it keeps its digits near the
    optimum; `rounding` is the error it may still have. `slope` is f'(0), [B]; `lanes` says which
    search. Returns t, [B], and which failed.
    """

    def unfinished(carry):
        return jnp.any(carry[1])

    def trial(carry):
        t, searching, failed, count = carry
        enough = change(t) <= armijo * t * slope + rounding
        searching = searching & ~enough
        lost = searching & (count >= max_backtracks)
        searching = searching & ~lost
        t = jnp.where(lost, 0, jnp.where(searching, t / 2, t)).astype(t.dtype)
        return t, searching, failed | lost, count + 1

    t = lanes.astype(slope.dtype)
    t, _, failed, _ = jax.lax.while_loop(unfinished, trial, (t, lanes, jnp.zeros_like(lanes), jnp.int32(0)))
    return t, failed
