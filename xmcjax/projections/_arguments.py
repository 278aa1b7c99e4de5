"""What the projections accept: dtypes, shapes and values, checked before anything is traced."""

from __future__ import annotations

import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from xmcjax._fork import check_threads_of_jax


def vectors(x) -> jax.Array:
    """x as an array of floats whose last axis is projected."""
    check_threads_of_jax()
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"expected x of a floating dtype, got {x.dtype}")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"expected x with a last axis of at least one entry, got shape {x.shape}")
    return x


def working_dtype(dtype) -> np.dtype:
    """The dtype of the computation: float32 for the narrower ones."""
    return np.dtype(dtype) if jnp.dtype(dtype).itemsize >= 4 else np.dtype(np.float32)


def number(value, name: str, x: jax.Array, *, least: float | None = 0, finite: bool = False) -> jax.Array:
    """A scalar, or one number per vector of x, as an array of x.shape[:-1].

    Args:
        least: the smallest value allowed; None allows any. Values that are being traced cannot be seen.
        finite: whether infinity is refused.
    """
    known = None if isinstance(value, Tracer) else np.asarray(value)
    dtype = jnp.result_type(value) if known is None else known.dtype
    if not (jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)):
        raise TypeError(f"expected a real {name}, got dtype {dtype}")
    if known is not None:
        known = known.astype(np.float64)
        bad = np.isnan(known) | (known < (-np.inf if least is None else least)) | (finite & np.isinf(known))
        if bad.any():
            bound = "" if least is None else f" of at least {least:g}"
            kind = "finite " if finite else ""
            raise ValueError(f"expected a {kind}{name}{bound}, got {known[bad].ravel()[0]:g}")
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
        return jnp.broadcast_to(array, batch)
    except ValueError:
        raise ValueError(
            f"expected {name} as a scalar or of a shape that broadcasts to {batch}, the leading axes of x, "
            f"got shape {array.shape}"
        ) from None


def feasible(x: jax.Array, radius, lower, upper) -> None:
    """Raises where bounds and sum, as far as they are known, leave no point."""
    if any(isinstance(value, Tracer) for value in (lower, upper)):
        return
    lower, upper = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
    crossed = np.broadcast_arrays(lower, upper)
    if (crossed[0] > crossed[1]).any():
        where = tuple(np.argwhere(crossed[0] > crossed[1])[0])
        raise ValueError(f"expected lower <= upper, got {crossed[0][where]:g} and {crossed[1][where]:g}")
    if isinstance(radius, Tracer):
        return
    m = x.shape[-1]
    radius, least, most = np.broadcast_arrays(np.asarray(radius, np.float64), m * lower, m * upper)
    size = m * np.maximum(abs(lower), abs(upper))
    slack = 4 * float(jnp.finfo(working_dtype(x.dtype)).eps) * np.where(np.isfinite(size), size, 0)
    bad = (radius < least - slack) | (radius > most + slack)
    if bad.any():
        where = tuple(np.argwhere(bad)[0])
        raise ValueError(
            f"expected a radius between {m} lower = {least[where]:g} and {m} upper = {most[where]:g}, "
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
