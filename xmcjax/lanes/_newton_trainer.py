"""Newton's method on lanes: labels go into the lanes of a block, steps are made, results come out."""

from __future__ import annotations

import collections
import contextlib
import functools
import threading
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from xmcjax import _device_memory
from xmcjax._cores import usable_cores
from xmcjax._platform import default_platform
from xmcjax._range import largest_norm
from xmcjax.lanes._certifier import Certifier
from xmcjax.lanes._device_block import Shared, block_bytes
from xmcjax.lanes._devices import lanes_of_use, lanes_that_fit, placed, worker_count
from xmcjax.lanes._fitting import Fitting
from xmcjax.lanes._job import Job
from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._lanes import Lanes, Solved
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._problems import Problems
from xmcjax.lanes._queue import Queue
from xmcjax.lanes._row_starts import RowStarts
from xmcjax.lanes._solutions import Solutions
from xmcjax.lanes._trainer import Trainer
from xmcjax.native import PerformanceWarning
from xmcjax.solvers import newton_cg

Made = TypeVar("Made")
# Share of active rows at the starts, or one step later, above which a whole block of labels starts at once,
# so that the products over nearly all rows serve every lane. Otherwise a lane is refilled as soon as it ends.
CROWDED = 0.2


class NewtonTrainer(Trainer):
    """Trains labels with a smooth loss."""

    def __init__(
        self, X, Y, sample_weight, label_weights: LabelWeights | None, options: OneVsAll, sink, observe
    ):
        super().__init__(X, Y, sample_weight, label_weights, options, sink, observe)
        self.places = placed(self._data.op)
        self._compiling = [threading.Lock() for _ in self.places]
        self._compiled = [False for _ in self.places]
        self._sizes: list[int | None] = [None for _ in self.places]
        self._blocks = [1 for _ in self.places]  # that a device has room for
        self._counting = [0.0 for _ in self.places]  # seconds
        self.workers = worker_count(self.places, options.threads)
        if default_platform() != "cpu" and options.max_iter > 0:
            for place in range(len(self.places)):
                self._size(place)
                self._counting[place] = 0.0  # this time belongs to no run
            self.workers *= min(self._blocks)
        # on a CPU each thread of the run has a core; beside a device all others are idle
        beside = 1 if default_platform() == "cpu" else max(1, usable_cores() // self.workers)
        self._problems = Problems(self._data, options, beside)
        self._solutions = Solutions(self._data, options)
        self._largest_row = largest_norm(self._data.X)
        # Results of a device are awaited a step later, unless the labels of a tree wait for them as starts.
        self._overlaps = not self._data.native and not options.init.tree

    def _train(self, queue: Queue) -> None:
        self._problems.prepare_starts(self._solve_one, self._starts_among_rows)
        if self._options.max_iter == 0:
            self._hand_out_starts(queue)
        else:
            super()._train(queue)

    def _solve(self, queue: Queue, place: int) -> None:
        jobs: collections.deque[Job] = collections.deque()
        # Jobs without a result so far, by identity: a cluster may give a label to a worker twice.
        begun: dict[int, Job] = {}
        self._with_room(place, lambda size: self._solve_in_lanes(queue, place, size, jobs, begun))

    def _solve_in_lanes(
        self, queue: Queue, place: int, size: int, jobs: collections.deque[Job], begun: dict[int, Job]
    ) -> None:
        jobs.extendleft(reversed(begun.values()))  # the jobs of lanes that were given up
        begun.clear()
        certifier = self._solutions.certifier
        doubts = None if certifier is None else certifier.doubted
        takes_over = None
        if isinstance(certifier, Certifier) and certifier.goes_on and default_platform() == "cpu":
            takes_over = certifier.takes_over  # not on a device, whose own steps are faster
        first_part = None if certifier is None else certifier.first_part
        more = dict(doubts=doubts, takes_over=takes_over, first_part=first_part)
        hp, clipping = self._options.hparams(), self._solutions.clipping
        lanes = self._lanes(hp, size, place, clipping=clipping, **more)
        # closing waits for a step that has begun, which holds device memory that the next lanes need
        with contextlib.closing(lanes):
            self._solve_with(lanes, size, place, queue, jobs, begun)

    def _solve_with(
        self,
        lanes: Lanes,
        size: int,
        place: int,
        queue: Queue,
        jobs: collections.deque[Job],
        begun: dict[int, Job],
    ) -> None:
        together = False
        waiting: Callable[[], list[Solved]] = list  # gives the solutions of the step before
        while not self._stop.is_set():
            idle = lanes.idle
            if not together or idle == size:
                if len(jobs) < idle:
                    jobs.extend(self._problems.jobs(self._taken(queue, idle)))
                some = [jobs.popleft() for _ in range(min(idle, len(jobs)))]
                begun |= {id(job): job for job in some}
                lanes.start(some)
            if not lanes.busy:
                self._end(queue, begun, waiting())
                waiting = list
                if queue.finished:
                    return
                time.sleep(1e-3)  # a parent is being solved by another thread
                continue
            with self._first_step(place):
                lanes.begin()
                solved = waiting()
                self._end(queue, begun, solved)
                if len(jobs) < len(solved):  # so many lanes may be idle after this step
                    jobs.extend(self._problems.jobs(self._taken(queue, len(solved) - len(jobs))))
                waiting, record = lanes.finish()
            fresh, moved = record.newton_steps == 0, record.newton_steps == 1
            if fresh.any():
                together = self._crowded(record.active[fresh])
            if moved.any():  # a start at the kink of the loss: few active rows, and nearly all a step later
                together = together or self._crowded(record.active[moved])
            if not self._overlaps:
                self._end(queue, begun, waiting())
                waiting = list
            self._output.step(record)

    def _crowded(self, active: np.ndarray) -> bool:
        return bool(active.mean() > CROWDED * self._data.op.shape[0])

    def _end(self, queue: Queue, begun: dict[int, Job], solved: list[Solved]) -> None:
        """Hands out what has been solved."""
        for end in solved:
            job, end = end.job, self._solutions.certified(end)
            if self._options.init.tree:
                queue.done(end.job.label, end.w, end.bias)
            if self._wanted is None or end.job.label in self._wanted:
                self._output.result(self._solutions.result(end))
            begun.pop(id(job))

    def _starts_among_rows(self) -> RowStarts:
        data = self._data

        def trainer(X: np.ndarray, options: OneVsAll) -> NewtonTrainer:
            return NewtonTrainer(X, data.Y, data.weight, data.label_weights, options, None, None)

        return RowStarts(data, self._options, trainer)

    def _hand_out_starts(self, queue: Queue) -> None:
        lanes = self._asked_for(0)
        while not queue.finished:
            taken = self._taken(queue, lanes)
            if not taken:
                continue
            W, b = self._problems.starts([label for label, _ in taken]).dense()
            for k, (label, _) in enumerate(taken):
                self._output.result(self._solutions.of_start(label, W[:, k], float(b[k])))

    def _lanes(self, hp: newton_cg.HParams, size: int, place: int = 0, **more) -> Lanes:
        loss, penalty, data = self._options.loss, self._options.penalty, self._data
        more |= dict(by_label=data.label_weights is not None, penalty=penalty, largest_row=self._largest_row)
        return Lanes(self.places[place].op, loss, data.row_weight, hp, size, **more)

    def _asked_for(self, place: int) -> int:
        """Lanes of a block that the caller wants, or that the sizes of X suggest."""
        device, op = self.places[place]
        return self._options.block_size or lanes_that_fit(op, device)

    def _size(self, place: int) -> int:
        """Lanes of a block on this device, by XLA's count where the device tells its memory."""
        with self._compiling[place]:
            size = self._sizes[place]
            if size is None:
                begin = time.perf_counter()
                size = self._sizes[place] = self._counted(place)
                self._counting[place] = time.perf_counter() - begin
            return size

    def _counted(self, place: int) -> int:
        size, (device, op) = self._asked_for(place), self.places[place]
        loss, penalty, data = self._options.loss, self._options.penalty, self._data
        free = _device_memory.free_memory(device)
        if free is None or newton_cg.has_kernels(op, loss, penalty):
            return lanes_of_use(size, data.Y.shape[1])
        hp, by_label = self._options.hparams(), data.label_weights is not None
        shared = Shared(op, loss, data.row_weight, hp, by_label, penalty)

        @functools.cache
        def count(lanes: int) -> int:
            found = block_bytes(shared, lanes)
            return 0 if found is None else found  # without a count an error of the device tells

        (n, d), name = op.shape, _device_memory.used_device(device)
        fitting = Fitting(count, free, f"over {n} rows and {d} features on {name}", op.dtype)
        if self._options.block_size is None:
            size = fitting.chosen(size)
        else:
            fitting.check(size)
        self._blocks[place] = fitting.blocks(size)
        return size

    def _with_room(self, place: int, work: Callable[[int], Made]) -> Made:
        """The result of `work` with this place's lanes, or with half as many where memory runs out."""
        while True:
            size = self._size(place)
            try:
                return work(size)
            except (RuntimeError, ValueError) as error:
                if self._stop.is_set() or not _device_memory.ran_out(error):
                    raise
                if size == 1:
                    raise _device_memory.DeviceMemoryError(
                        f"the device ran out of memory with one lane: {_device_memory.without_status(error)}"
                    ) from error
            # here, since inside the handler the error keeps alive the arrays of the frames it passed through
            with self._compiling[place]:
                if self._sizes[place] == size:
                    self._sizes[place] = size // 2
                    device = _device_memory.used_device(self.places[place].device)
                    warnings.warn(
                        f"{device} ran out of memory with {size} lanes: training goes on with {size // 2}; "
                        f"block_size={size // 2} begins with them",
                        PerformanceWarning,
                        stacklevel=2,
                    )

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
            self._output.first_step(self._counting[place] + time.perf_counter() - begin)

    def _solve_one(self, positives: np.ndarray, loose: bool) -> tuple[np.ndarray, float]:
        """The optimum of one problem from zero, for initialisations."""
        # A start is solved however few steps the labels are given.
        hp = self._options.hparams()
        hp = hp._replace(max_steps=max(hp.max_steps, newton_cg.HParams().max_steps))

        def solved(size: int) -> tuple[np.ndarray, float]:
            with contextlib.closing(self._lanes(hp, size)) as lanes:
                lanes.start([self._problems.from_zero(positives, loose)])
                while True:
                    with self._first_step(0):
                        lanes.begin()
                        waiting, _ = lanes.finish()
                    for end in waiting():
                        return end.w, self._problems.nearest_bias(positives, end.bias)

        return self._with_room(0, solved)
