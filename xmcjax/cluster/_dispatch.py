"""Tasks for the workers of a Dask cluster, of which some die, fall silent or lack the data.

The scheduler gives the tasks of a worker that has died to other workers. This module handles the cases that
Dask leaves to its clients: tasks given up after several deaths, silent workers, a scheduler that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import itertools
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from xmcjax.cluster._errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client

    from xmcjax.cluster._supply import Supply

Work = TypeVar("Work")

#: Seconds without a sign of life after which the tasks of a worker are given to others too.
SILENCE = 20
#: Seconds without any worker, or without the scheduler, after which a run ends.
PATIENCE = 50
#: How often a task is handed to the scheduler again; each time the scheduler tries it on several workers.
MOST_DEATHS = 5
#: Seconds that the scheduler has for an answer.
ANSWER = 10
#: Seconds after which a task that waits in a worker checks again whether it is still wanted.
LOOK = 0.2
#: The message of the error where a client was closed.
CLOSED = "the client of the cluster was closed before the run ended"
# Seconds that a result is waited for at a time: _SOON while data are under way, _LATER otherwise.
_SOON, _LATER = 0.02, 1
# Tasks per thread that wait at the scheduler or run, so that a worker has its next task at hand.
_AHEAD = 2


@dataclasses.dataclass(frozen=True)
class Missing:
    """The answer of a task whose host lacks the data of the run."""

    worker: str = ""


@dataclasses.dataclass(frozen=True)
class Refused:
    """The answer of a task that cannot be done, for a reason that holds for other workers, too."""

    reason: str
    worker: str = ""


def worker_of_task() -> Any:
    """The Dask worker in which this task runs."""
    from distributed import get_worker

    return get_worker()


def wanted() -> bool:
    """Whether this task's result is still wanted: its client has not cancelled it, its worker is not closing.

    A worker that is closing, for example because its scheduler is gone, waits half a minute for its tasks.
    """
    from distributed.core import Status

    worker = worker_of_task()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is not None and task.state != "cancelled" and worker.status != Status.closing


def is_closed(client: Client) -> bool:
    """Whether a client is closed, in which case calls of it raise errors of Dask's event loop."""
    return client.status in ("closing", "closed")


def gone(client: Any) -> ClusterError:
    """The error for a task that neither the scheduler nor the client knows any more."""
    if is_closed(client):
        return ClusterError(CLOSED)
    return ClusterError(f"the scheduler {client.scheduler.address} is gone, or was started anew")


def fetched(client: Any, future: Any, seconds: float) -> Any:
    """The result of a task that has ended.

    Raises:
        TimeoutError: the worker that has it does not hand it out in time, or has died with it.
        CancelledError: the scheduler, or the client, has forgotten it.
        Exception: the exception of the task.
    """
    from distributed import CancelledError

    # The future's own `result` leaves a coroutine behind if it times out after the worker has died. When the
    # future is cancelled, this coroutine fails, and Dask prints a traceback.
    async def gathered() -> list[Any]:
        return await client.gather([future], errors="skip", asynchronous=True)

    found = client.sync(gathered, callback_timeout=seconds) if future.status != "error" else []
    if found:
        return found[0]
    raise future.exception() if future.status == "error" else CancelledError(future.key)


def secede() -> None:
    """Lets the worker begin another task while this one goes on."""
    import distributed

    distributed.secede()


def guarded(function: Callable, *arguments: Any) -> Any:
    """A task whose errors come back as texts: no client unpickles the exceptions of workers."""
    worker = worker_of_task().address
    try:
        answer = function(*arguments)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return Refused(text or type(error).__name__, worker)
    except MemoryError as error:
        return Refused(f"not enough memory: {error}", worker)
    except (ValueError, ImportError) as error:
        return Refused(str(error), worker)
    except Exception as error:  # a bug of ours: its kind and place help to find it
        import traceback

        frame = traceback.extract_tb(error.__traceback__)[-1]
        return Refused(f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})", worker)
    if isinstance(answer, (Missing, Refused)):
        return dataclasses.replace(answer, worker=worker)
    return answer


