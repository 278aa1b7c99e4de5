"""An epoch of dual ascent over instances, and its duality gap, in plain JAX.

The twin of native/dual/simd_instance_dual.cc: the same visits in the same order, equal up to rounding,
on any device. Lanes are vmapped; a lane that is not wanted keeps its arrays.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._pytrees import pytree
from xmcjax._sizes import filled_length
from xmcjax.linops import Dense, LinOp
from xmcjax.solvers._base import Status

# Least number of entries to which all rows are filled up.
_WIDTH = 8


def _dot(a, b):
    return jnp.matmul(a, b, precision="highest")


class DenseRows(NamedTuple):
    """X [n, d]; weights [m, d]."""

    X: jax.Array

    def take(self, ids):
        return self.X[ids]

    def scores(self, block, weights):
        return _dot(block, weights.T)

    def gram(self, block):
        return _dot(block, block.T)

    def add(self, block, weights, change):
        return weights + _dot(change.T, block)


class GramRows(NamedTuple):
    """The matrix K of inner products [n, n]; weights are the scores of all instances, [m, n]."""

    K: jax.Array

    def take(self, ids):
        return ids, self.K[ids]

    def scores(self, block, weights):
        return weights[:, block[0]].T

    def gram(self, block):
        return block[1][:, block[0]]

    def add(self, block, weights, change):
        return weights + _dot(change.T, block[1])


@pytree(data_fields=["value", "column"], meta_fields=["d"])
@dataclasses.dataclass(frozen=True)
class PaddedRows:
    """The non-zeros of each row of X, padded with zeros, [n, width]; weights [d, m]."""

    value: jax.Array
    column: jax.Array
    d: int

    def take(self, ids):
        return self.value[ids], self.column[ids]

    def scores(self, block, weights):
        value, column = block
        return jnp.einsum("bw,bwm->bm", value, weights[column], precision="highest")

    def gram(self, block):
        value, column = block
        dense = jnp.zeros((len(value), self.d), value.dtype)
        dense = dense.at[jnp.arange(len(value))[:, None], column].add(value)
        return _dot(dense, dense.T)

    def add(self, block, weights, change):
        value, column = block
        return weights.at[column].add(value[:, :, None] * change[:, None, :])


#: Features as rows. `take` makes a block of the numbers of b instances; its `scores` are [b, classes], `gram`
#: gives products of its rows, [b, b], and `add` the weights after its coefficients changed by [b, classes].
Rows = DenseRows | GramRows | PaddedRows


def rows_of(op: LinOp) -> Rows:
    """The rows of an operator."""
    if isinstance(op, Dense):
        return DenseRows(op.X)
    X = op.to_scipy().copy()  # type: ignore[attr-defined]  # there is no other operator
    X.eliminate_zeros()  # of rows that are filled up
    counts = np.diff(X.indptr)
    row = np.repeat(np.arange(X.shape[0]), counts)
    place = np.arange(X.nnz) - np.repeat(X.indptr[:-1], counts)
    width = min(filled_length(int(counts.max(initial=0)), _WIDTH), max(1, X.shape[1]))
    value = np.zeros((X.shape[0], width), X.dtype)
    column = np.zeros(value.shape, np.int32)
    value[row, place], column[row, place] = X.data, X.indices
    return PaddedRows(jnp.asarray(value), jnp.asarray(column), X.shape[1])


def mixed(h):
    """The last steps of MurmurHash3, of uint32."""
    h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    return h ^ (h >> 16)


def order_of(seed, epoch, n: int):
    """The visits of an epoch: a shuffle (Fisher and Yates) by a hash of seed, epoch and place."""
    golden = jnp.uint32(0x9E3779B9)
    start = mixed(seed + epoch.astype(jnp.uint32) * golden)
    places = jnp.arange(n, dtype=jnp.uint32)
    other = (mixed(start + places * golden) % (places + 1)).astype(jnp.int32)

    def swap(step, order):
        i = n - 1 - step
        j = other[i]
        a, b = order[i], order[j]
        return order.at[i].set(b).at[j].set(a)

    return jax.lax.fori_loop(0, n - 1, swap, jnp.arange(n, dtype=jnp.int32))


def _inner(x, h):
    """⟨x, h⟩; x is 0 where h is −inf."""
    return jnp.sum(jnp.where(x > 0, x * h, 0), axis=-1)


def epoch(rows: Rows, problem, hp, state):
    """(weights, dual, gap, objective, changed) after an epoch of the running lanes.

    The gap and the dual objective are those that the visits found on their way.
    """

    def lane(k, gamma, bound, running, epochs, weights, dual):
        order = order_of(state.seed, epochs, bound.shape[0])
        new = _lane_epoch(rows, problem, hp, order, bound, k, gamma, weights, dual)
        old = (weights, dual, *(jnp.zeros_like(a) for a in new[2:]))
        return jax.tree.map(lambda a, b: jnp.where(running, a, b), new, old)

    running = state.status == Status.RUNNING
    of_lanes = problem.gamma, problem.bound, running, state.epochs, state.weights, state.dual
    return _over_lanes(lane, problem, *of_lanes)


def _over_lanes(f, problem, *arrays):
    """f(k, ...) for every lane; lanes of the same k, which the projections need to know, side by side."""
    parts, places = [], []
    for k in sorted(set(problem.known_k)):
        lanes = np.flatnonzero(np.asarray(problem.known_k) == k)
        parts.append(jax.vmap(functools.partial(f, k))(*(a[lanes] for a in arrays)))
        places.append(lanes)
    back = np.argsort(np.concatenate(places))
    return jax.tree.map(lambda *a: jnp.concatenate(a)[back], *parts) if len(parts) > 1 else parts[0]


def _lane_epoch(rows: Rows, problem, hp, order, bound, k, gamma, weights, dual):
    n, size = order.shape[0], hp.block_for(problem.classes)
    formulation = problem.smoothed(gamma)
    eps = jnp.finfo(weights.dtype).eps
    # instances without a loss are left out of the blocks
    counted = bound[order] > 0
    order = order[jnp.argsort(~counted, stable=True)]
    blocks = -(-n // size)
    order = jnp.pad(order, (0, blocks * size - n)).reshape(blocks, size)
    valid = (jnp.arange(blocks * size) < jnp.sum(counted)).reshape(blocks, size)

    def one_block(carry, entries):
        weights, dual = carry
        ids, valid = entries
        block = rows.take(ids)
        gram = rows.gram(block)
        y, norm2, r = problem.y[ids], problem.squared_norms[ids], bound[ids]

        def visit(step, carry):
            z, x, change, totals = carry
            p, first = step % size, step < size
            h, old = formulation.gains(z[p], y[p]), x[p]
            total, inner = jnp.sum(old), _inner(old, h)
            best = formulation.best(h, old, y[p], norm2[p], r[p], k)
            finite = jnp.all(jnp.isfinite(z[p]))
            # rounding is that of the largest entry: it can be far below the bound, with long rows or large k
            most = jnp.max(best)
            moved = (jnp.abs(best - old) > eps * most) | ((best == 0) & (old > 0))
            new = jnp.where(moved & finite & valid[p], best, old)
            delta = new - old
            # W += x_i (a_i − a_i^old)ᵀ
            delta_a = formulation.coefficients(delta, y[p])
            penalty = formulation.penalty(old, r[p])
            gap = jnp.where(finite, r[p] * formulation.losses(h, k) - inner + penalty, jnp.nan)
            objective = (total + inner) / 2 - penalty
            seen = jnp.stack([gap, objective, jnp.any(delta != 0).astype(gap.dtype)])
            counts = jnp.stack([first, first, jnp.asarray(True)]) & valid[p]
            return (
                z + gram[:, p, None] * delta_a,
                x.at[p].set(new),
                change.at[p].add(delta_a),
                totals + jnp.where(counts, seen, 0),
            )

        z, x = rows.scores(block, weights), dual[ids]
        start = z, x, jnp.zeros_like(z), jnp.zeros(3, z.dtype)
        _, x, change, totals = jax.lax.fori_loop(0, hp.sweeps * size, visit, start)
        # the filling repeats instance numbers: it must not be written
        dual = dual.at[jnp.where(valid, ids, n)].set(x, mode="drop")
        return (rows.add(block, weights, change), dual), totals

    (weights, dual), totals = jax.lax.scan(one_block, (weights, dual), (order, valid))
    estimate, objective, changed = jnp.sum(totals, axis=0)
    return weights, dual, estimate, objective, changed.astype(jnp.int32)


def gap(rows: Rows, problem, hp, weights, dual):
    """(primal, dual objective, gap, support) of every lane, at once for blocks of instances."""
    n = problem.y.shape[0]
    size = hp.block_for(problem.classes)
    blocks = -(-n // size)
    ids = jnp.minimum(jnp.arange(blocks * size), n - 1).reshape(blocks, size)
    valid = (jnp.arange(blocks * size) < n).reshape(blocks, size)

    def lane(k, gamma, bound, weights, dual):
        formulation = problem.smoothed(gamma)

        def one_block(sums, entries):
            ids, valid = entries
            h = formulation.gains(rows.scores(rows.take(ids), weights), problem.y[ids])
            x, r = dual[ids], bound[ids]
            inner, total = _inner(x, h), jnp.sum(x, axis=-1)
            losses = r * formulation.losses(h, k)
            # rφ − ⟨x, h⟩ + ½ρ‖x‖² summed is P − D, and ⟨a_i, z_i⟩ = 1ᵀx − ⟨x, h⟩ summed is ‖W‖²
            penalty = formulation.penalty(x, r)
            part = (total + inner) / 2 - penalty
            seen = jnp.stack([losses - inner + penalty, part, (total != 0).astype(h.dtype)])
            counted = valid & (r > 0)
            return sums + jnp.sum(jnp.where(counted, seen, 0), axis=1), None

        sums, _ = jax.lax.scan(one_block, jnp.zeros(3, weights.dtype), (ids, valid))
        return sums[0] + sums[1], sums[1], sums[0], sums[2].astype(jnp.int32)

    return _over_lanes(lane, problem, problem.gamma, problem.bound, weights, dual)
