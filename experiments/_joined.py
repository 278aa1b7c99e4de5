"""Processes of this machine that ``jax.distributed`` joins, on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO

from experiments import _report
from experiments.bench._worker import pinned


def answers(
    command: Sequence[str],
    request: Mapping,
    count: int,
    environment: Mapping[str, str],
    processors: Sequence[int] = (),
) -> list[dict]:
    """The answers of several processes that run at once: of each the last line that it prints, in JSON.

    Args:
        command: of a process; `request` in JSON, with what :func:`join` needs, is added as last argument.
        request: what all processes are asked.
        count: of the processes.
        environment: variables beside those of this process.
        processors: the k-th process runs on the k-th processor; if empty, every process runs on any.

    Raises:
        RuntimeError: a process failed; the message has the last line of its errors.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    running: list[subprocess.Popen] = []
    with contextlib.ExitStack() as files:
        # files, not pipes: while one process is waited for, nobody would read what another one writes
        errors = [files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(count)]
        try:
            for place in range(count):
                asked = {**request, "address": address, "count": count, "place": place}
                with pinned(list(processors[place : place + 1])):
                    one = subprocess.Popen(
                        [*command, json.dumps(asked)],
                        stdout=subprocess.PIPE,
                        stderr=errors[place],
                        text=True,
                        cwd=_report.ROOT,
                        env={**os.environ, **environment},
                    )
                running.append(one)
            return [_answer(*one) for one in zip(running, errors, strict=True)]
        finally:
            for one in running:
                if one.poll() is None:
                    one.kill()
                    one.communicate()


def _answer(process: subprocess.Popen, errors: IO[str]) -> dict:
    out, _ = process.communicate()
    if process.returncode:
        errors.seek(0)
        raise RuntimeError(f"a process failed: {errors.read().strip().splitlines()[-1:]}")
    return json.loads(out.splitlines()[-1])


def join(request: Mapping) -> None:
    """Joins the processes of a request, before JAX is asked for a device."""
    import jax

    if request["count"] > 1:
        jax.distributed.initialize(
            request["address"], num_processes=request["count"], process_id=request["place"]
        )