@dataclasses.dataclass
class _Open(Generic[Work]):
    """Work that has no result yet.

    Attributes:
        work: the work itself.
        deaths: how often the scheduler gave the work up because several workers died with it.
        keys: of its tasks, with the time at which each was handed to the scheduler.
        meant_for: the workers to which the last task was restricted; empty where any worker may do it.
    """

    work: Work
    deaths: int = 0
    keys: dict[str, float] = dataclasses.field(default_factory=dict)
    meant_for: Sequence[str] = ()


@dataclasses.dataclass
class _Life:
    """What was last heard of a worker."""

    sign: float
    since: float


class Workers:
    """The workers of a cluster, as its scheduler sees them.

    Args:
        client: of the cluster.
    """

    def __init__(self, client: Client):
        self._client: Any = client  # a type checker takes its methods for coroutines
        self._alive: dict[str, _Life] = {}
        self._answered = time.monotonic()
        # times of the first look without an answer, and of the first without a worker; looks may be far apart
        self._mute: float | None = None
        self._empty: float | None = None
        self._most = {}
        if "n_workers" in inspect.signature(type(client).scheduler_info).parameters:
            self._most = {"n_workers": -1}  # newer versions of Dask list only five workers without it

        #: threads by address
        self.threads: dict[str, int] = {}
        #: by address the place, which workers of a host share: its name, and the folder of their folders
        self.places: dict[str, tuple[str, str]] = {}

    def look(self) -> None:
        """Asks the scheduler.

        Raises:
            ClusterError: it does not answer, or has had no worker, for :data:`PATIENCE` seconds; or the
                client is closed.
        """
        if is_closed(self._client):
            raise ClusterError(CLOSED)
        now = time.monotonic()
        try:
            found = self._client.sync(self._identity, callback_timeout=ANSWER)["workers"]
        except (OSError, TimeoutError):
            self._mute = now if self._mute is None else self._mute
            long = time.monotonic() - self._mute > PATIENCE
            if long or self._client.status not in ("running", "connecting"):
                raise ClusterError(f"{self._name()} does not answer") from None
            return
        self._answered, self._mute = now, None
        if found:
            self._empty = None
        elif self._empty is None:
            self._empty = now
        elif now - self._empty > PATIENCE:
            raise ClusterError(f"{self._name()} has had no worker for {PATIENCE} seconds")
        self.threads = {address: int(facts["nthreads"]) for address, facts in found.items()}
        self.places = {
            address: (str(facts["host"]), str(Path(facts["local_directory"]).parent))
            for address, facts in found.items()
        }
        for address, facts in found.items():
            life, sign = self._alive.get(address), float(facts["last_seen"])
            if life is None or life.sign != sign:
                self._alive[address] = _Life(sign, now)
        for address in self._alive.keys() - found.keys():
            del self._alive[address]

    def wait(self) -> None:
        """Waits for a first worker.

        Raises:
            ClusterError: no worker comes within :data:`PATIENCE` seconds.
        """
        while not self.threads:
            self.look()
            if not self.threads:
                time.sleep(0.2)

    async def _identity(self) -> dict[str, Any]:
        return await self._client.scheduler.identity(**self._most)

    def processing(self) -> dict[str, Any] | None:
        """The keys of the tasks of each worker; None where the scheduler does not answer."""

        async def asked() -> dict[str, Any]:
            return await self._client.scheduler.processing()

        if self._mute is not None:
            return None
        try:
            return self._client.sync(asked, callback_timeout=ANSWER)
        except TimeoutError:  # the next look finds the same and handles it
            return None

    def _name(self) -> str:
        return f"the scheduler {self._client.scheduler.address}"

    def silent(self, seconds: float) -> list[str]:
        """The workers from which the scheduler, at its last answer, had heard nothing for `seconds`."""
        return [address for address, life in self._alive.items() if self._answered - life.since > seconds]

    def living(self) -> list[str]:
        """The workers that gave a sign of life within :data:`SILENCE` seconds."""
        silent = set(self.silent(SILENCE))
        return [address for address in self.threads if address not in silent]


