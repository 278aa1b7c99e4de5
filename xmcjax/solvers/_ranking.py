"""The multi-label SVM as a formulation: every label of a row is to stand above all others.

The labels Y_i of row i, and the others N_i, are given as entries that are not 0 of a matrix y [..., m], an
array or CSR. With scores z_i = Wᵀ x_i and a weight r_i of the loss of each row, C mostly,

    min_W  P = ½ ‖W‖² + Σ_i r_i φ(z_i),      φ(z) = [1 + max_N z − min_Y z]₊, 0 where Y or N is empty,
    max_α  D = ½ Σ |α| − ½ ‖W‖²,             W = Xᵀ α,  α_i in the dual set:

    α_Y ≥ 0,  α_N ≤ 0,  Σ_Y α = −Σ_N α ≤ r.

Dual variables have signs here: `coefficients` is the identity, and so is M. h = y/2 − z, y = ±1, is the slope
of D along α. The row map is the projection of b on the set: with the t for which they sum to 0

    α_Y = max(b − t, 0),  α_N = min(b − t, 0),

and where Σ_Y α is above r, Y and N have a threshold each, by which they sum to ±r.

Lapin, Hein and Schiele, "Analysis and optimization of loss functions for multiclass, top-k, and multilabel
classification", 2018 (SVM^ML); Crammer and Singer, "A family of additive online algorithms for category
ranking", 2003. With one label per row it is the SVM of Crammer and Singer 2001.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax.solvers._formulation_base import Formulation, arrays_of, radius_of_rows, with_values


@dataclasses.dataclass(frozen=True)
class Ranking(Formulation):
    """The formulation that the module describes."""

    name: str = "multilabel"
    sparse = True
    has_own = True

    def linear(self, Z, y) -> Any:
        return -Z

    def coefficients(self, alpha, y) -> Any:
        return alpha

    def gains(self, Z, y) -> Any:
        return arrays_of(Z).where(_labels(y), 0.5, -0.5) - Z

    def losses_of(self, Z, y, k=1) -> Any:
        return np.maximum(self._worst(Z, y), 0)

    def kinks_of(self, Z, y, within, k=1) -> Any:
        return np.abs(self._worst(Z, y)) <= within

    def _worst(self, Z, y) -> np.ndarray:
        """1 + max_N z − min_Y z, −∞ where a row has no pair."""
        own = _labels(y)
        best = np.where(own, -np.inf, Z).max(axis=-1)
        return 1 + best - np.where(own, Z, np.inf).min(axis=-1)

    def dual_gain(self, alpha, C):
        return abs(alpha).sum() / 2

    def row_map(self, b, y, sigma, C, k=1):
        return nearest(b, y, radius_of_rows(C))

    def inside(self, alpha: sp.csr_array, C, k: int = 1) -> sp.csr_array:
        """As in other formulations; the signs are taken to be right."""
        counts = np.diff(alpha.indptr)
        above = with_values(alpha, np.maximum(alpha.data, 0))
        up = np.asarray(above.sum(axis=1)).ravel()
        down = up - np.asarray(alpha.sum(axis=1)).ravel()
        s = np.minimum(np.minimum(up, down), C)
        factors = [np.repeat(s / np.where(total > 0, total, 1), counts) for total in (up, down)]
        return with_values(alpha, alpha.data * np.where(alpha.data > 0, *factors))


def _labels(y) -> Any:
    """Y as an array of truth values."""
    return y.toarray() != 0 if sp.issparse(y) else y != 0


def nearest(b: jax.Array, y: jax.Array, r: Any, apart: Any = 0.0) -> jax.Array:
    """argmin over the dual set of ‖α − b‖².

    Args:
        b: [..., m]; with `apart` added for the labels that a row lacks, beside which their b might be lost.
        y: not 0 for the labels of a row, [..., m].
        r: ≥ 0, a number or [...].
        apart: a number or [..., 1].
    """
    own = y if y.dtype == bool else y != jnp.zeros((), y.dtype)
    r = jnp.broadcast_to(jnp.asarray(r, b.dtype), b.shape[:-1])
    at = jnp.where(own, b, b - apart)
    pairs = jnp.any(own, axis=-1) & jnp.any(~own, axis=-1) & (r > 0)
    none = jnp.max(jnp.where(own, at, -jnp.inf), axis=-1) <= jnp.min(jnp.where(own, jnp.inf, at), axis=-1)
    t = _balance(at, own)
    s = jnp.sum(jnp.where(own, jnp.maximum(b - t, 0), 0), axis=-1)
    over = (s > r)[..., None]
    above = jnp.where(over, _threshold(jnp.where(own, b, -jnp.inf), r), t)
    below = jnp.where(over, -_threshold(jnp.where(own, -jnp.inf, -b), r), t + apart)
    alpha = jnp.where(own, jnp.maximum(b - above, 0), jnp.minimum(b - below, 0))
    return jnp.where((pairs & ~none)[..., None], alpha, 0)


def _balance(b: jax.Array, own: jax.Array) -> jax.Array:
    """The t with Σ_Y max(b − t, 0) = Σ_N max(t − b, 0), [..., 1]; of use only where there is such a t."""
    order = jnp.argsort(-b, axis=-1)
    b, own = jnp.take_along_axis(b, order, -1), jnp.take_along_axis(own, order, -1)
    # at t = b_j the entries of Y up to j count, and those of N from j on
    up = jnp.cumsum(jnp.where(own, b, 0), axis=-1)
    count_up = jnp.cumsum(own.astype(b.dtype), axis=-1)
    down = jnp.cumsum(jnp.where(own, 0, b)[..., ::-1], axis=-1)[..., ::-1]
    count_down = jnp.cumsum((~own).astype(b.dtype)[..., ::-1], axis=-1)[..., ::-1]
    # Σ rises as t falls: the first j at which it is above 0; t is between b_(j-1) and b_j
    rises = up - count_up * b + down - count_down * b > 0
    last = jnp.argmax(rises, axis=-1, keepdims=True)
    first = jnp.maximum(last - 1, 0)
    total = jnp.take_along_axis(up, first, -1) + jnp.take_along_axis(down, last, -1)
    count = jnp.take_along_axis(count_up, first, -1) + jnp.take_along_axis(count_down, last, -1)
    none = ~jnp.any(rises, axis=-1, keepdims=True)
    return jnp.where(none, b[..., -1:], total / jnp.maximum(count, 1))


def _threshold(b: jax.Array, r: jax.Array) -> jax.Array:
    """The t with Σ max(b − t, 0) = r, [..., 1]; entries of −∞ count for nothing."""
    b = -jnp.sort(-b, axis=-1)
    there = b > -jnp.inf
    sums = jnp.cumsum(jnp.where(there, b, 0), axis=-1) - r[..., None]
    number = jnp.arange(1, b.shape[-1] + 1, dtype=b.dtype)
    last = jnp.sum(there & (number * b > sums), axis=-1, keepdims=True) - 1
    last = jnp.maximum(last, 0)
    return jnp.take_along_axis(sums, last, -1) / (last + 1).astype(b.dtype)
