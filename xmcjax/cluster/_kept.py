"""What a worker keeps from one task to the next: the data of a run, a model."""

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

# Seconds for which values are kept that nobody uses. The tasks of runs that share a worker come in turn, so
# that for some seconds one of them has none.
_REST = 30


@dataclasses.dataclass
class _Entry(Generic[Value]):
    """A value.

    Attributes:
        value: itself.
        users: who use it now.
        left: when the last of them left.
    """

    value: Value
    users: int = 0
    left: float = 0.0


class Kept(Generic[Key, Value]):
    """Values that tasks share, the first of which makes them.

    What is used stays, and for half a minute what was used.

    Args:
        lasting: how many stay beyond that, those that were used last.
        resting: how many stay that nobody uses; None for all.
        shed: called with each value that does not stay.

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
        # each as long as somebody makes the value of its key, or waits for it
        self._making: weakref.WeakValueDictionary[Key, threading.Lock] = weakref.WeakValueDictionary()
        self._waits = False

    @contextlib.contextmanager
    def using(self, key: Key, make: Callable[[], Value | None]) -> Iterator[Value | None]:
        """The value of a key, which is made where there is none; None where that gives None."""
        entry = self._taken(key)
        if entry is None:
            with self._lock:
                making = self._making.setdefault(key, threading.Lock())
            with making:  # the others wait for the same one
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
        """The value, which is kept no longer; None where there is none."""
        with self._lock:
            entry = self._entries.pop(key, None)
        return entry and entry.value

    def remove_idle(self, key: Key) -> Value | None:
        """The same where nobody uses it; otherwise None, and it stays."""
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
        """Lets those go that do not stay; not under the lock, since that may last."""
        with self._lock:
            gone = self._rested()
        for value in gone:
            if self._let_go is not None:
                self._let_go(value)

    def _rested(self) -> list[Value]:
        """Those that are kept no longer; and sees to it that the others are looked at later."""
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
