"""What a forked process lacks: threads of the process that it comes from.

JAX computes in such threads, and a forked process would wait for them for ever: there, functions that need
them raise an error at once. Others work: ``MulticlassSVC`` and one-vs-all training on the native kernels, and
``predict`` of linear classifiers. Locks that other threads held are free there.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import FunctionType, TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=type)

_owner: int | None = None  # the process whose threads JAX computes in, as far as it is known


def _note_owner() -> None:
    """Before a fork: whether JAX has begun to compute here, perhaps for somebody else than this package."""
    global _owner
    bridge = sys.modules.get("jax._src.xla_bridge")
    begun = getattr(bridge, "backends_are_initialized", None)
    if _owner is None and begun is not None and begun():
        _owner = os.getpid()


class UnlockedCachedProperty(functools.cached_property[T]):
    """``functools.cached_property`` as it is from Python 3.12 on: that of 3.11 has a lock for all objects.

    Two threads may both make the value, of which one is kept.
    """

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self
        found = owner.__dict__[self.attrname] = self.func(owner)
        return found


class OwnLock:
    """A lock of an object that can be copied and pickled: it is free in copies and in forked processes.

    What it guards must be whole whenever another thread can run.
    """

    def __init__(self):
        self._lock = self._taken = threading.Lock()
        _own_locks.add(self)

    def __enter__(self) -> None:
        lock = self._lock
        lock.acquire()
        self._taken = lock

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._taken.release()  # after a fork while it was held, the old lock

    def __reduce__(self):
        return OwnLock, ()

    def set_free(self) -> None:
        """Makes the lock free, in a process that was forked just now."""
        self._lock = threading.Lock()


_own_locks: weakref.WeakSet[OwnLock] = weakref.WeakSet()


def _set_locks_free() -> None:
    for lock in list(_own_locks):
        lock.set_free()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_owner, after_in_child=_set_locks_free)


def check_threads_of_jax() -> None:
    """To be called before JAX computes.

    Raises:
        RuntimeError: this process was forked from one in which JAX had computed.
    """
    global _owner
    if _owner is None:
        _owner = os.getpid()
    elif _owner != os.getpid():
        raise RuntimeError(
            f"this process was forked from process {_owner} after JAX had started its threads there, and "
            'would wait for them for ever: start processes with "spawn" or "forkserver" '
            '(multiprocessing.get_context("spawn")), or fork before the first fit'
        )


def needs_threads_of_jax(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which begins with :func:`check_threads_of_jax`."""

    @functools.wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        check_threads_of_jax()
        return function(*args, **options)

    return checked


def methods_need_threads_of_jax(cls: C, but: tuple[str, ...] = ()) -> C:
    """The class, whose public methods begin with :func:`check_threads_of_jax`.

    Args:
        cls: the methods that it defines itself count, not those that it inherits.
        but: names of methods that JAX computes nothing for.
    """
    return wrap_methods(cls, needs_threads_of_jax, but)


def wrap_methods(cls: C, wrap: Callable[[FunctionType], Callable], but: tuple[str, ...] = ()) -> C:
    """The class, each of whose public methods that it defines itself is what `wrap` makes of it.

    Args:
        cls: the class.
        wrap: method -> the one that takes its place.
        but: names of methods that stay.
    """
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_") and name not in but:
            setattr(cls, name, wrap(method))
    return cls
