"""How XLA splits a native call over the devices of a mesh: by its rows, which do not depend on each other.

Without this, XLA gathers the whole array on every device and leaves the result there. In ``shard_map`` each
device makes its own call anyway. For explicit axes of a mesh, which are part of the type of an array,
:func:`by_rows` uses a ``shard_map``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def over_rows(
    call: Callable, *, entries: Sequence[bool], results: int, rows: Sequence[str] = ("m",)
) -> Callable:
    """The function `call`, split by its batch axes.

    Args:
        call: function (b [..., m], further arrays) -> (arrays of rows, by default one [..., m], and `results`
            arrays [...]).
        entries: for each further array, whether it has a number per entry, [..., m], or one per row, [...].
        results: how many arrays [...] the function returns.
        rows: for each returned array of rows the name of its last axis, "m" if it is that of b.
    """
    made = len(rows) + results

    def shardings(arguments):
        """(mesh, shardings of the arguments, of the results): those of b, but rows are never split."""
        given = arguments[0].sharding
        batch = [None] * (len(arguments[0].shape) - 1)
        if isinstance(given, NamedSharding):
            mesh, spec = given.mesh, tuple(given.spec)[: len(batch)]
            batch[: len(spec)] = spec
        else:  # b has no named sharding, as arguments on several meshes: every device gets all rows
            mesh = Mesh(np.array(list(given.device_set)), "devices")
        whole, one = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((*batch, None), batch))
        taken = (whole, *[whole if each else one for each in entries])
        return mesh, taken, (*[whole] * len(rows), *[one] * results)

    def partition(_, arguments, __):
        mesh, taken, given = shardings(arguments)
        return mesh, call, given, taken

    # custom_partitioning has no rule for vmap: here the new axis becomes another batch axis.
    @custom_vmap
    def split(*arguments):
        return partitioned(*arguments)

    @split.def_vmap
    def _(size, batched, *arguments):
        return split(*_full(size, batched, arguments)), (True,) * made

    partitioned = custom_partitioning(call)
    partitioned.def_partition(
        partition,
        infer_sharding_from_operands=lambda _, arguments, __: shardings(arguments)[2],
        sharding_rule=", ".join(["... m", *["... m" if each else "..." for each in entries]])
        + " -> "
        + ", ".join([*[f"... {axis}" for axis in rows], *["..."] * results]),
        need_replication_factors=tuple(dict.fromkeys(("m", *rows))),
    )

    # if vmap adds an explicit axis of a mesh, each device makes the call for its own rows
    @custom_vmap
    def own(*arguments):
        return call(*arguments)

    @own.def_vmap
    def _(size, batched, *arguments):
        return by_rows(own, *_full(size, batched, arguments), results=results, rows=rows), (True,) * made

    def choose(*arguments):
        meshes = jax.sharding.get_abstract_mesh(), jax.typeof(arguments[0]).sharding.mesh
        compiler_splits = {kind for mesh in meshes for kind in mesh.axis_types} <= {AxisType.Auto}
        return split(*arguments) if compiler_splits else own(*arguments)

    return choose


def _full(size: int, batched, arguments) -> list[jax.Array]:
    """The arguments of a function that vmap maps, each with the mapped axis, whose length is `size`."""
    pairs = zip(arguments, batched, strict=True)
    return [a if has else jnp.broadcast_to(a, (size, *a.shape)) for a, has in pairs]


def by_rows(
    project: Callable,
    b: jax.Array,
    *numbers: jax.Array,
    results: int | None = None,
    rows: Sequence[str] = ("m",),
) -> Any:
    """``project(b, *numbers)`` of b [..., m] and numbers [...] or [..., m], sharded as b is.

    Args:
        project: returns an array [..., m], or a tuple of arrays of rows and `results` arrays [...].
        b, numbers: its arguments.
        results: how many arrays [...] there are; None if `project` returns a single array.
        rows: for each array of rows the name of its last axis, as in :func:`over_rows`.

    If b or a number is sharded over explicit axes, each device projects its own rows in a ``shard_map`` over
    these axes. Otherwise, and within a ``shard_map``, nothing is done here: the compiler splits the rows.
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

    def arranged(found):
        if results is None:
            return placed(found, given)
        specs = [*(given if axis == "m" else [*batch, None] for axis in rows), *[batch] * results]
        return tuple(placed(array, spec) for array, spec in zip(found, specs, strict=True))

    axes = [[*batch, None] if array.ndim == b.ndim else batch for array in (b, *numbers)]
    arrays = [placed(array, own) for array, own in zip((b, *numbers), axes, strict=True)]
    if not names:
        return arranged(project(*arrays))
    whole, one = PartitionSpec(*batch, None), PartitionSpec(*batch)
    out = whole if results is None else (*[whole] * len(rows), *[one] * results)
    specs = tuple(PartitionSpec(*own) for own in axes)
    return arranged(
        jax.shard_map(project, mesh=mesh, in_specs=specs, out_specs=out, axis_names=names)(*arrays)
    )
