"""The cross-entropy of the softmax and its top-k forms.

a_j = z_j − z_y are the margins of the open classes other than y. With the entropy
H(p) = −Σ_j p_j log p_j, each loss is log(1 + e^E) of

    softmax_cross_entropy     E = log Σ_j e^{a_j} = max {⟨a, p⟩ + H(p) : p ≥ 0, 1ᵀp = 1}
    topk_entropy              E = max {⟨a, p⟩ + H(p) : 0 ≤ p ≤ 1/k, 1ᵀp = 1}
    truncated_topk_entropy    E = log Σ_j e^{a_j} without the k − 1 largest a_j

The dual variables are x = σ(E) p: the conjugate of the softmax restricted to the top-k simplex is
max {⟨a, x⟩ + H(x) − (1 − s) log(1 − s) : s = 1ᵀx ≤ 1, 0 ≤ x ≤ s/k}; with x = s p the maximum over p is E,
and max {sE + H(s, 1 − s) : 0 ≤ s ≤ 1} is log(1 + e^E).

Source: M. Lapin, M. Hein, B. Schiele, "Loss Functions for Top-k Error: Analysis and Insights", CVPR 2016,
where the top-k forms are called top-k Ent and top-k Ent_tr.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

from xmcjax.losses._classes import Rows, checked_k, evaluate
from xmcjax.losses._conjugates import entropy, on_domain
from xmcjax.losses._largest import largest_scores, membership
from xmcjax.losses._topk_hinge import topk_simplex_duals


def softmax_cross_entropy(scores, labels, *, where=None) -> jax.Array:
    """log Σ_j e^{z_j} − z_y, the negative log-likelihood of the class y.

    Small losses keep their digits: it is computed as log(1 + Σ_{j≠y} e^{z_j − z_y}).

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
        >>> softmax_cross_entropy(jnp.array([0.0, 0.0, 0.0, -50.0], jnp.float32), jnp.array(0)).round(4)
        Array(1.0986, dtype=float32)
    """
    return evaluate(_cross_entropy, scores, labels, where)


def softmax_cross_entropy_conjugate(duals, labels, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`softmax_cross_entropy` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = Σ_j u_j log u_j with u = v + e_y, where u ≥ 0 and 1ᵀu = 1, +∞ elsewhere.

    It takes the duals v in place of the scores, with v_j = 0 for closed classes. The other arguments, the
    result [...] and the errors are as in the loss.

    Example:
        >>> round(softmax_cross_entropy_conjugate(jnp.array([0.25, -0.5, 0.25]), jnp.array(1)).item(), 3)
        -1.04
    """
    return evaluate(_topk_entropy_conjugate, duals, labels, where, k=1)


def topk_entropy(scores, labels, k: int, *, where=None) -> jax.Array:
    """The top-k entropy loss: the softmax loss whose dual variables are held within the top-k simplex.

    log(1 + e^E) with E = max {⟨a, p⟩ + H(p) : 0 ≤ p_j ≤ 1/k, 1ᵀp = 1}, a_j = z_j − z_y for j ≠ y. No
    class counts for more than 1/k, so that a few close competitors cost little. k = 1 is
    :func:`softmax_cross_entropy`. E has a closed form once it is known how many of the largest margins
    are held at 1/k, and its gradient is p.

    The loss is 0 with fewer than k+1 open classes, because no p is left. The other arguments, the result and
    the errors are as in :func:`softmax_cross_entropy`.

    Args:
        k: 1 ≤ k ≤ m−1; it is an int, or a TypeError.

    Example:
        >>> import jax.numpy as jnp
        >>> topk_entropy(jnp.array([0.0, 9.0, -9.0, -9.0], jnp.float32), jnp.array(0), k=2).round(4)
        Array(1.3425, dtype=float32)

    Reference:
        M. Lapin, M. Hein, B. Schiele, "Loss Functions for Top-k Error: Analysis and Insights", 2016,
        top-k Ent.
    """
    return evaluate(_topk_entropy, scores, labels, where, k=checked_k(k, scores))


