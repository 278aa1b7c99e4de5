"""A scheduler and workers of Dask, each a process of its own on the loopback interface."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import distributed
import numpy as np

from tests.support.lanes import small
from tests.support.processes import ROOT, running
from tests.support.processes import wait_until as wait_until

_spool, _dispatch = (importlib.import_module(f"xmcjax.cluster.{name}") for name in ("_spool", "_dispatch"))


class Cluster:
    """A scheduler, and workers that are not started again.

    Args:
        folder: an empty one, for what the processes write.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._processes: list[subprocess.Popen] = []
        contact = folder / "scheduler.json"
        more = ("--port", "0", "--no-show", "--scheduler-file", str(contact))
        self.scheduler = self._start("dask_scheduler", *more)
        self.address = _read(contact, self.scheduler)["address"]

    def worker(
        self, prelude: str = "", *, threads: int = 1, host: str = "", **environment: str
    ) -> subprocess.Popen:
        """Another worker.

        Args:
            prelude: Python source that runs in it first.
            threads: of it.
            host: a name; workers with the same one share a folder.
            environment: its variables.
        """
        number = len(self._processes)
        folder = self._folder / host
        folder.mkdir(exist_ok=True)
        more = ["--no-nanny", "--nthreads", str(threads), "--local-directory", str(folder)]
        if prelude:
            file = self._folder / f"prelude{number}.py"
            file.write_text(dedent(prelude))
            more += ["--preload", str(file)]
        return self._start("dask_worker", self.address, *more, **environment)

    def _start(self, module: str, *arguments: str, **environment: str) -> subprocess.Popen:
        here = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")
        command = [sys.executable, "-m", f"distributed.cli.{module}", *here, *arguments]
        variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
        with open(self._folder / f"{module}-{len(self._processes)}.log", "wb") as log:
            process = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """Ends all processes, stopped ones too."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(timeout=60)


@dataclasses.dataclass(frozen=True)
class Made:
    """A source that makes the data of tests anew, in a worker."""

    seed: int

    def __call__(self) -> dict[str, Any]:
        X, Y = small(seed=self.seed)
        return {"X": X, "Y": Y}


def _host() -> str:
    """In a worker: the name of its host, as :meth:`Cluster.worker` was given it."""
    return Path(distributed.get_worker().local_directory).parent.parent.name  # beside Dask's own folder


@dataclasses.dataclass(frozen=True)
class MadeInTime:
    """A source that leaves a file for each read, and on the host "late" waits until it may read.

    Attributes:
        folder: an empty one; a file "go" there is the permission.
    """

    folder: Path

    def __call__(self) -> dict[str, Any]:
        host = _host()
        (self.folder / f"{host}-{time.monotonic_ns()}").touch()
        wait_until(lambda: host != "late" or (self.folder / "go").exists())
        return {"X": np.ones((2, 2), np.float32)}

    def reads(self, host: str) -> int:
        """How often a host has read."""
        return len(list(self.folder.glob(f"{host}-*")))


@dataclasses.dataclass(frozen=True)
class Common:
    """What tasks of a run have in common that do no more than to look for its data."""

    name: str


def look_for_data(common: Common, number: int) -> Any:
    """In a worker: a number, with the host that has the data."""
    folder = _spool.folder_of(distributed.get_worker().local_directory, common.name)
    return (number, _host()) if _spool.ready(folder) else _dispatch.Missing()


@dataclasses.dataclass(frozen=True)
class MadeByTheSurvivor:
    """As :class:`Made`; the first workers that are asked are killed.

    Attributes:
        folder: an empty one, in which each that dies leaves a file.
        deaths: that there are.
    """

    folder: Path
    deaths: int

    def __call__(self) -> dict[str, Any]:
        for number in range(self.deaths):
            try:
                (self.folder / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return Made(4)()


def _read(file: Path, process: subprocess.Popen, seconds: float = 60) -> dict[str, Any]:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if file.exists() and file.read_text():
            return json.loads(file.read_text())
        time.sleep(0.05)
    raise AssertionError(f"the scheduler has written no {file}")


@contextmanager
def cluster(folder: Path, workers: int = 0) -> Iterator[Cluster]:
    """A cluster with so many plain workers."""
    folder.mkdir()
    found = Cluster(folder)
    try:
        for _ in range(workers):
            found.worker()
        yield found
    finally:
        found.close()


# In the commands of processes that multiprocessing starts.
_RUN = "spawn_main"


def children(pid: int) -> list[int]:
    """Processes that a process has started and that Python's multiprocessing runs, such as local workers."""
    return [
        number for number, (_, parent, *_), command in running() if parent == str(pid) and _RUN in command
    ]


def commands(group: int) -> list[str]:
    """Of the processes of a group."""
    return [command for _, fields, command in running() if fields[2] == str(group)]


def kill_one(pids: list[int]) -> None:
    """The first of them that is still there."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            return
        except ProcessLookupError:
            continue
