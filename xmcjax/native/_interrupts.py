"""Interrupting native calls: Ctrl-C, and any other signal whose Python handler raises, ends them in a moment.

Python runs signal handlers between its own instructions, so not before a native call returns. Therefore a
call that the main thread makes through ctypes lets Python look for signals now and then
(native/core/interrupt.h). No signal handler is installed: if a handler does not raise, the call goes on.
Threads stop their calls by a :class:`StopFlag`; for calls that XLA makes see :mod:`xmcjax.native._awaited`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator

# How a call ended, numbered as in native/interface/guard.h.
_DONE, _NO_MEMORY, _INTERRUPTED, _, _UNKNOWN_ID, _BAD_ARGUMENT = range(6)
_loaded: ctypes.CDLL | None = None


class Interrupted(Exception):
    """The call was ended by the :class:`StopFlag` of its thread."""


def prepare(library: ctypes.CDLL) -> None:
    """Gives the library, which has just been loaded, the function by which it asks Python for signals."""
    global _loaded
    _loaded = library
    api = [
        ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p)
        for name in ("PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Fetch", "PyGILState_Release")
    ]

    def tell():
        main = threading.main_thread().ident
        library.xmcjax_python(*api, ctypes.c_uint64(main or 0))

    tell()
    os.register_at_fork(after_in_child=tell)  # in a child the thread that forked is the main thread


def loaded() -> ctypes.CDLL | None:
    """The library, where it has been loaded."""
    return _loaded


def check(ended: int, memory: str, message: str = "") -> None:
    """Raises the error that the return value of a native call stands for.

    Args:
        ended: the return value, which says how the call ended.
        memory: what there was no memory for.
        message: what was wrong with an argument.

    Raises:
        MemoryError: there was not enough memory.
        ValueError: an argument was wrong.
        Interrupted: the flag of this thread was set.
        BaseException: what a signal handler raised, KeyboardInterrupt as a rule.
    """
    if ended == _DONE:
        return
    if ended == _NO_MEMORY:
        raise MemoryError(f"no memory for {memory}")
    if ended == _INTERRUPTED:
        raise_pending()
        raise Interrupted
    if ended == _BAD_ARGUMENT:
        raise ValueError(message)
    if ended == _UNKNOWN_ID:
        raise RuntimeError(
            "the kernels of xmcjax have other numbers than its modules (native/interface/ids.def): install "
            "the package again"
        )
    raise RuntimeError("a native kernel of xmcjax failed in a way that it cannot name")


def raise_pending() -> None:
    """Raises the exception that a signal handler raised within a call, if any."""
    if _loaded is None:
        return
    raised = (ctypes.c_void_p * 3)()
    _loaded.xmcjax_take_raised(raised)
    if raised[0]:
        # sets the exception, which ctypes raises when this function of Python returns
        ctypes.pythonapi.PyErr_Restore(*map(ctypes.c_void_p, raised))


class StopFlag:
    """A flag by which any thread ends the native calls of the threads that heed it."""

    def __init__(self):
        self._flag = ctypes.c_int32(0)

    def set(self) -> None:
        """Ends the calls that are under way within a moment, and every later call."""
        self._flag.value = 1

    def is_set(self) -> bool:
        """Whether the flag has been set."""
        return bool(self._flag.value)

    @contextlib.contextmanager
    def heeded(self) -> Iterator[None]:
        """A context in which native calls of this thread raise :class:`Interrupted` when the flag is set."""
        library = _loaded
        if library is None:
            yield
            return
        library.xmcjax_stop_flag(ctypes.byref(self._flag))
        try:
            yield
        finally:
            library.xmcjax_stop_flag(None)
