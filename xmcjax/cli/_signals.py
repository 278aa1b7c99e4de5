"""SIGTERM and SIGHUP end a command as Ctrl-C does: what is complete stays on disk, and one line says so."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

#: Signals that ask a process to end. Windows has no SIGHUP.
_REQUESTS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


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

    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
