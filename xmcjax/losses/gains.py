"""The hinge losses of multi-class SVMs as functions of the gains h: their formulas, written once.

h is [..., m], a column per class, −∞ for a class that does not count: 1 + z_j − z_y over the classes j ≠ y,
or 1 + z_j of Lee, Lin and Wahba. The arrays are of JAX, or of NumPy, for certificates in float64 on the host.

    hinges            Σ_j max{0, h_j}
    squared_hinges    Σ_j max{0, h_j}²
    topk_hinge        alpha: max{0, mean of the k largest h},   beta: mean of the k largest max{0, h}

and, with a smoothing γ > 0, their Moreau envelopes, max {⟨h, x⟩ − γ/2 ‖x‖² : x ∈ Δ} with Δ = [0, 1]^m for
`smooth_hinges`, and for `smooth_topk_hinge` the set of :func:`xmcjax.projections.topk_simplex`.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._sizes import repeated, rows_behind
from xmcjax.losses._envelope import envelope, of_topk_simplex
from xmcjax.losses._largest import largest, membership

Variant = Literal["alpha", "beta"]


def hinges(h, among=None) -> Any:
    """The sum of the hinges, [...].

    Args:
        h: of the formula.
        among: the classes that count, bool [..., m], in place of −∞ for the others: XLA makes fewer passes.
    """
    terms = positive(h)
    return (terms if among is None else jnp.where(among, terms, 0)).sum(axis=-1)


def squared_hinges(h) -> Any:
    """The sum of the squared hinges, [...]."""
    return (positive(h) ** 2).sum(axis=-1)


def topk_hinge(h, k: int, variant: Variant, top=None, order=None) -> Any:
    """The top-k hinge, [...]; at a kink its gradient is a subgradient, in which ties share alike.

    Args:
        h, k, variant: of the formula.
        top: the k largest gains, falling, [..., k], where they are known.
        order: (numbers in the order of the gains, [..., m], the k largest of them), to tell which they are.
    """
    if isinstance(h, np.ndarray):
        return _of_the_largest(_host_largest(h, k), variant)
    top = largest(jax.lax.stop_gradient(h), k) if top is None else top
    return _topk(h, top, (h, top) if order is None else order, k, variant)


def smooth_hinges(h, gamma) -> Any:
    """The sum of the smoothed hinges, [...]."""
    x = (h / gamma).clip(0, 1)
    return ((h.clip(0) - gamma / 2 * x) * x).sum(axis=-1)


def smooth_topk_hinge(h, k: int, gamma, variant: Variant) -> Any:
    """The smoothed top-k hinge, [...]."""
    if not isinstance(h, np.ndarray):
        return _envelope(h, gamma, k, variant)
    behind = rows_behind(h.shape) if h.ndim == 2 else 0
    with jax.enable_x64(True):
        value = _value(jnp.asarray(repeated(h, behind)), jnp.asarray(gamma, h.dtype), k, variant)
    return np.asarray(value)[: len(h)] if behind else np.asarray(value)


def positive(h) -> Any:
    """max{0, h}, whose derivative at 0 is 0."""
    return np.maximum(h, 0) if isinstance(h, np.ndarray) else jax.nn.relu(h)


def _of_the_largest(top, variant: Variant) -> Any:
    return positive(top.mean(axis=-1)) if variant == "alpha" else positive(top).mean(axis=-1)


def _host_largest(h: np.ndarray, k: int) -> np.ndarray:
    if k == 1:
        return h.max(axis=-1, keepdims=True)
    return np.partition(h, h.shape[-1] - k, axis=-1)[..., h.shape[-1] - k :]


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _topk(h: jax.Array, top: jax.Array, order: tuple, k: int, variant: Variant) -> jax.Array:
    """The loss, [...], of gains h whose k largest, `top`, are known. It is differentiated in h alone."""
    return _of_the_largest(top, variant)


@_topk.defjvp
def _(k, variant, primals, tangents):
    (h, top, order), (dh, *_) = primals, tangents
    loss = _topk(h, top, order, k, variant)
    violated = loss[..., None] > 0 if variant == "alpha" else h > 0
    # the x of Δ with ⟨h, x⟩ = φ(h): 1/k for each of the k largest
    x = jnp.where(violated, membership(*order) / k, 0)
    return loss, jnp.sum(x * dh, axis=-1)


def _envelope(h, gamma, k: int, variant: Variant):
    return envelope(h, gamma, of_topk_simplex(k, variant))[0]


_value = jax.jit(_envelope, static_argnums=(2, 3))
