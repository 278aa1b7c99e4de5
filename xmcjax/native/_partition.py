"""How XLA splits a native call over the devices of a mesh: by its rows, which do not depend on each other.

Without it XLA gathers the whole array on every device and leaves the result there. In ``shard_map`` the call
is a device's own already; explicit axes of a mesh become that in :mod:`xmcjax.projections._rows`.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def over_rows(call: Callable, *, numbers: int, results: int) -> Callable:
    """The same function, split by its batch axes.

    Args:
        call: (b [..., m], `numbers` arrays [...]) -> (an array [..., m], `results` arrays [...]).
    """

    def shardings(arguments):
        """(mesh, those of the arguments, those of the results): as b's, with whole rows."""
        given = arguments[0].sharding
        batch = [None] * (len(arguments[0].shape) - 1)
        if isinstance(given, NamedSharding):
            mesh, spec = given.mesh, tuple(given.spec)[: len(batch)]
            batch[: len(spec)] = spec
        else:  # the arguments lie on several meshes: every device has all rows
            mesh = Mesh(np.array(list(given.device_set)), "devices")
        whole, one = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((*batch, None), batch))
        return mesh, (whole, *[one] * numbers), (whole, *[one] * results)

    def partition(_, arguments, __):
        mesh, taken, given = shardings(arguments)
        return mesh, call, given, taken

    # custom_partitioning has no rule for vmap: the new axis is one more of the batch.
    @custom_vmap
    def split(*arguments):
        return partitioned(*arguments)

    @split.def_vmap
    def _(size, batched, *arguments):
        pairs = zip(arguments, batched, strict=True)
        full = [a if has else jnp.broadcast_to(a, (size, *a.shape)) for a, has in pairs]
        return split(*full), (True,) * (1 + results)

    partitioned = custom_partitioning(call)
    partitioned.def_partition(
        partition,
        infer_sharding_from_operands=lambda _, arguments, __: shardings(arguments)[2],
        sharding_rule=", ".join(["... m", *["..."] * numbers])
        + " -> "
        + ", ".join(["... m", *["..."] * results]),
        need_replication_factors=("m",),
    )

    def choose(*arguments):
        meshes = jax.sharding.get_abstract_mesh(), jax.typeof(arguments[0]).sharding.mesh
        compiler_splits = {kind for mesh in meshes for kind in mesh.axis_types} <= {AxisType.Auto}
        return split(*arguments) if compiler_splits else call(*arguments)

    return choose
