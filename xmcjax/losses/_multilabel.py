"""Losses of rows with any number of positive classes: the pairwise hinge and the mean cross-entropy.

Y are the positive open classes of a row, N its negative ones, z its scores.

Source: M. Lapin, M. Hein, B. Schiele, "Analysis and Optimization of Loss Functions for Multiclass, Top-k, and
Multilabel Classification", IEEE TPAMI 2018, where they are called SVM^ML and LR^ML. The first is that of K.
Crammer, Y. Singer, "A Family of Additive Online Algorithms for Category Ranking", JMLR 2003.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xmcjax.losses._classes import accumulator, checked_signs, whole_rows
from xmcjax.losses._conjugates import entropy, known_on_domain, rounding


def multilabel_hinge(scores, targets, *, where=None) -> jax.Array:
    """max {0, 1 + max_N z − min_Y z}: the largest margin violation of a positive and a negative class.

    With one positive class it is :func:`crammer_singer`. Its gradient is a subgradient where it has a kink:
    classes that tie share alike.

    Args:
        scores: z, [..., m], of a floating point dtype.
        targets: ±1, [..., m], integers or floating point numbers; 1 for the classes of Y.
        where: which classes count, booleans that broadcast to [..., m]; all by default.

    Returns:
        [...], in the dtype of the scores, computed in float32 at least; 0 where Y or N is empty. Targets that
        are not known when tracing are not checked.

    Raises:
        TypeError: a dtype of the wrong kind.
        ValueError: shapes that do not fit, or a known target that is not ±1.

    Example:
        >>> import jax.numpy as jnp
        >>> multilabel_hinge(jnp.array([2.0, 0.5, 0.0, -3.0], jnp.float32), jnp.array([1, 1, -1, -1]))
        Array(0.5, dtype=float32)

    Reference:
        Lapin, Hein, Schiele (2018), SVM^ML; Crammer, Singer (2003).
    """
    return _evaluate(_hinge, *checked_signs("scores", scores, targets, where))


def multilabel_hinge_conjugate(duals, targets, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`multilabel_hinge` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = −Σ_N v_j where v ≥ 0 on N, v ≤ 0 on Y, Σ v = 0 and Σ_N v ≤ 1, +∞ elsewhere and where a class that
    does not count has v_j ≠ 0. Membership is tested up to rounding (see docs/guide/losses.md).

    It takes the duals v in place of the scores. The other arguments, the result [...] and the errors are as
    in the loss.

    Example:
        >>> multilabel_hinge_conjugate(jnp.array([0.5, -0.5, 0.0]), jnp.array([-1, 1, 1])).item()
        -0.5
    """
    return _evaluate(_hinge_conjugate, *checked_signs("duals", duals, targets, where))


def multilabel_cross_entropy(scores, targets, *, where=None) -> jax.Array:
    """(1/|Y|) Σ_{y ∈ Y} log Σ_j e^{z_j − z_y}: the mean of the softmax losses of the positive classes.

    It is the cross-entropy of the softmax of z relative to the uniform distribution on Y, which is their
    Kullback-Leibler divergence plus log |Y|. With one positive class it is :func:`softmax_cross_entropy`.

    The arguments, the result and the errors are those of :func:`multilabel_hinge`; 0 where Y is empty.

    Example:
        >>> import jax.numpy as jnp
        >>> multilabel_cross_entropy(jnp.zeros(4, jnp.float32), jnp.array([1, 1, -1, -1]))
        Array(1.3862944, dtype=float32)

    Reference:
        Lapin, Hein, Schiele (2018), LR^ML.
    """
    return _evaluate(_cross_entropy, *checked_signs("scores", scores, targets, where))


