"""Passes over the classes block by block, so that no array of the size of the scores is kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xmcjax.solvers.multinomial._problem import (
    Problem,
    all_max,
    all_sum,
    first_class,
    open_columns,
    own_scores,
    targets,
)

LANES = 64


class Blocks(NamedTuple):
    """W and b in blocks of columns, the last filled up with zeros."""

    W: jax.Array  #: [blocks, d, lanes]
    bias: jax.Array  #: [blocks, lanes]


class View(NamedTuple):
    """A block of the classes of this device."""

    first: Any  #: the class of its column 0
    open: jax.Array  #: bool [lanes], the columns that are classes
    targets: jax.Array  #: bool [n, lanes]


def split(W, bias) -> Blocks:
    """[d, K] and [K] in blocks of at most ``LANES`` columns."""
    d, width = W.shape
    lanes = min(width, LANES)
    count = -(-width // lanes)
    missing = count * lanes - width
    W = jnp.pad(W, ((0, 0), (0, missing))).reshape(d, count, lanes)
    return Blocks(jnp.moveaxis(W, 1, 0), jnp.pad(bias, (0, missing)).reshape(count, lanes))


def join(blocks: Blocks, width: int):
    """(W [d, width], b [width])."""
    count, d, lanes = blocks.W.shape
    W = jnp.moveaxis(blocks.W, 0, 1).reshape(d, count * lanes)
    return W[:, :width], blocks.bias.reshape(-1)[:width]


def numbers(blocks: Blocks):
    """0 … blocks − 1, to go over them with."""
    return jnp.arange(blocks.W.shape[0], dtype=jnp.int32)


def view(problem: Problem, width: int, lanes: int, block) -> View:
    """What the columns of a block are.

    Args:
        problem: of the classes.
        width: columns of this device, without the filling of its last block.
        lanes: columns of a block.
        block: its number.
    """
    column = block * lanes + jnp.arange(lanes, dtype=jnp.int32)
    first = first_class(problem, width) + block * lanes
    open_ = open_columns(problem, lanes, first) & (column < width)
    return View(first, open_, targets(problem, lanes, first) & open_[None, :])


def block_scores(problem: Problem, W, bias, seen: View):
    """Z of a block, −∞ in its filling columns."""
    return jnp.where(seen.open, problem.op.matmat(W) + bias[None, :], -jnp.inf)


def log_sums(problem: Problem, W, bias):
    """(log Σ_k e^{z_ik}, z_{i,y_i}) over all classes, both [n]."""
    blocks, width = split(W, bias), W.shape[1]
    n, lanes = problem.y.shape[0], blocks.W.shape[2]

    def add(carry, arguments):
        top, sums, own = carry
        number, W, bias = arguments
        seen = view(problem, width, lanes, number)
        Z = block_scores(problem, W, bias, seen)
        higher = jnp.maximum(top, jnp.max(Z, axis=1))
        # a device whose columns are all filling has seen nothing yet
        base = jnp.where(jnp.isfinite(higher), higher, 0)
        sums = sums * jnp.exp(top - base) + jnp.sum(jnp.exp(Z - base[:, None]), axis=1)
        return (higher, sums, own + own_scores(problem, Z, seen.first)), None

    zero = jnp.zeros(n, W.dtype)
    (top, sums, own), _ = jax.lax.scan(add, (zero - jnp.inf, zero, zero), (numbers(blocks), *blocks))
    highest = all_max(problem, top)
    sums = all_sum(problem, sums * jnp.exp(top - highest))
    return highest + jnp.log(sums), all_sum(problem, own)


def gradient_norms(problem: Problem, W, bias, log_sums):
    """‖∇G‖ of each class of this device at known log Σ_k e^{z_ik}, [K]."""
    blocks, width = split(W, bias), W.shape[1]
    lanes = blocks.W.shape[2]

    def one(arguments):
        number, W, bias = arguments
        seen = view(problem, width, lanes, number)
        P = jnp.exp(block_scores(problem, W, bias, seen) - log_sums[:, None])
        slope = problem.weight[:, None] * (P - seen.targets.astype(P.dtype))
        gradient = problem.l2 * W + problem.op.rmatmat(slope)
        squares = jnp.sum(gradient * gradient, axis=0)
        return jnp.sqrt(squares + jnp.sum(slope, axis=0) ** 2 if problem.intercept else squares)

    return jax.lax.map(one, (numbers(blocks), *blocks)).reshape(-1)[:width]
