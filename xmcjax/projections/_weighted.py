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

import jax
import jax.numpy as jnp

from xmcjax import native
from xmcjax.projections import _devices
from xmcjax.projections._threshold import between

# From here on every step halves the floats between the bounds, of which there are fewer than 2^64.
_NEWTON_STEPS = 48


@jax.custom_jvp
def weighted_projection(b, radius, lower, upper, weights):
    """(x [..., m], NaN where there is no solution, and t [...]); all but the radius [...] are [..., m]."""
    return _devices.on_device(
        (b, radius, lower, upper, weights),
        twin=_jnp_project,
        cpu="project_weighted",
        cuda="cuda_project_weighted",
    )


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
    arguments = (lower, upper, weights, radius, bad)
    center, _ = _search(finite, left_out, *arguments)
    # once more from there: what is left of t is a difference, in which nothing large cancels
    t, x = _search(finite - center[..., None] * weights, left_out, *arguments)
    return jnp.where(bad[..., None], jnp.nan, x), center + t


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

    # steps of each vector: where vmap adds an axis of an explicit mesh, a constant would not be of that mesh
    zero = jnp.zeros_like(radius)
    carry = (jnp.zeros_like(radius, jnp.int32), zero, zero - jnp.inf, zero + jnp.inf, done)
    t = jax.lax.while_loop(lambda carry: jnp.any(~carry[-1]), body, carry)[1]
    return t, point(t)[1]


@weighted_projection.defjvp
def _(primals, tangents):
    *_, lower, upper, weights = primals
    db, dradius, dlower, dupper, dweights = tangents
    x, t = weighted_projection(*primals)
    at_lower = x <= lower
    at_upper = (x >= upper) & ~at_lower
    free = ~(at_lower | at_upper)
    # on the free entries dx = db − t dw − w dt, and wᵀx = r says dt
    moved = jnp.where(free, db - t[..., None] * dweights, jnp.where(at_upper, dupper, dlower))
    slope = jnp.sum(jnp.where(free, weights * weights, 0), axis=-1)
    off = jnp.sum(weights * moved + x * dweights, axis=-1) - dradius
    dt = jnp.where(slope > 0, off / jnp.where(slope > 0, slope, 1), 0)
    return (x, t), (jnp.where(free, moved - weights * dt[..., None], moved), dt)


@jax.jit
def project(b, radius, lower, upper, weights):
    """x of :func:`weighted_projection`, compiled once for each shape."""
    return native.by_rows(lambda *row: weighted_projection(*row)[0], b, radius, lower, upper, weights)
