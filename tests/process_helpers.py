"""Programs run in processes of their own: several devices in one, or several processes on one mesh."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

JOIN = """
import jax
jax.distributed.initialize(
    "127.0.0.1:{port}", num_processes={count}, process_id={index}, shutdown_timeout_seconds=10
)
"""


def start(program: str, *, devices: int = 1, path: Sequence[Path] = ()) -> subprocess.Popen:
    """A program in a process with that many CPU devices, in float64, warnings being errors.

    Args:
        program: Python source.
        devices: that JAX sees.
        path: folders to import from, beside the root of the project.
    """
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([*map(str, path), str(ROOT)]),
    }
    command = [sys.executable, "-W", "error", "-c", program]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, env=environment, **pipes)


def run_all(processes: Sequence[subprocess.Popen], timeout: float = 300) -> list[subprocess.CompletedProcess]:
    """Waits for all; ends those that are left when the time is over."""
    deadline = time.monotonic() + timeout
    try:
        done = []
        for process in processes:
            out, err = process.communicate(timeout=max(1, deadline - time.monotonic()))
            done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
        return done
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def outputs(done: Sequence[subprocess.CompletedProcess]) -> list[str]:
    """The last line that each program printed; an AssertionError with the messages of those that failed."""
    failed = [f"exit code {one.returncode}\n{one.stderr[-3000:]}" for one in done if one.returncode]
    assert not failed, "\n".join(failed)
    return [one.stdout.splitlines()[-1] for one in done]


def run_program(program: str, *, devices: int = 1, path: Sequence[Path] = ()) -> str:
    """The last line that a program prints, in a process with that many devices."""
    return outputs(run_all([start(program, devices=devices, path=path)]))[0]


def run_distributed(
    program: str, count: int, *, path: Sequence[Path] = ()
) -> list[subprocess.CompletedProcess]:
    """The same program in `count` processes of one device each, joined by ``jax.distributed`` on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    programs = [JOIN.format(port=port, count=count, index=index) + program for index in range(count)]
    return run_all([start(text, path=path) for text in programs])
