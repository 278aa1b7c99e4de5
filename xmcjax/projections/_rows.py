"""Rows that are sharded over explicit axes of a mesh, which are part of the type of an array."""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax.sharding import NamedSharding, PartitionSpec


def by_rows(project: Callable, b: jax.Array, *numbers: jax.Array) -> jax.Array:
    """``project(b, *numbers)`` of b [..., m] and numbers [...], sharded as b is.

    Where b or a number is sharded over explicit axes, each device projects its own rows in a ``shard_map``
    over these axes. Elsewhere, and in a ``shard_map``, nothing is done: the compiler splits the rows.
    """
    shardings = [jax.typeof(array).sharding for array in (b, *numbers)]
    if not any(axis is not None for sharding in shardings for axis in sharding.spec):
        return project(b, *numbers)
    mesh = next(s.mesh for s in shardings if any(axis is not None for axis in s.spec))
    given = [*shardings[0].spec, *[None] * (b.ndim - len(shardings[0].spec))]
    batch = given[:-1]
    names = {name for axis in batch for name in ((axis,) if isinstance(axis, str) else axis or ())}

    def placed(array, axes):
        return jax.sharding.reshard(array, NamedSharding(mesh, PartitionSpec(*axes)))

    b, numbers = placed(b, [*batch, None]), tuple(placed(number, batch) for number in numbers)
    if not names:
        return placed(project(b, *numbers), given)
    whole, one = PartitionSpec(*batch, None), PartitionSpec(*batch)
    split = jax.shard_map(
        project, mesh=mesh, in_specs=(whole, *[one] * len(numbers)), out_specs=whole, axis_names=names
    )
    return placed(split(b, *numbers), given)
