"""What the multi-class losses share: their arguments, and which classes of a row are counted.

A row has a score z_c for each of m classes and a label y. A class is open unless `where` closes it; the
class y itself is always open. Most losses are functions of the margins a_j = z_j − z_y of the open
classes j ≠ y. A class that is not counted has the margin −∞ here, which adds nothing to a maximum, a
hinge, a sum of exponentials or the k largest.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from xmcjax import _sparse
from xmcjax._fork import check_threads_of_jax

Maybe = TypeVar("Maybe", bound=jax.Array | None)


class Rows(NamedTuple):
    """Rows of scores (or of their duals) with their labels, in the precision of the computation.

    Attributes:
        values: [..., m], float32 or float64.
        labels: [...], within 0 … m−1.
        own: [..., m], whether the class is the label.
        others: [..., m], whether the class is open and not the label.
        valid: [...], whether the label given was within 0 … m−1.
        dtype: of the values given.
        masked: whether a mask was given, which may close classes.
    """

    values: jax.Array
    labels: jax.Array
    own: jax.Array
    others: jax.Array
    valid: jax.Array
    dtype: Any
    masked: bool

    @classmethod
    def of(cls, values: jax.Array, labels: jax.Array, where: jax.Array | None) -> Rows:
        """From checked arguments."""
        m = values.shape[-1]
        if labels.dtype.itemsize < 4:  # m may lie beyond their range
            labels = labels.astype(jnp.int32)
        valid = (labels >= 0) & (labels < m)
        labels = jnp.where(valid, labels, 0).astype(jnp.int32)
        own = jax.lax.broadcasted_iota(jnp.int32, values.shape, values.ndim - 1) == labels[..., None]
        others = ~own if where is None else ~own & jnp.broadcast_to(where, values.shape)
        exact = values.astype(accumulator(values.dtype))
        return cls(exact, labels, own, others, valid, values.dtype, where is not None)

    def at_label(self) -> jax.Array:
        """z_y, [...]."""
        return jnp.take_along_axis(self.values, self.labels[..., None], axis=-1, mode="clip")[..., 0]

    def of_others(self) -> jax.Array:
        """z_j of the open classes j ≠ y, −∞ elsewhere; [..., m]."""
        return jnp.where(self.others, self.values, -jnp.inf)

    def margins(self) -> jax.Array:
        """a_j = z_j − z_y of the open classes j ≠ y, −∞ elsewhere; [..., m].

        Differences come first: they are exact where they are small, however large the scores.
        """
        return self.others_above(self.at_label())

    def margins_in_range(self) -> tuple[jax.Array, jax.Array]:
        """(:meth:`margins` of finite scores, the rows [...] in which one is beyond the dtype).

        In these rows all margins are halved, but keep the derivatives of the whole margins.
        """
        z, own = self.values, self.at_label()[..., None]
        a = self.margins()
        beyond = jnp.any(jnp.isposinf(a) & (z < jnp.inf) & (own > -jnp.inf), axis=-1)
        half = jax.lax.stop_gradient(jnp.where(self.others, z / 2 - own / 2, -jnp.inf))
        half = half + ((z - jax.lax.stop_gradient(z)) - (own - jax.lax.stop_gradient(own)))
        return jnp.where(beyond[..., None] & (a > -jnp.inf), half, a), beyond

    def others_above(self, base: jax.Array) -> jax.Array:
        """How far the scores of the open classes j ≠ y are above a base [...], −∞ elsewhere; [..., m]."""
        return jnp.where(self.others, self.values - base[..., None], -jnp.inf)


def whole_rows(array: Maybe) -> Maybe:
    """An array [..., m] with all numbers of a row on one device, where explicit axes of a mesh shard them.

    Rows stay where they are. Axes that the compiler splits, and those of a ``shard_map``, are left alone.
    """
    if array is None:
        return array
    given = jax.typeof(array).sharding
    if len(given.spec) < max(array.ndim, 1) or given.spec[-1] is None:
        return array
    return jax.sharding.reshard(array, NamedSharding(given.mesh, P(*given.spec[:-1], None)))


def accumulator(dtype) -> Any:
    """The dtype in which numbers of `dtype` are summed: at least float32."""
    return jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype


def evaluate(core: Callable, scores, labels, where, *arrays, **static) -> jax.Array:
    """``core(rows, *arrays, **static)`` of the checked arguments, [...], in the dtype of the scores.

    Args:
        core: a function of :class:`Rows`, at the top level of its module.
        scores: [..., m].
        labels: [...].
        where: broadcast to [..., m], or None.
        *arrays: further arguments that are differentiated; the core gets them in the precision of the rows.
        **static: further arguments that are compiled in.
    """
    scores, labels, where = checked(scores, labels, where)
    return _evaluate(core, tuple(static.items()), scores, labels, where, *arrays)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _evaluate(core, static, scores, labels, where, *arrays):
    scores, where = whole_rows(scores), whole_rows(where)
    rows = Rows.of(scores, labels, where)
    result = core(rows, *(array.astype(rows.values.dtype) for array in arrays), **dict(static))
    return jnp.where(rows.valid, result, jnp.nan).astype(scores.dtype)


def checked(scores, labels, where) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """The arguments as arrays that fit each other.

    Raises:
        TypeError: a dtype of the wrong kind.
        ValueError: shapes that do not fit, or a label beyond the classes whose value is known.
    """
    scores = checked_scores("scores", scores)
    if not hasattr(labels, "dtype"):
        labels = _sparse.array(labels, "labels")
    labels = _sparse.in_byte_order(labels)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise TypeError(f"expected integer labels, got {labels.dtype}")
    if labels.shape != scores.shape[:-1]:
        raise ValueError(
            f"expected labels of shape {scores.shape[:-1]} for scores of {scores.shape}, got {labels.shape}"
        )
    m = scores.shape[-1]
    known = concrete(labels)
    if known is not None and known.size and not (known.min() >= 0 and known.max() < m):
        wrong = known[(known < 0) | (known >= m)].flat[0]
        raise ValueError(f"expected labels from 0 to {m - 1} for {m} classes, got {wrong}")
    return scores, jnp.asarray(labels), checked_mask(where, scores.shape)


def checked_scores(name: str, scores) -> jax.Array:
    """[..., m] of floating point numbers, m ≥ 1."""
    check_threads_of_jax()
    _sparse.refuse_no_array(scores, name)
    scores = jnp.asarray(_sparse.in_byte_order(scores))
    if not jnp.issubdtype(scores.dtype, jnp.floating):
        raise TypeError(f"expected {name} of a floating point dtype, got {scores.dtype}")
    if scores.ndim == 0 or scores.shape[-1] == 0:
        raise ValueError(f"expected {name} of shape [..., m] with at least one class, got {scores.shape}")
    return scores


def checked_targets(targets, name: str, values: jax.Array) -> jax.Array:
    """The targets as real numbers, of the shape of the values, which errors call `name`."""
    _sparse.refuse_no_array(targets, "targets")
    targets = jnp.asarray(_sparse.in_byte_order(targets))
    if not (jnp.issubdtype(targets.dtype, jnp.integer) or jnp.issubdtype(targets.dtype, jnp.floating)):
        raise TypeError(f"expected targets of real numbers, got {targets.dtype}")
    if targets.shape != values.shape:
        raise ValueError(f"expected targets of the shape of the {name}, {values.shape}, got {targets.shape}")
    return targets


def checked_signs(name: str, values, targets, where) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """The values, the targets (±1, where they are known) and the mask, as arrays that fit each other."""
    values = checked_scores(name, values)
    targets = checked_targets(targets, name, values)
    known = concrete(targets)
    if known is not None and (wrong := known[(known != 1) & (known != -1)]).size:
        raise ValueError(f"expected targets of 1 and -1, got {wrong.flat[0]}")
    return values, targets, checked_mask(where, values.shape)


def checked_mask(where, shape: tuple[int, ...]) -> jax.Array | None:
    """The mask of open classes, which must broadcast to `shape`; None where there is none."""
    if where is None:
        return None
    where = jnp.asarray(where)
    if where.dtype != bool:
        raise TypeError(f"expected a boolean mask where, got {where.dtype}")
    try:
        fits = jnp.broadcast_shapes(where.shape, shape) == shape  # for symbolic sizes too, as in jax.export
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"expected a mask where that broadcasts to {shape}, got {where.shape}")
    return where


def checked_k(k, scores) -> int:
    """k as an int from 1 to m−1; any int for scores without classes, which :func:`checked_scores` refuses."""
    try:
        if isinstance(k, (bool, np.bool_)):
            raise TypeError
        k = operator.index(k)
    except TypeError:
        raise TypeError(f"expected k to be an int known when tracing, got {type(k).__name__}") from None
    shape = (scores if hasattr(scores, "shape") else _sparse.array(scores, "scores")).shape
    m = shape[-1] if shape else 0
    if m and not 1 <= k < m:
        raise ValueError(f"expected k from 1 to m-1 = {m - 1} for {m} classes, got {k}")
    return k


def checked_row_number(name: str, value, labels) -> jax.Array:
    """A real number for each row, [...]."""
    check_threads_of_jax()
    value = jnp.asarray(_sparse.in_byte_order(value))
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"expected {name} of a floating point dtype, got {value.dtype}")
    shape = (labels if hasattr(labels, "shape") else _sparse.array(labels, "labels")).shape
    if value.shape != shape:
        raise ValueError(f"expected {name} of the labels' shape {shape}, got {value.shape}")
    return value


def concrete(array) -> np.ndarray | None:
    """The values where they are known to this process at this moment, None under a transformation."""
    if isinstance(array, Tracer) or not getattr(array, "is_fully_addressable", True):
        return None
    return np.asarray(array)
