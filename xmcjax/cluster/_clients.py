"""Starting a cluster of processes on this machine, and connecting to a running cluster."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xmcjax._arguments import whole_number
from xmcjax.cluster._errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client

# Prefix of the names of the folders of clusters on this machine; the number of the process follows.
_FOLDER = "xmcjax-local-"

# How often the start of the processes is tried, if one of them dies during each start.
_STARTS = 4

# How often a scheduler is asked anew if other messages come together with its answer.
_GREETINGS = 10

# _PATIENCE: seconds for which the start of a cluster is waited for after it was given up. _LOOK: seconds
# between looks at a start.
_PATIENCE, _LOOK = 20, 0.2

#: Seconds for the first answer of a scheduler.
CONNECT = 30


def _distributed():
    try:
        import distributed
    except ImportError as error:
        raise ImportError(f'a cluster needs Dask: pip install "xmcjax[cluster]" ({error})') from error
    return distributed


@contextlib.contextmanager
def local_cluster(workers: int, threads: int = 1) -> Iterator[Client]:
    """A client of worker processes on this machine, which listen on its loopback interface alone.

    A worker that dies is started again. When the context ends, the processes end and their files are removed.

    Args:
        workers: how many processes.
        threads: of each process.

    Raises:
        ImportError: there is no Dask.
        ClusterError: a process could not be started.

    Example:
        >>> from xmcjax.cluster import local_cluster
        >>> with local_cluster(workers=1, threads=2) as client:
        ...     client.submit(sum, [1, 2, 3]).result(), list(client.nthreads().values())
        (6, [2])
    """
    workers, threads = whole_number("workers", workers, 1), whole_number("threads", threads, 1)
    distributed = _distributed()
    from dask import config

    _remove_left_over()

    # By default Dask lets malloc return memory at once, which training asks for again a moment later, and
    # samples what its threads do a hundred times a second.
    environment = config.get("distributed.nanny.pre-spawn-environ") | {"MALLOC_TRIM_THRESHOLD_": 1 << 28}
    settings = {
        "distributed.nanny.pre-spawn-environ": environment,
        "distributed.worker.profile.enabled": False,
        "distributed.scheduler.allowed-failures": 0,  # a task whose worker dies is cut at once
        # Some seconds after a death Dask looks for the worker. If it is not there at this moment, because it
        # is still starting or died once more, Dask would end the process that restarts it.
        "distributed.deploy.lost-worker-timeout": "365 days",
    }
    with (
        config.set(settings),
        tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-", ignore_cleanup_errors=True) as folder,
    ):
        cluster = _begun(
            workers,
            lambda: distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=threads,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",  # the default is a fixed port on every interface
                memory_limit=0,  # training needs the memory of a worker: killing the worker gains nothing
                local_directory=folder,
                silence_logs=logging.CRITICAL,  # of workers that die; what matters becomes an error here
            ),
        )
        with cluster, distributed.Client(cluster, set_as_default=False) as client:
            yield client


def _begun(workers: int, start: Callable[[], Any]) -> Any:
    """What ``start`` returns, called in a thread, which Ctrl-C and other signals do not interrupt.

    A cluster whose start is interrupted cannot be closed, and Dask prints tracebacks about that. So after a
    signal the start is waited for, the cluster is closed, and the signal's exception is raised again. Signals
    that a terminal sends to all processes are blocked in those of the cluster: this process ends them.
    """
    begun, given_up = Future(), threading.Event()

    def work() -> None:
        _hold_back_signals_of_terminals()
        try:
            begun.set_result(_started(workers, start, given_up))
        except BaseException as error:
            begun.set_exception(error)

    threading.Thread(target=work, name="xmcjax-cluster", daemon=True).start()
    try:
        while not wait([begun], _LOOK).done:  # short waits, between which Windows handles Ctrl-C
            pass
    except BaseException:  # whatever the handler of a signal raises
        given_up.set()
        if not wait([begun], _PATIENCE).done:
            begun.add_done_callback(_closed)
        else:
            _closed(begun)
        raise
    return begun.result()


def _closed(begun: Future) -> None:
    """Closes a cluster that has started after it was given up."""
    if begun.exception() is None:
        with contextlib.suppress(RuntimeError, OSError):  # errors of a cluster that is closing
            begun.result().close()


def _hold_back_signals_of_terminals() -> None:
    """Threads and processes that this thread starts from now on ignore SIGINT and SIGHUP."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        # otherwise multiprocessing starts this tracker when it is first needed and then unblocks SIGINT
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _started(workers: int, start: Callable[[], Any], given_up: threading.Event) -> Any:
    """What ``start`` returns. If a process dies while it starts, the whole start fails and is tried again."""
    for left in reversed(range(_STARTS)):
        try:
            return start()
        except RuntimeError as error:
            if not left or given_up.is_set():
                raise ClusterError(
                    f"{workers} processes of a local cluster could not be started: {error}"
                ) from error


def _remove_left_over() -> None:
    """Removes the folders of killed processes of this user."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*"):
        number = folder.name.removeprefix(_FOLDER).partition("-")[0]
        try:
            own = folder.stat().st_uid == os.getuid()
            os.kill(int(number), 0)
        except ProcessLookupError:
            if own:
                shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):  # another user's folder, one that is gone meanwhile, or none of ours
            continue


def check_may_wait(client: Any) -> None:
    """Refuses a call that could not wait for the workers of a client.

    Raises:
        ValueError: the call is on the thread of the client's own event loop, where the client returns
            coroutines; or in a task that holds a thread of one of these workers, which others would wait for.
    """
    if client.asynchronous:
        raise ValueError(
            "client: expected a call from another thread, such as by asyncio.to_thread, found that of its "
            "event loop"
        )
    from distributed import get_worker
    from distributed.threadpoolexecutor import thread_state

    # true in a thread of a worker, until its task secedes
    if getattr(thread_state, "proceed", False) and get_worker().address in client.nthreads():
        raise ValueError(
            "client: expected that of distributed.worker_client() in a task, found a task that holds its "
            "thread while it waits for others"
        )


@contextlib.contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at an address, such as ``tcp://127.0.0.1:8786``.

    Certificates and keys for ``tls://`` are those of Dask's own settings (``distributed.comm.tls``).

    Raises:
        ClusterError: there is no scheduler.
        ImportError: there is no Dask.

    Example:
        >>> from xmcjax.cluster import connected, local_cluster
        >>> with local_cluster(1) as mine, connected(mine.scheduler.address) as client:
        ...     len(client.nthreads())
        1
    """
    with _greeted(address) as client:
        yield client


def _greeted(address: str) -> Client:
    """A client that the scheduler at an address has answered.

    A scheduler tells all clients of each key that one of them cancels. If a new client receives such a
    message together with the answer, Dask's code fails, because it asserts that the answer comes alone. A
    new client is then made.
    """
    distributed = _distributed()
    for _ in range(_GREETINGS):
        try:
            with contextlib.suppress(AssertionError):
                return distributed.Client(address, timeout=CONNECT, set_as_default=False)
        except (OSError, ValueError, RuntimeError, TypeError) as error:
            reason = str(error).replace("\n", " ") or type(error).__name__
            raise ClusterError(f"expected a Dask scheduler at {address}, found none: {reason}") from error
        gc.collect()  # closes the client that failed, which would take a minute at the end of the process
    raise ClusterError(
        f"expected an answer of the scheduler at {address}, found other messages with it {_GREETINGS} times: "
        "its other clients cancel tasks all the time"
    )
