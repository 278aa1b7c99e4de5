"""The support function of a set made smooth, max {⟨b, x⟩ − γ/2 ‖x‖² : x ∈ C}, by the projection onto C.

It is reached at the projection x of b/γ onto C, which is its gradient in b, with Lipschitz constant 1/γ. The
functions here take it as `x_of`, a function of b and γ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xmcjax.projections import topk_simplex


def maximum(b: jax.Array, gamma: jax.Array, x_of: Callable) -> tuple[jax.Array, jax.Array]:
    """(The maximum [...], its x [..., m]) of b [..., m], −∞ at entries that do not count.

    Its derivative is that of the projection, and so right for a set that moves.
    """
    x = x_of(b, gamma)
    terms = jnp.where(jnp.isneginf(b), 0, b) * x - gamma / 2 * x * x
    return jnp.sum(terms, axis=-1), x


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def envelope(b: jax.Array, gamma: jax.Array, x_of: Callable) -> tuple[jax.Array, jax.Array]:
    """:func:`maximum` over a set that stays, whose derivative takes nothing but x."""
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
    """The envelope where b are margins; +∞ in the rows in which they are halves, but for those with x = 0.

    The projection of a point so far away depends on its direction alone.
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
    """b/γ, or where that is beyond the dtype, what is as far as the dtype reaches in the direction of b.

    A point as far as that is projected onto the same place of a bounded set. At entries that do not count the
    quotient is −∞ without a derivative, which would be −∞ · 0.
    """
    out, finite = jnp.isneginf(b), jnp.isfinite(b)
    b_finite = jax.lax.stop_gradient(jnp.where(finite, b, 0))
    beyond = jnp.any(jnp.isinf(b_finite / gamma), axis=-1, keepdims=True)
    farthest = jnp.max(jnp.abs(b_finite), axis=-1, keepdims=True)
    divisor = jnp.where(beyond, farthest / (jnp.finfo(b.dtype).max / 2), gamma)
    return jnp.where(out, b, jnp.where(out, 0, b) / divisor)
