"""What the processes of a run send to each other, over a mesh with a device of each."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


class Wire:
    """Sums, maxima and neighbours over the processes of a mesh; every process makes the same calls.

    Args:
        mesh: of one axis, with one device of every process (of ``jax.distributed``; a single process
            is one, too).

    Attributes:
        place: of this process, from 0.
        count: of the processes.

    Raises:
        ValueError: another mesh.
        RuntimeError: of every call, where another process is gone.
    """

    def __init__(self, mesh: Mesh):
        owners = [device.process_index for device in mesh.devices.flat]
        if len(mesh.axis_names) != 1 or sorted(owners) != list(range(jax.process_count())):
            raise ValueError(
                f"expected a mesh of one axis with one device of each of {jax.process_count()} processes, got "
                f"axes {', '.join(map(str, mesh.axis_names))} and devices of processes {owners}"
            )
        self.place, self.count = owners.index(jax.process_index()), len(owners)
        self._mesh = mesh

    def total(self, a: np.ndarray) -> np.ndarray:
        """The sum over the processes."""
        return self._call("total", a)[0]

    def largest(self, a: np.ndarray) -> np.ndarray:
        """The maximum over the processes."""
        return self._call("largest", a)[0]

    def gather(self, a: np.ndarray) -> np.ndarray:
        """Those of all processes, which have the same shape, along a new first axis."""
        return self._call("gather", a)[0]

    def shift(self, *arrays: np.ndarray, by: int) -> tuple[np.ndarray, ...]:
        """Those of the process `by` places before; zeros where there is none."""
        return self._call("before" if by > 0 else "after", *arrays)

    def _call(self, kind: str, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        if self.count == 1:
            return tuple(
                {"gather": a[None], "before": np.zeros_like(a), "after": np.zeros_like(a)}.get(kind, a)
                for a in arrays
            )
        sharding = NamedSharding(self._mesh, PartitionSpec(self._mesh.axis_names[0]))
        with jax.enable_x64(True):
            try:
                whole = [
                    jax.make_array_from_process_local_data(sharding, a[None], (self.count, *a.shape))
                    for a in arrays
                ]
                parts = _program(self._mesh, kind)(*whole)
                return tuple(np.asarray(part.addressable_shards[0].data)[0] for part in parts)
            except jax.errors.JaxRuntimeError as error:
                reason = str(error).splitlines()[0]
                raise RuntimeError(
                    f"another process of this run is gone ({reason}): start all of them again"
                ) from None


@functools.cache
def _program(mesh: Mesh, kind: str):
    axis, count = mesh.axis_names[0], mesh.size
    steps = {
        "total": lambda a: jax.lax.psum(a, axis),
        "largest": lambda a: jax.lax.pmax(a, axis),
        "gather": lambda a: jax.lax.all_gather(a[0], axis)[None],
        "before": lambda a: jax.lax.ppermute(a, axis, [(p, p + 1) for p in range(count - 1)]),
        "after": lambda a: jax.lax.ppermute(a, axis, [(p + 1, p) for p in range(count - 1)]),
    }

    def program(*arrays: jnp.ndarray):
        return tuple(steps[kind](a) for a in arrays)

    split = PartitionSpec(axis)
    return jax.jit(jax.shard_map(program, mesh=mesh, in_specs=split, out_specs=split))
