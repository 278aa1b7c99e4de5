"""The support function of a set made smooth, max {⟨b, x⟩ − γ/2 ‖x‖² : x ∈ C}, by the projection onto C.

It is reached at the projection x of b/γ onto C, which is its gradient in b, with Lipschitz constant 1/γ. The
functions here take that x as a function of b and γ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xmcjax.projections import topk_simplex


def maximum(b: jax.Array, gamma: jax.Array, projected: Callable) -> tuple[jax.Array, jax.Array]:
    """(The maximum [...], its x [..., m]) of b [..., m], −∞ at entries that do not count.

    Its derivative is that of the projection, and so right for a set that moves.
    """
    x = projected(b, gamma)
    terms = jnp.where(jnp.isneginf(b), 0, b) * x - gamma / 2 * x * x
    return jnp.sum(terms, axis=-1), x


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def envelope(b: jax.Array, gamma: jax.Array, projected: Callable) -> tuple[jax.Array, jax.Array]:
    """:func:`maximum` over a set that stays, whose derivative takes nothing but x."""
    return maximum(b, gamma, projected)


@envelope.defjvp
def _(projected, primals, tangents):
    (b, gamma), (db, dgamma) = primals, tangents
    value, x = envelope(b, gamma, projected)
    # The derivative of the maximum is that of its terms at x. It does not need the derivative of x, which is
    # that of the projection; only a second derivative computes it.
    dvalue = jnp.sum(x * db, axis=-1) - jnp.sum(x * x, axis=-1) / 2 * dgamma
    _, dx = jax.jvp(projected, primals, tangents)
    return (value, x), (dvalue, dx)


def of_quotient(projection: Callable) -> Callable:
    """x as a function of b and γ, by the projection of b/γ."""
    return lambda b, gamma: projection(_over(b, gamma))


def of_topk_simplex(k: int, variant: str) -> Callable:
    """x as a function of b and γ, by the projection of b onto γ times the top-k simplex: b/γ may overflow."""
    return lambda b, gamma: topk_simplex(b, k, gamma, variant=variant) / gamma


def _over(b: jax.Array, gamma: jax.Array) -> jax.Array:
    """b/γ in the range of the dtype.

    At entries that do not count it is −∞ without a derivative, which would be −∞ · 0.
    """
    out = jnp.isneginf(b)
    most = jnp.where(jnp.isfinite(b), jnp.finfo(b.dtype).max, jnp.inf)
    return jnp.where(out, b, jnp.clip(jnp.where(out, 0, b) / gamma, -most, most))
