"""Training in one worker: the labels of all its tasks go through the same lanes.

At the end of a block of labels some lanes are empty, and an empty lane costs nearly as much as a full one. So
a task that has no label left to begin lets another task start, and the labels of both share the lanes.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from xmcjax.cluster._dispatch import LOOK
from xmcjax.lanes import LabelResult, LabelWeights, OneVsAll, Summary, make_trainer, precision
from xmcjax.native import StopFlag

# The threads that train end after this many seconds without a label.
_IDLE = 1.0
# The most labels that a thread takes at a time, unless its idle lanes need more.
_LONGEST = 64


class _Batch:
    """The labels of one task.

    Args:
        count: how many labels.
    """

    def __init__(self, count: int):
        self.left_to_take = self.left_to_train = count
        self.results: list[LabelResult] = []


class _Feed:
    """A queue (:mod:`xmcjax.lanes._queue`) into which labels may still be put.

    Args:
        changed: held during every change, and notified of it.
        threads: how many threads take labels.
    """

    def __init__(self, changed: threading.Condition, threads: int):
        self._changed, self._threads = changed, threads
        self._labels: collections.deque[tuple[int, _Batch]] = collections.deque()
        self._active = time.monotonic()
        self.closed = False

    def put(self, labels: np.ndarray, batch: _Batch) -> None:
        """Adds labels in the order in which they are to be begun."""
        self._labels.extend((label, batch) for label in labels.tolist())
        self._active = time.monotonic()

    def take(self, idle: int) -> list[tuple[int, None]]:
        """Labels for `idle` lanes, often more."""
        with self._changed:
            share = len(self._labels) // (4 * self._threads)
            count = min(max(idle, min(_LONGEST, share)), len(self._labels))
            taken = [self._labels.popleft() for _ in range(count)]
            for _, batch in taken:
                batch.left_to_take -= 1
            if taken:
                self._active = time.monotonic()
            if any(not batch.left_to_take for _, batch in taken):
                self._changed.notify_all()
            return [(label, None) for label, _ in taken]

    def done(self, label: int, w: np.ndarray, bias: float) -> None:
        """Tells that a label was solved."""

    @property
    def finished(self) -> bool:
        """Whether no label is left, and none will be added: a queue that was idle for long closes."""
        with self._changed:
            if not self._labels and time.monotonic() - self._active > _IDLE:
                self.closed = True
            return self.closed

    def __len__(self) -> int:
        return len(self._labels)


class Session:
    """The data of a run in a worker, and the threads that train on them.

    Args:
        matrices: features X, labels Y, CSC of ones, and weights of rows and labels where there are any.
        options: how labels are trained.

    Attributes:
        counts: positives of every label, [L].
        dtype: of features and weights.
        n_features: d.
    """

    def __init__(self, matrices: dict[str, Any], options: OneVsAll):
        X, Y = matrices["X"], matrices["Y"]
        weights, s = None, matrices.get("sample_weight")
        if "positive" in matrices:
            weights = LabelWeights(np.array(matrices["positive"]), np.array(matrices["negative"]))
        self.dtype, self.n_features = np.dtype(X.dtype), X.shape[1]
        with precision(self.dtype):
            row_weights = None if s is None else np.array(s)
            self._trainer = make_trainer(X, Y, row_weights, weights, options, self._end, None)
        self.counts = np.diff(self._trainer.Y.indptr)
        self._threads = self._trainer.workers
        self._changed = threading.Condition(threading.RLock())
        self._owners: dict[int, list[_Batch]] = {}
        self._feed: _Feed | None = None
        self._stop = StopFlag()
        self._error: BaseException | None = None
        self._reported = collections.Counter()
        self._totals: list[Summary] = []

    def train(
        self, labels: np.ndarray, all_taken: Callable[[], None], wanted: Callable[[], bool]
    ) -> tuple[list[LabelResult] | None, Summary]:
        """Trains labels, beside those of other callers.

        Args:
            labels: in the order in which they are begun.
            all_taken: called when all of them have been begun.
            wanted: a function, called now and then, that tells whether the results are still wanted.

        Returns:
            (results in ascending order of labels, summary of the work since the last call that returned); no
            results where the session was stopped, or they are no longer wanted.

        Raises:
            Exception: what training raises.
        """
        batch = _Batch(len(labels))
        with self._changed:
            for label in labels.tolist():
                self._owners.setdefault(label, []).append(batch)
            if self._feed is None or self._feed.closed:
                self._feed = _Feed(self._changed, self._threads)
                self._begin(self._feed)
            self._feed.put(labels, batch)
            self._wait(lambda: not batch.left_to_take, wanted)
        all_taken()
        with self._changed:
            self._wait(lambda: not batch.left_to_train, wanted)
            if self._error is not None:
                raise self._error
            summary = self._since_last()
        for result in batch.results:
            summary.add(result)
        return None if batch.left_to_train else sorted(batch.results), summary

    def _wait(self, holds: Callable[[], bool], wanted: Callable[[], bool]) -> None:
        """Waits until `holds`, or the session is over, or the results are no longer wanted."""
        while not self._changed.wait_for(lambda: self._over() or holds(), LOOK) and wanted():
            pass

    def stop(self) -> None:
        """Ends all calls of :meth:`train`."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()

    def _over(self) -> bool:
        return self._stop.is_set() or self._error is not None

    def _begin(self, feed: _Feed) -> None:
        trainer = self._trainer.again(self._end, self._stop)
        self._totals.append(trainer.summary)

        def run() -> None:
            try:
                with precision(self.dtype), self._stop.heeded():
                    trainer.run(feed)  # type: ignore[arg-type] – a queue in all but name
            except BaseException as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()

        threading.Thread(target=run, name="xmcjax-session", daemon=True).start()

    def _end(self, result: LabelResult) -> None:
        with self._changed:
            batches = self._owners[result.label]
            batch = batches.pop(0)
            if not batches:
                del self._owners[result.label]
            batch.results.append(result)
            batch.left_to_train -= 1
            if not batch.left_to_train:
                self._changed.notify_all()

    def _since_last(self) -> Summary:
        """The steps not reported yet. Steps of the last label may come with the next report."""
        now = collections.Counter()
        for total in self._totals:
            now.update(active=total.active, steps=total.steps)
        new, self._reported = now - self._reported, now
        first = max(total.first_step_seconds for total in self._totals)
        return Summary(active=new["active"], steps=new["steps"], first_step_seconds=first)
