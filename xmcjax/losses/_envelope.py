"""The support function of a set made smooth, max {⟨b, x⟩ − γ/2 ‖x‖² : x ∈ C}, by the projection onto C.

It is reached at the projection x of b/γ onto C, which is its gradient in b, with Lipschitz constant 1/γ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp


def maximum(b: jax.Array, gamma: jax.Array, projection: Callable) -> tuple[jax.Array, jax.Array]:
    """(The maximum [...], its x [..., m]) of b [..., m], −∞ at entries that do not count.

    Its derivative is that of the projection, and so right for a set that moves.
    """
    x = projection(_over(b, gamma))
    terms = jnp.where(jnp.isneginf(b), 0, b) * x - gamma / 2 * x * x
    return jnp.sum(terms, axis=-1), x


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def envelope(b: jax.Array, gamma: jax.Array, projection: Callable) -> tuple[jax.Array, jax.Array]:
    """:func:`maximum` over a set that stays, whose derivative takes nothing but x."""
    return maximum(b, gamma, projection)


@envelope.defjvp
def _(projection, primals, tangents):
    (b, gamma), (db, dgamma) = primals, tangents
    value, x = envelope(b, gamma, projection)
    # The derivative of the maximum is that of its terms at x. It does not need the derivative of x, which is
    # that of the projection; only a second derivative computes it.
    dvalue = jnp.sum(x * db, axis=-1) - jnp.sum(x * x, axis=-1) / 2 * dgamma
    _, dx = jax.jvp(lambda b, gamma: projection(_over(b, gamma)), primals, tangents)
    return (value, x), (dvalue, dx)


def _over(b: jax.Array, gamma: jax.Array) -> jax.Array:
    """b/γ, at entries that do not count −∞ without a derivative, which would be −∞ · 0."""
    out = jnp.isneginf(b)
    return jnp.where(out, b, jnp.where(out, 0, b) / gamma)
