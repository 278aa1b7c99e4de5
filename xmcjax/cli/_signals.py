"""SIGTERM and SIGHUP end a command as Ctrl-C does: what is complete stays on disk, and one line says so."""

from __future__ import annotations

import _thread
import contextlib
import inspect
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from xmcjax._exit import end_now

#: Signals that ask a process to end. Windows has no SIGHUP.
_REQUESTS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
# The signals that are handled, with the handlers that Python installs for them.
_USUAL = {signal.SIGINT: signal.default_int_handler} | dict.fromkeys(_REQUESTS, signal.SIG_DFL)

# Seconds after which a signal that came at a bad moment is sent again.
_AGAIN = 0.05
# Seconds for which an import, or the way out of the command, is not interrupted by a signal.
_PATIENCE = 30

# The file names of the code with which Python imports modules.
_IMPORTS = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")


class Ended(KeyboardInterrupt):
    """The command was asked to end.

    Attributes:
        signal: the number of the signal that asked.
    """

    def __init__(self, number: int):
        self.signal = signal.Signals(number)
        super().__init__(self.signal.name)


@contextlib.contextmanager
def ending_the_command() -> Iterator[Callable[[], None]]:
    """A context in which SIGTERM and SIGHUP raise :class:`Ended` in the main thread; Ctrl-C raises
    KeyboardInterrupt.

    A signal that is ignored stays ignored, as ``nohup`` wants it, and a signal with another handler keeps
    it. A context entered in another thread changes nothing. The context gives a function; once it is called,
    signals have no effect.

    A handler runs wherever the main thread is, and in some places its exception does harm or is lost:

    - While a module is imported: native modules crash, end the process, or take the exception for a fault of
      their own. The signal is sent again until the import is over.
    - In a callback of the garbage collector (JAX has one) or in a finaliser: Python drops exceptions there.
      The signal is sent again.
    - On the way out after another signal: a closed terminal sends two signals, and service managers repeat
      them. A second SIGTERM or SIGHUP is then ignored.

    Where other code drops the exception, the next signal raises one again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    main, here = threading.get_ident(), inspect.currentframe()
    outside = here and here.f_back and here.f_back.f_back  # skips the frame of contextlib
    taken = [number for number, handler in _USUAL.items() if signal.getsignal(number) == handler]
    over, sending = False, threading.Lock()
    raised = -float("inf")
    came: dict[int, float] = {}
    waiting: set[int] = set()

    def heard(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        now = time.monotonic()
        if over or (number in _REQUESTS and now - raised < _PATIENCE and _leaves()):
            return
        if _imports(frame, outside) and now - came.setdefault(number, now) < _PATIENCE and again(number):
            return
        came.pop(number, None)
        raised = now
        raise Ended(number) if number in _REQUESTS else KeyboardInterrupt

    def again(number: int) -> bool:
        """Whether the signal will be sent once more."""
        if number not in waiting:
            waiting.add(number)
            try:  # threading.Thread would take locks that the main thread may hold here
                _thread.start_new_thread(send, (number,))
            except RuntimeError:  # the system has no more threads
                waiting.discard(number)
                return False
        return True

    def send(number: int) -> None:
        time.sleep(_AGAIN)
        with sending:
            waiting.discard(number)
            if over:  # too late: the context has ended
                return
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(main, number)  # this also wakes a main thread that waits
            else:
                signal.raise_signal(number)

    def stop() -> None:
        nonlocal over
        with sending:
            over = True

    told_of_dropped = sys.unraisablehook

    def dropped(what) -> None:
        if not isinstance(what.exc_value, KeyboardInterrupt):
            return told_of_dropped(what)
        again(what.exc_value.signal if isinstance(what.exc_value, Ended) else signal.SIGINT)

    for number in taken:
        signal.signal(number, heard)
    sys.unraisablehook = dropped
    try:
        yield stop
    finally:
        stop()
        sys.unraisablehook = told_of_dropped
        for number in taken:
            signal.signal(number, _USUAL[number])


def end_at_signals(status: int) -> None:
    """Makes the signals of :func:`ending_the_command` end the process at once with this status.

    The command has finished, and what Python does while it ends may take long.
    """
    if threading.current_thread() is threading.main_thread():
        for number, handler in _USUAL.items():
            if signal.getsignal(number) == handler:
                signal.signal(number, lambda *_: end_now(status))


def _leaves() -> bool:
    """Whether this thread is handling the exception that a signal raised."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _imports(frame: FrameType | None, outside: FrameType | None) -> bool:
    """Whether `frame`, or a frame between it and `outside`, which entered the context, imports a module."""
    while frame is not None and frame is not outside:
        if frame.f_code.co_filename in _IMPORTS:
            return True
        frame = frame.f_back
    return False
