"""Upper bounds of the softmax loss that split into one term for each class.

    log Σ_k e^{z_k} ≤ Σ_k e^{z_k + log a} − log a − 1     log-concavity (LC), tight at log a = −logsumexp(z)
    log Σ_k e^{z_k} ≤ a + Σ_k log(1 + e^{z_k − a})        double majorization (DM), never tight if K > 1

With the variational parameter of a row held fixed, each class is a problem of its own.

Source: S. Gopal, Y. Yang, "Distributed Training of Large-scale Logistic Models", ICML 2013, sections 3.2
and 3.3; both bounds are G. Bouchard's (2007).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax.losses._classes import Rows, checked_row_number, evaluate
from xmcjax.losses._conjugates import closed_have_duals, entropy, on_domain, slack


def lc_bound(scores, labels, log_a, *, where=None) -> jax.Array:
    """Σ_k e^{z_k + log a} − log a − 1 − z_y, the log-concavity bound of the softmax loss of each row.

    At log a = −logsumexp(z), where it is smallest, it is the softmax loss. It is convex in the scores,
    and in log a. Where z_k + log a is large it overflows, as its value does.

    Args:
        scores: z, [..., m], of a floating point dtype.
        labels: y, integers [...], from 0 to m−1.
        log_a: the logarithm of the variational parameter a > 0, [...], of a floating point dtype.
        where: which classes are open, booleans that broadcast to [..., m]; all by default. Class y is
            always open.

    Returns:
        [...], in the dtype of the scores, summed in float32 at least. NaN where a label that is not
        known when tracing lies outside 0 … m−1.

    Raises:
        TypeError: a dtype of the wrong kind.
        ValueError: shapes that do not fit, or a known label out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> z = jnp.array([1.0, 0.0, -1.0], jnp.float32)
        >>> lc_bound(z, jnp.array(0), -jnp.log(jnp.sum(jnp.exp(z)))).round(4)
        Array(0.4076, dtype=float32)

    Reference:
        "Distributed Training of Large-scale Logistic Models", 2013, section 3.2, eq. (1).
    """
    log_a = checked_row_number("log_a", log_a, labels)
    return evaluate(_lc_bound, scores, labels, where, log_a)


def lc_bound_conjugate(duals, labels, log_a, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`lc_bound` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = Σ_k u_k (log u_k − log a − 1) + log a + 1 with u = v + e_y, where u ≥ 0, +∞ elsewhere.

    It takes the duals v in place of the scores, with v_j = 0 for closed classes. The other arguments, the
    result [...] and the errors are as in the bound.

    Example:
        >>> round(lc_bound_conjugate(jnp.array([0.5, -0.5]), jnp.array(1), jnp.array(0.0)).item(), 3)
        -0.693
    """
    log_a = checked_row_number("log_a", log_a, labels)
    return evaluate(_lc_bound_conjugate, duals, labels, where, log_a)


def dm_bound(scores, labels, a, *, where=None) -> jax.Array:
    """a + Σ_k log(1 + e^{z_k − a}) − z_y, the double majorization bound of the softmax loss of each row.

    Smallest where Σ_k σ(z_k − a) = 1. It is convex in the scores and a together.

    `a` is the variational parameter, [...], of a floating point dtype. The other arguments, the result and
    the errors are as in :func:`lc_bound`.

    Example:
        >>> import jax.numpy as jnp
        >>> z, a = jnp.array([1.0, 0.0, -1.0], jnp.float32), jnp.array(1.0, jnp.float32)
        >>> dm_bound(z, jnp.array(0), a).round(4)
        Array(1.1333, dtype=float32)

    Reference:
        "Distributed Training of Large-scale Logistic Models", 2013, section 3.3.
    """
    a = checked_row_number("a", a, labels)
    return evaluate(_dm_bound, scores, labels, where, a)


def dm_bound_conjugate(duals, labels, a, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`dm_bound` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = Σ_k [u_k log u_k + (1 − u_k) log(1 − u_k) + a u_k] − a with u = v + e_y, where 0 ≤ u ≤ 1,
    +∞ elsewhere.

    It takes the duals v in place of the scores, with v_j = 0 for closed classes. The other arguments, the
    result [...] and the errors are as in the bound.

    Example:
        >>> round(dm_bound_conjugate(jnp.array([0.5, -0.5]), jnp.array(1), jnp.array(0.0)).item(), 3)
        -1.386
    """
    a = checked_row_number("a", a, labels)
    return evaluate(_dm_bound_conjugate, duals, labels, where, a)


def _lc_bound(rows: Rows, log_a):
    # with s = z + log a: Σ_{k≠y} e^{s_k} + (e^{s_y} − 1 − s_y); z and log a may cancel
    others = jnp.where(rows.others, rows.values + log_a[..., None], -jnp.inf)
    own = rows.at_label() + log_a
    return jnp.sum(jnp.exp(others), axis=-1) + (jnp.expm1(own) - own)


def _dm_bound(rows: Rows, a):
    # with s = z − a: Σ_{k≠y} log(1 + e^{s_k}) + log(1 + e^{−s_y})
    others = jnp.where(rows.others, rows.values - a[..., None], -jnp.inf)
    return jnp.sum(jax.nn.softplus(others), axis=-1) + jax.nn.softplus(a - rows.at_label())


def _lc_bound_conjugate(rows: Rows, log_a):
    u, outside = _responsibilities(rows)
    open_ = rows.others | rows.own
    linear = (log_a + 1) * jnp.sum(jnp.where(open_, rows.values, 0), axis=-1)
    # Σ u − 1 = Σ v
    return on_domain(rows, outside, -jnp.sum(entropy(u, open_), axis=-1) - linear)


def _dm_bound_conjugate(rows: Rows, a):
    u, outside = _responsibilities(rows)
    outside |= jnp.max(u, axis=-1) > 1 + slack(rows)
    rest = jnp.where(rows.own, -rows.values, 1 - u)
    open_ = rows.others | rows.own
    linear = a * jnp.sum(jnp.where(open_, rows.values, 0), axis=-1)
    return on_domain(rows, outside, linear - jnp.sum(entropy(u, open_) + entropy(rest, open_), axis=-1))


def _responsibilities(rows: Rows) -> tuple[jax.Array, jax.Array]:
    """(u = v + e_y [..., m], whether it has a negative entry or a closed class has one at all [...])."""
    u = jnp.where(rows.own, 1 + rows.values, rows.values)
    return u, (jnp.min(u, axis=-1) < -slack(rows)) | closed_have_duals(rows)
