"""Values that a worker keeps from one task to the next: the data of a run, a model."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

# Seconds for which unused values are kept. The tasks of runs that share a worker alternate, so that a run may
# have no task there for some seconds.
_REST = 30


@dataclasses.dataclass
class _Entry(Generic[Value]):
    """A value.

    Attributes:
        value: the value itself.
        users: how many use it now.
        left: when the last user left.
    """

    value: Value
    users: int = 0
    left: float = 0.0


class Kept(Generic[Key, Value]):
    """Values that tasks share; the first task that asks for a value makes it.

    A value is kept while it is used and for half a minute afterwards.

    Args:
        lasting: how many of the most recently used values are kept longer than that.
        resting: the most unused values that are kept; None for no limit.
        shed: called with each value that is dropped.

    Example:
        >>> kept = Kept(lasting=2)
        >>> with kept.using("a", lambda: [1]) as made, kept.using("a", lambda: [2]) as found:
        ...     made is found
        True
        >>> kept.remove_idle("a"), kept.remove_idle("a")
        ([1], None)
    """

    def __init__(self, lasting: int, resting: int | None = None, shed: Callable[[Value], None] | None = None):
        self._lasting, self._resting, self._let_go = lasting, resting, shed
        self._entries: dict[Key, _Entry[Value]] = {}
        self._lock = threading.Lock()
        # a lock exists as long as some task makes the value of its key or waits for the value
        self._making: weakref.WeakValueDictionary[Key, threading.Lock] = weakref.WeakValueDictionary()
        self._waits = False

    @contextlib.contextmanager
    def using(self, key: Key, make: Callable[[], Value | None]) -> Iterator[Value | None]:
        """The value of a key, which `make` makes if there is none; None where `make` returns None."""
        entry = self._taken(key)
        if entry is None:
            with self._lock:
                making = self._making.setdefault(key, threading.Lock())
            with making:  # other tasks wait here for the same value
                entry = self._taken(key)
                if entry is None and (value := make()) is not None:
                    entry = self._taken(key, _Entry(value))
        if entry is None:
            yield None
            return
        try:
            yield entry.value
        finally:
            with self._lock:
                entry.users -= 1
                entry.left = time.monotonic()
            self._shed()

    def remove(self, key: Key) -> Value | None:
        """Removes the value of a key and returns it; None where there is none."""
        with self._lock:
            entry = self._entries.pop(key, None)
        return entry and entry.value

    def remove_idle(self, key: Key) -> Value | None:
        """As :meth:`remove` if nobody uses the value; otherwise the value stays, and None is returned."""
        with self._lock:
            entry = self._entries.get(key)
            return self._entries.pop(key).value if entry is not None and not entry.users else None

    def _taken(self, key: Key, made: _Entry[Value] | None = None) -> _Entry[Value] | None:
        with self._lock:
            if made is not None:
                self._entries[key] = made
            entry = self._entries.get(key)
            if entry is not None:
                entry.users += 1
            return entry

    def _shed(self) -> None:
        """Drops the values that are no longer kept; calls `shed` without the lock, as it may take long."""
        with self._lock:
            gone = self._rested()
        for value in gone:
            if self._let_go is not None:
                self._let_go(value)

    def _rested(self) -> list[Value]:
        """Removes and returns the values that are no longer kept; a timer looks at the others later."""
        idle = [(entry.left, key) for key, entry in self._entries.items() if not entry.users]
        idle.sort(key=lambda one: one[0])
        too_many = 0 if self._resting is None else len(idle) - self._resting
        now, gone = time.monotonic(), []
        for number, (left, key) in enumerate(idle[: max(0, len(idle) - self._lasting)]):
            if now - left >= _REST or number < too_many:
                gone.append(self._entries.pop(key).value)
            elif not self._waits:
                self._waits = True
                timer = threading.Timer(left + _REST - now, self._look)
                timer.daemon = True
                timer.start()
        return gone

    def _look(self) -> None:
        with self._lock:
            self._waits = False
        self._shed()
