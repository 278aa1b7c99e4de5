"""Ctrl-C within a native call, or within what JAX computes, of every solver."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import interrupt_program
import numpy as np
import pytest

from tests.support.internals import canonical_csr
from tests.support.problems import needs_native
from tests.support.processes import run_all, start
from xmcjax.native import Interrupted, Proximal, StopFlag

NAMES = list(interrupt_program.CASES)
PARTS = 3
# The fits take minutes; an interrupt takes about 0.1 s, on a machine that has nothing else to do.
PATIENCE = 10.0


@needs_native
@pytest.mark.parametrize("part", range(PARTS))
def test_ctrl_c_in_every_solver_and_a_fit_afterwards(part):
    names = NAMES[part::PARTS]
    program = f"import interrupt_program\ninterrupt_program.main({names!r})"
    (done,) = run_all([start(program, path=[Path(__file__).parent])], timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = dict(line.split(": ") for line in done.stdout.splitlines())
    assert list(lines) == names
    late = {name: took for name, took in lines.items() if "itself" in took or float(took[:-2]) > PATIENCE}
    assert not late, done.stderr[-3000:]


ABANDONED = """
import ctypes, os, signal, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from xmcjax.native import awaited

signal.signal(signal.SIGINT, signal.default_int_handler)
x = np.ones((400, 400))

def long(x):  # to compile
    for i in range(100):
        x = jnp.sort(jnp.sin(x) @ jnp.cos(x + i), axis=i % 2)
    return x

@jax.jit
def endless(x):
    return jax.lax.while_loop(lambda s: s[1] >= 0, lambda s: (jnp.sin(s[0] @ s[0]), s[1] * 1), (x, 0))

compiled = endless.lower(x).compile()
calls = {{"compile": jax.jit(long).lower(x).compile, "compute": lambda: compiled(x)}}
wait = awaited if {awaited} else lambda call: call()
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    while True:  # the signal may come late, on a machine that has much to do
        wait(calls[{what!r}])
except KeyboardInterrupt:
    open({mark!r}, "w").close()
    ctypes.CDLL(None).printf(b"of C\\n")
    {end}
"""


ENDS = {"pass": 0, "sys.exit(75)": 75, "raise": -signal.SIGINT, "1 / 0": 1}


@pytest.mark.parametrize(
    ("what", "end", "awaited"),
    [("compile", end, True) for end in ENDS]
    + [("compute", "raise", True), ("compile", "raise", False)]
    + [pytest.param("compute", end, True, marks=pytest.mark.slow) for end in ENDS if end != "raise"],
)
def test_a_process_ends_well_while_xla_is_still_at_work(what, end, awaited, tmp_path):
    """JAX 0.10 alone crashes in the first case, and waits for ever in the other."""
    program = ABANDONED.format(what=what, end=end, awaited=awaited, mark=str(tmp_path / "mark"))
    (done,) = run_all([start(program)], timeout=120)
    assert done.returncode == ENDS[end], done.stderr[-3000:]
    assert (tmp_path / "mark").exists() and done.stdout == "of C\n"


def newton(n=1500, d=700, m=100):
    """Proximal point steps; at this size the first call takes a minute."""
    X, y = interrupt_program.features(n, d, m)
    return Proximal(canonical_csr(interrupt_program.sp.csr_array(X)), y, m, "llw", 1.0)


@needs_native
def test_a_handler_that_does_not_raise_runs_and_the_call_goes_on():
    seen = []

    def third(number, frame):
        seen.append(number)
        if len(seen) == 3:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise TimeoutError("three are enough")

    before = signal.signal(signal.SIGALRM, third)
    point = newton()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
        with pytest.raises(TimeoutError, match="three are enough"):
            point.step(1e-9)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) == 3


@needs_native
def test_a_flag_ends_the_calls_of_its_own_thread_alone():
    flag, ended = StopFlag(), []

    def work():
        point = newton()
        try:
            with flag.heeded():
                point.step(1e-9)
        except Interrupted:
            ended.append("interrupted")

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.5)
    flag.set()
    thread.join(timeout=60)
    assert ended == ["interrupted"]
    # nobody heeds it any more
    newton(50, 5, 3).step(1e-3)


@needs_native
def test_no_handler_is_installed_and_other_threads_are_left_alone():
    """A signal that arrives while another thread computes is the main thread's business."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ended = []

    def work():
        ended.append(newton(300, 100, 20).step(1e-3))

    thread = threading.Thread(target=work)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        thread.join(300)
        signal.signal(signal.SIGINT, before)
    assert len(ended) == 1 and np.isfinite(ended[0].primal)
