"""The top-k hinge losses: the mean of the k largest margin violations.

    alpha   φ(a) = max{0, (1/k) Σ_{j≤k} (1 + a_[j])}
    beta    φ(a) = (1/k) Σ_{j≤k} max{0, 1 + a_[j]}

a_[1] ≥ a_[2] ≥ … are the margins z_j − z_y of the open classes other than y, so that k ≤ m − 1.
Both are the support function of a set of dual variables x, one for each of these classes,
φ(a) = max {⟨a + 1, x⟩ : x ∈ Δ}, with r = 1 in

    alpha   Δ = {x ≥ 0, 1ᵀx ≤ r, x_j ≤ 1ᵀx / k}       beta   Δ = {x ≥ 0, 1ᵀx ≤ r, x_j ≤ r / k}

Where fewer than k of them are open, alpha's Δ is {0} and its loss is 0; beta's sum has fewer terms.

Source: M. Lapin, M. Hein, B. Schiele, "Top-k Multiclass SVM", NIPS 2015; alpha is its eq. (3), beta
its eq. (5). Its a_[j] include the 0 of class y; then its Proposition 3 would not hold for k ≥ 2.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax.losses import gains
from xmcjax.losses._classes import Rows, checked_k, evaluate
from xmcjax.losses._conjugates import dual_variables, on_domain, slack
from xmcjax.losses._largest import largest_gains
from xmcjax.losses.gains import Variant


def topk_hinge(scores, labels, k: int, variant: Variant = "alpha", *, where=None) -> jax.Array:
    """The top-k hinge loss of each row.

    alpha: max{0, (1/k) Σ_{j≤k} (1 + a_[j])}; beta: (1/k) Σ_{j≤k} max{0, 1 + a_[j]}, with a_[j] the j-th
    largest of the margins z_j − z_y of the classes other than y. alpha ≤ beta, and both bound the top-k
    error from above. k = 1 is the loss of Crammer and Singer.

    At a kink the gradient is a subgradient: classes that tie at the k-th place share it equally.

    Args:
        scores: z, [..., m], of a floating point dtype.
        labels: y, integers [...], from 0 to m−1.
        k: 1 ≤ k ≤ m−1.
        variant: "alpha" (eq. 3) or "beta" (eq. 5).
        where: which classes are open, booleans that broadcast to [..., m]; all by default. Class y is
            always open. With fewer than k+1 open classes alpha is 0, and beta has fewer terms but
            still divides by k.

    Returns:
        [...], in the dtype of the scores, summed in float32 at least. NaN where a label that is not
        known when tracing lies outside 0 … m−1.

    Raises:
        TypeError: a dtype of the wrong kind, or k that is no int.
        ValueError: k, the variant, shapes or known labels out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> topk_hinge(jnp.array([2.0, 1.5, 0.5, -1.0], jnp.float32), jnp.array(0), k=2)
        Array(0., dtype=float32)
        >>> topk_hinge(jnp.array([2.0, 1.5, 0.5, -1.0], jnp.float32), jnp.array(0), k=2, variant="beta")
        Array(0.25, dtype=float32)

    Reference:
        M. Lapin, M. Hein, B. Schiele, "Top-k Multiclass SVM", 2015, eq. (3) and (5).
    """
    k = checked_k(k, scores)
    return evaluate(topk_hinge_rows, scores, labels, where, k=k, variant=checked_variant(variant))


def topk_hinge_conjugate(duals, labels, k: int, variant: Variant = "alpha", *, where=None) -> jax.Array:
    """The convex conjugate of :func:`topk_hinge` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = −Σ_{j≠y} v_j where v sums to 0 and v_{≠y} lies in Δ (alpha: v ≥ 0, 1ᵀv ≤ 1, v_j ≤ 1ᵀv/k;
    beta: v ≥ 0, 1ᵀv ≤ 1, v_j ≤ 1/k), +∞ elsewhere and where a closed class has v_j ≠ 0.
    Membership is tested up to rounding (see docs/guide/losses.md).

    It takes the duals v in place of the scores. The other arguments, the result [...] and the errors are as
    in the loss.

    Reference:
        "Top-k Multiclass SVM", 2015, Proposition 2 (eq. 4) and section 2.3.

    Example:
        >>> topk_hinge_conjugate(jnp.array([0.5, -1.0, 0.5]), jnp.array(1), k=2).item()
        -1.0
        >>> topk_hinge_conjugate(jnp.array([1.0, -1.0, 0.0]), jnp.array(1), k=2).item()
        inf
    """
    k = checked_k(k, duals)
    return evaluate(topk_hinge_conjugate_rows, duals, labels, where, k=k, variant=checked_variant(variant))


def checked_variant(variant) -> Variant:
    """The variant, "alpha" or "beta"."""
    if variant not in ("alpha", "beta"):
        raise ValueError(f"expected the variant 'alpha' or 'beta', got {variant!r}")
    return variant


def topk_hinge_rows(rows: Rows, k: int, variant: Variant) -> jax.Array:
    """The loss of checked rows, [...]."""
    top, scores = largest_gains(rows, k)
    return gains.topk_hinge(1 + rows.margins(), k, variant, top, (rows.of_others(), scores))


def topk_hinge_conjugate_rows(rows: Rows, k: int, variant: Variant) -> jax.Array:
    """The conjugate at checked rows of duals, [...]."""
    _, total, outside = topk_simplex_duals(rows, k, variant)
    # φ*(x) = −⟨1, x⟩
    return on_domain(rows, outside, -total)


def topk_simplex_duals(rows: Rows, k: int, variant: Variant) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(x [..., m], 1ᵀx [...], whether x lies outside Δ [...]) as of :func:`dual_variables`."""
    x, total, outside = dual_variables(rows)
    cap = total / k if variant == "alpha" else 1 / k
    return x, total, outside | (total > 1 + slack(rows)) | (jnp.max(x, axis=-1) > cap + slack(rows))
