"""What the projections accept: dtypes, shapes and values, checked before anything is traced."""

from __future__ import annotations

import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from xmcjax import _sparse
from xmcjax._fork import check_threads_of_jax


def vectors(x) -> jax.Array:
    """x as an array of floats whose last axis is projected."""
    check_threads_of_jax()
    _sparse.refuse_no_array(x, "x")
    x = jnp.asarray(_sparse.in_byte_order(x))
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"expected x of a floating dtype, got {x.dtype}")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"expected x with a last axis of at least one entry, got shape {x.shape}")
    return x


def working_dtype(dtype) -> np.dtype:
    """The dtype of the computation: float32 for the narrower ones."""
    return np.dtype(dtype) if jnp.dtype(dtype).itemsize >= 4 else np.dtype(np.float32)


def per_entry(value, x: jax.Array) -> bool:
    """Whether a number is given for each entry of x: as many axes as x has."""
    return np.ndim(value) == x.ndim


def given(value, name: str):
    """An argument that may be traced, of JAX, or anything that NumPy makes an array of."""
    return value if isinstance(value, jax.Array) else _sparse.in_byte_order(_sparse.array(value, name))


def number(
    value, name: str, x: jax.Array, *, least: float | None = 0, finite: bool = False, entries: bool = False
) -> jax.Array:
    """A scalar, or one number per vector of x, as an array of x.shape[:-1].

    Args:
        least: the smallest value allowed; None allows any. Values that are being traced cannot be seen.
        finite: whether infinity is refused.
        entries: whether there may be a number per entry, for which the array is of x.shape.
    """
    known = None if isinstance(value, Tracer) else np.asarray(_sparse.in_byte_order(value))
    dtype = jnp.result_type(value) if known is None else known.dtype
    if not (jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)):
        raise TypeError(f"expected a real {name}, got dtype {dtype}")
    if known is not None:
        known = known.astype(np.float64)
        bad = np.isnan(known) | (known < (-np.inf if least is None else least)) | (finite & np.isinf(known))
        if bad.any():
            bound = "" if least is None else f" of at least {least:g}"
            kind = f"{'finite ' if finite else ''}{name}"
            article = "an" if kind[0] in "aeiou" else "a"
            raise ValueError(f"expected {article} {kind}{bound}, got {known[bad].ravel()[0]:g}")
        working = working_dtype(x.dtype)
        most = float(np.finfo(working).max)
        large = known[np.isfinite(known) & (abs(known) > most)]
        if large.size:
            raise ValueError(f"expected {name} within the range of {working}, {most:.3g}, got {large[0]:g}")
    # whole numbers beyond 32 bits are passed on in the dtype of the computation
    exact = value if known is None or isinstance(value, jax.Array) else known
    array = jnp.asarray(exact, working_dtype(x.dtype))
    batch = x.shape[:-1]
    try:
        return jnp.broadcast_to(array, x.shape if entries and per_entry(array, x) else batch)
    except ValueError:
        whole = f" or, with as many axes as x, to {x.shape}," if entries else ""
        raise ValueError(
            f"expected {name} as a scalar or of a shape that broadcasts to {batch}, the leading axes of x,"
            f"{whole} got shape {array.shape}"
        ) from None


def for_entries(number: jax.Array, x: jax.Array) -> jax.Array:
    """What :func:`number` returns as an array of x.shape."""
    return number if per_entry(number, x) else jnp.broadcast_to(number[..., None], x.shape)


def feasible(x: jax.Array, radius, lower, upper, weights: jax.Array | np.ndarray | float = 1.0) -> None:
    """Raises where bounds, weights and sum, as far as they are known, leave no point."""
    if any(isinstance(value, Tracer) for value in (lower, upper)):
        return

    def of_entries(value):  # [..., 1], or [..., m] where there is one for each entry
        value = np.asarray(value, np.float64)
        return value if per_entry(value, x) else value[..., None]

    lower, upper = np.broadcast_arrays(of_entries(lower), of_entries(upper))
    if (lower > upper).any():
        where = tuple(np.argwhere(lower > upper)[0])
        raise ValueError(f"expected lower <= upper, got {lower[where]:g} and {upper[where]:g}")
    if any(isinstance(value, Tracer) for value in (radius, weights)):
        return
    w = of_entries(weights)
    one, m = (lower + w).shape[-1] == 1, x.shape[-1]
    with np.errstate(invalid="ignore"):  # 0 times infinity
        ends = [np.where(w == 0, 0, w * bound) for bound in (lower, upper)]
    least, most = (end.sum(-1) * (m if one else 1) for end in (np.minimum(*ends), np.maximum(*ends)))
    size = np.maximum(abs(ends[0]), abs(ends[1])).sum(-1) * (m if one else 1)
    radius, least, most, size = np.broadcast_arrays(np.asarray(radius, np.float64), least, most, size)
    slack = 4 * float(jnp.finfo(working_dtype(x.dtype)).eps) * np.where(np.isfinite(size), size, 0)
    bad = (radius < least - slack) | (radius > most + slack)
    if bad.any():
        where = tuple(np.argwhere(bad)[0])
        names = (f"{m} lower = ", f"{m} upper = ") if one and (w == 1).all() else ("", "")
        raise ValueError(
            f"expected a radius between {names[0]}{least[where]:g} and {names[1]}{most[where]:g}, "
            f"got {radius[where]:g}"
        )


def count(k, x: jax.Array) -> int:
    """k as an int, 1 <= k <= the length of the last axis."""
    if isinstance(k, (bool, np.bool_)):
        raise TypeError("expected an integer k, got a bool")
    try:
        k = operator.index(k)
    except TypeError:
        raise TypeError(f"expected an integer k known when it is traced, got {type(k).__name__}") from None
    if not 1 <= k <= x.shape[-1]:
        raise ValueError(f"expected 1 <= k <= {x.shape[-1]}, the length of the last axis of x, got {k}")
    return k
