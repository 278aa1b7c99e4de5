"""How far lanes move along their directions, and by how much they shift their biases, together.

The minimum of f over the plane of w + t d and b + t d_b + β,

    φ(t, β) = Σ c ℓ(z + t m + β) + λ (t wᵀd + ½ t² ‖d‖²) + ½ λ_b (b + t d_b + β)²,   m = X d + d_b,

by Newton's method on the margins alone: X is not multiplied. From a point that is worse than the best one so
far, the search goes back half the way. While (0, 0) is the best point, β goes back three quarters of the way,
because from there f is certain to fall only along d. The search stays in a box, t ≤ t_max and β ≤ β_max, and
widens it where a move leads out of it: the native step (native/newton/plane_search.h) looks only at rows that
may have a loss in the box. A fresh lane, which goes from zero to its starting weights, keeps t = 1.

On stackexchange_tags lanes with a mean-separating start took 4.0 Newton steps with this search, and
4.8 with a backtracking search for t followed by the minimum over β.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from xmcjax import native
from xmcjax.native import varying_like
from xmcjax.solvers._lane_cg import has_cg_kernels

if TYPE_CHECKING:
    from xmcjax.solvers._lane_problem import LaneProblem

# The same numbers are in native/newton/plane_search.h, which says more about them.
LONGEST = 2.0  #: the largest t
LEAST = 0.1  #: the part of t that one move leaves at least
FARTHEST = 2.0  #: the largest change of β by one move: the width of the hinge
FLAT = 1e-3  #: the search ends where a further move promises less than this part of the fall so far
MAX_TRIALS = 50
BACK, MOST_BIAS = 0.25, 2.0  #: the first β is −BACK t_0 d_b, with at most this d_b
ROOM = 1.25  #: t_max / t_0
BIAS_ROOM, FRESH_BIAS_ROOM = 0.02, 0.1  #: β_max − β_0, besides a tenth of |t_0 d_b|


class Plane(NamedTuple):
    """Lanes before their steps; arrays are [B] unless said otherwise."""

    fresh: jax.Array
    steps: jax.Array  #: steps made so far
    multiplier: jax.Array  #: t of the last step
    l2: jax.Array  #: []
    l2_bias: jax.Array  #: [], at least 0
    has_bias: jax.Array  #: []
    wd: jax.Array  #: wᵀd
    dd: jax.Array  #: ‖d‖²
    bias: jax.Array
    direction_bias: jax.Array
    value: jax.Array
    slope: jax.Array  #: f' along the direction
    bias_tolerance: jax.Array  #: of fresh lanes, on |∂f/∂b|


class Sums(NamedTuple):
    """Sums over the rows at a point (t, β); [B] each."""

    change: jax.Array  #: Σ c (ℓ(z + t m + β) − ℓ(z)), or Σ c ℓ(z + t m + β) in a fresh lane
    slope: jax.Array  #: Σ c ℓ'
    slope_m: jax.Array  #: Σ c ℓ' m
    curvature: jax.Array  #: Σ c ℓ''
    curvature_m: jax.Array  #: Σ c ℓ'' m
    curvature_mm: jax.Array  #: Σ c ℓ'' m²


class _Search(NamedTuple):
    t: jax.Array
    beta: jax.Array
    best_t: jax.Array
    best_beta: jax.Array
    best_change: jax.Array
    longest: jax.Array
    highest: jax.Array
    bias_room: jax.Array
    halvings: jax.Array
    searching: jax.Array
    failed: jax.Array
    trial: jax.Array  #: []


def rounding_error(value):
    """The rounding error that a change of f near this value may have."""
    return 2 * jnp.finfo(value.dtype).eps * jnp.abs(value)


def sums_along(problem: LaneProblem, z, m, fresh) -> Callable[[jax.Array, jax.Array], Sums]:
    """The sums over the rows of a problem, of margins z [n, B] and m [n, B]; fresh lanes are at z = 0.

    Where xmcjax-cuda multiplies X, they are made by one kernel that reads each array once.
    """
    op, loss, c, o = problem.op, problem.loss, problem.weight, problem.shift
    if has_cg_kernels(op) and loss.native is not None:
        kernel = functools.partial(native.cuda_plane_sums, loss.native, loss.parameter)
        return lambda t, beta: Sums(*kernel(z, m, problem.y, c, o, t, beta, fresh))
    y = problem.y.astype(m.dtype)
    z = jnp.where(fresh, 0, z)
    before = jnp.where(fresh, 0, c * loss.score_value(z + o, y))

    def sums(t, beta):
        at = z + t * m + beta + o
        slope, curvature = c * loss.score_grad(at, y), c * loss.score_curv(at, y)
        change = c * loss.score_value(at, y) - before
        terms = (change, slope, slope * m, curvature, curvature * m, curvature * m * m)
        return Sums(*(jnp.sum(term, axis=0) for term in terms))

    return sums


def plane_search(
    sums: Callable[[jax.Array, jax.Array], Sums], plane: Plane, lanes, *, armijo, max_halvings
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(t, β, which failed) of the lanes that search; 0 for the others and for those that failed."""
    dtype = plane.value.dtype
    fresh, turns = plane.fresh, ~plane.fresh

    def rounding(best_change):
        return rounding_error(jnp.where(fresh, best_change, plane.value))

    def advance(s: _Search) -> _Search:
        t, beta = s.t, s.beta
        at = sums(t, beta)
        b = plane.bias + t * plane.direction_bias + beta
        change = (
            at.change
            + plane.l2 * t * (plane.wd + t * plane.dd / 2)
            + plane.l2_bias / 2 * (b - plane.bias) * (b + plane.bias)
        )
        first = s.trial == 0
        finite = jnp.isfinite(change)
        worse = ~(first & fresh) & ~(change <= s.best_change + rounding(s.best_change))
        lost = first & fresh & ~finite  # the status will be NONFINITE
        back_t = (t + s.best_t) / 2
        back_beta = s.best_beta + jnp.where(s.best_t == 0, 0.25, 0.5) * (beta - s.best_beta)
        halves = worse & ~lost & (s.halvings < max_halvings) & ((back_t != t) | (back_beta != beta))

        better = ~worse & ~lost
        best_t, best_beta = jnp.where(better, t, s.best_t), jnp.where(better, beta, s.best_beta)
        best_change = jnp.where(better, change, s.best_change)
        # (0, 0), to which the search goes back, may lie outside of the box
        longest = jnp.where(better, jnp.maximum(s.longest, t), s.longest)
        highest = jnp.where(better, jnp.maximum(s.highest, beta), s.highest)

        pull = plane.l2_bias * plane.direction_bias
        g_b = at.slope + plane.l2_bias * b
        g_t = at.slope_m + plane.l2 * (plane.wd + t * plane.dd) + pull * b
        h_bb, h_tb = at.curvature + plane.l2_bias, at.curvature_m + pull
        h_tt = at.curvature_mm + plane.l2 * plane.dd + pull * plane.direction_bias
        determinant = h_tt * h_bb - h_tb * h_tb
        both = turns & plane.has_bias & (determinant > 1e-6 * h_tt * h_bb)
        of = jnp.where(both, determinant, 1)
        alone_t = jnp.where(turns & (h_tt > 0), -g_t / jnp.where(h_tt > 0, h_tt, 1), 0)
        alone_beta = jnp.where(h_bb > 0, -g_b / jnp.where(h_bb > 0, h_bb, 1), -FARTHEST * jnp.sign(g_b))
        dt = jnp.where(both, (h_tb * g_b - h_bb * g_t) / of, alone_t)
        dbeta = jnp.where(both, (h_tb * g_t - h_tt * g_b) / of, 0)
        blocked = (t >= LONGEST) & (dt > 0)
        dt, dbeta = jnp.where(blocked, 0, dt), jnp.where(blocked, 0, dbeta)
        dbeta = jnp.where(plane.has_bias & (dt == 0) & (dbeta == 0), alone_beta, dbeta)
        gain = -(g_t * dt + g_b * dbeta) / 2  # the quadratic model's promise for one more move
        flat = jnp.where(turns, ~(gain > FLAT * jnp.abs(change)), ~(jnp.abs(g_b) > plane.bias_tolerance))
        over = flat | (s.trial >= MAX_TRIALS)

        dbeta = jnp.clip(dbeta, -FARTHEST, FARTHEST)
        leaves = better & ~over & (((dt > 0) & (t >= longest)) | ((dbeta > 0) & (beta >= highest)))
        longest = jnp.where(leaves & turns, jnp.minimum(ROOM * longest, LONGEST), longest)
        highest = jnp.where(leaves, highest + s.bias_room, highest)
        bias_room = jnp.where(leaves, 2 * s.bias_room, s.bias_room)
        part = jnp.minimum(1, _share(longest - t, dt, t + dt > longest))  # as far as the box allows
        part = jnp.minimum(part, _share((LEAST - 1) * t, dt, t + dt < LEAST * t))
        part = jnp.minimum(part, _share(highest - beta, dbeta, beta + dbeta > highest))
        next_t, next_beta = t + part * dt, beta + part * dbeta
        moves = better & ~over & ((next_t != t) | (next_beta != beta))

        goes_on = s.searching & (halves | moves)
        ends = s.searching & ~goes_on
        end_t, end_beta = jnp.where(lost, t, best_t), jnp.where(lost, beta, best_beta)
        # The minimum over the plane may be at a t that rounds to zero: f then falls by β alone.
        falls = (end_t > 0) | (best_change < -rounding(best_change))
        enough = falls & (best_change <= armijo * end_t * plane.slope + rounding(best_change))
        failed = ends & turns & ~enough

        def choose(halved, moved, ended, old):
            following = jnp.where(halves, halved, moved)
            return jnp.where(goes_on, following, jnp.where(ends, ended, old)).astype(dtype)

        return _Search(
            t=choose(back_t, next_t, jnp.where(failed, 0, end_t), t),
            beta=choose(back_beta, next_beta, jnp.where(failed, 0, end_beta), beta),
            best_t=best_t,
            best_beta=best_beta,
            best_change=best_change,
            longest=longest,
            highest=highest,
            bias_room=bias_room,
            halvings=s.halvings + worse.astype(jnp.int32),
            searching=goes_on,
            failed=s.failed | failed,
            trial=s.trial + 1,
        )

    # The first steps of a lane are too long, each by less than the one before: t_0 is ½, then near the last.
    start = jnp.where(fresh, 1, jnp.where(plane.steps == 0, 0.5, (1 + 2 * plane.multiplier) / 3)).astype(
        dtype
    )
    of_bias = start * jnp.clip(plane.direction_bias, -MOST_BIAS, MOST_BIAS)
    beta = jnp.where(fresh, 0, -BACK * of_bias)
    room = jnp.where(fresh, FRESH_BIAS_ROOM, BIAS_ROOM + 0.1 * jnp.abs(of_bias))
    zero = jnp.zeros_like(plane.value)
    search = _Search(
        t=jnp.where(lanes, start, 0).astype(dtype),
        beta=jnp.where(lanes, beta, 0).astype(dtype),
        best_t=zero,
        best_beta=zero,
        best_change=zero,
        longest=jnp.where(fresh, 1, jnp.minimum(ROOM * start, LONGEST)).astype(dtype),
        highest=(beta + room).astype(dtype),
        bias_room=room.astype(dtype),
        halvings=jnp.zeros(zero.shape, jnp.int32),
        searching=lanes,
        failed=jnp.zeros_like(lanes),
        trial=jnp.int32(0),
    )
    search = varying_like(search, (plane, lanes))
    search = jax.lax.while_loop(lambda s: jnp.any(s.searching), advance, search)
    return search.t, search.beta, search.failed


def _share(room, move, limited):
    return jnp.where(limited, room / jnp.where(limited, move, 1), 1)
