"""The hinge losses of a label's competitors in falling order, weighted by their rank.

    L_β(a) = Σ_j β_j max{0, 1 + a_[j]},  β_1 ≥ β_2 ≥ … ≥ 0

a_[1] ≥ a_[2] ≥ … are the margins z_j − z_y of the open classes other than y. As β falls, L_β is convex: it is
the support function of {x ≥ 0 : the k largest entries of x sum to β_1 + … + β_k at most, for every k}.

Source: N. Usunier, D. Buffoni, P. Gallinari, "Ranking with ordered weighted pairwise classification", ICML
2009; it stands in M. Lapin, M. Hein, B. Schiele, "Top-k Multiclass SVM", NIPS 2015, before its eq. (5).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from xmcjax import _sparse
from xmcjax._range import check_range
from xmcjax.losses._classes import Rows, accumulator, checked_scores, concrete, evaluate
from xmcjax.losses._conjugates import dual_variables, on_domain, slack
from xmcjax.losses._largest import largest_gains
from xmcjax.native import by_rows

# Most weights with which every gain is compared with each of the largest ones, in one pass over all gains.
FEW = 64


def ordered_hinge(scores, labels, beta, *, where=None) -> jax.Array:
    """Σ_j β_j max{0, 1 + a_[j]} of each row: its hinges in falling order, weighted by their rank.

    a_[j] is the j-th largest of the margins z_j − z_y of the classes other than y. β = (1) is the loss of
    Crammer and Singer, β = (1, …, 1) of Weston and Watkins, β = (1/k, …, 1/k) with k entries
    :func:`topk_hinge` beta, and β_j = 1/j weights ranks as WARP does.

    At a kink the gradient is a subgradient: classes that tie share the weights of their ranks alike.

    Args:
        scores: z, [..., m], of a floating point dtype.
        labels: y, integers [...], from 0 to m−1.
        beta: β, [q] with 1 ≤ q ≤ m−1, finite and falling, none negative; further ranks have the
            weight 0. It is differentiated, too.
        where: which classes are open, booleans that broadcast to [..., m]; all by default. Class y is
            always open. With fewer than q+1 open classes the last weights are not used.

    Returns:
        [...], in the dtype of the scores, summed in float32 at least. NaN where a label that is not
        known when tracing lies outside 0 … m−1, or a β that is not known rises or is negative.

    Raises:
        TypeError: a dtype of the wrong kind.
        ValueError: β, shapes or known labels out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> ordered_hinge(jnp.array([2.0, 1.5, 1.25, -1.0], jnp.float32), jnp.array(0), jnp.array([1.0, 0.5]))
        Array(0.625, dtype=float32)

    Reference:
        N. Usunier, D. Buffoni, P. Gallinari, "Ranking with ordered weighted pairwise classification", 2009.
    """
    scores = checked_scores("scores", scores)
    return evaluate(_ordered_hinge, scores, labels, where, _checked_beta(beta, scores))


def ordered_hinge_conjugate(duals, labels, beta, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`ordered_hinge` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = −Σ_{j≠y} v_j where v sums to 0, v_{≠y} ≥ 0 and for every k the k largest of v_{≠y} sum to
    β_1 + … + β_k at most, +∞ elsewhere. Membership is tested up to rounding (see docs/guide/losses.md).

    It takes the duals v in place of the scores, with v_j = 0 for closed classes. The other arguments, the
    result [...] and the errors are as in the loss.

    Example:
        >>> beta = jnp.array([1.0, 0.5])
        >>> ordered_hinge_conjugate(jnp.array([0.5, -0.75, 0.25]), jnp.array(1), beta).item()
        -0.75
    """
    duals = checked_scores("scores", duals)
    return evaluate(_ordered_hinge_conjugate, duals, labels, where, _checked_beta(beta, duals))


def _checked_beta(beta, scores: jax.Array) -> jax.Array:
    """β [q], falling and not negative where it is known, in the dtype of the computation."""
    beta = beta if isinstance(beta, jax.Array) else _sparse.in_byte_order(_sparse.array(beta, "beta"))
    if not (jnp.issubdtype(beta.dtype, jnp.floating) or jnp.issubdtype(beta.dtype, jnp.integer)):
        raise TypeError(f"expected beta of real numbers, got {beta.dtype}")
    m = scores.shape[-1]
    if beta.ndim != 1 or not 1 <= len(beta) < m:
        raise ValueError(
            f"expected beta of shape [q] with q from 1 to m-1 = {m - 1} for {m} classes, got {beta.shape}"
        )
    known = concrete(beta)
    if known is not None:
        known = known.astype(np.float64)
        if not (np.isfinite(known).all() and known.min() >= 0 and (known[1:] <= known[:-1]).all()):
            raise ValueError(f"expected a finite beta that falls and is not negative, got {known.tolist()}")
        check_range("expected beta", known[known > 0], accumulator(scores.dtype))
    return jnp.asarray(beta, accumulator(scores.dtype))