class Dispatcher(Generic[Work]):
    """Has work done by workers, and hands out the result of each piece once.

    Args:
        client: of the cluster.
        function: what a task calls with `common` and a piece of work.
        common: pickled with every task.
        supply: brings the data to the hosts; None where the work needs no data.
        discard: called with a result that came a second time.
        cut: function that cuts a piece of work whose workers have died into smaller ones; None to keep it.

    Attributes:
        held: how many results the caller keeps for later; as many fewer tasks are under way.
    """

    def __init__(
        self,
        client: Client,
        function: Callable[[Any, Work], Any],
        common: Any,
        supply: Supply | None,
        discard: Callable[[Any], None],
        cut: Callable[[Work], list[Work]] | None = None,
    ):
        self._client: Any = client  # a type checker takes its methods for coroutines
        self._function, self._common = function, common
        self._supply, self._discard, self._cut = supply, discard, cut
        self.held = 0
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._open: dict[int, _Open[Work]] = {}
        self._aside: set[int] = set()  # numbers of work that waits because no host has the data
        self._futures: dict[str, tuple[int, Any]] = {}
        self._numbers = itertools.count()
        self._looked = 0.0
        self.workers = Workers(client)

    def results(self, pieces: Iterator[Work]) -> Iterator[tuple[Work, Any]]:
        """Each piece with its result, in the order in which they come.

        Raises:
            ClusterError: workers cannot do the work, or there are none, or the scheduler is gone.
        """
        from distributed import CancelledError
        from distributed.comm.core import CommClosedError

        try:
            if self._supply is not None:
                self._supply.begin(self.workers, list(self.workers.threads))
            while True:
                self._look()
                self._go_on()
                self._fill(pieces)
                if not self._open:
                    return
                yield from self._taken()
        except (CancelledError, asyncio.CancelledError, CommClosedError) as error:
            raise gone(self._client) from error
        finally:
            if not is_closed(self._client):
                with contextlib.suppress(
                    OSError, CancelledError, asyncio.CancelledError
                ):  # the scheduler is gone
                    self._client.cancel([future for _, future in self._futures.values()], force=True)

    def _supplied(self) -> list[str]:
        """The living workers to whose hosts no data are under way."""
        coming = self._supply.under_way() if self._supply is not None else ()
        return [address for address in self.workers.living() if self.workers.places[address] not in coming]

    def _go_on(self) -> None:
        """Submits work that waited for data, where a host has them now."""
        if self._supply is not None:
            self._supply.step(self.workers)
            self._aside &= self._open.keys()
            for number in sorted(self._aside):
                self._submit(number)

    def _fill(self, pieces: Iterator[Work]) -> None:
        room = _AHEAD * sum(self.workers.threads[address] for address in self._supplied())
        if self._open:
            room -= len(self._open) + self.held
        else:  # at least one task is submitted, even if all workers have just died
            room = max(1, room)
        for work in itertools.islice(pieces, max(room, 0)):
            self._begin(work)

    def _begin(self, work: Work) -> None:
        number = next(self._numbers)
        self._open[number] = _Open(work)
        self._submit(number)

    def _submit(self, number: int, workers: list[str] | None = None) -> None:
        piece = self._open[number]
        if workers is None and self._supply is not None and self._supply.under_way():
            workers = self._supplied()  # others would only answer that they lack the data
        piece.meant_for = workers or ()
        if workers == []:
            self._aside.add(number)
            return
        self._aside.discard(number)
        key = f"{self._common.name}-{number}-{len(piece.keys)}"
        piece.keys[key] = time.monotonic()
        future = self._client.submit(
            guarded,
            self._function,
            self._common,
            piece.work,
            key=key,
            pure=False,
            workers=workers,
            allow_other_workers=workers is not None,  # in case these workers die, too
            priority=-number,
        )
        self._futures[key] = number, future
        future.add_done_callback(self._done.put)

    def _look(self) -> None:
        """Checks once a second which workers there are, and whether they live."""
        if time.monotonic() - self._looked < 1 and not is_closed(self._client):
            return
        self.workers.look()
        self._looked = time.monotonic()
        self._free()
        silent = self.workers.silent(SILENCE)
        if silent:
            self._hand_over(silent)

    def _free(self) -> None:
        """Submits tasks again that the scheduler keeps for workers that are all gone.

        Other workers may do them, but the scheduler considers only those present at the death, none that
        comes later.
        """
        there = self.workers.threads.keys()
        kept = [
            number
            for number, piece in self._open.items()
            if piece.meant_for and not there & set(piece.meant_for)
        ]
        processing = self.workers.processing() if kept else None
        if processing is None:
            return
        busy = {str(key) for keys in processing.values() for key in keys}
        for number in kept:
            own = [key for key, (other, _) in self._futures.items() if other == number]
            if not any(key in busy or self._futures[key][1].done() for key in own):
                self._client.cancel([self._futures.pop(key)[1] for key in own], force=True)
                self._repeat(number, self._open[number])

    def _hand_over(self, silent: list[str]) -> None:
        """Gives the tasks of silent workers to others, too; the first result of each task counts."""
        others = self.workers.living()
        if not others:
            reading = self._supply is not None and self._supply.reading()
            if not reading and self.workers.threads.keys() <= set(self.workers.silent(PATIENCE)):
                raise ClusterError(f"nothing was heard of any worker for {PATIENCE} seconds")
            return
        processing = self.workers.processing() or {}
        for key in (str(key) for address in silent for key in processing.get(address, ())):
            number, _ = self._futures.get(key, (None, None))
            if number in self._open and key == next(reversed(self._open[number].keys)):
                self._submit(number, others)

    def _taken(self) -> Iterator[tuple[Work, Any]]:
        """At most one result, if it comes soon."""
        from distributed import KilledWorker

        coming = self._supply is not None and self._supply.under_way()
        try:
            future = self._done.get(timeout=_SOON if coming else _LATER)
        except queue.Empty:
            return
        number, _ = self._futures.pop(future.key, (None, None))
        piece = self._open.get(number) if number is not None else None
        if future.status == "cancelled":
            if piece is not None:
                raise gone(self._client)
            return
        if future.status == "lost":  # its worker died before the result was fetched
            if number is not None and piece is not None:
                self._submit(number)
            return
        if piece is None or number is None:
            with contextlib.suppress(TimeoutError, KilledWorker):  # a file that is not removed harms nobody
                self._discard(fetched(self._client, future, ANSWER))
            return
        try:
            answer = fetched(self._client, future, SILENCE)
        except TimeoutError:  # the worker that has it has fallen silent
            self._submit(number)
            return
        except KilledWorker:
            self._repeat(number, piece)
            return
        except Exception as error:  # Dask could not read the task or the result
            if future.status != "error":
                raise
            text = f"{type(error).__name__}: {error}".replace("\n", " ")
            raise ClusterError(f"a worker could not begin a task: {text}") from error
        if isinstance(answer, Refused):
            raise ClusterError(f"worker {answer.worker}: {answer.reason}")
        if isinstance(answer, Missing):
            if self._supply is not None:
                self._supply.begin(self.workers, [answer.worker], piece.keys[future.key])
            self._submit(number)
            return
        del self._open[number]
        if self._supply is not None:
            self._supply.served()
        yield piece.work, answer

    def _repeat(self, number: int, piece: _Open[Work]) -> None:
        alone = all(other != number for other, _ in self._futures.values())
        parts = self._cut(piece.work) if self._cut is not None and alone else []
        if len(parts) > 1:
            del self._open[number]
            for part in parts:
                self._begin(part)
            return
        piece.deaths += 1
        if piece.deaths > MOST_DEATHS:
            raise ClusterError(
                f"{piece.work}: {MOST_DEATHS} times several workers have died with it; a worker may have "
                "too little memory"
            )
        self._submit(number)
