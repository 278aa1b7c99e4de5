"""What a worker keeps from one task to the next: the data of a run, a model."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

# Values that are kept though nobody has used them for so many seconds. The tasks of runs that share a worker
# come in turn, so that for some seconds one of them has none.
_MOST, _REST = 2, 30


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

    What is used, or was a moment ago, stays. Of the others the two stay that were used last.

    Example:
        >>> kept = Kept()
        >>> with kept.using("a", lambda: [1]) as made, kept.using("a", lambda: [2]) as found:
        ...     made is found
        True
        >>> kept.remove_idle("a"), kept.remove_idle("a")
        ([1], None)
    """

    def __init__(self):
        self._entries: dict[Key, _Entry[Value]] = {}
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._waits = False

    @contextlib.contextmanager
    def using(self, key: Key, make: Callable[[], Value | None]) -> Iterator[Value | None]:
        """The value of a key, which is made where there is none; None where that gives None."""
        entry = self._taken(key)
        if entry is None:
            with self._making:  # the others wait for the same one
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
        """Those that have rested, but the last ones; and sees to it that the others are looked at later."""
        idle = [(entry.left, key) for key, entry in self._entries.items() if not entry.users]
        now = time.monotonic()
        idle = sorted(idle, key=lambda one: one[0])[: max(0, len(idle) - _MOST)]
        for left, key in idle:
            if now - left >= _REST:
                del self._entries[key]
            elif not self._waits:
                self._waits = True
                timer = threading.Timer(left + _REST - now, self._look)
                timer.daemon = True
                timer.start()

    def _look(self) -> None:
        with self._lock:
            self._waits = False
            self._shed()
