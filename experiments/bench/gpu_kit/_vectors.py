"""Projections and losses of many vectors, with their derivatives, which are checked and timed."""

from __future__ import annotations

import functools
from collections.abc import Callable

K, RADIUS = 5, 1.0


def losses() -> dict[str, Callable]:
    """Functions (scores [rows, m], labels [rows]) -> losses [rows], by name."""
    import jax.numpy as jnp

    from xmcjax import losses as of

    def one_vs_all(scores, labels):
        own = jnp.arange(scores.shape[1], dtype=labels.dtype) == labels[:, None]
        return of.one_vs_all(scores, jnp.where(own, 1, -1).astype(jnp.int8), of.squared_hinge)

    return {
        "Crammer-Singer": of.crammer_singer,
        "Weston-Watkins": of.weston_watkins,
        "Lee-Lin-Wahba": of.lee_lin_wahba,
        "softmax cross entropy": of.softmax_cross_entropy,
        "top-k hinge alpha": functools.partial(of.topk_hinge, k=K, variant="alpha"),
        "top-k hinge beta": functools.partial(of.topk_hinge, k=K, variant="beta"),
        "smooth top-k hinge alpha": functools.partial(of.smooth_topk_hinge, k=K, gamma=1.0, variant="alpha"),
        "smooth top-k hinge beta": functools.partial(of.smooth_topk_hinge, k=K, gamma=1.0, variant="beta"),
        "top-k entropy": functools.partial(of.topk_entropy, k=K),
        "truncated top-k entropy": functools.partial(of.truncated_topk_entropy, k=K),
        "one-vs-all": one_vs_all,
    }


def projections() -> dict[str, Callable]:
    """Functions x [rows, m] -> the projections of the rows, by name."""
    from experiments import _projections

    return {name: public for name, (public, _) in _projections.sets(K, RADIUS).items()}


def with_gradient(loss: Callable) -> Callable:
    """The function (scores, labels) -> (losses, their gradients)."""
    import jax
    import jax.numpy as jnp

    def both(scores, labels):
        def total(z):
            value = loss(z, labels)
            return jnp.sum(value), value

        (_, value), slope = jax.value_and_grad(total, has_aux=True)(scores)
        return value, slope

    return both


def with_transposed(projection: Callable) -> Callable:
    """The function (x, c) -> (p, (dp/dx)ᵀ c)."""
    import jax

    def both(x, c):
        p, back = jax.vjp(projection, x)
        return p, back(c)[0]

    return both


def note(kit, name: str, rows: int, first: float, seconds: float, least: float) -> None:
    """Writes the figure of a function of many rows.

    Args:
        kit: of the stage.
        name: of the figure.
        rows: the number of rows.
        first: seconds of the first call, which compiles.
        seconds: of the other calls.
        least: seconds in which a copy would move what must be read and written.
    """
    kit.figure(
        name,
        rows=rows,
        seconds=seconds,
        seconds_per_million_rows=1e6 * seconds / rows,
        first_call_seconds=first,
        share=least / seconds,
    )
