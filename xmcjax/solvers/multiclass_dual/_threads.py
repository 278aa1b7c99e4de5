"""Threads of one process that take part in a run as processes do.

Each thread has a place of its own, with dual variables of its own: what threads of a process tell each other
goes through memory, and what they tell other processes goes in one message for all of them.
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax.native import Assessment, Interrupted, StopFlag
from xmcjax.solvers.multiclass_dual._wire import Wire


class Meeting:
    """Where the threads of a process meet, each with something of its own.

    Args:
        threads: number of threads that meet.
    """

    def __init__(self, threads: int):
        self._barrier, self._given = threading.Barrier(threads), [None] * threads
        self._made: Any = None

    def __call__(self, thread: int, given: Any, work: Callable[[list], Any]) -> Any:
        """What `work` returns, called by one thread with what all threads have given, in their order."""
        self._given[thread] = given
        if self._barrier.wait() == 0:
            self._made = work(self._given)
        # no thread gives something new before all have read this
        self._barrier.wait()
        return self._made

    def end(self) -> None:
        """Threads that wait, and all that come later, get a BrokenBarrierError."""
        self._barrier.abort()


class ThreadWire:
    """The way from one thread to all threads of all processes, as :class:`._wire.Wire`.

    Args:
        wire: of the process.
        meeting: of the threads of the process.
        thread: number of this thread, from 0.
        threads: number of threads per process.
    """

    def __init__(self, wire: Wire, meeting: Meeting, thread: int, threads: int):
        self._wire, self._meeting, self._thread = wire, meeting, thread
        self.place, self.count = wire.place * threads + thread, wire.count * threads
        self.look = wire.look

    def total(self, a: np.ndarray) -> np.ndarray:
        """The sum over the threads."""
        return self._meeting(self._thread, a, lambda given: self._wire.total(np.sum(given, axis=0)))

    def largest(self, a: np.ndarray) -> np.ndarray:
        """The maximum over the threads."""
        return self._meeting(self._thread, a, lambda given: self._wire.largest(np.max(given, axis=0)))

    def gather(self, a: np.ndarray) -> np.ndarray:
        """The arrays of all threads, which have the same shape, along a new first axis."""

        def gathered(given: list[np.ndarray]) -> np.ndarray:
            return self._wire.gather(np.stack(given)).reshape(self.count, *np.shape(a))

        return self._meeting(self._thread, a, gathered)

    def gather_parts(self, part: bytes) -> list[bytes]:
        """The parts of all threads, of any length each, in the order of the places."""

        def gathered(given: list[bytes]) -> list[bytes]:
            head = struct.Struct(f"@{len(given)}q")
            parts = []
            for one in self._wire.gather_parts(head.pack(*map(len, given)) + b"".join(given)):
                ends = head.size + np.cumsum([0, *head.unpack_from(one)])
                parts += [one[first:last] for first, last in itertools.pairwise(ends)]
            return parts

        return self._meeting(self._thread, part, gathered)


class Together:
    """The parts of a problem that several threads have, each as a place of its own, driven as one.

    Args:
        wire: of the process.
        threads: number of threads, more than one.
        make: makes the part of a place from its way to the others, on which it sends nothing yet.
    """

    def __init__(self, wire: Wire, threads: int, make: Callable[[ThreadWire], Any]):
        self._meeting, self._stop = Meeting(threads), StopFlag()
        self.leagues = [make(ThreadWire(wire, self._meeting, t, threads)) for t in range(threads)]
        self._pool = ThreadPoolExecutor(threads, "xmcjax-place")

    def assess(self, tol: float) -> Assessment:
        return self._all("assess", tol)

    def sweep(self, tol: float, shrinking: bool) -> tuple[float, float]:
        return self._all("sweep", tol, shrinking)

    def alpha(self) -> sp.csr_array:
        """The dual variables of all threads; each is in one thread."""
        first, *others = (league.alpha() for league in self.leagues)
        for alpha in others:
            first = first + alpha
        return sp.csr_array(first)

    def close(self) -> None:
        """Ends the threads."""
        self._stop.set()
        self._meeting.end()
        self._pool.shutdown()

    def _all(self, name: str, *args: Any) -> Any:
        """What a method returns, which is the same in all threads."""
        made = [self._pool.submit(self._one, league, name, args) for league in self.leagues]
        wait(made)
        errors = [error for one in made if (error := one.exception()) is not None]
        if errors:
            # the first error ended the meeting, or stopped native code, in the other threads
            raise min(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError | Interrupted))
        return made[0].result()

    def _one(self, league: Any, name: str, args: tuple) -> Any:
        with self._stop.heeded():
            try:
                return getattr(league, name)(*args)
            except BaseException:
                self._meeting.end()
                self._stop.set()  # stops threads that wait in native code
                raise
