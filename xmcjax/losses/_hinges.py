"""The all-in-one hinge losses of multi-class support vector machines, with their conjugates.

z are the scores, y the label, a_j = z_j − z_y the margins of the open classes other than y.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax.losses import gains
from xmcjax.losses._classes import Rows, evaluate
from xmcjax.losses._conjugates import closed_have_duals, dual_variables, on_domain, slack
from xmcjax.losses._topk_hinge import topk_hinge_conjugate_rows, topk_hinge_rows


def crammer_singer(scores, labels, *, where=None) -> jax.Array:
    """max{0, 1 + max_{j≠y} z_j − z_y}: the largest margin violation of each row.

    Its gradient is a subgradient where it has a kink: classes that tie for the maximum share alike.

    Args:
        scores: z, [..., m], of a floating point dtype.
        labels: y, integers [...], from 0 to m−1.
        where: which classes are open, booleans that broadcast to [..., m]; all by default. Class y is
            always open; the loss is 0 where no other is.

    Returns:
        [...], in the dtype of the scores, summed in float32 at least. NaN where a label that is not
        known when tracing lies outside 0 … m−1.

    Raises:
        TypeError: a dtype of the wrong kind.
        ValueError: shapes that do not fit, or a known label out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> crammer_singer(jnp.array([2.0, 1.5, 0.5, -1.0], jnp.float32), jnp.array(0))
        Array(0.5, dtype=float32)

    Reference:
        K. Crammer, Y. Singer, "On the Algorithmic Implementation of Multiclass Kernel-based Vector
        Machines", 2001; "Top-k Multiclass SVM", 2015, eq. (1).
    """
    return evaluate(topk_hinge_rows, scores, labels, where, k=1, variant="alpha")


def crammer_singer_conjugate(duals, labels, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`crammer_singer` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = −Σ_{j≠y} v_j where v sums to 0, v_{≠y} ≥ 0 and Σ_{j≠y} v_j ≤ 1, +∞ elsewhere.

    It takes the duals v in place of the scores, with v_j = 0 for closed classes. The other arguments, the
    result [...] and the errors are as in the loss.

    Reference:
        "Top-k Multiclass SVM", 2015, Proposition 1 (eq. 2).

    Example:
        >>> crammer_singer_conjugate(jnp.array([0.25, -0.5, 0.25]), jnp.array(1)).item()
        -0.5
    """
    return evaluate(topk_hinge_conjugate_rows, duals, labels, where, k=1, variant="alpha")


def weston_watkins(scores, labels, *, where=None) -> jax.Array:
    """Σ_{j≠y} max{0, 1 + z_j − z_y}: the sum of the margin violations of each row.

    The arguments, the result and the errors are those of :func:`crammer_singer`. A sum over many classes may
    exceed float16.

    Example:
        >>> import jax.numpy as jnp
        >>> weston_watkins(jnp.array([2.0, 1.5, 1.25, -1.0], jnp.float32), jnp.array(0))
        Array(0.75, dtype=float32)

    Reference:
        J. Weston, C. Watkins, "Support Vector Machines for Multi-Class Pattern Recognition", 1999;
        M. Alber et al., "Distributed Optimization of Multi-Class SVMs", 2017, eq. (3).
    """
    return evaluate(_weston_watkins, scores, labels, where)


def weston_watkins_conjugate(duals, labels, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`weston_watkins` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = −Σ_{j≠y} v_j where v sums to 0 and 0 ≤ v_j ≤ 1 for j ≠ y, +∞ elsewhere.

    It takes the duals v in place of the scores, with v_j = 0 for closed classes. The other arguments, the
    result [...] and the errors are as in the loss.

    Example:
        >>> weston_watkins_conjugate(jnp.array([1.0, -1.5, 0.5]), jnp.array(1)).item()
        -1.5
    """
    return evaluate(_weston_watkins_conjugate, duals, labels, where)


def lee_lin_wahba(scores, labels, *, where=None) -> jax.Array:
    """Σ_{j≠y} max{0, 1 + z_j}: every class but y should score below −1.

    It needs scores that sum to 0 over the classes, as the weights of a linear model with this loss are
    constrained to; otherwise nothing holds up the score of class y, which it does not depend on.

    The arguments, the result and the errors are those of :func:`crammer_singer`. A sum over many classes may
    exceed float16.

    Example:
        >>> import jax.numpy as jnp
        >>> lee_lin_wahba(jnp.array([2.0, -0.5, -0.75, -1.25], jnp.float32), jnp.array(0))
        Array(0.75, dtype=float32)

    Reference:
        Y. Lee, Y. Lin, G. Wahba, "Multicategory Support Vector Machines", 2004; M. Alber et al.,
        "Distributed Optimization of Multi-Class SVMs", 2017, eq. (2).
    """
    return evaluate(_lee_lin_wahba, scores, labels, where)


def lee_lin_wahba_conjugate(duals, labels, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`lee_lin_wahba` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = −Σ_{j≠y} v_j where v_y = 0 and 0 ≤ v_j ≤ 1 for j ≠ y, +∞ elsewhere.

    It takes the duals v in place of the scores, with v_j = 0 for closed classes. The other arguments, the
    result [...] and the errors are as in the loss.

    Example:
        >>> lee_lin_wahba_conjugate(jnp.array([1.0, 0.0, 0.5]), jnp.array(1)).item()
        -1.5
    """
    return evaluate(_lee_lin_wahba_conjugate, duals, labels, where)


def _weston_watkins(rows: Rows):
    return gains.hinges(1 + (rows.values - rows.at_label()[..., None]), rows.others)


def _weston_watkins_conjugate(rows: Rows):
    x, total, outside = dual_variables(rows)
    return on_domain(rows, outside | (jnp.max(x, axis=-1) > 1 + slack(rows)), -total)


def _lee_lin_wahba(rows: Rows):
    return gains.hinges(1 + rows.values, rows.others)


def _lee_lin_wahba_conjugate(rows: Rows):
    x = jnp.where(rows.others, rows.values, 0)
    outside = closed_have_duals(rows) | (rows.at_label() != 0)
    outside |= (jnp.min(x, axis=-1) < -slack(rows)) | (jnp.max(x, axis=-1) > 1 + slack(rows))
    return on_domain(rows, outside, -jnp.sum(x, axis=-1))
