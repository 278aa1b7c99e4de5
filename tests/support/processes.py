"""Programs run in processes of their own: several devices in one, or several processes on one mesh.

And the workers of NUMA nodes, stopped where they wait for labels, which does not depend on who is faster.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

JOIN = """
import jax
# JAX 0.8.0 has no such argument, and waits for five minutes
limit = dict(shutdown_timeout_seconds={shutdown}) if jax.__version_info__ >= (0, 8, 1) else {{}}
jax.distributed.initialize("127.0.0.1:{port}", num_processes={count}, process_id={index}, **limit)
"""


# that this process may run on
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def made_up_nodes(folder: Path, lists: dict, monkeypatch) -> None:
    """A machine of these NUMA nodes: {number: list of its cores as the kernel writes it}."""
    for number, cores in lists.items():
        (folder / f"node{number}").mkdir()
        (folder / f"node{number}" / "cpulist").write_text(f"{cores}\n")
    monkeypatch.setenv("XMCJAX_NODES", str(folder))


def python(program: str, *arguments, timeout: float = 300, check: bool = False, **environment):
    """A program in a process of its own that finds the tests, and has these variables; how it ended."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(
        command, env=variables, capture_output=True, text=True, check=check, timeout=timeout
    )


def start(program: str, *, devices: int = 1, path: Sequence[Path] = ()) -> subprocess.Popen:
    """A program in a process with that many CPU devices, in float64, warnings being errors.

    Args:
        program: Python source.
        devices: that JAX sees.
        path: folders to import from, beside the root of the project.
    """
    environment = {
        **os.environ,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([*map(str, path), str(ROOT)]),
    }
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_all(
    processes: Sequence[subprocess.Popen], timeout: float = 300, stopped: int | None = None
) -> list[subprocess.CompletedProcess]:
    """Waits for all; ends those that are left when the time is over.

    Args:
        processes: that were started.
        timeout: seconds.
        stopped: the place of one that will not end by itself, and is killed when the others have ended.
    """
    deadline = time.monotonic() + timeout
    try:
        done = {}
        for place in sorted(range(len(processes)), key=lambda place: place == stopped):
            process = processes[place]
            if place == stopped:
                process.kill()
            out, err = process.communicate(timeout=max(1, deadline - time.monotonic()))
            done[place] = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        return [done[place] for place in range(len(processes))]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate(timeout=60)


def outputs(done: Sequence[subprocess.CompletedProcess]) -> list[str]:
    """The last line that each program printed; an AssertionError with the messages of those that failed."""
    failed = [f"exit code {one.returncode}\n{one.stderr[-3000:]}" for one in done if one.returncode]
    assert not failed, "\n".join(failed)
    return [one.stdout.splitlines()[-1] for one in done]


def run_program(program: str, *, devices: int = 1) -> str:
    """The last line that a program prints, in a process with that many devices."""
    return outputs(run_all([start(program, devices=devices)]))[0]


def run_distributed(
    program: str, count: int, *, path: Sequence[Path] = (), shutdown: int = 120, stopped: int | None = None
) -> list[subprocess.CompletedProcess]:
    """The same program in `count` processes of one device each, joined by ``jax.distributed`` on loopback.

    Args:
        program: Python source.
        count: of processes.
        path: folders to import from, beside the root of the project.
        shutdown: seconds that a process which has ended waits for the others; few where one is to die.
        stopped: of :func:`run_all`.
    """
    with socket.socket() as held:
        # nobody else is given the port while it is held here; who asks for this very one may share it
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        numbers = dict(port=held.getsockname()[1], count=count, shutdown=shutdown)
        programs = [JOIN.format(index=index, **numbers) + program for index in range(count)]
        return run_all([start(text, path=path) for text in programs], stopped=stopped)


def watch_labels_taken(monkeypatch, watch: Callable[[int], None]) -> None:
    """Calls `watch` with the process of a NUMA node whenever it waits for labels, before it gets them.

    The process is there then, has pinned itself and has not been told that the labels are over.
    """
    real = importlib.import_module("xmcjax.lanes._nodes")._answer

    def answer(worker, queue, kind, content):
        if kind == "take":
            watch(worker._process.pid)
        real(worker, queue, kind, content)

    monkeypatch.setattr("xmcjax.lanes._nodes._answer", answer)


def kill_at_take(monkeypatch, count: int) -> list[int]:
    """Kills the process of the NUMA node that asks for labels as the `count`-th; its id is in the result."""
    asked: list[int] = []
    killed: list[int] = []

    def watch(process):
        asked.append(process)
        if len(asked) == count:
            os.kill(process, signal.SIGKILL)
            killed.append(process)

    watch_labels_taken(monkeypatch, watch)
    return killed


def skip_where_ignored(name: str) -> None:
    """Skips a test of a signal that is ignored by who started the tests, as nohup has it of SIGHUP."""
    if signal.getsignal(signal.Signals[name]) is signal.SIG_IGN:
        pytest.skip(f"{name} is ignored")


def node_workers() -> list[int]:
    """Processes of NUMA nodes that this one started and that have not ended."""
    own = str(os.getpid())
    return [pid for pid, (_, parent, *_), command in running() if parent == own and "_node_worker" in command]


def running() -> Iterator[tuple[int, list[str], str]]:
    """(process, fields of its stat behind the name, command) of what runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        if fields[0] != "Z":
            yield int(folder.name), fields, command


def wait_until(true: Callable[[], Any], seconds: float = 60, pause: float = 0.02) -> None:
    """Until something is so; an AssertionError where it is not in time.

    Args:
        true: whether it is so.
        seconds: at most.
        pause: seconds between two looks; a look at all processes is work, where its moment does not matter.
    """
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(pause)
