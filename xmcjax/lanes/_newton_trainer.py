"""Newton's method on lanes: labels go into the lanes of a block, steps are made, results come out."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Callable

import numpy as np

from xmcjax.lanes._devices import lanes_that_fit, placed, worker_count
from xmcjax.lanes._job import Job
from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._lanes import Lanes, Solved
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._problems import Problems
from xmcjax.lanes._queue import Queue
from xmcjax.lanes._solutions import Solutions
from xmcjax.lanes._trainer import Trainer
from xmcjax.solvers import newton_cg

# A lane is refilled as soon as it ends; but where starts, or what they are after a step, have more than this
# share of the rows active, a whole block starts at once: the products over nearly all rows serve every lane.
CROWDED = 0.2


class NewtonTrainer(Trainer):
    """With a loss that is smooth."""

    def __init__(
        self, X, Y, sample_weight, label_weights: LabelWeights | None, options: OneVsAll, sink, observe
    ):
        super().__init__(X, Y, sample_weight, label_weights, options, sink, observe)
        self.places = placed(self._data.op)
        self.workers = worker_count(self.places, options.threads)
        self._size = options.block_size or lanes_that_fit(self._data.op, self.places[0].device)
        self._problems = Problems(self._data, options)
        self._solutions = Solutions(self._data, options)
        # Device results are awaited a step later, but for the starts that a tree waits for.
        self._overlaps = not self._data.native and not options.init.tree
        self._compiling = [threading.Lock() for _ in self.places]
        self._compiled = [False for _ in self.places]

    def _train(self, queue: Queue) -> None:
        self._problems.prepare_starts(self._solve_one)
        if self._options.max_iter == 0:
            self._hand_out_starts(queue)
        else:
            super()._train(queue)

    def _solve(self, queue: Queue, place: int) -> None:
        certifier = self._solutions.certifier
        doubts = None if certifier is None else certifier.doubts
        lanes = self._lanes(self._options.hparams(), place, self._solutions.clipping, doubts)
        jobs: collections.deque[Job] = collections.deque()
        together = False
        waiting: Callable[[], list[Solved]] = list  # of the step before
        while not self._stop.is_set():
            idle = lanes.idle
            if not together or idle == self._size:
                if len(jobs) < idle:
                    jobs.extend(self._problems.jobs(self._to_be_solved(queue, idle)))
                lanes.start([jobs.popleft() for _ in range(min(idle, len(jobs)))])
            if not lanes.busy:
                self._end(queue, waiting())
                waiting = list
                if queue.finished:
                    return
                time.sleep(1e-3)  # a parent is being solved by another thread
                continue
            with self._first_step(place):
                lanes.begin()
                solved = waiting()
                self._end(queue, solved)
                if len(jobs) < len(solved):  # so many lanes may be idle after this step
                    jobs.extend(self._problems.jobs(self._to_be_solved(queue, len(solved) - len(jobs))))
                waiting, record = lanes.finish()
            fresh, moved = record.newton_steps == 0, record.newton_steps == 1
            if fresh.any():
                together = self._crowded(record.active[fresh])
            if moved.any():  # a start at the kink of the loss: few active rows, and nearly all a step later
                together = together or self._crowded(record.active[moved])
            if not self._overlaps:
                self._end(queue, waiting())
                waiting = list
            self._output.step(record)

    def _crowded(self, active: np.ndarray) -> bool:
        return bool(active.mean() > CROWDED * self._data.op.shape[0])

    def _to_be_solved(self, queue: Queue, idle: int):
        return self._taken(queue, idle, self._solutions.without_positives)

    def _end(self, queue: Queue, solved: list[Solved]) -> None:
        """Hands out what has been solved."""
        for end in solved:
            end = self._solutions.certified(end)
            if self._options.init.tree:
                queue.done(end.job.label, end.w, end.bias)
            if self._wanted is None or end.job.label in self._wanted:
                self._output.result(self._solutions.result(end))

    def _hand_out_starts(self, queue: Queue) -> None:
        while not queue.finished:
            taken = self._to_be_solved(queue, self._size)
            if not taken:
                continue
            W, b = self._problems.starts([label for label, _ in taken]).dense()
            for k, (label, _) in enumerate(taken):
                self._output.result(self._solutions.of_start(label, W[:, k], float(b[k])))

    def _lanes(self, hp: newton_cg.HParams, place: int = 0, clipping=None, doubts=None) -> Lanes:
        loss, penalty, data = self._options.loss, self._options.penalty, self._data
        more = dict(by_label=data.label_weights is not None, penalty=penalty)
        op = self.places[place].op
        return Lanes(op, loss, data.row_weight, hp, self._size, clipping, doubts, **more)

    @contextlib.contextmanager
    def _first_step(self, place: int):
        """One thread compiles a device's first step, the others find the program ready."""
        if self._compiled[place]:
            yield
            return
        with self._compiling[place]:
            begin = time.perf_counter()
            yield
            self._compiled[place] = True
            self._output.first_step(time.perf_counter() - begin)

    def _solve_one(self, positives: np.ndarray, loose: bool) -> tuple[np.ndarray, float]:
        """The optimum of one problem from zero, for initialisations."""
        # A start is solved however few steps the labels are given.
        hp = self._options.hparams()
        lanes = self._lanes(hp._replace(max_steps=max(hp.max_steps, newton_cg.HParams().max_steps)))
        lanes.start([self._problems.from_zero(positives, loose)])
        while True:
            with self._first_step(0):
                lanes.begin()
                waiting, _ = lanes.finish()
            for end in waiting():
                return end.w, end.bias
