"""The top-k hinge losses made smooth: their Moreau envelopes.

With the set Δ of dual variables of the top-k hinge loss (r = 1; alpha or beta) and a smoothing γ > 0,

    φ_γ(a) = max {⟨a + 1, x⟩ − γ/2 ‖x‖² : x ∈ Δ},   reached at the projection x of (a + 1)/γ onto Δ.

The gradient is that x, with Lipschitz constant 1/γ. γ → 0 gives the top-k hinge loss, and
φ − γ/2 ≤ φ_γ ≤ φ. Where fewer than k classes other than y are open, alpha's Δ is {0} and its loss is 0.

Source: M. Lapin, M. Hein, B. Schiele, "Loss Functions for Top-k Error: Analysis and Insights", CVPR 2016,
where they are called top-k SVM_γ (alpha and beta). It projects a + 1 onto Δ of radius γ, γ times the x here.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from xmcjax import _sparse
from xmcjax._range import check_range
from xmcjax.losses._classes import Rows, accumulator, checked_k, checked_scores, concrete, evaluate
from xmcjax.losses._conjugates import on_domain
from xmcjax.losses._envelope import of_margins, of_topk_simplex
from xmcjax.losses._topk_hinge import checked_variant, topk_simplex_duals
from xmcjax.losses.gains import Variant


def smooth_topk_hinge(
    scores, labels, k: int, gamma: ArrayLike = 1.0, variant: Variant = "alpha", *, where=None
) -> jax.Array:
    """The smooth top-k hinge loss of each row: max {⟨a + 1, x⟩ − γ/2 ‖x‖² : x ∈ Δ}.

    a_j = z_j − z_y for the classes j ≠ y, and Δ = {x ≥ 0, 1ᵀx ≤ 1, x_j ≤ 1ᵀx/k} (alpha) or
    {x ≥ 0, 1ᵀx ≤ 1, x_j ≤ 1/k} (beta). Its gradient is the projection of (a + 1)/γ onto Δ. It lies below
    :func:`topk_hinge`, by at most γ/2.

    Args:
        scores: z, [..., m], of a floating point dtype.
        labels: y, integers [...], from 0 to m−1.
        k: 1 ≤ k ≤ m−1. k = 1 is the smooth multi-class SVM (both variants).
        gamma: γ > 0, a number; 1 by default.
        variant: "alpha" or "beta", as in :func:`topk_hinge`.
        where: which classes are open, booleans that broadcast to [..., m]; all by default. Class y is
            always open. With fewer than k+1 open classes alpha is 0, and in beta x has fewer entries.

    Returns:
        [...], in the dtype of the scores, computed in float32 at least. NaN where a label that is not
        known when tracing lies outside 0 … m−1, or γ that is not known is not above 0.

    Raises:
        TypeError: a dtype of the wrong kind, or k that is no int.
        ValueError: k, γ, the variant, shapes or known labels out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> smooth_topk_hinge(jnp.array([2.0, 1.5, 0.5, -1.0], jnp.float32), jnp.array(0), k=1)
        Array(0.125, dtype=float32)

    Reference:
        M. Lapin, M. Hein, B. Schiele, "Loss Functions for Top-k Error: Analysis and Insights", 2016,
        top-k SVM_γ.
    """
    scores = checked_scores("scores", scores)
    k, variant, gamma = checked_k(k, scores), checked_variant(variant), checked_gamma(gamma, scores.dtype)
    return evaluate(_smooth_topk_hinge, scores, labels, where, gamma, k=k, variant=variant)


def smooth_topk_hinge_conjugate(
    duals, labels, k: int, gamma: ArrayLike = 1.0, variant: Variant = "alpha", *, where=None
) -> jax.Array:
    """The convex conjugate of :func:`smooth_topk_hinge` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = γ/2 Σ_{j≠y} v_j² − Σ_{j≠y} v_j where v sums to 0 and v_{≠y} lies in Δ, +∞ elsewhere.

    It takes the duals v in place of the scores, with v_j = 0 for closed classes. The other arguments, the
    result [...] and the errors are as in the loss.

    Example:
        >>> smooth_topk_hinge_conjugate(jnp.array([0.5, -1.0, 0.5]), jnp.array(1), k=2).item()
        -0.75
    """
    duals = checked_scores("scores", duals)
    k, variant, gamma = checked_k(k, duals), checked_variant(variant), checked_gamma(gamma, duals.dtype)
    return evaluate(_smooth_topk_hinge_conjugate, duals, labels, where, gamma, k=k, variant=variant)


def checked_gamma(gamma, dtype) -> jax.Array:
    """γ > 0, a scalar; where it is known, a number of the dtype in which scores of `dtype` are computed."""
    gamma = _sparse.in_byte_order(gamma)
    kind = gamma.dtype if hasattr(gamma, "dtype") else np.asarray(gamma).dtype
    if not (jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.integer)):
        raise TypeError(f"expected a real gamma, got {gamma!r}")
    if jnp.shape(gamma) != ():
        raise ValueError(f"expected gamma as one number, got the shape {jnp.shape(gamma)}")
    known = concrete(gamma)
    if known is not None:
        if not 0 < known < float("inf"):
            raise ValueError(f"expected a finite gamma > 0, got {known}")
        check_range("expected gamma", known, accumulator(dtype))
    # a whole number beyond 32 bits is passed on in the dtype of the computation
    return jnp.asarray(gamma, accumulator(dtype) if isinstance(gamma, int) else None)


def _smooth_topk_hinge(rows: Rows, gamma, k: int, variant: Variant):
    a, beyond = rows.margins_in_range()
    return jnp.where(gamma > 0, of_margins(1 + a, beyond, gamma, of_topk_simplex(k, variant)), jnp.nan)


def _smooth_topk_hinge_conjugate(rows: Rows, gamma, k: int, variant: Variant):
    x, total, outside = topk_simplex_duals(rows, k, variant)
    # φ*(x) = γ/2 ‖x‖² − ⟨1, x⟩
    return on_domain(rows, outside, gamma / 2 * jnp.sum(x * x, axis=-1) - total)
