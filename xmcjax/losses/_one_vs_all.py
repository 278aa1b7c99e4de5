"""The sum of a binary loss over the classes of a row."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from xmcjax.losses._classes import accumulator, checked_signs
from xmcjax.losses._conjugates import moving
from xmcjax.losses._margin import MarginLoss


def one_vs_all(scores, targets, loss: MarginLoss, *, where=None) -> jax.Array:
    """Σ_c φ(t_c z_c) of each row, with targets t_c = ±1: any number of classes may be positive.

    Args:
        scores: z, [..., m], of a floating point dtype.
        targets: t, ±1, [..., m], integers or floating point numbers.
        loss: φ, for example ``losses.squared_hinge``.
        where: which classes are summed, booleans that broadcast to [..., m]; all by default. The sum is
            0 where none is.

    Returns:
        [...], in the dtype of the scores, summed in float32 at least (a sum over many classes may
        exceed float16). Targets that are not known when tracing are not checked.

    Raises:
        TypeError: a dtype of the wrong kind, or a loss that is no :class:`~xmcjax.losses.MarginLoss`.
        ValueError: shapes that do not fit, or a known target that is not ±1.

    Example:
        >>> import jax.numpy as jnp
        >>> from xmcjax.losses import hinge
        >>> one_vs_all(jnp.array([2.0, 0.5, -3.0], jnp.float32), jnp.array([1, 1, -1]), hinge)
        Array(0.5, dtype=float32)
    """
    scores, targets, where = _checked("scores", scores, targets, loss, where)
    return _one_vs_all(loss, scores, targets, where)


def one_vs_all_conjugate(duals, targets, loss: MarginLoss, *, where=None) -> jax.Array:
    """The convex conjugate of :func:`one_vs_all` in the scores, f*(v) = max_z ⟨v, z⟩ − f(z).

    f*(v) = Σ_c φ*(t_c v_c), +∞ where one of them is or a class that is not summed has v_c ≠ 0.

    It takes the duals v in place of the scores. The other arguments, the result [...] and the errors are as
    in the loss.

    Example:
        >>> from xmcjax.losses import squared_hinge
        >>> one_vs_all_conjugate(jnp.array([-1.0, 1.0]), jnp.array([1, -1]), squared_hinge).item()
        -1.5
    """
    duals, targets, where = _checked("duals", duals, targets, loss, where)
    return _one_vs_all_conjugate(loss, duals, targets, where)


def _checked(name, values, targets, loss, where):
    if not isinstance(loss, MarginLoss):
        raise TypeError(f"expected a MarginLoss such as losses.squared_hinge, got {loss!r}")
    return checked_signs(name, values, targets, where)


@functools.partial(jax.jit, static_argnums=0)
def _one_vs_all(loss, scores, targets, where):
    # a class that is closed takes the margin 0 and is dropped
    z = scores.astype(accumulator(scores.dtype))
    z = z if where is None else jnp.where(where, z, 0)
    terms = loss.value(targets.astype(z.dtype) * z)
    return jnp.sum(terms if where is None else jnp.where(where, terms, 0), axis=-1).astype(scores.dtype)


@functools.partial(jax.jit, static_argnums=0)
def _one_vs_all_conjugate(loss, duals, targets, where):
    v = duals.astype(accumulator(duals.dtype))
    # closed classes have v = 0, where a conjugate may have no derivative
    terms = loss.conjugate(targets.astype(v.dtype) * (v if where is None else moving(v, where)))
    # the conjugate of the constant 0
    absent = jnp.where(v == 0, 0, jnp.inf).astype(v.dtype)
    return jnp.sum(terms if where is None else jnp.where(where, terms, absent), axis=-1).astype(duals.dtype)
