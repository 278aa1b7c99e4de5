"""The tasks of training in a worker: a task trains the labels of a block, on data that its host has.

A worker prepares the data once for all tasks of a run. The labels of these tasks share its lanes
(``_session.py``).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xmcjax import __version__, native
from xmcjax.cluster import _spool
from xmcjax.cluster._blocks import Block
from xmcjax.cluster._dispatch import Missing, Refused, secede, wanted, worker_of_task
from xmcjax.cluster._kept import Kept
from xmcjax.cluster._session import Session
from xmcjax.lanes import LabelResult, OneVsAll, Summary, by_positives
from xmcjax.models import Outside, checked_weights, write_outside


@dataclasses.dataclass(frozen=True)
class Run:
    """What every task of a training run has in common.

    Attributes:
        name: of the run and of its data.
        version: of the client's xmcjax.
        sources: hash of the C++ sources of the client's xmcjax; None without kernels.
        options: how labels are trained, with one thread.
        beacon: a file in the directory of the model: workers that see it write their shards there. None where
            all results are handed back.
        shard_size: labels per shard.
    """

    name: str
    version: str
    sources: str | None
    options: OneVsAll
    beacon: Path | None
    shard_size: int


class Weights(NamedTuple):
    """Weights as the arrays of a CSR matrix with a row per label."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Ended:
    """A trained block.

    Attributes:
        summary: of its labels.
        numbers: per label, by name as in :class:`xmcjax.lanes.LabelResult`, in ascending order of labels.
        outside: the shard, if the worker has written it; else None.
        weights: of the labels, if the worker has not written them; else None.
        isa: instruction set of the kernels; None without them.
    """

    summary: Summary
    numbers: dict[str, np.ndarray]
    outside: Outside | None
    weights: Weights | None
    isa: str | None

    def results(self) -> list[LabelResult]:
        """The results of the labels, in ascending order; without weights if the worker has written them."""
        columns = [values.tolist() for values in self.numbers.values()]
        found = []
        for k, numbers in enumerate(zip(*columns, strict=True)):
            indices, values = np.zeros(0, np.int32), np.zeros(0, np.float32)
            if self.weights is not None:
                entries = slice(*self.weights.indptr[k : k + 2])
                # copied, because arrays from the network may be unaligned
                indices, values = self.weights.indices[entries].copy(), self.weights.values[entries].copy()
            of_name = dict(zip(self.numbers, numbers, strict=True))
            found.append(LabelResult(indices=indices, values=values, **of_name))
        return found


NUMBERS = [name for name in LabelResult._fields if name not in ("indices", "values")]


def _stop(session: Session | None) -> None:
    if session is not None:
        session.stop()


# no session is kept for ever, because a command that is killed cannot say that its run is over
_sessions: Kept[str, Session] = Kept(lasting=0, shed=_stop)
_stopped: collections.deque[str] = collections.deque(maxlen=64)
_lock = threading.Lock()


def _opened(run: Run) -> Session | None:
    """The data of a run; None where this host does not have them."""
    worker = worker_of_task()
    matrices = _spool.read(_spool.folder_of(worker.local_directory, run.name))
    if matrices is None:
        return None
    return Session(matrices, dataclasses.replace(run.options, n_jobs=worker.state.nthreads))


def train_block(run: Run, block: Block) -> Ended | Missing | Refused:
    """Trains the labels of a block in this thread."""
    if (run.version, run.sources) != (__version__, native.sources()):
        theirs, ours = (
            _named(v, s) for v, s in ((run.version, run.sources), (__version__, native.sources()))
        )
        return Refused(f"expected xmcjax {theirs} as where the run was started, found {ours}")
    with _sessions.using(run.name, lambda: _opened(run)) as session:
        if session is None:
            return Missing()
        ended = None if has_ended(run.name) else _trained(run, block, session)
    if ended is None:  # the last task of the run removes its session
        _stop(_sessions.remove_idle(run.name))
        return Refused("the run is over")
    return ended


def _trained(run: Run, block: Block, session: Session) -> Ended | None:
    """The trained block; None where the session was stopped, or the labels are no longer wanted."""
    begin = time.perf_counter()
    labels = by_positives(session.counts, np.arange(block.first, block.last), block.last)
    # While the last labels of this block are trained, the worker takes another task, which fills empty lanes.
    results, summary = session.train(labels, all_taken=secede, wanted=wanted)
    if results is None:
        return None
    _count(len(labels), summary.newton_steps, time.perf_counter() - begin)
    return _ended(run, block, session, results, summary)


def _named(version: str, sources: str | None) -> str:
    return f"{version} without C++ kernels" if sources is None else f"{version} (C++ sources {sources[:8]})"


def _ended(run: Run, block: Block, session: Session, results: list[LabelResult], summary: Summary) -> Ended:
    numbers = {name: np.array([getattr(result, name) for result in results]) for name in NUMBERS}
    outside = rows = None
    if block.shard and run.beacon is not None and run.beacon.exists():
        directory = run.beacon.parent
        kind: dict[str, Any] = dict(n_features=session.n_features, dtype=session.dtype)
        weights = [checked_weights(*result[:7], **kind) for result in results]
        outside = write_outside(directory, block.first, run.shard_size, weights, session.dtype)
    else:
        rows = Weights(
            np.cumsum([0, *(len(result.indices) for result in results)]),
            np.concatenate([result.indices for result in results]).astype(np.int32),
            np.concatenate([result.values for result in results]),
        )
    return Ended(summary, numbers, outside, rows, native.isa())


def stop_run(name: str) -> None:
    """Ends what this worker trains for a run, and forgets its data."""
    with _lock:
        _stopped.append(name)
    _stop(_sessions.remove(name))


def has_ended(name: str) -> bool:
    """Whether this worker was told that a run has ended."""
    with _lock:
        return name in _stopped


def _count(labels: int, newton_steps: int, seconds: float) -> None:
    """Adds the work of this worker to Dask's metrics of it, which the dashboard lists."""
    worker = worker_of_task()
    with _lock, contextlib.suppress(AttributeError):  # other kinds of workers have no metrics
        done = worker.metrics.setdefault("labels trained", _Total())
        steps = worker.metrics.setdefault("Newton steps", _Total())
        rate = worker.metrics.setdefault("labels per second", _Total())
        done.value += labels
        steps.value += newton_steps
        rate.value = round(labels / max(seconds, 1e-9), 1)


@dataclasses.dataclass
class _Total:
    """A metric that a worker reports to its scheduler with every sign of life."""

    value: float = 0

    def __call__(self, worker: Any) -> float:
        return self.value
