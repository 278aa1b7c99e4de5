"""A training run: host threads take labels from a queue, solve their problems and hand out the results."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Self

import numpy as np
import scipy.sparse as sp

from xmcjax._cores import blas_threads
from xmcjax._exit import leave
from xmcjax._settings import settings_here
from xmcjax.lanes._devices import Place
from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._queue import Queue
from xmcjax.lanes._results import LabelResult, Output, Summary, without_positives
from xmcjax.lanes._training_data import training_data
from xmcjax.native import Interrupted, StopFlag


class Trainer:
    """Base of the trainers that make a run of :func:`xmcjax.lanes.train_one_vs_all` from its arguments.

    Attributes:
        workers: host threads.
    """

    #: devices that have X, which the threads share out among themselves
    places: list[Place]
    workers: int

    def __init__(
        self, X, Y, sample_weight, label_weights: LabelWeights | None, options: OneVsAll, sink, observe
    ):
        self._data = training_data(X, Y, sample_weight, label_weights, options)
        self._options = options
        self._counts = np.diff(self._data.Y.indptr)
        self._stop = StopFlag()
        self._output = Output(sink, observe, self._stop, self._data.columns)
        self._wanted: set[int] | None = None

    def again(self, sink: Callable[[LabelResult], None], stop: StopFlag) -> Self:
        """Another run on the same data, which are prepared once; runs may go on side by side.

        Args:
            sink: of its results.
            stop: ends it; a run of one thread heeds it where the caller does (:meth:`StopFlag.heeded`).
        """
        other = copy.copy(self)
        other._stop = stop  # noqa: SLF001 - a copy of self
        other._output = Output(sink, None, stop, self._data.columns)  # noqa: SLF001
        return other

    @property
    def Y(self) -> sp.csc_array:
        """Labels, CSC [n, L] of ones, of the rows that count, in the order of training."""
        return self._data.Y

    @property
    def summary(self) -> Summary:
        """Totals of the run so far."""
        return self._output.summary

    @property
    def weight(self) -> np.ndarray | None:
        """s of these rows, or None."""
        return self._data.weight

    def run(self, queue: Queue, wanted: set[int] | None = None) -> Summary:
        """Trains what the queue gives; hands out labels that are wanted, or all."""
        begin = time.perf_counter()
        self._wanted = wanted
        # Each of our threads has a core, and sums in several threads of BLAS depend on how many there are.
        with blas_threads(1):
            self._train(queue)
        self._output.summary.seconds = time.perf_counter() - begin
        return self._output.summary

    def _train(self, queue: Queue) -> None:
        if self.workers == 1:
            self._work(queue, 0)
        else:
            self._work_in_threads(queue)

    def _work_in_threads(self, queue: Queue) -> None:
        here, ended = settings_here(), [Future() for _ in range(self.workers)]

        def work(place: int, end: Future) -> None:
            try:
                with here(self.places[place].device), self._stop.heeded():
                    end.set_result(self._work(queue, place))
            except BaseException as error:
                end.set_exception(error)

        # daemons, which a second Ctrl-C can leave behind: at its end Python waits for all other threads
        threads = [
            threading.Thread(target=work, args=(k % len(self.places), end), name=f"xmcjax_{k}", daemon=True)
            for k, end in enumerate(ended)
        ]
        begun: list[threading.Thread] = []
        try:
            for thread in threads:
                thread.start()
                begun.append(thread)
            for end in ended:
                end.result()
        except BaseException:
            self._stop.set()  # Ctrl-C arrives in this thread: the workers do not see it
            raise
        finally:
            try:
                for thread in begun:
                    thread.join()
            except BaseException:
                leave(ended[: len(begun)])
                raise

    def _work(self, queue: Queue, place: int) -> None:
        """What a thread does until the queue is finished or the stop flag set."""
        try:
            self._solve(queue, place)
        except Interrupted:  # the reason is raised by whoever set the flag
            return
        except BaseException:
            self._stop.set()
            raise

    def _solve(self, queue: Queue, place: int) -> None:
        raise NotImplementedError

    def _taken(self, queue: Queue, idle: int):
        """Labels to be solved, with their starts; those without positives are handed out at once."""
        taken = queue.take(idle)
        for label, _ in taken:
            if self._counts[label] == 0:
                self._output.result(without_positives(label, self._data.dtype))
                queue.done(label, np.zeros(0), 0.0)
        return [(label, parent) for label, parent in taken if self._counts[label] > 0]
