"""Sums over the rows and the classes of lanes, which the steps of :mod:`xmcjax.solvers.admm` are made of."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax.solvers._formulations import LeeLinWahba
from xmcjax.solvers.admm._problem import Problem


class LaneRows(NamedTuple):
    """What a problem says of its rows, with the axes in the order of the arrays of the state."""

    y: jax.Array  #: [n, lanes]
    C: jax.Array  #: [n, lanes, 1], 1 for rows that are left out
    there: jax.Array  #: whether a row counts, [n, lanes, 1]


def rows_of(problem: Problem) -> LaneRows:
    C = problem.bound.T[:, :, None]
    there = C > 0
    return LaneRows(problem.y.T, jnp.where(there, C, 1), there)


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a [p, q] times b [q, lanes, m]."""
    # features that are all 0 have an empty basis, where reshape cannot infer the length of an axis
    flat = jnp.matmul(a, b.reshape(b.shape[0], math.prod(b.shape[1:])), precision="highest")
    return flat.reshape(a.shape[0], *b.shape[1:])


def counts(problem: Problem, dtype) -> jax.Array:
    """How many classes the lanes have, [lanes, 1]."""
    assert problem.members is not None
    return jnp.sum(problem.members, axis=-1, keepdims=True, dtype=dtype)


def centred(problem: Problem, V: jax.Array) -> jax.Array:
    """V with Σ_c w_c = 0 over the classes of a lane, where the formulation has that condition."""
    if not isinstance(problem.formulation, LeeLinWahba):
        return V
    if problem.members is None:
        return V - jnp.mean(V, axis=-1, keepdims=True)
    inside = jnp.where(problem.members, V, 0)
    mean = jnp.sum(inside, axis=-1, keepdims=True) / counts(problem, V.dtype)
    return jnp.where(problem.members, inside - mean, 0)


def sums_of(problem: Problem, rows: LaneRows, alpha: jax.Array) -> jax.Array:
    """−X̃ᵀ coefficients(α)."""
    if isinstance(problem.formulation, LeeLinWahba):
        a = -centred(problem, alpha)
    else:
        a = problem.formulation.coefficients(alpha, rows.y)
    return -centred(problem, product(problem.features.T, a))


def lane_sums(a: jax.Array) -> jax.Array:
    """Sums of [n, lanes, m], or of [n, lanes], for each lane."""
    return jnp.sum(a, axis=(0, *range(2, a.ndim)))


def lane_maxima(a: jax.Array) -> jax.Array:
    """The largest number of [n, lanes, m] for each lane; 0 where there are no numbers."""
    return jnp.max(a, axis=(0, 2), initial=0)


def gain_of(problem: Problem, rows: LaneRows, alpha: jax.Array) -> jax.Array:
    """D without −½ ‖W‖², [lanes]."""
    return jax.vmap(problem.formulation.dual_gain, in_axes=(1, 1))(alpha, rows.C)
