"""Brings the data of a run to the hosts of a cluster, once to each."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import math
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xmcjax.cluster import _spool
from xmcjax.cluster._dispatch import (
    MOST_DEATHS,
    SILENCE,
    Refused,
    Workers,
    fetched,
    guarded,
    is_closed,
    worker_of_task,
)
from xmcjax.cluster._errors import ClusterError
from xmcjax.cluster._training_tasks import has_ended, stop_run

if TYPE_CHECKING:
    from distributed import Client

# _PATIENCE: seconds that workers have to remove their data. _SOON: seconds for the result of an ended task.
_PATIENCE, _SOON = 5, 2
# Seconds for which a worker that reads data may be silent, because a reader may hold the GIL.
_READING = 600

#: A function that a host calls to read the data for itself; it gives the matrices by name.
Source = Callable[[], Mapping[str, Any]]

# In a worker, by folder: the lock of the thread that writes it.
_writing: dict[str, threading.Lock] = {}


def _spool_here(name: str, matrices: Mapping[str, Any] | Source) -> None:
    """In a worker: writes the data of a run into a folder of its host, unless they are there."""
    folder = _spool.folder_of(worker_of_task().local_directory, name)
    with _writing.setdefault(str(folder), threading.Lock()):  # a worker that was silent may be asked twice
        if not _spool.ready(folder) and not has_ended(name):
            _spool.write(folder, matrices() if callable(matrices) else matrices)
    if has_ended(name):  # the run has ended meanwhile, so that nobody else will remove the data
        shutil.rmtree(folder, ignore_errors=True)


@dataclasses.dataclass
class _Delivery:
    """Data on their way.

    Attributes:
        targets: the workers of each host that needs the data, by place; the first free one writes them.
        sent: the sending of the data to one worker, from which the others take them; None once it has ended.
        holder: the address of that one worker; "" where hosts read for themselves.
        tasks: the tasks that write the data, by place.
        at: the workers that have these tasks, by place, as the scheduler last said.
        served: whether some host has the data now.
        dead: the address of a worker that died over the data, or "".
    """

    targets: dict[tuple[str, str], list[str]]
    sent: concurrent.futures.Future[Any] | None = None
    holder: str = ""
    tasks: dict[tuple[str, str], Any] = dataclasses.field(default_factory=dict)
    at: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    served: bool = False
    dead: str = ""


class Supply:
    """The data of one run, which are brought to hosts while hosts that have them work already.

    A delivery whose worker dies or falls silent is given up: the host asks again when it needs the data.

    Args:
        client: of the cluster.
        name: of the run.
        matrices: by name, to be sent to one worker and from there to others; or a source to read them there.
    """

    def __init__(self, client: Client, name: str, matrices: Mapping[str, Any] | Source):
        self._client: Any = client
        self._name, self._matrices = name, matrices
        self._count = self._deaths = 0
        self._asked = -math.inf
        self._deliveries: list[_Delivery] = []
        self._brought: dict[tuple[str, str], float] = {}

    def under_way(self) -> set[tuple[str, str]]:
        """The places to which data are under way."""
        return {place for delivery in self._deliveries for place in delivery.targets}

    def reading(self) -> bool:
        """Whether hosts read for themselves now."""
        return callable(self._matrices) and bool(self._deliveries)

    def served(self) -> None:
        """Notes that work was done with the data, so that deaths before do not count as a series."""
        self._deaths = 0

    def begin(self, workers: Workers, addresses: Sequence[str], missed: float = float("inf")) -> None:
        """Begins to bring the data to the hosts of some workers, unless they are under way there.

        Args:
            workers: all workers of the cluster.
            addresses: the workers whose hosts need the data.
            missed: when the task that found no data was handed out; data that came since are not sent again.
        """
        if not workers.places.keys() >= set(addresses):
            workers.look()  # some of the addresses have just come or gone
        wanted = {workers.places[address] for address in addresses if address in workers.places}
        wanted = {place for place in wanted - self.under_way() if self._brought.get(place, -1) < missed}
        targets: dict[tuple[str, str], list[str]] = {}
        living = workers.living()
        for address in dict.fromkeys([*(a for a in addresses if a in living), *living]):
            if workers.places[address] in wanted:
                targets.setdefault(workers.places[address], []).append(address)
        if not targets:
            return  # no worker of these hosts gives a sign of life
        delivery = _Delivery(targets)
        if callable(self._matrices):
            self._write(delivery, self._matrices)
        else:
            # Dask runs the tasks where their large data are, after all other tasks of that worker
            having = workers.processing() or {}
            near = [address for addresses in targets.values() for address in addresses]
            delivery.holder = min(near, key=lambda address: len(having.get(address, ())))
            # in the client's event loop, because it may take long, or never end if the worker is stopped
            sending = self._client.scatter(
                [self._matrices], workers=[delivery.holder], hash=False, asynchronous=True
            )
            delivery.sent = asyncio.run_coroutine_threadsafe(sending, self._client.loop.asyncio_loop)
        self._deliveries.append(delivery)

    def _write(self, delivery: _Delivery, data: Any) -> None:
        for place, addresses in delivery.targets.items():
            self._count += 1
            key = f"{self._name}-data-{self._count}"
            if len(addresses) == 1:
                delivery.at[place] = addresses[0]
            more: dict[str, Any] = dict(key=key, pure=False, workers=addresses, priority=1 << 30)
            delivery.tasks[place] = self._client.submit(guarded, _spool_here, self._name, data, **more)
        self._asked = -math.inf

    def step(self, workers: Workers) -> None:
        """Goes on with what is under way.

        Raises:
            ClusterError: a host cannot store or read the data, or worker after worker dies over it.
        """
        self._ask(workers)
        for delivery in list(self._deliveries):
            if delivery.sent is not None:
                self._send(delivery, workers)
            if delivery.sent is None:
                self._look_at_tasks(delivery, workers)
            if not delivery.targets:
                self._deliveries.remove(delivery)
                self._count_deaths(delivery)

    def _ask(self, workers: Workers) -> None:
        """Asks once a second which worker has each task, where several workers may do it."""
        several = [
            (delivery, place, task)
            for delivery in self._deliveries
            for place, task in delivery.tasks.items()
            if len(delivery.targets[place]) > 1
        ]
        if not several or time.monotonic() - self._asked < 1:
            return
        processing = workers.processing() or {}
        self._asked = time.monotonic()
        having = {str(key): address for address, keys in processing.items() for key in keys}
        for delivery, place, task in several:
            before = delivery.at.get(place)
            if task.key in having and (before is None or before in processing):  # else it died over it
                delivery.at[place] = having[task.key]

    def _send(self, delivery: _Delivery, workers: Workers) -> None:
        sent, holder = delivery.sent, delivery.holder
        assert sent is not None
        gone = holder not in workers.threads
        if not sent.done():
            if holder in workers.living():
                return
            # The sending is not cancelled: data that nothing refers to are released as soon as they arrive.
        else:
            try:
                data = sent.result()[0]
            except (OSError, TimeoutError):
                gone = True
            except KeyError as error:  # with this error the scheduler says that the worker is gone
                if error.args != (holder,):
                    raise
                gone = True
            else:
                self._write(delivery, data)
        delivery.sent = None
        if not delivery.tasks:
            delivery.dead = holder if gone else ""
            delivery.targets.clear()

    def _look_at_tasks(self, delivery: _Delivery, workers: Workers) -> None:
        silent = workers.silent(_READING if callable(self._matrices) else SILENCE)
        # data that a stopped worker holds do not arrive; a dead worker the scheduler notices itself
        stuck = delivery.holder in workers.threads and delivery.holder in silent
        for place, task in list(delivery.tasks.items()):
            having, targets = delivery.at.get(place), delivery.targets[place]
            if task.done():
                self._ended(delivery, place, task)
            elif not workers.threads.keys() & set(targets):  # the task would wait for ever
                delivery.dead = having or targets[0]
            elif having is not None and having not in workers.threads:
                delivery.dead = having
            elif having not in silent and not stuck:
                continue
            del delivery.tasks[place], delivery.targets[place]

    def _ended(self, delivery: _Delivery, place: tuple[str, str], task: Any) -> None:
        from distributed import CancelledError, KilledWorker

        address = delivery.at.get(place, delivery.targets[place][0])
        if task.status not in ("error", "finished"):
            delivery.dead = delivery.holder or address  # that worker died with the data that the task needs
            return
        try:
            answer = fetched(self._client, task, _SOON)
        except (TimeoutError, CancelledError):  # the worker fell silent, or the data that it needed are lost
            return
        except KilledWorker as error:
            delivery.dead = str(error.last_worker.address)
            return
        except Exception as error:  # an error of Dask
            if task.status != "error":
                raise
            raise ClusterError(f"worker {address}: {error}".replace("\n", " ")) from error
        if isinstance(answer, Refused):
            raise ClusterError(f"worker {answer.worker}: {answer.reason}")
        delivery.served = True
        self._brought[place] = time.monotonic()

    def _count_deaths(self, delivery: _Delivery) -> None:
        if delivery.served:
            self._deaths = 0
        elif delivery.dead:
            self._deaths += 1
        if self._deaths > MOST_DEATHS:
            raise ClusterError(
                f"worker {delivery.dead}: it died while the data were brought to it, as {MOST_DEATHS} "
                "workers did before it; a worker may have too little memory or disk space"
            )

    def remove(self) -> None:
        """Removes the data from all hosts whose workers answer within some seconds."""
        if is_closed(self._client):
            return
        self._deliveries.clear()

        def forget() -> None:
            with contextlib.suppress(OSError):  # the workers that are gone have nothing to forget
                self._client.run(_forget, self._name, on_error="ignore")

        # in a thread, because the client would wait for a stopped worker, which never answers
        asking = threading.Thread(target=forget, daemon=True)
        asking.start()
        asking.join(_PATIENCE)


def _forget(name: str, dask_worker: Any = None) -> None:
    """In every worker: ends its work for a run, and removes the run's data from the host."""
    stop_run(name)
    folder = _spool.folder_of(dask_worker.local_directory, name)
    _writing.pop(str(folder), None)
    shutil.rmtree(folder, ignore_errors=True)
