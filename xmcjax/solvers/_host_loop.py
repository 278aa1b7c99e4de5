"""Long work that Ctrl-C ends.

Iterations run in compiled calls that are short enough to wait for, and long enough that the calls cost
nothing. Calls of LAPACK, which nothing can end, run in a thread of their own.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._device_memory import check_program
from xmcjax._pytrees import is_traced
from xmcjax.native import awaited, varying_like

# After a call of less than _SHORT seconds, the next one makes as many iterations as fit into that time: at
# least twice and at most eight times as many as the last one, because later iterations may take longer.
_SHORT, _GROWTH = 0.25, (2, 8)
ALL = 2**31 - 1
# Seconds up to which a call is waited for without a look at signals: some 40 looks cost a tenth of it.
_BRIEF = 0.1
# Seconds from one look at signals to the next.
_LOOK = 0.05

Value = TypeVar("Value")


class Calls:
    """Calls of ``advance(problem, hp, state, count)``, which makes at most `count` iterations.

    Args:
        advance: jitted, its count traced; or a native call on arrays of NumPy.
        problem, hp: of every call.
        most: iterations of a call.
        compiled: whether `advance` is jitted.

    Raises:
        DeviceMemoryError: in the first call; an iteration does not fit into what is free on the device.
    """

    def __init__(
        self,
        advance: Callable[..., Any],
        problem: Any,
        hp: Any,
        most: int = 1 << 20,
        *,
        compiled: bool = True,
    ):
        self._advance, self._given, self._most, self._count = advance, (problem, hp), most, 1
        self._checked, self._expected, self._compiled = not compiled, math.inf, compiled

    def __call__(self, state: Any) -> Any:
        """The state after some iterations."""
        if not self._checked:
            check_program("an iteration", self._advance, *self._given, state, self._count)
            self._checked = True
        begin, brief = time.perf_counter(), self._expected < _BRIEF
        if self._compiled:
            state = awaited(self._advance, *self._given, state, self._count, brief=brief)
        else:  # a native call heeds signals itself
            state = self._advance(*self._given, state, self._count)
        seconds = max(time.perf_counter() - begin, 1e-6)
        if seconds < _SHORT:
            more = min(int(np.clip(_SHORT / seconds, *_GROWTH)) * self._count, self._most)
            self._expected, self._count = seconds * more / self._count, more
        else:
            self._expected = seconds
        return state


def at_most(step: Callable[[Any], Any], running: Callable[[Any], Any], state: Any, count: Any) -> Any:
    """The state after `count` steps, or fewer where it no longer runs; within jit."""
    return jax.lax.while_loop(
        lambda made: (made[0] < count) & running(made[1]),
        lambda made: (made[0] + 1, step(made[1])),
        (jnp.int32(0), state),
    )[1]


def run_in_calls(
    advance: Callable[..., Any],
    running: Callable[[Any], bool],
    problem: Any,
    hp: Any,
    state: Any,
    observe: Callable[[Any], None] | None = None,
) -> Any:
    """``state = advance(problem, hp, state, count)`` until not ``running(state)``.

    Args:
        advance: jitted; makes at most `count` iterations, and fewer where they end the run.
        running: of a state on the host.
        problem, hp, state: to start from. Where JAX traces any of them, one call makes all iterations.
        observe: called with the state after each call; or None.
    """
    if is_traced((problem, hp, state)):
        return advance(problem, hp, varying_like(state, (problem, hp)), ALL)
    calls = Calls(advance, problem, hp)
    while running(state):
        state = calls(state)
        if observe is not None:
            observe(state)
    return state


def abandonable(work: Callable[[], Value]) -> Value:
    """What `work` returns; it runs in a thread, which is left to itself where a signal handler raises.

    Args:
        work: arithmetic on arrays of its own in which NumPy releases the GIL.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    out: list[Value] = []
    failed: list[BaseException] = []

    def run():
        try:
            out.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK)
    if failed:
        raise failed[0]
    return out[0]
