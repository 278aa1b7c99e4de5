"""Memory that the processes and threads of a run share where they are on one machine.

Two processes of one machine need not send each other their changes: they share the weights, arrays in which
they write down their moves, and a gate at which they meet. The memory has no name in any folder
(``memfd_create`` of Linux), so that nothing is left of it, however a process ends. Where there is no such
memory, every process is on its own.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
import os
import secrets
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from xmcjax.native import Ascent, Gate, aligned_zeros, isa
from xmcjax.solvers.multiclass_dual._wire import Wire

# Before the weights the memory has a token of _TOKEN bytes by which processes know it, the gate from the byte
# _GATE on, and from _NUMBERS on the arrays of the places: _TOLD numbers and _MOVES moves per place at a time.
_TOKEN, _GATE, _NUMBERS, _TOLD, _MOVES = 16, 64, 256, 4, 1 << 14
_NAME = "xmcjax-weights"


class Shared(NamedTuple):
    """The memory that the processes of one machine share."""

    memory: mmap.mmap | np.ndarray
    near: tuple[int, ...]  #: the places of the processes, this one among them


def shared_memory(wire: Wire, size: int, places: int, with_others: bool) -> Shared:
    """Memory of zeros that this process shares with the others of its machine.

    Every process of the run makes this call.

    Args:
        wire: to the other processes.
        size: bytes for the weights.
        places: number of places per process, one for each of its threads that take part.
        with_others: whether processes share the memory, or only the threads of this one.

    Raises:
        MemoryError: there is no room for the memory.
    """
    machine = _machine() if with_others else b""
    near = [place for place, other in enumerate(wire.gather_parts(machine)) if machine and other == machine]
    # all processes make the same calls, also one that is alone on its machine
    made = _from_one(wire, near, _head(places * len(near)) + size)
    if made is not None:
        return Shared(made, tuple(near))
    return Shared(aligned_zeros((_head(places) + size,), np.uint8), (wire.place,))


def _head(places: int) -> int:
    """Bytes before the weights, whole pages."""
    told = _NUMBERS + places * (2 * _TOLD * 8 + 2 * 8 + _MOVES * (4 + 4 + 8))
    return -(-told // mmap.PAGESIZE) * mmap.PAGESIZE


def _machine() -> bytes:
    """A text that is equal for processes that can open each other's memory; empty where none can."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read().strip()
        space = os.readlink("/proc/self/ns/pid").encode()
    except OSError:
        return b""
    # the widest vector decides the layout of the weights
    return b"%s %s %d %s" % (boot, space, os.getuid(), str(isa()).encode())


def _from_one(wire: Wire, near: list[int], size: int) -> mmap.mmap | None:
    """The memory that the first of some processes makes; None where one of them cannot have it."""
    memory, file, token = None, None, b""
    leads = len(near) > 1 and wire.place == near[0]
    try:
        if leads:
            token = secrets.token_bytes(_TOKEN)
            with contextlib.suppress(AttributeError, OSError):  # no such memory, or no room
                file = os.memfd_create(_NAME)
                os.posix_fallocate(file, 0, size)
                memory = mmap.mmap(file, size)
                memory[:_TOKEN] = token
        told = f"{os.getpid()} {file}".encode() if memory is not None else b""
        parts = wire.gather_parts(token + told)
        if len(near) > 1 and not leads:
            part = parts[near[0]]
            memory = _opened(part[:_TOKEN], part[_TOKEN:].decode(), size)
        all_have = wire.gather(np.array(memory is not None))
        return memory if all(all_have[place] for place in near) else None
    finally:
        if file is not None:
            os.close(file)


def _opened(token: bytes, told: str, size: int) -> mmap.mmap | None:
    """The memory of another process, if it has the token."""
    if not told:
        return None
    process, file = map(int, told.split())
    path = f"/proc/{process}/fd/{file}"
    with contextlib.suppress(OSError, ValueError):
        if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
            return None
        with open(path, "r+b") as opened:
            memory = mmap.mmap(opened.fileno(), size)
        if memory[:_TOKEN] == token:
            return memory
    return None


class Board:
    """Where the places of one machine meet, and the weights that they share.

    Args:
        shared: memory of :func:`shared_memory`.
        places: number of places per process.
        own: this place, by its number in the run.
        dtype: of the weights.
        look: called now and then while this place waits for others; it raises what ends the wait.

    Attributes:
        near: the places of this machine, ascending.
        own: the position of this place in `near`.
        weights: the weights that the places share.
    """

    def __init__(self, shared: Shared, places: int, own: int, dtype: np.dtype, look: Callable[[], None]):
        self.near = [process * places + thread for process in shared.near for thread in range(places)]
        count, self.own, self._look = len(self.near), self.near.index(own), look
        whole = np.frombuffer(shared.memory, np.uint8)
        self._gate = Gate(whole[_GATE : _GATE + 128].view(np.int64), count)
        # two arrays in turn: a place that has passed the gate has read the array before
        at = _NUMBERS

        def room(kind: type | np.dtype, *shape: int) -> np.ndarray:
            nonlocal at
            first, at = at, at + math.prod(shape) * np.dtype(kind).itemsize
            return whole[first:at].view(kind).reshape(shape)

        self._told = itertools.cycle(room(float, 2, count, _TOLD))
        self._sweep = dict(
            counts=room(np.int64, count, 2),
            change=room(dtype, count, _MOVES),
            row=room(np.int32, count, _MOVES),
            label=room(np.int32, count, _MOVES),
            stage=np.zeros(4, np.int64),
        )
        self.weights = whole[_head(count) :].view(dtype)

    def gather(self, numbers: list[float]) -> np.ndarray:
        """The numbers of all places, at most four each, in order; returns when all places have called it."""
        told = next(self._told)
        told[self.own, : len(numbers)] = numbers
        while not self._gate.meet():
            self._look()
        return told[:, : len(numbers)].copy()

    def sweep(self, point: Ascent, parts: int, tol: float, caution: float) -> float:
        """Makes the parts of a sweep of all places; returns the largest violation that this place met.

        Args:
            point: the ascent of this place, at the shared weights.
            parts, tol, caution: of :meth:`xmcjax.native.Ascent.row_part`.
        """
        violation, held = np.zeros(1), np.zeros((), np.int64)
        how = dict(parts=parts, tolerance=tol, caution=caution, own=self.own)
        while not held:
            point.row_sweep(**how, **self._gate.fields, **self._sweep, violation=violation, held=held)
            self._look()
        return float(violation[0])
