"""The row map of the top-k entropy: a projection onto the top-k simplex with an entropy term.

With u = x/r and s = 1ᵀu,

    max ⟨a, u⟩ − ½ c (‖u‖² + s²) − Σ u log u − (1 − s) log(1 − s),   u ≥ 0, u_j ≤ s/k, s ≤ 1,

has the solution u_j = min(v(a_j − θ), s/k), where log v(t) + c v(t) = t. θ follows from s by Σ u = s, and s
is the zero of

    F(s) = θ − c s + log(1 − s) + Λ/k,   Λ = Σ max{0, a_j − θ − log(s/k) − c s/k},

whose slope in ξ = log(s/(1 − s)) is at most −1, so that the zero is within |F| of any ξ. θ and ξ are found by
Newton's method within a bracket, and together: ξ takes a step as soon as θ is near enough to tell the sign of
F, so that all rows are done after some ten passes. A step that is as small as rounding ends a search, in the
bracket or not. c = 0 is the loss itself, whose ξ is E (:func:`xmcjax.losses.topk_entropy`).

Lapin, Hein and Schiele, "Loss Functions for Top-k Error: Analysis and Insights", 2016, has the entropic
projection; Fritsch, Shafer and Crowley, "Solution of the transcendental equation we^w = x", 1973, the steps
for v. The C++ twin, native/dual/entropy_set.h, has one search within the other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax import native

_MOST = 100
# Below this x, ω(x) is e^x.
_SMALL = -40
# How far above the log of the smallest normal number the logit of s stays: s/m is a normal number too.
_ABOVE = 16
# The zero of F is looked for within this many times |F|, so that a step of |F| stays in the bounds.
_FARTHER = 1.01


class _At(NamedTuple):
    """Numbers at one θ and one s, [..., 1]."""

    step: jax.Array  #: to the θ of Σ u = s, by Newton's method
    slope: jax.Array  #: Σ dv/dt of the entries that are not at s/k
    capped: jax.Array  #: how many are at s/k
    excess: jax.Array  #: Λ


def _level(t, c):
    """(v, dv/dt) of log v + c v = t: v = ω(t + log c)/c with Wright's ω, ω + log ω = x."""
    x = t + jnp.log(c)
    small = x < _SMALL
    x = jnp.where(small, 0, x)
    near = 1 + (x - 1) / 2 + (x - 1) ** 2 / 16
    w = jnp.where(x < -1, jnp.exp(x), jnp.where(x < 3, near, x - jnp.log(jnp.maximum(x, 1))))
    for _ in range(2):
        r, one = x - w - jnp.log(w), 1 + w
        q = one * (one + 2 * r / 3)
        w = w * (1 + r / one * (q - r / 2) / (q - r))
    v = jnp.where(small, jnp.exp(t), w / c)
    return v, jnp.where(small, v, v / (1 + w))


def _logistic(logit):
    """(s, 1 − s, log(1 − s)) of log(s/(1 − s))."""
    e = jnp.exp(-jnp.abs(logit))
    more, less = 1 / (1 + e), e / (1 + e)
    above = logit > 0
    log_rest = -jnp.maximum(logit, 0) - jnp.log1p(e)
    return jnp.where(above, more, less), jnp.where(above, less, more), log_rest


def _at(a, c, k: int, theta, s) -> _At:
    cap = s / k
    at_cap = jnp.log(cap) + c * cap
    t = a - theta
    capped = t >= at_cap
    v, slope = _level(jnp.where(capped, -jnp.inf, t), c)

    def total(values):
        return jnp.sum(values, axis=-1, keepdims=True)

    count = total(capped).astype(a.dtype)
    v, slope, wanted = total(v), total(slope), (k - count) * cap
    off = v - wanted
    # Where c v is small, v is an exponential, and a step in log v is exact; where c v is large, v is a line.
    there = (v > 0) & (wanted > 0)
    exponential = jnp.where(there, slope / jnp.where(there, v, 1), 0)
    of_log = jnp.where(there, v * jnp.log1p(off / jnp.where(there, wanted, 1)), 0)
    step = exponential * of_log + (1 - exponential) * off
    step = jnp.where(off == 0, 0, step / slope)
    return _At(step, slope, count, total(jnp.where(capped, t - at_cap, 0)))


def _between(most, kth, c, k: int, count, s):
    """Numbers between which θ lies."""
    cap, even = s / k, s / count
    low = kth - jnp.log(cap) - c * cap
    return low, jnp.maximum(low, most - jnp.log(even) - c * even)


