"""The row map of the top-k entropy: a projection onto the top-k simplex in which entropy counts besides.

With u = x/r and s = 1ᵀu,

    max ⟨a, u⟩ − ½ c (‖u‖² + s²) − Σ u log u − (1 − s) log(1 − s),   u ≥ 0, u_j ≤ s/k, s ≤ 1,

has the solution u_j = min(v(a_j − θ), s/k), where log v(t) + c v(t) = t. θ follows from s by Σ u = s, and s
is the zero of

    F(s) = θ − c s + log(1 − s) + Λ/k,   Λ = Σ max{0, a_j − θ − log(s/k) − c s/k},

which falls: in ξ = log(s/(1 − s)) by 1 at least, so that the zero is within |F| of any ξ. Both are found by
Newton's method within a bracket. c = 0 is the loss itself, whose ξ is E (:func:`xmcjax.losses.topk_entropy`).

Lapin, Hein and Schiele, "Loss Functions for Top-k Error: Analysis and Insights", 2016, has the entropic
projection; Fritsch, Shafer and Crowley, "Solution of the transcendental equation we^w = x", 1973, the steps
for v. The C++ twin is native/dual/entropy_set.h.
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


class _Sums(NamedTuple):
    """Of one θ and one s, [..., 1]."""

    off: jax.Array  #: Σ u − s
    slope: jax.Array  #: Σ dv/dt of what is not at s/k
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


def _sums(a, c, k: int, theta, s) -> _Sums:
    cap = s / k
    at_cap = jnp.log(cap) + c * cap
    t = a - theta
    capped = t >= at_cap
    v, slope = _level(jnp.where(capped, -jnp.inf, t), c)

    def total(values):
        return jnp.sum(values, axis=-1, keepdims=True)

    count = total(capped).astype(a.dtype)
    return _Sums(total(v) - (k - count) * cap, total(slope), count, total(jnp.where(capped, t - at_cap, 0)))


def _theta(a, c, k: int, most, kth, s, start):
    """θ of Σ u = s, from a start that may lie anywhere."""
    cap, even = s / k, s / jnp.sum(a > -jnp.inf, axis=-1, keepdims=True, dtype=a.dtype)
    low = kth - jnp.log(cap) - c * cap
    high = jnp.maximum(low, most - jnp.log(even) - c * even)
    start = jnp.where((start >= low) & (start <= high), start, high)
    eps = 2 * float(jnp.finfo(a.dtype).eps)

    def body(carry):
        step, theta, low, high, done = carry
        at = _sums(a, c, k, theta, s)
        low, high = jnp.where(at.off > 0, theta, low), jnp.where(at.off < 0, theta, high)
        new = theta + at.off / at.slope
        new = jnp.where((new > low) & (new < high), new, (low + high) / 2)
        moves = (jnp.abs(new - theta) > eps * (1 + jnp.abs(theta))) & (new > low) & (new < high)
        done = done | (at.off == 0) | ~moves
        return step + 1, jnp.where(done, theta, new), low, high, done

    def more(carry):
        return (carry[0] < _MOST) & ~jnp.all(carry[-1])

    nothing = jnp.zeros_like(start, bool)
    return jax.lax.while_loop(more, body, (0, start, low, high, nothing))[1]


def entropic(a: jax.Array, c: jax.Array, k: int) -> jax.Array:
    """The maximiser u [..., m].

    Args:
        a: [..., m], −∞ where there is no entry; at least k are finite.
        c: above 0, [..., 1].
        k: from 1.
    """
    top = native.topk_values(a, k)
    most, kth = top[..., :1], top[..., -1:]
    small = float(jnp.finfo(a.dtype).eps) ** 0.6

    def at(logit, theta):
        s, rest, log_rest = _logistic(logit)
        theta = _theta(a, c, k, most, kth, s, theta)
        found = _sums(a, c, k, theta, s)
        free = 1 - found.capped / k
        falls = found.capped / k * (c / k + 1 / s) + c
        falls = falls + jnp.where(free > 0, free**2 / found.slope, 0)
        value = theta - c * s + log_rest + found.excess / k
        return value, -(falls * s * rest + s), theta

    def body(carry):
        step, logit, theta, low, high, done = carry
        value, slope, theta = at(logit, theta)
        up = value > 0
        low = jnp.where(up, logit, jnp.maximum(low, logit + value))
        high = jnp.where(up, jnp.minimum(high, logit + value), logit)
        new = logit - value / slope
        new = jnp.where((new > low) & (new < high), new, (low + high) / 2)
        new = jnp.where(done | (value == 0), logit, new)
        done = done | ~(jnp.abs(new - logit) > small * (1 + jnp.abs(new)))
        return step + 1, new, theta, low, high, done

    def more(carry):
        return (carry[0] < _MOST) & ~jnp.all(carry[-1])

    start = jnp.clip(most, -30, 30)
    nothing = jnp.zeros_like(start, bool)
    # below, s is no normal number, and as good as 0
    least = jnp.full_like(start, math.log(float(jnp.finfo(a.dtype).tiny)) + _ABOVE)
    carry = (0, start, jnp.full_like(start, jnp.nan), least, jnp.full_like(start, jnp.inf), nothing)
    _, logit, theta, *_ = jax.lax.while_loop(more, body, carry)
    s = _logistic(logit)[0]
    theta = _theta(a, c, k, most, kth, s, theta)
    cap = s / k
    t = a - theta
    v = _level(jnp.where(t >= jnp.log(cap) + c * cap, -jnp.inf, t), c)[0]
    return jnp.where(t >= jnp.log(cap) + c * cap, cap, jnp.minimum(v, cap))
