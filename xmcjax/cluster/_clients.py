"""A cluster of processes on this machine, and the way to one that runs."""

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

# What the names of the folders of clusters on this machine begin with; the number of the process follows.
_FOLDER = "xmcjax-local-"

# How often the processes are started before it is given up that none of them dies meanwhile.
_STARTS = 4

# How often a scheduler is asked whose answers come together with others.
_GREETINGS = 10

# Seconds that a cluster which is not wanted any more may go on with its start; and between looks at a start.
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

    A worker that dies is started again. Everything ends, and its files go, with the context.

    Args:
        workers: processes.
        threads: of each.

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

    # Dask lets malloc give memory back at once, which training takes again a moment later, and looks a
    # hundred times a second at what its threads do.
    environment = config.get("distributed.nanny.pre-spawn-environ") | {"MALLOC_TRIM_THRESHOLD_": 1 << 28}
    settings = {
        "distributed.nanny.pre-spawn-environ": environment,
        "distributed.worker.profile.enabled": False,
        "distributed.scheduler.allowed-failures": 0,  # a task whose worker dies is cut at once
        # Some seconds after a death Dask looks for the worker, and ends what starts it anew if it is not
        # there at this moment: not yet, or because it died once more.
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
                dashboard_address="127.0.0.1:0",  # without it, every interface and always the same port
                memory_limit=0,  # what a worker needs is what training needs: nothing is gained by ending it
                local_directory=folder,
                silence_logs=logging.CRITICAL,  # of workers that die; what matters becomes an error here
            ),
        )
        with cluster, distributed.Client(cluster, set_as_default=False) as client:
            yield client


def _begun(workers: int, start: Callable[[], Any]) -> Any:
    """What ``start`` returns, called in a thread, to which Ctrl-C and other signals do not come.

    A cluster that is left while it starts cannot be closed, of which Dask tells with tracebacks. So it is
    waited for, closed, and the signal goes on. What a terminal sends to all processes is held back from those
    of the cluster: this one ends them.
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
        while not wait([begun], _LOOK).done:  # in turns, between which Windows hears Ctrl-C
            pass
    except BaseException:  # a signal, whatever its handler raises
        given_up.set()
        if not wait([begun], _PATIENCE).done:
            begun.add_done_callback(_closed)
        else:
            _closed(begun)
        raise
    return begun.result()


def _closed(begun: Future) -> None:
    """Closes a cluster that has come up and is not wanted any more."""
    if begun.exception() is None:
        with contextlib.suppress(RuntimeError, OSError):  # it is going down
            begun.result().close()


def _hold_back_signals_of_terminals() -> None:
    """What this thread starts from now on, threads and processes, takes no notice of SIGINT and SIGHUP."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        # which multiprocessing starts where it is needed first, and lets SIGINT through afterwards
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _started(workers: int, start: Callable[[], Any], given_up: threading.Event) -> Any:
    """What ``start`` returns. A process that dies while it starts fails the whole: it is tried again."""
    for left in reversed(range(_STARTS)):
        try:
            return start()
        except RuntimeError as error:
            if not left or given_up.is_set():
                raise ClusterError(
                    f"{workers} processes of a local cluster could not be started: {error}"
                ) from error


def _remove_left_over() -> None:
    """The folders of processes of this user that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*-*"):
        number = folder.name.removeprefix(_FOLDER).partition("-")[0]
        try:
            own = folder.stat().st_uid == os.getuid()
            os.kill(int(number), 0)
        except ProcessLookupError:
            if own:
                shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):  # of another user, gone meanwhile, or none of ours
            continue


def check_may_wait(client: Any) -> None:
    """Refuses a call that could not wait for the workers of a client.

    Raises:
        ValueError: it is on the thread of the client's own event loop, whose answers would be coroutines; or
            in a task that holds a thread of one of these workers, for which others would wait.
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

    A scheduler tells all clients of each key that one of them cancels. Where a new client is told so together
    with the answer to it, Dask's own code fails, which asserts that this is one message. It then asks anew.
    """
    distributed = _distributed()
    for _ in range(_GREETINGS):
        try:
            with contextlib.suppress(AssertionError):
                return distributed.Client(address, timeout=CONNECT, set_as_default=False)
        except (OSError, ValueError, RuntimeError, TypeError) as error:
            reason = str(error).replace("\n", " ") or type(error).__name__
            raise ClusterError(f"expected a Dask scheduler at {address}, found none: {reason}") from error
        gc.collect()  # closes the client that failed: at the end of the process that would take a minute
    raise ClusterError(
        f"expected an answer of the scheduler at {address}, found other messages with it {_GREETINGS} times: "
        "its other clients cancel tasks all the time"
    )
