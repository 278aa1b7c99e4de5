"""The k largest numbers along the last axis, and how much of each entry is among them."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax import native
from xmcjax.losses._classes import Rows

# Largest k that is found by passes in float64 where there is no kernel for it. XLA would sort the whole row
# on a CPU, which costs some hundred passes.
MAX_PASSES = 64


def largest(a: jax.Array, k: int) -> jax.Array:
    """The k largest of a [..., m], falling, [..., k]. It has no derivative of its own."""
    if k == 1:
        return jnp.max(a, axis=-1, keepdims=True)
    wide = a.dtype == jnp.float64
    passes = wide and k <= MAX_PASSES
    # `_by_passes` hands NaN on. XLA and the kernel order NaN above ∞, but below −∞ where its sign is set, as
    # it is for ∞ − ∞ on many processors.
    in_order = not passes or native.topk_by_kernel(a, k)
    a = jnp.where(jnp.isnan(a), jnp.nan, a) if in_order else a
    return native.topk_values(a, k, _by_passes if passes else _by_sorting if wide else None)


def largest_gains(rows: Rows, k: int) -> tuple[jax.Array, jax.Array]:
    """(The k largest of 1 + ``rows.margins()``, their scores), falling, [..., k], for k < m.

    They have no derivative. Which gains they are is asked of the scores, as in losses/_entropies.py: a gain
    that is computed anew, where a product is not rounded before a difference, may not equal itself.
    """
    scores = largest_scores(rows, k)
    return 1 + (scores - jax.lax.stop_gradient(rows.at_label())[..., None]), scores


def _by_kernel(rows: Rows, k: int) -> bool:
    return k > 1 and not rows.masked and native.topk_by_kernel(rows.values, k + 1)


def largest_scores(rows: Rows, k: int) -> jax.Array:
    """The k largest scores of the open classes other than y, falling, [..., k]. It has no derivative."""
    if not _by_kernel(rows, k):
        return largest(jax.lax.stop_gradient(rows.of_others()), k)
    values = jax.lax.stop_gradient(rows.values)
    # The kernel reads the scores as they are, and no array of margins is written: rounded differences from
    # one number have the order of the scores. Of the k + 1 largest scores that of the label is left out, or
    # the last one where the label is not among them.
    top, places = native.topk(values, k + 1)
    place = jax.lax.broadcasted_iota(jnp.int32, top.shape, top.ndim - 1)
    left_out = jnp.min(jnp.where(places == rows.labels[..., None], place, k), axis=-1, keepdims=True)
    top = jnp.where(place[..., :k] < left_out, top[..., :k], top[..., 1:])
    # NaN of either sign has to show, see `largest`; XLA looks for it in the pass that counts tied entries
    return jnp.where(jnp.any(jnp.isnan(values), axis=-1, keepdims=True), jnp.nan, top)


def _by_sorting(a: jax.Array, k: int) -> jax.Array:
    return native.topk(a, k)[0]


def _by_passes(a: jax.Array, k: int) -> jax.Array:
    """Each pass finds the largest number below the last one and how often it occurs."""
    place = jax.lax.broadcasted_iota(jnp.int32, (*a.shape[:-1], k), a.ndim - 1)

    def body(_, carry):
        top, filled, last = carry
        t = jnp.max(jnp.where(a < last, a, -jnp.inf), axis=-1, keepdims=True)
        top = jnp.where(place >= filled, t, top)
        return top, filled + jnp.sum(a == t, axis=-1, keepdims=True, dtype=jnp.int32), t

    # the first pass is separate: it counts +∞ and passes NaN on
    first = jnp.max(a, axis=-1, keepdims=True)
    top = jnp.broadcast_to(first, place.shape)
    filled = jnp.maximum(jnp.sum(a == first, axis=-1, keepdims=True, dtype=jnp.int32), 1)
    return jax.lax.fori_loop(1, k, body, (top, filled, first))[0]


def membership(a: jax.Array, top: jax.Array) -> jax.Array:
    """How much of each entry of a [..., m] is among its k largest, `top` [..., k].

    1 above the k-th largest number and 0 below it; entries equal to it share alike what is left, so
    that the weights sum to k. A sum of the k largest has this subgradient.
    """
    threshold = top[..., -1:]
    kept = jnp.sum(top == threshold, axis=-1, keepdims=True, dtype=a.dtype)
    tied = jnp.sum(a == threshold, axis=-1, keepdims=True, dtype=a.dtype)
    return jnp.where(a == threshold, kept / tied, (a > threshold).astype(a.dtype))
