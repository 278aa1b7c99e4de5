"""SIGTERM and SIGHUP end a command as Ctrl-C does: what is complete stays on disk, and one line says so."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

#: Signals that ask a process to end. Windows has no SIGHUP.
_REQUESTS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


# Seconds after which a signal is raised again whose exception was dropped: the main thread is then elsewhere.
_AGAIN = 0.05


class Ended(KeyboardInterrupt):
    """The command was asked to end.

    Attributes:
        signal: that asked.
    """

    def __init__(self, number: int):
        self.signal = signal.Signals(number)
        super().__init__(self.signal.name)


@contextlib.contextmanager
def ending_the_command() -> Iterator[None]:
    """Within it the signals raise :class:`Ended` in the main thread, once.

    A signal that is ignored stays ignored, as ``nohup`` wants it, and one that has a handler keeps it. In any
    other thread than the main one nothing changes.

    A handler runs wherever the main thread is, which may be a callback of the garbage collector, such as JAX
    has one, or a finaliser: Python drops what these raise. Such a signal, and Ctrl-C too, is raised again.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _REQUESTS}
    taken = [number for number, handler in before.items() if handler is signal.SIG_DFL]

    def end(number: int, frame) -> None:
        # A terminal that is closed sends both, and service managers repeat it: the way out is taken once.
        for other in taken:
            signal.signal(other, signal.SIG_IGN)
        raise Ended(number)

    def listen() -> None:
        for number in taken:
            signal.signal(number, end)

    told_of_dropped, timers = sys.unraisablehook, []

    def dropped(what) -> None:
        if not isinstance(what.exc_value, KeyboardInterrupt):
            return told_of_dropped(what)
        number = signal.SIGINT
        if isinstance(what.exc_value, Ended):
            number = what.exc_value.signal
            listen()
        timers.append(threading.Timer(_AGAIN, signal.raise_signal, [number]))
        timers[-1].daemon = True
        timers[-1].start()

    if before:
        listen()
        sys.unraisablehook = dropped
    try:
        yield
    finally:
        if before:
            sys.unraisablehook = told_of_dropped
        for timer in timers:  # what comes now comes too late
            timer.cancel()
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
