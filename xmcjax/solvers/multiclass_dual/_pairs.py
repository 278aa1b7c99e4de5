"""An epoch with pairs of classes as lanes: Weston-Watkins.

Alber et al. 2017 (paper 001), Algorithms 3 and 4. A dual variable α_ic touches w_{y_i} and w_c only,
so pairs of classes that have no class in common are independent. A round is a perfect matching of the
classes; a lane is one of its pairs and visits the instances of both classes in random order. It needs
w_a − w_b alone: the sum of the two stays as it is.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax.solvers.multiclass_dual._problem import MulticlassProblem
from xmcjax.solvers.multiclass_dual._schedule import round_count, round_pairs


def epoch(problem: MulticlassProblem, W, alpha, active, key, tolerance):
    """Plays all rounds, in random order; arguments as in ``_class_lanes.epoch``.

    Rounds without an active variable are left out.
    """
    n, m = problem.y.shape[0], problem.classes
    instances, rounds = jax.random.split(key)
    rank = jax.random.permutation(instances, jnp.arange(n, dtype=jnp.int32))
    # the instances class by class, by rank within a class
    order = jnp.lexsort((rank, problem.y)).astype(jnp.int32)
    first = jnp.cumsum(problem.sizes) - problem.sizes
    lists = (order, rank, first.astype(jnp.int32))

    # how many variables of class y against class c are active, in rounds
    open_ = jax.ops.segment_sum(active.astype(jnp.int32), problem.y, num_segments=m)
    open_ = open_ + open_.T

    def worth(r):
        a, b = round_pairs(m, r, jnp)
        return jnp.any(open_[a, b] > 0)

    number = jax.random.permutation(rounds, jnp.arange(round_count(m), dtype=jnp.int32))
    played = jax.lax.map(worth, number)
    number = number[jnp.argsort(~played)]  # those to be played come first

    def play(j, carry):
        W, alpha = carry
        a, b = round_pairs(m, number[j], jnp)
        return _play(problem, W, alpha, active, tolerance, lists, a, b)

    return jax.lax.fori_loop(0, jnp.sum(played, dtype=jnp.int32), play, (W, alpha))


def _play(problem: MulticlassProblem, W, alpha, active, tolerance, lists, a, b):
    """One round: lane p optimises classes a[p] against b[p]."""
    order, rank, first = lists
    sizes, C, n = problem.sizes, problem.C, problem.y.shape[0]
    longest_first = jnp.argsort(-(sizes[a] + sizes[b]))
    a, b = a[longest_first], b[longest_first]

    def visit(lanes, carry, _):
        V, alpha, at_a, at_b = carry
        ca, cb = a[:lanes], b[:lanes]
        # the two lists are merged by rank: of the instances next in line the one that comes first
        has_a, has_b = at_a < sizes[ca], at_b < sizes[cb]
        next_a = order[jnp.minimum(first[ca] + at_a, n - 1)]
        next_b = order[jnp.minimum(first[cb] + at_b, n - 1)]
        from_a = has_a & (~has_b | (rank[next_a] < rank[next_b]))
        i, c = jnp.where(from_a, next_a, next_b), jnp.where(from_a, cb, ca)
        sign = jnp.where(from_a, 1, -1).astype(V.dtype)
        row, old, k = problem.rows.take(i), alpha[i, c], problem.norms2[i]
        # g = 1 − (w_{y_i} − w_c)·x_i;  δ = clip(g / 2k, −α, C − α)
        g = 1 - sign * row.lane_dot(V)
        blocked = ((old <= 0) & (g < 0)) | ((old >= C) & (g > 0))
        violation = jnp.where(blocked, 0, jnp.abs(g))
        new = jnp.clip(old + jnp.where(k > 0, g / jnp.where(k > 0, 2 * k, 1), C * g), 0, C)
        moves = (has_a | has_b) & active[i, c] & (violation > tolerance)
        delta = jnp.where(moves, new - old, 0)
        # w_{y_i} += δ x_i, w_c −= δ x_i
        V = row.lane_add(V, 2 * sign * delta)
        alpha = alpha.at[i, c].set(jnp.where(moves, new, old))
        at_a = at_a + from_a.astype(jnp.int32)
        return (V, alpha, at_a, at_b + (has_b & ~from_a).astype(jnp.int32)), None

    before = W[:, a] - W[:, b]
    V = before
    at_a = at_b = jnp.zeros(len(a), jnp.int32)
    for lanes, steps in problem.segments:
        carry = (V[:, :lanes], alpha, at_a[:lanes], at_b[:lanes])
        (some, alpha, some_a, some_b), _ = jax.lax.scan(
            lambda carry, x, lanes=lanes: visit(lanes, carry, x), carry, None, length=steps
        )
        V = V.at[:, :lanes].set(some)
        at_a, at_b = at_a.at[:lanes].set(some_a), at_b.at[:lanes].set(some_b)
    half = (V - before) / 2
    return W.at[:, a].add(half).at[:, b].add(-half), alpha
