"""Fenchel-Young losses of a set: scores against the point of the set that they are projected onto.

    L(z; t) = max {⟨z, p⟩ − γ/2 ‖p‖² : p ∈ C} + γ/2 ‖t‖² − ⟨z, t⟩ = Ω*(z) + Ω(t) − ⟨z, t⟩,  Ω = γ/2 ‖·‖² on C

It is convex, not negative for t ∈ C, and 0 where the projection of z/γ onto C is t; its gradient is that
projection less t. The simplex gives the sparsemax loss.

Sources: M. Blondel, A. Martins, V. Niculae, "Learning with Fenchel-Young Losses", JMLR 2020; A. Martins,
R. Astudillo, "From Softmax to Sparsemax", ICML 2016.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.typing import ArrayLike

from xmcjax.losses._classes import Rows, accumulator, checked_scores, checked_targets, evaluate
from xmcjax.losses._conjugates import dual_variables, on_domain, slack
from xmcjax.losses._envelope import envelope, maximum, of_margins, of_quotient
from xmcjax.losses._smooth_topk_hinge import checked_gamma
from xmcjax.projections import simplex


def fenchel_young(
    scores, targets, projection: Callable[[jax.Array], jax.Array], gamma: ArrayLike = 1.0
) -> jax.Array:
    """max {⟨z, p⟩ − γ/2 ‖p‖² : p ∈ C} + γ/2 ‖t‖² − ⟨z, t⟩ of each row, C the set of a projection.

    The gradient in z is the projection of z/γ less t. ``projections.simplex`` gives the sparsemax loss, and
    ``lambda x: projections.knapsack(x, k, 0, 1)`` a loss of the k best classes.

    Args:
        scores: z, [..., m], of a floating point dtype.
        targets: t, [..., m], real numbers: points of C, for example 0 and 1. They are not checked to lie
            in C.
        projection: from [..., m] onto a convex set, row by row, and differentiable, such as those of
            :mod:`xmcjax.projections` with their other arguments filled in; these may be
            differentiated, too.
        gamma: γ > 0, a number; 1 by default.

    Returns:
        [...], in the dtype of the scores, computed in float32 at least. NaN where γ that is not known when
        tracing is not above 0.

    Raises:
        TypeError: a dtype of the wrong kind, or a projection that cannot be called.
        ValueError: shapes that do not fit, or γ out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> from xmcjax import projections
        >>> z, t = jnp.array([1.5, 1.0, -1.0], jnp.float32), jnp.array([1.0, 0.0, 0.0], jnp.float32)
        >>> fenchel_young(z, t, projections.simplex)
        Array(0.0625, dtype=float32)

    Reference:
        Blondel, Martins, Niculae (2020), Definition 2 and Proposition 2.
    """
    scores = checked_scores("scores", scores)
    if not callable(projection):
        raise TypeError(f"expected a projection that can be called, got {type(projection).__name__}")
    targets = checked_targets(targets, "scores", scores)
    dtype = accumulator(scores.dtype)
    gamma = checked_gamma(gamma, scores.dtype).astype(dtype)
    z, t = scores.astype(dtype), targets.astype(dtype)
    counted = jnp.where((t == 0) & jnp.isneginf(z), 0, z)  # an entry of −∞ is left out
    most = maximum if _closes_over(projection, z) else envelope
    value = most(z, gamma, of_quotient(projection))[0] + jnp.sum(t * (gamma / 2 * t - counted), axis=-1)
    return jnp.where(gamma > 0, value, jnp.nan).astype(scores.dtype)


def _closes_over(projection: Callable, z: jax.Array) -> bool:
    """Whether a projection depends on more that is traced, such as a radius that is differentiated."""
    # traced through a lambda of this call, so that JAX's caches keep no reference to the projection
    return any(isinstance(a, Tracer) for a in jax.make_jaxpr(lambda x: projection(x))(z).consts)


def sparsemax(scores, labels, *, where=None) -> jax.Array:
    """The sparsemax loss of each row: max {⟨a, p⟩ − ½ ‖p‖² : p ∈ simplex} + ½, a_j = z_j − z_y.

    The prediction of a row, ``projections.simplex(z)``, gives most classes the probability 0; the gradient is
    that projection, less 1 for class y. The loss is 0 where z_y is larger than all others by 1.

    Args:
        scores: z, [..., m], of a floating point dtype.
        labels: y, integers [...], from 0 to m−1.
        where: which classes are open, booleans that broadcast to [..., m]; all by default. Class y is
            always open; the loss is 0 where no other is.

    Returns:
        [...], in the dtype of the scores, computed in float32 at least. NaN where a label that is not
        known when tracing lies outside 0 … m−1.

    Raises:
        TypeError: a dtype of the wrong kind.
        ValueError: shapes that do not fit, or a known label out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> sparsemax(jnp.array([1.5, 1.0, -1.0], jnp.float32), jnp.array(0))
        Array(0.0625, dtype=float32)

    Reference:
        A. Martins, R. Astudillo, "From Softmax to Sparsemax", 2016, eq. (16).
    """
    return evaluate(_sparsemax, scores, labels, where)


def sparsemax_conjugate(duals, labels, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`sparsemax` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = ½ ‖v + e_y‖² − ½ where v + e_y lies in the simplex, +∞ elsewhere. Membership is tested up to
    rounding (see docs/guide/losses.md).

    It takes the duals v in place of the scores, with v_j = 0 for closed classes. The other arguments, the
    result [...] and the errors are as in the loss.

    Example:
        >>> sparsemax_conjugate(jnp.array([0.5, -0.5, 0.0]), jnp.array(1)).item()
        -0.25
    """
    return evaluate(_sparsemax_conjugate, duals, labels, where)


def _sparsemax(rows: Rows):
    a, beyond = rows.margins_in_range()
    a = jnp.where(rows.own, 0, a)
    one = jnp.ones((), a.dtype)
    return of_margins(a, beyond, one, of_quotient(simplex)) + one / 2


def _sparsemax_conjugate(rows: Rows):
    x, total, outside = dual_variables(rows)
    # p = x and p_y = 1 − 1ᵀx: ½ ‖p‖² − ½
    value = (jnp.sum(x * x, axis=-1) + total * total) / 2 - total
    return on_domain(rows, outside | (total > 1 + slack(rows)), value)
