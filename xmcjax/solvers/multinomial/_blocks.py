"""Passes over the classes block by block, so that no array of the size of the scores is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xmcjax.solvers.multinomial._problem import (
    Problem,
    all_max,
    all_sum,
    first_class,
    open_columns,
    targets,
)

LANES = 64


class Block(NamedTuple):
    """Some of the columns of this device."""

    start: Any  #: the column of this device with which the block begins
    first: Any  #: the class of that column
    open: jax.Array  #: bool [lanes]: columns that are classes and in no earlier block
    targets: jax.Array  #: bool [n, lanes]


def block_width(width: int) -> int:
    """Columns of a block, of `width` columns in all."""
    return min(width, LANES)


def block(problem: Problem, width: int, number) -> Block:
    """One of the blocks; the last reaches back into the one before it where it would be short.

    Args:
        problem: of the classes.
        width: columns of this device.
        number: of the block.
    """
    lanes = block_width(width)
    start = jnp.minimum(number * lanes, width - lanes).astype(jnp.int32)
    first = first_class(problem, width) + start
    fresh = start + jnp.arange(lanes, dtype=jnp.int32) >= number * lanes
    open_ = open_columns(problem, lanes, first) & fresh
    return Block(start, first, open_, targets(problem, lanes, first))


def over_blocks(problem: Problem, width: int, visit: Callable, carry):
    """carry ← visit(block, carry) over the blocks of this device."""
    count = -(-width // block_width(width))
    return jax.lax.fori_loop(0, count, lambda k, carry: visit(block(problem, width, k), carry), carry)


def columns(a, seen: Block):
    """The columns of a block, of an array whose last axis is that of the classes."""
    return jax.lax.dynamic_slice_in_dim(a, seen.start, seen.open.shape[0], axis=-1)


def with_columns(a, seen: Block, new):
    """`a` with new values in the open columns of a block."""
    kept = jnp.where(seen.open, new, columns(a, seen))
    return jax.lax.dynamic_update_slice_in_dim(a, kept, seen.start, axis=-1)


def block_scores(problem: Problem, W, bias, seen: Block):
    """Z of a block, −∞ in columns that are not open."""
    Z = problem.op.matmat(columns(W, seen)) + columns(bias, seen)[None, :]
    return jnp.where(seen.open, Z, -jnp.inf)


def block_own_scores(problem: Problem, Z, seen: Block):
    """z_{i,y_i} where that class is among the open columns of a block, else 0; [n]."""
    return jnp.sum(jnp.where(seen.targets & seen.open, Z, 0), axis=1)


def log_sums(problem: Problem, W, bias):
    """(log Σ_k e^{z_ik}, z_{i,y_i}) over all classes, both [n]."""

    def add(seen, carry):
        top, sums, own = carry
        Z = block_scores(problem, W, bias, seen)
        higher = jnp.maximum(top, jnp.max(Z, axis=1))
        # a device none of whose columns is a class has no finite score
        base = jnp.where(jnp.isfinite(higher), higher, 0)
        sums = sums * jnp.exp(top - base) + jnp.sum(jnp.exp(Z - base[:, None]), axis=1)
        return higher, sums, own + block_own_scores(problem, Z, seen)

    zero = jnp.zeros(problem.y.shape, W.dtype)
    top, sums, own = over_blocks(problem, W.shape[1], add, (zero - jnp.inf, zero, zero))
    highest = all_max(problem, top)
    sums = all_sum(problem, sums * jnp.exp(top - highest))
    return highest + jnp.log(sums), all_sum(problem, own)


def gradient_norms(problem: Problem, W, bias, log_sums):
    """‖∇G‖ of each class of this device at known log Σ_k e^{z_ik}, [K]."""

    def one(seen, norms):
        P = jnp.exp(block_scores(problem, W, bias, seen) - log_sums[:, None])
        slope = problem.weight[:, None] * (P - (seen.targets & seen.open).astype(P.dtype))
        gradient = problem.l2 * columns(W, seen) + problem.op.rmatmat(slope)
        squares = jnp.sum(gradient * gradient, axis=0)
        if problem.intercept:
            squares = squares + jnp.sum(slope, axis=0) ** 2
        return with_columns(norms, seen, jnp.sqrt(squares))

    return over_blocks(problem, W.shape[1], one, jnp.zeros_like(bias))
