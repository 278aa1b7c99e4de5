"""Processes that solve one problem together: how they find each other, and the mesh of their devices."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import queue
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh

from xmcjax._arguments import whole_number
from xmcjax.cluster._clients import check_may_wait
from xmcjax.cluster._dispatch import (
    ANSWER,
    CLOSED,
    LOOK,
    PATIENCE,
    SILENCE,
    Workers,
    gone,
    is_closed,
    wanted,
    worker_of_task,
)
from xmcjax.cluster._errors import ClusterError
from xmcjax.cluster._rendezvous import come, meet, tell

if TYPE_CHECKING:
    from distributed import Client

_log = logging.getLogger(__name__)

# In seconds: all processes must join within _COME. JAX gives a process up after _HEARTBEAT without a sign of
# life; xmcjax itself does so after 30 s and names it. A process that has ended waits _PART for the others.
_COME, _HEARTBEAT, _PART = 50, 60, 30
_MOST = 1 << 16
# Seconds that a process which is no longer wanted has to end by itself.
_END = 2
# Seconds that the other processes have to end after one has failed.
_OTHERS = 60
# The failure of a task whose worker is gone.
_DIED = "the worker died or has left the cluster"
# Texts in the last words of a process that ended because another process failed.
_TALES = "PeerError", "JAX distributed service detected fatal errors"
# Lines of an abort in C++: _ABORT matches its reason, _STACK its stack.
_ABORT, _STACK = re.compile(r"F\d{4} [^]]*\] (.*)"), re.compile(r"\s*(@ +0x[0-9a-f]+ |\*\*\* )")
#: The axis of the mesh.
AXIS = "processes"


def join_mesh(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> Mesh:
    """Joins the processes of a run by ``jax.distributed``; every process calls it before it uses JAX.

    If the main thread joins, SIGTERM does afterwards what it did before: JAX would use it for its preemption
    service (``multihost_utils.reached_preemption_sync_point``), which is not used here.

    Without arguments they come from SLURM (``srun``), Open MPI (``mpirun``) or Kubernetes, as JAX finds them
    in the environment, or from a ``jax.distributed`` that is initialised already.

    Args:
        coordinator: HOST:PORT of process 0, which listens on that address only.
        processes: how many processes there are.
        process: the number of this process, from 0.

    Returns:
        A mesh of one axis with the first device of each process, for ``solvers.multinomial.run`` and
        ``solvers.multiclass_dual.run_over_mesh``.

    Raises:
        ValueError: some arguments without the others, or out of range; no arguments and no such environment.
        ClusterError: the others have not joined within 50 s, or this process has used JAX already.

    Example:
        Each process of a run does this; here there is only one:

        >>> import socket, subprocess, sys
        >>> with socket.create_server(("127.0.0.1", 0)) as server:
        ...     port = server.getsockname()[1]
        >>> program = f'''
        ... from xmcjax.cluster import join_mesh
        ... print(join_mesh("127.0.0.1:{port}", processes=1, process=0).size)
        ... '''
        >>> done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        >>> done.stdout.split()
        ['1']
    """
    given = {"coordinator": coordinator, "processes": processes, "process": process}
    missing = [name for name, value in given.items() if value is None]
    if 0 < len(missing) < len(given):
        raise ValueError(
            f"expected coordinator, processes and process, or none of them, found no {missing[0]}"
        )
    if not jax.distributed.is_initialized():
        more: dict[str, Any] = {}
        if not missing:
            count = whole_number("processes", processes, 1, _MOST)
            place = whole_number("process", process, 0, count - 1)
            more = dict(coordinator_address=_address(coordinator), num_processes=count, process_id=place)
            more |= {"coordinator_bind_address": coordinator} if place == 0 else {}
        _start(more)
    elif not missing and (jax.process_count(), jax.process_index()) != (processes, process):
        raise ValueError(
            f"expected process {process} of {processes}, found jax.distributed at work as process "
            f"{jax.process_index()} of {jax.process_count()}"
        )
    first = {device.process_index: device for device in reversed(jax.devices())}
    return Mesh(np.array([first[index] for index in sorted(first)]), (AXIS,))


def _start(numbers: dict[str, Any]) -> None:
    times: dict[str, Any] = dict(initialization_timeout=_COME, heartbeat_timeout_seconds=_HEARTBEAT)
    if jax.__version_info__ >= (0, 8, 1):  # JAX 0.8.0 has no such argument, and waits for five minutes
        times["shutdown_timeout_seconds"] = _PART
    try:
        jax.distributed.initialize(**numbers, **times)
    except ValueError as error:
        if numbers:
            raise
        raise ValueError(
            "expected coordinator, processes and process, or the environment of SLURM or Open MPI, "
            "found neither"
        ) from error
    except RuntimeError as error:  # JAX was used before, or some process has not joined
        reason = str(error).splitlines()[0]
        raise ClusterError(f"this process could not join the others of a mesh: {reason}") from error
    _take_sigterm_back()


def _take_sigterm_back() -> None:
    """Restores Python's handler of SIGTERM, in whose place JAX has installed one that does nothing.

    Later versions of JAX have an option that leaves the service out; 0.8 has none.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(signal.SIGTERM, handler)


