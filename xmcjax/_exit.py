"""The end of a process in which XLA, or another native library, is still at work.

Python destroys JAX's clients as it ends. A client waits for what it computes, for hours perhaps, and where it
still compiles the process crashes: the compilation uses what was destroyed (JAX 0.10). Ctrl-C leaves both.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, NoReturn

_kept: list[Any] = []
_left: list[Future] = []


def keep_clients() -> None:
    """To be called where something that JAX compiles or computes is abandoned.

    At its exit the process does all that Python does, handlers and streams included, and ends with the status
    that it would have; JAX's clients, and what C++ destroys after Python has ended, are left to the system.
    Where the C library has no ``on_exit`` (it is not glibc), the end is that of JAX.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if _kept or not hasattr(library, "on_exit"):
        return
    for client in _clients():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
        _kept.append(client)
    if _kept:
        # The last handler is the first to be called: with the status, by exit(), when Python is over.
        library.on_exit(library._exit, None)


def leave(ends: Iterable[Future]) -> None:
    """To be called with the futures of daemon threads for which nobody waits any more.

    A thread itself does not tell whether it is at work: one whose ``join`` was interrupted calls itself ended
    (Python 3.11 and 3.12).
    """
    keep_clients()
    _left.extend(ends)


def has_left() -> bool:
    """Whether a thread that was left is still at work.

    Where it comes back from XLA while Python ends, the process aborts: :func:`end_now` ends it before that.
    """
    return not all(end.done() for end in _left)


def end_now(status: int) -> NoReturn:
    """Ends this process at once; what was written to its streams is kept."""
    _flush_streams()
    os._exit(status)


def _flush_streams() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or never there
            stream.flush()
    _flush()


def _clients() -> list[Any]:
    """The clients of JAX, if any. An import at the exit could change the status after Ctrl-C."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    begun = getattr(bridge, "backends_are_initialized", None)
    return list(bridge.backends().values()) if bridge is not None and begun is not None and begun() else []


def _flush() -> None:
    """Writes out what native libraries have printed, which ``_exit`` would lose."""
    if sys.platform == "linux":
        ctypes.CDLL(None).fflush(None)


def _at_exit() -> None:
    if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):  # which nobody has caught
        keep_clients()
        if has_left():  # ends as Python ends after Ctrl-C
            _flush_streams()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
    if _kept:
        _flush()


atexit.register(_at_exit)
