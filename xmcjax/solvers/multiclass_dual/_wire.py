"""What the processes of a run send to each other, over a mesh with a device of each."""

from __future__ import annotations

import functools
import struct

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xmcjax.solvers._peers import Peers

# _LENGTH: how the length of a part is written. _LEAST: the least room for a part, in bytes.
_LENGTH, _LEAST = struct.Struct("@q"), 1 << 12


class Wire:
    """Sums, maxima and gathered arrays over the processes of a mesh; every process makes the same calls.

    Args:
        mesh: of one axis, with one device of every process (of ``jax.distributed``; a single process
            is one, too).
        peers: of the solve.

    Attributes:
        place: number of this process, from 0.
        count: number of processes.
        sent: bytes that this process has sent, without what a collective adds.
        messages: number of messages in which it sent them.

    Raises:
        ValueError: another mesh.
        PeerError: of every call, where another process has failed or is gone.
    """

    def __init__(self, mesh: Mesh, peers: Peers):
        owners = [device.process_index for device in mesh.devices.flat]
        if len(mesh.axis_names) != 1 or sorted(owners) != list(range(jax.process_count())):
            raise ValueError(
                f"expected a mesh of one axis with one device of each of {jax.process_count()} processes, "
                f"got axes {', '.join(map(str, mesh.axis_names))} and devices of processes {owners}"
            )
        self.place, self.count = owners.index(jax.process_index()), len(owners)
        self._mesh, self._peers = mesh, peers
        self.sent = self.messages = 0
        self._room = _LEAST

    def total(self, a: np.ndarray) -> np.ndarray:
        """The sum over the processes."""
        return self._call("total", a)

    def largest(self, a: np.ndarray) -> np.ndarray:
        """The maximum over the processes."""
        return self._call("largest", a)

    def gather(self, a: np.ndarray) -> np.ndarray:
        """The arrays of all processes, which have the same shape, along a new first axis."""
        return self._call("gather", a)

    def gather_parts(self, part: bytes) -> list[bytes]:
        """The parts of all processes, of any length each, in the order of the places.

        Most calls send one message: it has room for the longest part of the last call, rounded up, and says
        the length of its part. Where a part is longer than the room, all parts are sent again.
        """
        while True:
            room = np.zeros(_LENGTH.size + self._room, np.uint8)
            told = np.frombuffer(_LENGTH.pack(len(part)) + part, np.uint8)[: len(room)]
            room[: len(told)] = told
            parts = self.gather(room)
            lengths = [_LENGTH.unpack_from(p)[0] for p in parts]
            before, longest = self._room, max(lengths)
            # few sizes, because each has a program of its own
            self._room = max(1 << max(longest - 1, 0).bit_length(), self._room // 2, _LEAST)
            if longest <= before:
                return [
                    p[_LENGTH.size :][:length].tobytes() for p, length in zip(parts, lengths, strict=True)
                ]

    def look(self) -> None:
        """To be called while this process waits for others without this wire."""
        if self.count > 1:
            self._peers.look()

    def _call(self, kind: str, a: np.ndarray) -> np.ndarray:
        if self.count == 1:
            return a[None] if kind == "gather" else a
        self.sent, self.messages = self.sent + a.nbytes, self.messages + 1
        return self._peers.apart(lambda: self._sent(kind, a))

    def _sent(self, kind: str, a: np.ndarray) -> np.ndarray:
        sharding = NamedSharding(self._mesh, PartitionSpec(self._mesh.axis_names[0]))
        with jax.enable_x64(True):
            whole = jax.make_array_from_process_local_data(sharding, a[None], (self.count, *a.shape))
            return np.asarray(_program(self._mesh, kind)(whole).addressable_shards[0].data)[0]


@functools.cache
def _program(mesh: Mesh, kind: str):
    axis = mesh.axis_names[0]
    steps = {
        "total": lambda a: jax.lax.psum(a, axis),
        "largest": lambda a: jax.lax.pmax(a, axis),
        "gather": lambda a: jax.lax.all_gather(a[0], axis)[None],
    }
    split = PartitionSpec(axis)
    return jax.jit(jax.shard_map(steps[kind], mesh=mesh, in_specs=split, out_specs=split))
