"""The continuous quadratic knapsack problem with weights and bounds of each entry.

    min ½‖x − b‖²  with  wᵀx = r,  l ≤ x ≤ u

Its solution is x = min(max(b − t w, l), u) with one threshold t per vector. wᵀx falls as t rises, along
pieces of slope −Σ w² over the entries that are free, and t is where it equals r. Newton's method finds it for
all vectors at once; steps that leave the bounds found so far halve the floats between these. On a CPU with
the native library native/projections/weighted.h does the same, and on a GPU with xmcjax-cuda
cuda/src/weighted_rows.h.

Source: K. Kiwiel, "Variable fixing algorithms for the continuous quadratic knapsack problem", 2008.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from xmcjax import native
from xmcjax.projections import _devices
from xmcjax.projections._threshold import between, dense, of_points

# Steps after which every step halves the floats between the bounds, of which there are fewer than 2^64.
_NEWTON_STEPS = 48
# _RESTS: searches after the first, by bytes of the dtype. The products t w are rounded, so that each rest is
# some 2^22 (float64: 2^51) times smaller than the one before: this many reach from the largest float32 to a
# radius of 1. _SMALLER: a rest that is not smaller than this part of the one before is rounding itself, as
# where wᵀx = 0 is made of terms that are not 0.
_RESTS, _SMALLER = {4: 6, 8: 3}, 1 / 1024


@jax.custom_jvp
def weighted_projection(b, radius, lower, upper, weights):
    """(x [..., m], NaN where there is no solution, and t [...]); all but the radius [...] are [..., m]."""
    arguments = b, radius, lower, upper, weights
    return _devices.on_device(arguments, twin=_jnp_project, kernel="project_weighted")


def _jnp_project(b, radius, lower, upper, weights):
    # entries of −inf are left out: they have the lower bound
    left_out = jnp.isneginf(b)
    upper = jnp.where(left_out, lower, upper)
    ends = [_product(weights, bound) for bound in (lower, upper)]
    least, most = jnp.minimum(*ends), jnp.maximum(*ends)
    sizes = [jnp.where(jnp.isfinite(end), jnp.abs(end), 0) for end in ends]
    slack = 4 * jnp.finfo(b.dtype).eps * jnp.maximum(*sizes).sum(-1)
    reached = (radius >= least.sum(-1) - slack) & (radius <= most.sum(-1) + slack)
    proper = (b < jnp.inf) & (lower <= upper) & jnp.isfinite(weights) & ~(left_out & jnp.isneginf(lower))
    bad = ~(reached & jnp.all(proper, axis=-1))
    finite = jnp.where(left_out | ~proper, 0, b)
    arguments = (lower, upper, weights, radius)
    t, _ = _search(finite, left_out, *arguments, bad)
    size = jnp.abs(radius) + jnp.minimum(*sizes).sum(-1)
    # a second search begins at t: its result is a difference, in which nothing large cancels; further ones
    # follow where b is so large that this rest is rough too
    near, rough, whole = finite, ~bad, t
    for _ in range(_RESTS[b.dtype.itemsize]):
        near, before = near - t[..., None] * weights, t
        t, x = _search(near, left_out, *arguments, ~rough)
        whole = whole + t
        rough &= jnp.abs(t) * jnp.max(jnp.abs(weights), axis=-1) > 4 * size
        rough &= jnp.abs(t) < _SMALLER * jnp.abs(before)
    return jnp.where(bad[..., None], jnp.nan, x), whole


def _product(weights, bound):
    return jnp.where(weights == 0, 0, weights * bound)


def _search(b, left_out, lower, upper, weights, radius, done):
    """(t, x) of x = min(max(b − t w, l), u) with wᵀx = r."""

    def point(t):
        moved = jnp.where(left_out, -jnp.inf, b - t[..., None] * weights)
        return moved, jnp.clip(moved, lower, upper)

    def body(carry):
        steps, t, low, high, done = carry
        moved, x = point(t)
        free = (moved > lower) & (moved < upper)
        off = jnp.sum(_product(weights, x), axis=-1) - radius
        slope = jnp.sum(jnp.where(free, weights * weights, 0), axis=-1)
        newton = t + off / slope
        low, high = jnp.where(off > 0, t, low), jnp.where(off < 0, t, high)
        inside = (slope > 0) & (newton > low) & (newton < high) & (steps < _NEWTON_STEPS)
        new = jnp.where(inside, newton, between(low, high))
        stop = (off == 0) | jnp.isnan(off) | ((slope > 0) & (newton == t)) | (new == low) | (new == high)
        return (steps + 1, jnp.where(done | stop, t, new), low, high, done | stop)

    # one count per vector: where vmap adds an axis of an explicit mesh, a constant would not be of that mesh;
    # and where a device of shard_map has its own vectors, each has its own t, whoever gave the radius
    steps, zero = (jnp.where(done, 0, jnp.zeros_like(radius, kind)) for kind in (jnp.int32, radius.dtype))
    carry = (steps, zero, zero - jnp.inf, zero + jnp.inf, done)
    t = jax.lax.while_loop(lambda carry: jnp.any(~carry[-1]), body, carry)[1]
    return t, point(t)[1]


@functools.partial(weighted_projection.defjvp, symbolic_zeros=True)
def _(primals, tangents):
    b, _, lower, upper, weights = primals
    sum_moves = not all(isinstance(tangent, SymbolicZero) for tangent in tangents[1:])
    db, dradius, dlower, dupper, dweights = map(dense, primals, tangents)
    x, t = weighted_projection(*primals)
    # where the radius leaves a single point, b − t w differs from the bound by rounding
    rounding = 4 * jnp.finfo(x.dtype).eps * jnp.abs(x)
    at_lower = x - lower <= rounding
    at_upper = (upper - x <= rounding) & ~at_lower
    free = ~(at_lower | at_upper)
    first, end = jnp.zeros_like(free), t
    if sum_moves:  # else an entry that is freed at a vertex stays where it is
        at_vertex = ~jnp.any(free & (weights != 0), axis=-1, keepdims=True)
        first, leaves = _first_to_move(b, lower, upper, weights, at_lower, at_upper)
        first &= at_vertex
        # at a vertex t is any number of an interval, at whose end the first entries leave their bounds
        end = jnp.where(first.any(-1), leaves, t)
    # on the free entries dx = db − t dw − w dt, and wᵀx = r says dt; those that move first begin at a bound
    moved = jnp.where(free, db - end[..., None] * dweights, jnp.where(at_upper, dupper, dlower))
    free, moved = free | first, jnp.where(first, 0, moved)
    slope = jnp.sum(jnp.where(free, weights * weights, 0), axis=-1)
    off = jnp.sum(weights * moved + x * dweights, axis=-1) - dradius
    dt = jnp.where(slope > 0, off / jnp.where(slope > 0, slope, 1), 0)
    dx = jnp.where(free, moved - weights * dt[..., None], moved)
    return (x, t), (of_points(x, dx, db), dt)


def _first_to_move(b, lower, upper, weights, at_lower, at_upper):
    """At a vertex the entries that move first as wᵀx rises, or falls where it cannot rise, and their t."""
    inside = (lower < upper) & (b > -jnp.inf) & (weights != 0)
    # the t at which an entry leaves its bound, where b − t w is the bound
    leaves = (b - jnp.where(at_lower, lower, upper)) / jnp.where(weights == 0, 1, weights)
    rising = inside & jnp.where(weights > 0, at_lower, at_upper)
    falling = inside & ~rising & ~jnp.any(rising, axis=-1, keepdims=True)
    next_up = jnp.max(jnp.where(rising, leaves, -jnp.inf), axis=-1)
    next_down = jnp.min(jnp.where(falling, leaves, jnp.inf), axis=-1)
    first = rising & (leaves == next_up[..., None]) | falling & (leaves == next_down[..., None])
    return first, jnp.where(jnp.any(rising, axis=-1), next_up, next_down)


@jax.jit
def project(b, radius, lower, upper, weights):
    """x of :func:`weighted_projection`, compiled once for each shape."""
    return native.by_rows(lambda *row: weighted_projection(*row)[0], b, radius, lower, upper, weights)
