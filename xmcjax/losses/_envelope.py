"""The support function of a set made smooth, max {⟨b, x⟩ − γ/2 ‖x‖² : x ∈ C}, by the projection onto C.

The maximum is reached at the projection x of b/γ onto C, which is also its gradient in b and has the
Lipschitz constant 1/γ. The functions here take x as `x_of`, a function of b and γ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xmcjax.projections import topk_simplex


def maximum(b: jax.Array, gamma: jax.Array, x_of: Callable) -> tuple[jax.Array, jax.Array]:
    """(The maximum [...], its x [..., m]) of b [..., m], −∞ at entries that do not count.

    It is differentiated through the projection, and so correctly where the set itself is differentiated.
    """
    x = x_of(b, gamma)
    terms = jnp.where(jnp.isneginf(b), 0, b) * x - gamma / 2 * x * x
    return jnp.sum(terms, axis=-1), x


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def envelope(b: jax.Array, gamma: jax.Array, x_of: Callable) -> tuple[jax.Array, jax.Array]:
    """:func:`maximum` over a fixed set, whose first derivative needs x alone."""
    return maximum(b, gamma, x_of)


@envelope.defjvp
def _(x_of, primals, tangents):
    (b, gamma), (db, dgamma) = primals, tangents
    value, x = envelope(b, gamma, x_of)
    # The derivative of the maximum is that of its terms at x. It does not need the derivative of x, which is
    # that of the projection; only a second derivative computes it.
    dvalue = jnp.sum(x * db, axis=-1) - jnp.sum(x * x, axis=-1) / 2 * dgamma
    _, dx = jax.jvp(x_of, primals, tangents)
    return (value, x), (dvalue, dx)


def of_margins(b: jax.Array, beyond: jax.Array, gamma: jax.Array, x_of: Callable) -> jax.Array:
    """The envelope of margins b; +∞ in the rows `beyond`, whose margins are halved, unless x = 0 there.

    Points so far away in one direction have the same projection onto a bounded set, unless γ is as large.
    """
    value, x = envelope(b, gamma, x_of)
    return value + jnp.where(beyond & jnp.any(x > 0, axis=-1), jnp.inf, 0)


def of_quotient(projection: Callable) -> Callable:
    """x as a function of b and γ, by the projection of b/γ."""
    return lambda b, gamma: projection(_over(b, gamma))


def of_topk_simplex(k: int, variant: str) -> Callable:
    """x as a function of b and γ, by the projection of b onto γ times the top-k simplex: b/γ may overflow."""
    return lambda b, gamma: topk_simplex(b, k, gamma, variant=variant) / gamma


def _over(b: jax.Array, gamma: jax.Array) -> jax.Array:
    """b/γ; in a row with a quotient beyond the dtype, the largest lie from a quarter to half of its range.

    These keep their order, and stay far from the others and from each other: a projection onto a simplex, a
    knapsack or a box depends on no more. Entries that do not count get −∞ without a derivative, which would
    be −∞ · 0.
    """
    out, quarter = jnp.isneginf(b), jnp.finfo(b.dtype).max / 4
    known = jax.lax.stop_gradient(jnp.where(jnp.isfinite(b), b, 0))
    size = jnp.abs(known)
    beyond = jnp.any(jnp.isinf(size / gamma), axis=-1, keepdims=True)
    far = beyond & (size / gamma > quarter)
    farthest = jnp.maximum(jnp.max(size, axis=-1, keepdims=True), jnp.finfo(b.dtype).tiny)
    # XLA may multiply by the reciprocal, which is 0 for the largest numbers
    unit = jnp.where(farthest > 1, 2.0**-64, 1)
    ordered = jnp.sign(known) * quarter * (1 + (size * unit) / (farthest * unit))
    quotient = jnp.where(out | far, 0, b) / gamma
    return jnp.where(far, ordered, jnp.where(out, b, quotient))