def _ordered_hinge(rows: Rows, beta):
    falls = jnp.all(beta >= 0) & jnp.all(beta[1:] <= beta[:-1])
    top, order = largest_gains(rows, len(beta))
    return jnp.where(falls, _weighted(1 + rows.margins(), top, (rows.of_others(), order), beta), jnp.nan)


def _ordered_hinge_conjugate(rows: Rows, beta):
    x, total, outside = dual_variables(rows)
    falling = -jnp.sort(-x, axis=-1)
    allowed = jnp.cumsum(jnp.pad(beta, (0, x.shape[-1] - len(beta))))
    room = slack(rows) * jnp.maximum(allowed, 1)
    beyond = jnp.any(jnp.cumsum(falling, axis=-1) > jnp.broadcast_to(allowed + room, x.shape), axis=-1)
    return on_domain(rows, outside | beyond, -total)


@jax.custom_jvp
def _weighted(gains: jax.Array, top: jax.Array, order: tuple, beta: jax.Array) -> jax.Array:
    """Σ_j β_j max{0, h_[j]} of h [..., m], whose q largest are [..., q].

    `order` are numbers in the order of the gains, [..., m], and the q largest of them: they tell which it is.
    """
    return jax.nn.relu(top) @ beta


@functools.partial(_weighted.defjvp, symbolic_zeros=True)
def _(primals, tangents):
    (gains, top, (z, highest), beta), (dgains, *_, dbeta) = primals, tangents
    change = jnp.zeros_like(top[..., 0])
    if not isinstance(dgains, SymbolicZero):
        change = change + jnp.sum(_shares(gains, z, highest, beta) * dgains, axis=-1)
    if not isinstance(dbeta, SymbolicZero):
        # from all gains, not from the largest, which have no derivative: a second derivative needs one
        change = change + jnp.sum(_shares(gains, z, highest, dbeta) * jax.nn.relu(gains), axis=-1)
    return _weighted(gains, top, (z, highest), beta), change


def _shares(gains: jax.Array, z: jax.Array, top: jax.Array, beta: jax.Array) -> jax.Array:
    """The x with ⟨h, x⟩ = L_β(h): β of the rank of each h > 0, the mean over the ranks of those that tie."""
    sums = jnp.concatenate([jnp.zeros(1, beta.dtype), jnp.cumsum(beta)])
    return by_rows(_shares_of_rows, gains, z, top, jnp.broadcast_to(sums, (*top.shape[:-1], len(sums))))


def _shares_of_rows(gains: jax.Array, z: jax.Array, top: jax.Array, sums: jax.Array) -> jax.Array:
    """:func:`_shares` from the sums Σ_{i≤j} β_i, j = 0 … q, of every row; gains have the order of z."""
    q, axis = top.shape[-1], top.ndim - 1
    place = jax.lax.broadcasted_iota(jnp.int32, top.shape, axis)
    rises = jnp.pad(top[..., 1:] != top[..., :-1], [(0, 0)] * axis + [(1, 1)], constant_values=True)
    # for every place, where the run of numbers that are equal to its own begins and ends
    begin = jax.lax.cummax(jnp.where(rises[..., :-1], place, 0), axis=axis)
    end = jax.lax.cummin(jnp.where(rises[..., 1:], place + 1, q), axis=axis, reverse=True)
    # there may be more numbers equal to the last one than there are ranks
    last = top[..., -1:]
    equal = jnp.sum(z == last, axis=-1, keepdims=True, dtype=jnp.int32)
    tied = jnp.where(top == last, equal, end - begin)
    # `sums` of every row, as `begin` and `end` are: a vmap over rows on several devices cannot gather others
    sums = jnp.where(rises[..., :1], sums, 0)
    first, final = (jnp.take_along_axis(sums, rank, axis=-1, mode="clip") for rank in (begin, end))
    share = (final - first) / jnp.maximum(tied, 1).astype(sums.dtype)
    if q <= FEW:
        found = jnp.zeros_like(gains, share.dtype)
        for i in range(q):  # all places of a number have the same share
            found = jnp.where(z == top[..., i : i + 1], share[..., i : i + 1], found)
        return jnp.where(gains > 0, found, 0)
    above = jnp.minimum(_count_above(top, z), q - 1)
    at, share = (jnp.take_along_axis(of, above, axis=-1, mode="clip") for of in (top, share))
    return jnp.where((gains > 0) & (at == z), share, 0)


def _count_above(falling: jax.Array, numbers: jax.Array) -> jax.Array:
    """How many of falling numbers [..., q] are above each of the numbers [..., m].

    By halves, as ``jnp.searchsorted`` does, which cannot be traced in a ``shard_map`` over some axes.
    """
    q = falling.shape[-1]
    steps = q.bit_length()

    def halved(i, count):
        more = count + (1 << (steps - 1 - i))
        at = jnp.take_along_axis(falling, jnp.minimum(more, q) - 1, axis=-1, mode="promise_in_bounds")
        return jnp.where((more <= q) & (at > numbers), more, count)

    return jax.lax.fori_loop(0, steps, halved, jnp.zeros_like(numbers, jnp.int32))