def _begun(a, c, most, count):
    """A logit of s that is near the zero: that of equal entries, ξ + c (1 + 1/m) s = log Σ e^a, roughly."""
    total = jax.nn.logsumexp(a, axis=-1, keepdims=True)
    wide = c * (1 + 1 / count)
    s = jnp.minimum(_level(total, wide)[0], 0.75)
    logit = jnp.log(s) - jnp.log1p(-s)
    return jnp.maximum(logit, jnp.minimum(total, most + 1) - wide)


def entropic(a: jax.Array, c: jax.Array, k: int) -> jax.Array:
    """The maximiser u [..., m].

    Args:
        a: [..., m], −∞ where there is no entry; at least k are finite.
        c: above 0, [..., 1].
        k: from 1.
    """
    top = native.topk_values(a, k)
    most, kth = top[..., :1], top[..., -1:]
    count = jnp.sum(a > -jnp.inf, axis=-1, keepdims=True, dtype=a.dtype)
    eps = float(jnp.finfo(a.dtype).eps)
    small = eps**0.6
    # below, s is no normal number, and as good as 0
    lowest = math.log(float(jnp.finfo(a.dtype).tiny)) + _ABOVE

    def rounding(logit, theta, s):
        return 4 * eps * (1 + jnp.abs(most) + jnp.abs(theta) + jnp.abs(logit) + c * s)

    def begun(theta, logit, s):
        """θ strictly within its bounds, and the bounds, which allow for rounding to the wrong side."""
        low, high = _between(most, kth, c, k, count, s)
        some = rounding(logit, low, s)
        low, high = low - some, high + some
        return jnp.clip(theta, low + 2 * some, high - some), low, high

    def body(carry):
        passes, logit, (theta, low_theta, high_theta), low, high, settled, done = carry
        s, rest, log_rest = _logistic(logit)
        at, least = _at(a, c, k, theta, s), rounding(logit, theta, s)
        done = done | (settled & ~(jnp.abs(at.step) > least)) | jnp.isnan(theta)
        low_theta = jnp.where(at.step > 0, theta, low_theta)
        high_theta = jnp.where(at.step < 0, theta, high_theta)
        next_theta = theta + at.step
        inside = (next_theta > low_theta) & (next_theta < high_theta) | (jnp.abs(at.step) <= least)
        next_theta = jnp.where(inside, next_theta, (low_theta + high_theta) / 2)
        now = (next_theta, low_theta, high_theta)

        # F up to the square of the step, or up to the step where an entry may come to s/k or leave it
        free = (k - at.capped) / k
        value = theta + free * at.step - c * s + log_rest + at.excess / k
        wrong = at.step**2 if k == 1 else jnp.abs(at.step)
        known = inside & (jnp.abs(at.step) <= 0.5) & (wrong <= jnp.maximum(jnp.abs(value) / 2, small))
        moves = known & ~settled
        low = jnp.where(moves, jnp.maximum(low, logit + jnp.minimum(_FARTHER * value - wrong, 0)), low)
        high = jnp.where(moves, jnp.minimum(high, logit + jnp.maximum(_FARTHER * value + wrong, 0)), high)
        of_s = jnp.where(free > 0, free / at.slope, 0)  # −dθ/ds
        slope = -((at.capped / k * (c / k + 1 / s) + c + free * of_s) * s * rest + s)
        new = jnp.maximum(logit - value / slope, lowest)
        ends = (jnp.abs(new - logit) <= small * (1 + jnp.abs(new))) | (jnp.abs(value) <= least)
        new = jnp.where(ends | (new > low) & (new < high), new, (low + high) / 2)
        new = jnp.where(moves, new, logit)
        s_new = _logistic(new)[0]
        then = begun(next_theta - of_s * (s_new - s), new, s_new)
        of_theta = tuple(jnp.where(moves, b, a) for a, b in zip(now, then, strict=True))
        return passes + 1, new, of_theta, low, high, settled | (moves & ends), done

    def more(carry):
        return (carry[0] < _MOST) & ~jnp.all(carry[-1])

    start = jnp.maximum(_begun(a, c, most, count), lowest)
    of_theta = begun(jnp.full_like(start, -jnp.inf), start, _logistic(start)[0])
    nothing = jnp.zeros_like(start, bool)
    carry = (
        0,
        start,
        of_theta,
        jnp.full_like(start, lowest - 1),
        jnp.full_like(start, jnp.inf),
        nothing,
        nothing,
    )
    _, logit, (theta, *_), *_ = jax.lax.while_loop(more, body, carry)
    cap = _logistic(logit)[0] / k
    t = a - theta
    capped = t >= jnp.log(cap) + c * cap
    v = _level(jnp.where(capped, -jnp.inf, t), c)[0]
    return jnp.where(capped, cap, jnp.minimum(v, cap))
