"""Waits for what JAX computes, so that Ctrl-C ends the wait and the native kernels that XLA is running."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from xmcjax._device_memory import ran_out, without_status
from xmcjax._exit import keep_clients
from xmcjax._fork import check_threads_of_jax
from xmcjax.native._interrupts import loaded

# Seconds for which native calls of an interrupted computation are waited for; XLA's own code goes on.
_PATIENCE = 1.0
# Modules by which JAX traces, lowers and compiles: while one of them is at work, nothing is computed yet.
_COMPILING = {f"jax._src.{name}" for name in ("interpreters.partial_eval", "interpreters.mlir", "compiler")}
_SIGNALS = sorted(signal.valid_signals() - {getattr(signal, n, None) for n in ("SIGKILL", "SIGSTOP")})


def awaited(
    function: Callable,
    *args: Any,
    look: Callable[[], None] | None = None,
    brief: bool = False,
    **options: Any,
) -> Any:
    """The computed result of a jitted function; while it is computed, signals are handled.

    Args:
        function, args, options: the call.
        look: called repeatedly until the result is there, even in other threads than the main one; an
            exception that it raises ends the wait.
        brief: whether the result will be there so soon that signals can wait for it.

    If a signal handler raises, native kernels that XLA is running are ended; code that XLA compiled itself
    runs to its end in the background, and nothing waits for it. Within another function that JAX traces, and
    in other threads than the main one, where Python runs no signal handlers, this is a plain call.

    Raises:
        RuntimeError: in a process that was forked from one in which JAX had computed.
        MemoryError: a native kernel, or code that XLA compiled, lacked memory.
        BaseException: what the function, `look` or a signal handler raises.
    """
    check_threads_of_jax()
    if threading.current_thread() is not threading.main_thread():
        out = function(*args, **options)
        if look is not None:
            _wait(_arrays(out), look=look)
        return out
    out, dispatch = None, _Dispatch()
    try:
        try:
            with dispatch:
                out = function(*args, **options)
        finally:
            dispatch.deliver()
        if not brief:
            _wait(_arrays(out), look=look)
        # raises if the computation failed
        jax.block_until_ready([a for a in _arrays(out) if not a.is_deleted()])
        return out
    except BaseException as error:
        _abandon(_arrays(out))
        if ran_out(error):
            raise MemoryError(without_status(error)) from error
        raise


class _Dispatch:
    """Delays exceptions of signal handlers while a computation is handed to XLA: a result that is not bound
    to a name yet would be lost, and nothing could wait for it. Kernels that XLA runs in this thread end.
    """

    def __init__(self):
        self._handlers: dict[int, Any] = {}
        self._raised: BaseException | None = None

    def __enter__(self) -> None:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._handle)
        _set("xmcjax_await_xla", 1)

    def __exit__(self, *_) -> None:
        _set("xmcjax_await_xla", 0)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame) -> None:
        if frame is not None and frame.f_code.co_name == "_xla_gc_callback":
            # Python drops exceptions raised while it collects garbage, so the signal is raised again.
            signal.raise_signal(number)
            return
        try:
            self._handlers[number](number, frame)
        except BaseException as raised:
            if _compiles(frame):
                keep_clients()  # XLA goes on compiling
                raise
            self._raised = self._raised or raised
            _set("xmcjax_stop_xla", 1)

    def deliver(self) -> None:
        """Raises the exception that a handler has raised, if any."""
        if self._raised is not None:
            raise self._raised


def _compiles(frame: FrameType | None) -> bool:
    """Whether JAX has called this frame to trace or compile."""
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if name == __name__:
            return False
        if name in _COMPILING:
            return True
        frame = frame.f_back
    return False


def _abandon(arrays: list[jax.Array]) -> None:
    """Ends the native kernels that compute these arrays."""
    try:
        if not _ready(arrays):
            _set("xmcjax_stop_xla", 1)
            _wait(arrays, _PATIENCE)
    finally:
        _set("xmcjax_stop_xla", 0)
    if not _ready(arrays):
        keep_clients()


def _set(function: str, value: int) -> None:
    library = loaded()
    if library is not None:
        getattr(library, function)(value)


def _arrays(out: Any) -> list[jax.Array]:
    arrays = [a for a in jax.tree.leaves(out) if isinstance(a, jax.Array)]
    arrays = [a for a in arrays if not isinstance(a, Tracer)]
    # random keys cannot be asked whether they are ready; the other arrays of the same result can
    return [a for a in arrays if not jnp.issubdtype(a.dtype, jax.dtypes.prng_key)]


def _ready(arrays: list[Any]) -> bool:
    return all(a.is_deleted() or a.is_ready() for a in arrays)


def _wait(
    arrays: list[jax.Array], most: float = float("inf"), look: Callable[[], None] | None = None
) -> None:
    """Waits until all arrays are ready, or for `most` seconds.

    A look takes some 20 µs of a core, and a result is noticed half a sleep late. The sum of these costs is
    least if sleeps grow with the square root of the elapsed time: a hundred take a quarter of a second.
    """
    begin = time.perf_counter()
    while not _ready(arrays):
        elapsed = time.perf_counter() - begin
        if elapsed > most:
            return
        if look is not None:
            look()
        time.sleep(min(max(0.01 * math.sqrt(elapsed), 2e-5), 0.05))
