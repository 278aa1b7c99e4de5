"""The sets in which the dual variables of one instance live: losses, and the best dual variables.

With h_j = 1 + z_j − z_y for j ≠ y, r times a loss is the support function max ⟨x, h⟩ of a set of
radius r. A visit of dual ascent solves, over the same set,

    min_x ½‖x − b‖² + ½(1ᵀx)²,   b = h/‖x_i‖² + x + 1ᵀx

(paper 004, Proposition 4 with ρ = 1). The C++ twin is native/dual/instance_sets.h.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xmcjax import native, projections


@dataclasses.dataclass(frozen=True)
class InstanceSet:
    """One set; the vectors are [m] with −inf at the class of the instance, which gets 0.

    Attributes:
        native: its number in the C++ kernels.
        limited: whether it has a parameter k, from 1 to m − 1.
        support: ``(h, k, r)`` -> max of ⟨x, h⟩, r times the loss.
        project: ``(b, k, r)`` -> the x of the visit.
        unopposed: ``(h, k, r)`` -> an x of largest sum, the answer for a row of zeros.
    """

    native: int
    limited: bool
    support: Callable[..., jax.Array]
    project: Callable[..., jax.Array]
    unopposed: Callable[..., jax.Array]


def _mean_of_largest(h, k: int, positive: bool):
    """Mean of the k largest entries; of max(0, ·) of them if `positive`."""
    largest, _ = jax.lax.top_k(h, k)
    return jnp.mean(jnp.maximum(largest, 0) if positive else largest)


def _first_others(h, k, r):
    """r/k for the first k classes other than that of the instance."""
    other = h > -jnp.inf
    return jnp.where(other & (jnp.cumsum(other) <= k), r / k, jnp.zeros_like(h))


def _box(b, k, r):
    """x = clip(b − t, 0, r) with t = 1ᵀx, by bisection and then from the free entries."""

    def halve(_, ends):
        low, high = ends
        t = (low + high) / 2
        above = jnp.sum(jnp.clip(b - t, 0, r)) > t
        return jnp.where(above, t, low), jnp.where(above, high, t)

    steps = jnp.finfo(b.dtype).nmant + 8
    high = jnp.maximum(jnp.max(b), 0)
    low, high = jax.lax.fori_loop(0, steps, halve, (jnp.zeros_like(high), high))
    t = (low + high) / 2
    free, top = (b > t) & (b < t + r), b >= t + r
    t = (jnp.sum(jnp.where(free, b, 0)) + jnp.sum(jnp.where(top, r, 0))) / (1 + jnp.sum(free, dtype=b.dtype))
    return jnp.clip(b - t, 0, r)


SETS = {
    "topk_alpha": InstanceSet(
        native=native.id_number("set", "topk_alpha"),
        limited=True,
        # max{0, mean of the k largest h}
        support=lambda h, k, r: r * jnp.maximum(_mean_of_largest(h, k, False), 0),
        project=lambda b, k, r: projections.topk_simplex(b, k, r, 1.0, variant="alpha"),
        unopposed=_first_others,
    ),
    "topk_beta": InstanceSet(
        native=native.id_number("set", "topk_beta"),
        limited=True,
        # mean over the k largest of max{0, h}
        support=lambda h, k, r: r * _mean_of_largest(h, k, True),
        project=lambda b, k, r: projections.topk_simplex(b, k, r, 1.0, variant="beta"),
        unopposed=_first_others,
    ),
    "box": InstanceSet(
        native=native.id_number("set", "box"),
        limited=False,
        # Σ max{0, h}
        support=lambda h, k, r: r * jnp.sum(jnp.maximum(h, 0)),
        project=_box,
        unopposed=lambda h, k, r: jnp.where(h > -jnp.inf, r, jnp.zeros_like(h)),
    ),
}
