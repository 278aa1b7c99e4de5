"""Brings the data of a run to the hosts of a cluster, once to each."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xmcjax.cluster import _spool
from xmcjax.cluster._dispatch import MOST_DEATHS, Dispatcher, Refused, guarded, worker_of_task
from xmcjax.cluster._errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client

# Seconds for workers to remove their data.
_PATIENCE = 5

#: What a host reads for itself: called there, it gives the matrices by name.
Source = Callable[[], Mapping[str, Any]]


def _spool_here(name: str, matrices: Mapping[str, Any] | Source) -> None:
    """In a worker: writes the data of a run into a folder of its host."""
    folder = _spool.folder_of(worker_of_task().local_directory, name)
    _spool.write(folder, matrices() if callable(matrices) else matrices)


class Supply:
    """The data of one run.

    Args:
        client: of the cluster.
        name: of the run.
        matrices: by name, which are sent to one worker and from there to others; or what reads them there.
    """

    def __init__(self, client: Client, name: str, matrices: Mapping[str, Any] | Source):
        self._client: Any = client
        self._name, self._matrices = name, matrices
        self._count = self._deaths = 0

    def bring(self, dispatcher: Dispatcher, addresses: Sequence[str]) -> None:
        """To the hosts of these workers. Those of a worker that dies over it ask anew when they need them.

        Raises:
            ClusterError: a host cannot store or read them, or worker after worker dies over it.
        """
        from distributed import KilledWorker

        workers = dispatcher.workers
        chosen: dict[tuple[str, str], str] = {}
        for address in addresses:
            if address in workers.places:
                chosen.setdefault(workers.places[address], address)
        if not chosen:
            return  # they have died
        targets = list(chosen.values())
        if callable(self._matrices):
            data = self._matrices
        else:
            try:
                data = self._client.scatter([self._matrices], workers=targets[:1], hash=False)[0]
            except (OSError, TimeoutError):
                self._died(targets[0])
                return
        futures = []
        for address in targets:
            self._count += 1
            key = f"{self._name}-data-{self._count}"
            more: dict[str, Any] = dict(key=key, pure=False, workers=[address], priority=1 << 30)
            futures.append(self._client.submit(guarded, _spool_here, self._name, data, **more))
        looked = time.monotonic()
        while True:
            # a task of a worker that has died waits for ever: its host asks anew
            pending = [
                f for f, a in zip(futures, targets, strict=True) if a in workers.threads and not f.done()
            ]
            if not pending:
                break
            time.sleep(0.02)
            if time.monotonic() - looked > 1:
                workers.look()
                looked = time.monotonic()
        for future, address in zip(futures, targets, strict=True):
            if future.status == "error":
                error = future.exception()
                if not isinstance(error, KilledWorker):
                    raise ClusterError(f"worker {address}: {error}".replace("\n", " "))
                self._died(address)
            if future.status != "finished":
                continue
            answer = future.result()
            if isinstance(answer, Refused):
                raise ClusterError(f"worker {answer.worker}: {answer.reason}")
            self._deaths = 0

    def _died(self, address: str) -> None:
        self._deaths += 1
        if self._deaths > MOST_DEATHS:
            raise ClusterError(
                f"worker {address}: it died while the data were brought to it, as {MOST_DEATHS} workers did "
                "before it; a worker may have too little memory or disk space"
            )

    def remove(self) -> None:
        """From all hosts whose workers answer within some seconds."""

        def forget() -> None:
            with contextlib.suppress(OSError):  # the workers that are gone have nothing to forget
                self._client.run(_forget, self._name, on_error="ignore")

        # a worker that is stopped never answers, and the client would wait for it
        asking = threading.Thread(target=forget, daemon=True)
        asking.start()
        asking.join(_PATIENCE)


def _forget(name: str, dask_worker: Any = None) -> None:
    """In every worker: ends what it does for a run, and removes its data from the host."""
    from xmcjax.cluster._training_tasks import stop_run

    stop_run(name)
    shutil.rmtree(_spool.folder_of(dask_worker.local_directory, name), ignore_errors=True)
