"""The search for a threshold in plain JAX, for all vectors at once: Newton on a piecewise linear equation.

x = min(max(b − t, l), u) has a sum that falls as t rises; t is where it equals the sum that is allowed. Steps
that leave the bounds found so far, or where the sum has no slope, halve the floats between the bounds.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

# Newton and the halving of the floats between the bounds need a few dozen steps at the very most.
_MAX_STEPS = 256
# Searches for a rest of the threshold after the first one. Each rest is some 2^24 (float64: 2^53) times
# smaller than the one before: this many reach from the largest float32 to a radius of 1. Their number is
# fixed, because JAX does not lower a loop of these loops where explicit axes of a mesh are the rows.
_MORE_RESTS = 5


def _key(value):
    """Integers that are ordered as the floats are, and have as many between them."""
    bits = jax.lax.bitcast_convert_type(value, jnp.int32 if value.dtype == jnp.float32 else jnp.int64)
    return jnp.where(bits < 0, jnp.iinfo(bits.dtype).min - bits - 1, bits)


def _value(key):
    """The float of a key."""
    bits = jnp.where(key < 0, jnp.iinfo(key.dtype).min - key - 1, key)
    return jax.lax.bitcast_convert_type(bits, jnp.float32 if key.dtype == jnp.int32 else jnp.float64)


def between(low, high):
    """The float halfway from low to high in the order of the floats."""
    a, b = _key(low), _key(high)
    return _value((a & b) + ((a ^ b) >> 1))


def next_above(value):
    """The next larger float."""
    return _value(_key(value) + 1)


def sum_downwards(a, b):
    """The largest float that is not above a + b: a float is above it exactly where it is above a + b."""
    s = a + b
    # Knuth's TwoSum: s + rest = a + b without rounding
    part = s - a
    rest = (a - (s - part)) + (b - part)
    return jnp.where(rest < 0, _value(_key(s) - 1), s)


def dense(primal, tangent):
    """A tangent as an array."""
    return jnp.zeros_like(primal) if isinstance(tangent, SymbolicZero) else tangent


def of_points(x, dx, db):
    """dx, but NaN where x is NaN: there it is NaN times db, so that reverse mode gives NaN as well."""
    nowhere = jnp.isnan(x)
    return jnp.where(nowhere, jnp.nan * jnp.where(nowhere, db, 0), dx)


def count(which, t):
    """How many entries of each vector are selected, as floats; t is any finite number per vector.

    A sum of selected numbers is what XLA for CPUs vectorises; a sum of truth values it does not. Zero and
    one come from t: a constant of the size of the vectors would be kept in memory and read.
    """
    zero = 0 * t
    return jnp.where(which, (zero + 1)[..., None], zero[..., None]).sum(-1)


def search(b, parts, start, high, radius, lower, upper, rho, done, *, at_most: bool, k=None):
    """The threshold less its parts, and whether the sum is tight.

    Args:
        b: [..., m]; start: [...], and high, a bound on the result, too.
        parts: of the threshold, [...] each, that are taken from b one after another.
        done: [...], vectors to leave alone.
        k: with `at_most`, [...] of the dtype of b where u = r/k, which `upper` rounds; else None.
    """
    m = b.shape[-1]
    eps = jnp.finfo(b.dtype).eps
    # Below this the sum of x is rounding.
    noise = 4 * eps * _size(radius, lower, m, k)

    def equation(t):
        # Sum and count share no array: XLA for CPUs would write one of the size of b between them.
        near = _lowered(b, parts[:-1])
        center = parts[-1]
        x = jnp.clip((near - center[..., None]) - t[..., None], lower[..., None], upper[..., None])
        # Rounded to the nearest float, a bound could equal an entry, or many equal ones, that lie beyond it.
        least, most = sum_downwards(center, t + lower), -sum_downwards(-center, -(t + upper))
        below_most = near < most[..., None]
        n = count((near > least[..., None]) & below_most, t)
        # 1ᵀx = r, and for the other sets 1ᵀx <= r and t >= ρ 1ᵀx, one of them with equality: the
        # larger of the two gaps is zero, and falls with t.
        if k is not None:
            # Σ_M x − r (k − |U|)/k: so the rounding of r and of many entries at the bound cancels
            full = count(~below_most, t)
            s = jnp.where(below_most, x, 0).sum(-1)
            over = s - radius * ((k - full) / k)
            s += full * upper
        else:
            s = x.sum(-1)
            over = s - radius
        if not at_most:
            return over, n, t + over / n, jnp.abs(over) <= noise, jnp.ones_like(t, bool)
        whole = t + sum(parts[::-1])
        bias = rho * s - whole
        step = jnp.maximum(jnp.where(n > 0, t + over / n, -jnp.inf), t + bias / (1 + rho * n))
        held = over >= bias
        # The second equation has a slope even where no entry is free.
        n = jnp.where(held, n, jnp.maximum(n, 1))
        close = jnp.where(held, jnp.abs(over) <= noise, jnp.abs(bias) <= 4 * eps * jnp.abs(whole))
        return jnp.maximum(over, bias), n, step, close, held

    def body(carry):
        steps, t, low, high, tight, done = carry
        off, n, newton, near, now_tight = equation(t)
        new_low = jnp.where(off > 0, t, low)
        new_high = jnp.where(off < 0, t, high)
        inside = (n > 0) & (newton > new_low) & (newton < new_high)
        new = jnp.where(inside, newton, between(new_low, new_high))
        # A vector stops at the root, at a step below an ulp, or where no float is left between the bounds;
        # close to the root one last step solves it.
        stop = (off == 0) | jnp.isnan(off) | ((n > 0) & (newton == t)) | (new == new_low) | (new == new_high)
        solved = near & inside & ~stop
        return (
            steps + 1,
            jnp.where(done | stop, t, new),
            jnp.where(done, low, new_low),
            jnp.where(done, high, new_high),
            jnp.where(done, tight, now_tight),
            done | stop | solved,
        )

    def more(carry):
        return ((carry[0] < _MAX_STEPS) & ~carry[-1]).any()

    # one count per vector: where vmap adds an axis of an explicit mesh, a constant would not be of that mesh
    steps = jnp.zeros_like(start, jnp.int32)
    carry = (steps, start, jnp.full_like(start, -jnp.inf), high, jnp.zeros_like(start, bool), done)
    _, t, _, _, tight, _ = jax.lax.while_loop(more, body, carry)
    return t, tight


def _lowered(b, parts):
    """b less the parts of a threshold, one after another: near it these are exact."""
    for part in parts:
        b = b - part[..., None]
    return b


def _size(radius, lower, m: int, k):
    """The size of the numbers that the sum of x is made of; where u = r/k, that of one entry at r/k."""
    if k is not None:
        return radius / k
    return jnp.abs(radius) + m * jnp.where(lower > -jnp.inf, jnp.abs(lower), 0)


def refine(b, center, radius, lower, upper, rho, done, *, at_most: bool, k=None):
    """(x, tight) from a threshold that is known up to rounding: a search finds the rest that is missing.

    Where b is so large that this rest is rough too, further searches find the rests of the rest.
    """
    zero, infinity = jnp.zeros_like(center), jnp.full_like(center, jnp.inf)
    numbers, size = (radius, lower, upper, rho), _size(radius, lower, b.shape[-1], k)
    parts = [center]
    t, tight = search(b, parts, zero, infinity, *numbers, done, at_most=at_most, k=k)
    for _ in range(_MORE_RESTS):
        rough = ~done & (jnp.abs(t) > 4 * size)
        parts.append(t)
        t, again = search(b, parts, zero, infinity, *numbers, ~rough, at_most=at_most, k=k)
        tight = jnp.where(rough, again, tight)
    x = _lowered(b, parts) - t[..., None]
    return jnp.clip(x, lower[..., None], upper[..., None]), tight