def _address(text: Any) -> str:
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not (host and colon and port.isdecimal() and 0 < int(port) < _MOST):
        raise ValueError(f"coordinator: expected HOST:PORT, got {text!r}")
    return text


def run_on_mesh(client: Client, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Calls ``function(mesh, *arguments)`` in a new process beside each worker of a Dask cluster.

    The processes join one mesh (:func:`join_mesh`). The process beside the first worker is the coordinator
    and listens on the address by which its worker is reached. The processes are new ones, because
    ``jax.distributed`` starts only once in a process, before JAX is used. They begin when each worker has a
    free thread. A busy worker is waited for without limit, as any task waits; after 50 s a warning of the
    logger ``xmcjax.cluster._mesh`` names it. Workers are taken in the order of their addresses, so that two
    calls do not wait for each other. The processes end with this call, even if it is interrupted or a process
    of the cluster is killed; after a failure of one process the call ends within a minute. Nothing is
    retried, because a solver whose classes are split over processes needs all of them; a solver with a
    checkpoint continues from it in another call.

    Args:
        client: of the cluster.
        function: a function that Dask can pickle, with results that can be pickled.
        arguments: arguments of the function, the same for all processes.

    Returns:
        What the function returned in each process, in the order of the mesh.

    Raises:
        ClusterError: there is no worker, or a process failed, or a worker, which the message names, died or
            was silent for 50 s; or the client is closed, or the scheduler is gone.
        ValueError: the call is on the thread of the client's event loop, which ``asyncio.to_thread`` avoids;
            or in a task of the cluster that holds its thread, which ``distributed.worker_client()`` avoids.

    Example:
        >>> from xmcjax.cluster import local_cluster, run_on_mesh
        >>> with local_cluster(1) as client:
        ...     run_on_mesh(client, lambda mesh, factor: factor * mesh.size, 10)
        [10]
    """
    from distributed import CancelledError
    from distributed.comm.core import CommClosedError

    check_may_wait(client)
    if client.scheduler is None or is_closed(client):
        raise ClusterError(CLOSED)
    tasks: list[Any] = []
    try:
        workers = _workers(client)
        host = workers[0].rpartition("://")[2].rpartition(":")[0].strip("[]")
        options: dict[str, Any] = dict(pure=False, allow_other_workers=False, retries=0)
        seen = Workers(client)
        seen.wait()  # until the scheduler has answered, no worker is known
        run, ports = f"xmcjax-mesh-{secrets.token_hex(6)}", []
        for place, worker in enumerate(workers):
            given = (run, place, host, len(workers), function, arguments)
            key = f"{run}-{place}"
            tasks.append(client.submit(_member, *given, key=key, workers=[worker], **options))
            ports += _at_last(seen, workers, tasks, lambda: come(client, worker, run, place)) or []  # noqa: B023
            if len(ports) < len(tasks):
                return _answers(seen, workers, tasks, begun=False)
        coordinator = f"[{host}]:{ports[0]}" if ":" in host else f"{host}:{ports[0]}"
        _at_last(seen, workers, tasks, lambda: tell(client, workers, run, coordinator))
        return _answers(seen, workers, tasks)
    except (CancelledError, asyncio.CancelledError, CommClosedError) as error:
        raise gone(client) from error
    finally:  # after Ctrl-C, too
        from distributed.client import ClosedClientError

        # the client or the scheduler may be gone
        with contextlib.suppress(OSError, CancelledError, asyncio.CancelledError, ClosedClientError):
            if not is_closed(client):
                client.cancel(tasks, force=True)


def _workers(client: Any) -> list[str]:
    try:
        workers = sorted(client.nthreads(callback_timeout=ANSWER))
    except OSError as error:
        raise ClusterError(f"the scheduler {client.scheduler.address} does not answer") from error
    if not workers:
        raise ClusterError("expected at least one worker, found none")
    return workers


def _at_last(seen: Workers, workers: list[str], tasks: list[Any], found: Callable[[], Any]) -> Any:
    """Calls `found` until it returns something true, and returns that; None if a task ends before.

    Raises:
        ClusterError: the worker of one of the tasks died, left or fell silent.
    """
    told, begin = False, time.monotonic()
    while not any(task.done() for task in tasks):
        if lost := _lost(seen, workers, range(len(tasks))):
            raise _failure(workers, lost)
        if answer := found():
            return answer
        if not told and time.monotonic() - begin > PATIENCE:
            told = True
            _log.warning("a mesh waits for %s, which is busy with other tasks", workers[len(tasks) - 1])
    return None


def _answers(seen: Workers, workers: list[str], tasks: list[Any], begun: bool = True) -> list[Any]:
    """What the tasks of these workers returned, each of which is bound to its worker.

    So deaths and silence must be noticed here: the scheduler keeps the task of a dead worker in case that the
    worker comes back, and the task of a silent worker for minutes.

    Args:
        begun: whether the processes have begun; then they get some time to end after one has failed. If a
            task has ended before they began, no other process will begin.

    Raises:
        ClusterError: a process failed or did not begin, or its worker died, left or fell silent.
    """
    results: dict[int, Any] = {}
    failed: dict[int, str] = {}
    left = dict(enumerate(tasks))
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for task in tasks:
        task.add_done_callback(done.put)
    limit, end = SILENCE, math.inf if begun else time.monotonic() + PATIENCE
    while left and time.monotonic() < end:
        with contextlib.suppress(queue.Empty):
            done.get(timeout=1)
        for place, task in list(left.items()):
            try:
                answer = _answer(task, limit)
            except TimeoutError:
                limit *= 2  # the result may be large
                continue
            if answer is None:
                continue
            del left[place]
            results[place], said = answer
            if said is not None:
                failed[place] = said
                end = min(end, time.monotonic() + (_OTHERS if begun else 0))
        lost = {place: said for place, said in failed.items() if said == _DIED}
        if left and not lost:
            lost = _lost(seen, workers, left)
        if lost:
            failed = lost
            break
    if failed := failed or dict.fromkeys(left, "it did not begin"):
        raise _failure(workers, failed)
    return [results[place] for place in range(len(tasks))]


def _failure(workers: list[str], failed: dict[int, str]) -> ClusterError:
    """The error about one of the failed places."""
    # a process that failed by itself says more than those that failed because of it
    own = [place for place, said in failed.items() if not any(tale in said for tale in _TALES)]
    place = min(own or failed)
    return ClusterError(f"process {place} beside {workers[place]}: {failed[place]}")


def _answer(task: Any, limit: float) -> tuple[Any, str | None] | None:
    """(result, None) of a task that has ended, or (None, its failure as a text); None where it goes on.

    Raises:
        TimeoutError: the result has not come within `limit` seconds.
        CancelledError: nobody waits for the task any more.
    """
    from distributed import CancelledError, KilledWorker

    if task.status in ("pending", "lost"):
        return None
    if task.cancelled():
        raise CancelledError(task.key)
    if task.status == "error":
        error = task.exception()
        return None, _DIED if isinstance(error, KilledWorker) else _in_a_line(error)
    try:
        return task.result(timeout=limit)
    except KilledWorker:  # the worker died before the result was fetched
        return None, _DIED


def _lost(seen: Workers, workers: list[str], places: Iterable[int]) -> dict[int, str]:
    """The failures, as texts, of those of these places whose workers are gone or silent."""
    seen.look()
    silent = seen.silent(PATIENCE)
    found = {}
    for place in places:
        if workers[place] not in seen.threads:
            found[place] = _DIED
        elif workers[place] in silent:
            found[place] = f"nothing was heard of the worker for {PATIENCE} seconds"
    return found


def _in_a_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def _free_port(host: str) -> Iterator[int]:
    """A free port of this worker's host, which is reserved while the context lasts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as held:
        held.bind((host, 0))
        yield held.getsockname()[1]


def _member(
    run: str, place: int, host: str, count: int, function: Callable, arguments: tuple
) -> tuple[Any, Any]:
    """(result, None) of a new process of the mesh, or (None, its last words)."""
    import cloudpickle

    with _free_port(host) if place == 0 else contextlib.nullcontext() as port:
        coordinator = meet(run, place, port)
    if coordinator is None:
        return None, "the worker closes, or nobody waits for the process any more"
    # in the folder of the worker, which a later worker removes at the latest, when it finds this one gone
    where: dict[str, Any] = dict(dir=worker_of_task().local_directory, ignore_cleanup_errors=True)
    with tempfile.TemporaryDirectory(prefix="xmcjax-mesh-", **where) as folder:
        request, answer = Path(folder, "request"), Path(folder, "answer")
        request.write_bytes(cloudpickle.dumps((coordinator, count, place, function, arguments)))
        command = [sys.executable, "-m", "xmcjax.cluster._member", request, answer]
        path = os.pathsep.join(part for part in sys.path if part)
        pipes: dict[str, Any] = dict(stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, **pipes)
        words = _last_words(process)
        if process.returncode or not answer.exists():
            return None, words or f"it ended with status {process.returncode}"
        return cloudpickle.loads(answer.read_bytes()), None


def _last_words(process: subprocess.Popen) -> str:
    """Waits for the end of a process and returns its last line of errors. Ends it if the task is not wanted.

    The process also ends when its standard input is closed, which this worker holds open as long as it lives.
    """
    held, process.stdin = process.stdin, None  # otherwise `process` would close it at once
    assert held is not None and process.stderr is not None
    try:
        while wanted():
            with contextlib.suppress(subprocess.TimeoutExpired):
                return _told(process.communicate(timeout=LOOK)[1])
        return ""
    finally:
        held.close()  # the process then removes its folder and ends, even if this worker ends meanwhile
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END)
        process.kill()
        process.wait()
        process.stderr.close()


def _told(errors: str) -> str:
    """The last line of errors; for an abort in C++, which ends with a stack, the line with the reason."""
    lines = errors.strip().splitlines()
    said = [line for line in lines if not _STACK.match(line)]
    if lines and _STACK.match(lines[-1]) and (aborts := [m for m in map(_ABORT.match, said) if m]):
        return aborts[-1][1]
    return said[-1] if said else ""