def topk_entropy_conjugate(duals, labels, k: int, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`topk_entropy` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = Σ_{j≠y} v_j log v_j + (1 − s) log(1 − s), s = Σ_{j≠y} v_j, where v sums to 0 and v_{≠y} lies in
    the top-k simplex {x ≥ 0, 1ᵀx ≤ 1, x_j ≤ 1ᵀx/k}, +∞ elsewhere.

    It takes the duals v in place of the scores, with v_j = 0 for closed classes. The other arguments, the
    result [...] and the errors are as in the loss.

    Example:
        >>> round(topk_entropy_conjugate(jnp.array([0.25, -0.5, 0.25]), jnp.array(1), k=2).item(), 3)
        -1.04
    """
    return evaluate(_topk_entropy_conjugate, duals, labels, where, k=checked_k(k, duals))


def truncated_topk_entropy(scores, labels, k: int, *, where=None) -> jax.Array:
    """log(1 + Σ_j e^{z_j − z_y}) over the classes other than y without the k−1 largest of them.

    It forgives k−1 competitors altogether. For k ≥ 2 it is not convex, and therefore has no conjugate
    (the maximum over z of ⟨v, z⟩ − f(z) is +∞ for every v ≠ 0). k = 1 is
    :func:`softmax_cross_entropy`.

    The loss is 0 with fewer than k+1 open classes, because nothing is left. Where classes tie for the last
    place that is left out, the gradient is the mean over the choices. The arguments, the result and the
    errors are those of :func:`topk_entropy`.

    Example:
        >>> import jax.numpy as jnp
        >>> scores = jnp.array([0.0, 9.0, 0.0, 0.0], jnp.float32)
        >>> truncated_topk_entropy(scores, jnp.array(0), k=2).round(4)
        Array(1.0986, dtype=float32)

    Reference:
        M. Lapin, M. Hein, B. Schiele, "Loss Functions for Top-k Error: Analysis and Insights", 2016,
        top-k Ent_tr.
    """
    return evaluate(_truncated_topk_entropy, scores, labels, where, k=checked_k(k, scores))


def _cross_entropy(rows: Rows):
    return _log_loss(rows.values, rows.labels, rows.own, rows.others)


@jax.custom_jvp
def _log_loss(z: jax.Array, labels: jax.Array, own: jax.Array, others: jax.Array) -> jax.Array:
    """log(1 + e^E) of E = log Σ_j e^{z_j − z_y}, [...], from the scores and fields of :class:`Rows`."""
    return jax.nn.softplus(_log_odds(z, labels, others)[0])


@_log_loss.defjvp
def _(primals, tangents):
    z, labels, own, others = primals
    E, e, total = _log_odds(z, labels, others)
    # σ(E) (p − e_y); 0 where no class counts, and for closed classes even where other scores are NaN
    likely = jax.nn.sigmoid(E)[..., None]
    slope = jnp.where(others, likely * (e / total[..., None]), jnp.where(own, -likely, 0))
    return jax.nn.softplus(E), jnp.sum(slope * tangents[0], axis=-1)


def _log_odds(z: jax.Array, labels: jax.Array, others: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """E [...], e^{z_j − t} [..., m] of the other open classes, whose largest z_j is t, and their sum [...].

    Differences come first: they are exact where they are small, however large the scores. Where there is no
    such class, the sum is given as 1.
    """
    a = jnp.where(others, z, -jnp.inf)
    most = _finite(jnp.max(jax.lax.stop_gradient(a), axis=-1))
    e = jnp.exp(a - most[..., None])
    total = jnp.sum(e, axis=-1)
    none = total == 0
    total = jnp.where(none, 1, total)
    at_label = jnp.take_along_axis(z, labels[..., None], axis=-1, mode="clip")[..., 0]
    return (most - at_label) + jnp.where(none, -jnp.inf, jnp.log(total)), e, total


def _topk_entropy(rows: Rows, k: int):
    if k == 1:
        return _cross_entropy(rows)
    top = largest_scores(rows, k)
    most, last = _finite(top[..., :1]), _finite(top[..., -1:])
    # margins that are not held at 1/k are near the k-th largest, so that differences from it keep digits; the
    # base is halfway between the largest and the k-th where their difference overflows
    base = jnp.where(jnp.isposinf(most - last), most / 2 + last / 2, last)
    return _log_loss_above(rows, base[..., 0], _capped_logsumexp(rows.of_others(), top, base, k)[0])


def _truncated_topk_entropy(rows: Rows, k: int):
    if k == 1:
        return _cross_entropy(rows)
    top = largest_scores(rows, k)
    last = _finite(top[..., -1])
    return _log_loss_above(rows, last, _tail_logsumexp(rows.of_others(), top, k))


def _log_loss_above(rows: Rows, base: jax.Array, E: jax.Array) -> jax.Array:
    """log(1 + e^{E + base − z_y}); 0 where E is −∞.

    The classes other than y are compared with one of them, and not with y, which may lie so far away that the
    differences from it are all alike.
    """
    return jax.nn.softplus(jnp.where(jnp.isneginf(E), E, E + (base - rows.at_label())))


def _finite(largest: jax.Array) -> jax.Array:
    """A score that others are compared with; 0 where there is none."""
    return jnp.where(jnp.isfinite(largest), largest, 0)


def _topk_entropy_conjugate(rows: Rows, k: int):
    # Σ x log x + (1 − s) log(1 − s) with s = 1ᵀx, which is −v_y
    x, _, outside = topk_simplex_duals(rows, k, "alpha")
    rest = 1 + rows.at_label()
    # with fewer than k other classes the top-k simplex holds 0 alone, so that nothing can change
    enough = jnp.sum(rows.others, axis=-1) >= k
    of_others = jnp.sum(entropy(x, rows.others & enough[..., None]), axis=-1)
    return on_domain(rows, outside, -of_others - entropy(rest, enough))


# Which classes are among the largest is asked of the scores z themselves, against the largest of them, and of
# no difference: XLA may compute the scores once for the k largest and once more where they are used, and a
# processor rounds z − base but once where z is a product. The largest of those differences would be half an
# ulp off the one that it is compared with, and a class lost or counted twice. In an exponent that does not
# matter. And where the largest are apart from the rest, a number halfway parts them: scores such as z s + b
# may be rounded once or twice, too, and be an ulp off themselves.


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def _capped_logsumexp(z: jax.Array, top: jax.Array, base: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """(E, u) of E = max {⟨a, p⟩ + H(p) : 0 ≤ p ≤ 1/k, 1ᵀp = 1}, a = z − base.

    It is reached at p_j = min{1/k, e^{a_j − τ}}. `top` are the k largest entries of z, falling. With the u
    largest at 1/k and the others adding up to Z = Σ e^{a_j}, 1ᵀp = 1 gives e^τ = Z / (1 − u/k), and u is
    the first for which the next entry is not above 1/k. Without a p, that is with fewer than k finite
    entries, E is −∞.
    """
    log_tail = _log_tail_count(z, top)
    top = top - base
    tail = _tail(top, log_tail)
    exists = tail > -jnp.inf
    # log Σ_{j>u} e^{a_[j] − a_[u+1]} for u = 0 … k−1: differences have digits, however large the entries
    log_count = _log_counts(top, log_tail)
    u = jax.lax.broadcasted_iota(z.dtype, top.shape, z.ndim - 1)
    # e^{a_[u+1] − τ} ≤ 1/k
    fits = (log_count >= jnp.log(k - u)) | (u == k - 1)
    first = jnp.argmax(fits, axis=-1, keepdims=True)
    tau = jnp.take_along_axis(top + log_count - jnp.log((k - u) / k), first, axis=-1)[..., 0]
    # E = (1/k) Σ_{j≤u} (a_[j] + log k) + (1 − u/k) τ
    first = first.astype(z.dtype)
    held = jnp.sum(jnp.where(u < first, top + math.log(k), 0), axis=-1) / k
    value = held + (1 - first[..., 0] / k) * tau
    return jnp.where(exists, value, tail), first[..., 0]


@_capped_logsumexp.defjvp
def _(k, primals, tangents):
    (z, top, base), (dz, *_) = primals, tangents
    value, u = _capped_logsumexp(z, top, base, k)
    # The u largest are at 1/k, and the others share the rest in proportion to e^{a_j}, a = z − base: τ, as
    # large as a, lacks digits for that. Entries that tie with the last of the u largest are at 1/k too, or
    # share what those above them leave; where only k entries are finite, all of these are at 1/k.
    last = jnp.take_along_axis(top, jnp.maximum(u[..., None] - 1, 0).astype(jnp.int32), axis=-1)
    open_ = z > -jnp.inf
    all_held = jnp.sum(open_, axis=-1, keepdims=True) <= k
    last = jnp.where(all_held, -jnp.inf, jnp.where(u[..., None] > 0, last, jnp.inf))
    following = jnp.take_along_axis(top, u[..., None].astype(jnp.int32), axis=-1)
    parting = _parting(last, following)
    above = open_ & (z > last)
    tied = open_ & ~above & jnp.where(parting > following, z > parting, z == last)
    left = jnp.maximum(1 - jnp.sum(above, axis=-1, keepdims=True, dtype=z.dtype) / k, 0)
    ties = jnp.sum(tied, axis=-1, keepdims=True, dtype=z.dtype)
    each = jnp.minimum(1 / k, left / jnp.maximum(ties, 1))
    left = jnp.maximum(left - ties * each, 0)
    rest = jnp.where(above | tied, -jnp.inf, z - base)
    most = jnp.max(jax.lax.stop_gradient(rest), axis=-1, keepdims=True)
    e = jnp.exp(rest - jnp.where(jnp.isneginf(most), 0, most))
    mass = jnp.sum(e, axis=-1, keepdims=True)
    p = jnp.where(above, 1 / k, jnp.where(tied, each, left * e / jnp.where(mass == 0, 1, mass)))
    p = jnp.where(jnp.isneginf(value)[..., None], 0, p)
    return (value, u), (jnp.sum(p * dz, axis=-1), jnp.zeros_like(u))


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _tail_logsumexp(z: jax.Array, top: jax.Array, k: int) -> jax.Array:
    """log Σ_j e^{z_j − z_[k]} without the k−1 largest entries, [...], of z whose k largest are known."""
    return _tail(top - _finite(top[..., -1:]), _log_tail_count(z, top))


@_tail_logsumexp.defjvp
def _(k, primals, tangents):
    (z, top), (dz, _) = primals, tangents
    value = _tail_logsumexp(z, top, k)
    # the entries that are left share 1 in proportion to e^{z_j}: the value, as large as z, lacks the digits
    parting = _parting(top[..., -2:-1], top[..., -1:])
    beyond = 1 - membership(z, top[..., :-1])
    left = jnp.where(parting > top[..., -1:], (z <= parting).astype(z.dtype), beyond)
    last = jax.lax.stop_gradient(_finite(top[..., -1:]))
    e = left * jnp.exp(jnp.where(left > 0, z - last, -jnp.inf))
    total = jnp.sum(e, axis=-1, keepdims=True)
    return value, jnp.sum(e / jnp.where(total == 0, 1, total) * dz, axis=-1)


def _tail(top: jax.Array, log_count: jax.Array) -> jax.Array:
    """log Σ_j e^{a_j} without the k−1 largest entries, given the k largest and :func:`_log_tail_count`."""
    tail = _finite(top[..., -1]) + log_count
    return jnp.where(jnp.isnan(top[..., 0]), jnp.nan, tail)


def _log_tail_count(z: jax.Array, top: jax.Array) -> jax.Array:
    """log Σ_j e^{z_j − z_[k]} without the k−1 largest entries; −∞ where none is left."""
    last = top[..., -1:]
    finite = jnp.where(jnp.isneginf(last), 0, last)
    parting = _parting(top[..., -2:-1], last)
    # entries equal to the k-th largest count as often as they stand beyond the first k−1
    reached = jnp.sum(jnp.where(z <= parting, jnp.exp(z - finite), 0), axis=-1)
    above = jnp.sum(top[..., :-1] == last, axis=-1, dtype=z.dtype)
    return jnp.log(jnp.where(jnp.isneginf(last[..., 0]), 0, reached - above))


def _parting(upper: jax.Array, lower: jax.Array) -> jax.Array:
    """A number halfway between two; the lower one where they are equal or there is none."""
    halfway = upper / 2 + lower / 2
    return jnp.where((lower < halfway) & (halfway < upper), halfway, lower)


def _log_counts(top: jax.Array, last: jax.Array) -> jax.Array:
    """log Σ_{j≥i} e^{a_[j] − a_[i]} of each i of the k largest, [..., k], given that of the last, [...].

    d_i = log(1 + e^{d_{i+1} − (a_[i] − a_[i+1])}).
    """
    fall = jnp.where(jnp.isneginf(top[..., 1:]), jnp.inf, top[..., :-1] - top[..., 1:])

    def both(later, earlier):
        """The map from d behind both to d before them, x to log(e^d + e^(x − fall))."""
        (d_later, fall_later), (d, fall) = later, earlier
        return jnp.logaddexp(d, d_later - fall), fall + fall_later

    d = jnp.concatenate([jnp.zeros_like(fall), last[..., None]], axis=-1)
    fall = jnp.concatenate([fall, jnp.full_like(last[..., None], jnp.inf)], axis=-1)
    return jax.lax.associative_scan(both, (d, fall), reverse=True, axis=top.ndim - 1)[0]
