"""The functions of xmcjax.projections that the experiments time: every set, natively and in plain JAX."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import projections
from xmcjax.projections import _knapsack, _topk, _weighted

PLAIN = "plain JAX"


def _numbers(x, *values):
    return tuple(jnp.full(x.shape[:-1], value, x.dtype) for value in values)


def sets(k: int, radius: float) -> dict[str, tuple[Callable, Callable]]:
    """(public function, twin in plain JAX) of each set, both of x alone; the knapsack is 0 <= p <= 2r/k.

    The weights of the weighted set are between ½ and 1½.
    """

    def box(x, upper, rho, at_most, by_k=False):
        given = _numbers(x, radius, 0, upper, rho, k)
        return _knapsack._jnp_project(x, *given, at_most=at_most, by_k=by_k)[0]  # noqa: SLF001

    def topk(x, r, rho):
        return _topk._jnp_project(x, *_numbers(x, r, rho), k=k)[0]  # noqa: SLF001

    def weighted(x):
        zero, (r,) = jnp.zeros_like(x), _numbers(x, radius)
        return _weighted._jnp_project(x, r, zero, zero + cap, weights(x))[0]  # noqa: SLF001

    def weights(x):
        return jnp.broadcast_to(jnp.linspace(0.5, 1.5, x.shape[-1], dtype=x.dtype), x.shape)

    cap = 2 * radius / k
    topk_simplex = functools.partial(projections.topk_simplex, k=k, radius=radius)
    return {
        "simplex": (
            lambda x: projections.simplex(x, radius),
            lambda x: box(x, np.inf, 0, False),
        ),
        "capped simplex": (
            lambda x: projections.capped_simplex(x, radius, cap),
            lambda x: box(x, cap, 0, True),
        ),
        "knapsack": (
            lambda x: projections.knapsack(x, radius, 0.0, cap),
            lambda x: box(x, cap, 0, False),
        ),
        "weighted knapsack": (
            lambda x: projections.knapsack(x, radius, 0.0, cap, weights(x)),
            weighted,
        ),
        "top-k cone": (
            lambda x: projections.topk_cone(x, k),
            lambda x: topk(x, np.inf, 0),
        ),
        "top-k simplex": (
            lambda x: topk_simplex(x),
            lambda x: topk(x, radius, 0),
        ),
        "top-k simplex, biased": (
            lambda x: topk_simplex(x, rho=1.0),
            lambda x: topk(x, radius, 1),
        ),
        "top-k simplex beta, biased": (
            lambda x: topk_simplex(x, rho=1.0, variant="beta"),
            lambda x: box(x, radius / k, 1, True, True),
        ),
    }


def timed(function: Callable, x) -> float:
    """Seconds of CPU time until the result is there; other work of the machine does not count."""
    begin = time.process_time()
    jax.block_until_ready(function(x))
    return time.process_time() - begin
