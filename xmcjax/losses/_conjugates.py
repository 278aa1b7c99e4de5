"""What the convex conjugates share: the dual variables of a row, and the test of their domain.

f*(v) = max_z ⟨v, z⟩ − f(z) of a loss f of the scores z. A loss of the margins z_j − z_y has the dual
variables x_j = v_j of the classes j ≠ y, and v_y = −1ᵀx, because it does not change when one number is added
to all scores.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax.losses._classes import Rows


def slack(rows: Rows) -> jax.Array:
    """How far beyond its domain a dual still counts as inside: the rounding of a gradient.

    The entries are rounded in the dtype of the duals, their sums in that of the computation.
    """
    return rounding(rows.dtype, rows.values)


def rounding(dtype, values: jax.Array) -> jax.Array:
    """:func:`slack` for duals given in `dtype`, with `values` [..., m] in the dtype of the computation."""
    entries, sums = (float(jnp.finfo(kind).eps) for kind in (dtype, values.dtype))
    return jnp.asarray(4 * (entries + sums * values.shape[-1] ** 0.5), values.dtype)


def dual_variables(rows: Rows) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(x [..., m] with 0 at y and at closed classes, 1ᵀx [...], outside [...]) of a loss of the margins.

    Outside: some x_j < 0, or the duals do not sum to 0, or that of a closed class is not 0.
    """
    x = jnp.where(rows.others, rows.values, 0)
    total = jnp.sum(x, axis=-1)
    unbalanced = jnp.abs(rows.at_label() + total) > slack(rows) * jnp.maximum(total, 1)
    return x, total, unbalanced | (jnp.min(x, axis=-1) < -slack(rows)) | closed_have_duals(rows)


def closed_have_duals(rows: Rows) -> jax.Array:
    """Whether a class that does not take part has a dual variable, [...]."""
    return jnp.any(~rows.others & ~rows.own & (rows.values != 0), axis=-1)


def on_domain(rows: Rows, outside: jax.Array, value: jax.Array) -> jax.Array:
    """The value, +∞ outside, NaN where a dual is NaN; [...]."""
    return known_on_domain(rows.values, outside, value)


def known_on_domain(values: jax.Array, outside: jax.Array, value: jax.Array) -> jax.Array:
    """:func:`on_domain` for duals `values` [..., m]."""
    unknown = jnp.any(jnp.isnan(values), axis=-1)
    return jnp.where(unknown, jnp.nan, jnp.where(outside, jnp.inf, value))


def moving(values: jax.Array, counted: jax.Array) -> jax.Array:
    """The values, differentiated only where they are counted.

    Applied before and after a function, it removes the derivatives that the function has elsewhere. Unlike a
    constant in place of these values, it leaves the program of the value, and so every bit of it, as it is.
    """
    return jnp.where(counted, values, jax.lax.stop_gradient(values))


def entropy(p: jax.Array, counted: jax.Array | None = None) -> jax.Array:
    """−p log p; 0 for p ≤ 0, where rounding may put p.

    With `counted`, the other entries, which are 0 or 1, get the derivative 0: at 0 it would be infinite.
    """
    if counted is None:
        return jax.scipy.special.entr(jnp.maximum(p, 0))
    return moving(entropy(moving(p, counted)), counted)