def multilabel_cross_entropy_conjugate(duals, targets, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`multilabel_cross_entropy` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = Σ_j p_j log p_j with p = v + 1_Y/|Y| where p ≥ 0 and Σ v = 0, +∞ elsewhere and where a class
    that does not count has v_j ≠ 0; where Y is empty, 0 at v = 0 alone. Membership is tested up to rounding
    (see docs/guide/losses.md).

    It takes the duals v in place of the scores. The other arguments, the result [...] and the errors are as
    in the loss.

    Example:
        >>> round(multilabel_cross_entropy_conjugate(jnp.array([0.5, -0.5]), jnp.array([-1, 1])).item(), 3)
        -0.693
    """
    return _evaluate(_cross_entropy_conjugate, *checked_signs("duals", duals, targets, where))


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(core: Callable, values, targets, where):
    """``core(z, positive, negative, dtype of the values)`` [...], in that dtype."""
    values, targets, where = whole_rows(values), whole_rows(targets), whole_rows(where)
    z = values.astype(accumulator(values.dtype))
    counted = True if where is None else jnp.broadcast_to(where, values.shape)
    return core(z, (targets > 0) & counted, (targets < 0) & counted, values.dtype).astype(values.dtype)


def _hinge(z, positive, negative, _):
    both = jnp.any(positive, axis=-1) & jnp.any(negative, axis=-1)
    least = jnp.min(jnp.where(positive, z, jnp.inf), axis=-1)
    most = jnp.max(jnp.where(negative, z, -jnp.inf), axis=-1)
    gain = 1 + (jnp.where(both, most, 0) - jnp.where(both, least, 0))
    return jnp.where(both, jax.nn.relu(gain), 0)


def _hinge_conjugate(v, positive, negative, dtype):
    slack = rounding(dtype, v)
    total = jnp.sum(jnp.where(negative, v, 0), axis=-1)
    unbalanced = jnp.abs(jnp.sum(jnp.where(positive | negative, v, 0), axis=-1)) > slack * jnp.maximum(
        total, 1
    )
    wrong = (negative & (v < -slack)) | (positive & (v > slack)) | (~positive & ~negative & (v != 0))
    outside = unbalanced | jnp.any(wrong, axis=-1) | (total > 1 + slack)
    return known_on_domain(v, outside, -total)


def _cross_entropy(z, positive, negative, _):
    count = jnp.sum(positive, axis=-1, keepdims=True)
    counted = jnp.where(count > 0, jnp.where(positive | negative, z, -jnp.inf), 0)
    # differences first: they are exact where they are small, however large the scores
    most = jax.lax.stop_gradient(jnp.max(counted, axis=-1, keepdims=True))
    most = jnp.where(jnp.isfinite(most), most, 0)
    # Σ_j e^{z_j − most} without the 1 of one largest entry, so that small terms keep their digits: with one
    # positive class the loss is made of them alone. That entry is known by its place, found once: XLA may
    # compute the scores anew for each of two sums, and round them otherwise, so that both would leave out
    # others.
    place = jax.lax.broadcasted_iota(jnp.int32, z.shape, z.ndim - 1)
    nowhere = z.shape[-1]
    first = jnp.min(jnp.where(counted == most, place, nowhere), axis=-1, keepdims=True)
    e = jnp.exp(counted - most)
    beside = jnp.sum(jnp.where(place == first, e - jax.lax.stop_gradient(e), e), axis=-1)
    beside = beside - (first[..., 0] == nowhere).astype(z.dtype)
    share = 1 / jnp.maximum(count, 1).astype(z.dtype)
    mean = jnp.sum(jnp.where(positive, share * (z - most), 0), axis=-1)
    return jnp.where(count[..., 0] > 0, jnp.log1p(beside) - mean, 0)


def _shares(positive, dtype):
    """1/|Y| for the classes of Y, [..., m]; 0 where there are none."""
    count = jnp.sum(positive, axis=-1, keepdims=True)
    return positive.astype(dtype) / jnp.maximum(count, 1).astype(dtype)


def _cross_entropy_conjugate(v, positive, negative, dtype):
    slack = rounding(dtype, v)
    p = v + _shares(positive, v.dtype)
    total = jnp.sum(jnp.where(positive | negative, v, 0), axis=-1)
    wrong = ((positive | negative) & (p < -slack)) | (~positive & ~negative & (v != 0))
    outside = (jnp.abs(total) > slack) | jnp.any(wrong, axis=-1)
    empty = ~jnp.any(positive, axis=-1)
    counted = (positive | negative) & ~empty[..., None]
    outside = jnp.where(empty, jnp.any(v != 0, axis=-1), outside)
    value = -jnp.sum(jnp.where(positive | negative, entropy(p, counted), 0), axis=-1)
    return known_on_domain(v, outside, jnp.where(empty, 0, value))
