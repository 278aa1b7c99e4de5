"""A block of lanes that is kept busy: a lane that has ended is read out and refilled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from xmcjax.lanes._blocks import HostBlock, make_block
from xmcjax.lanes._clipping import Clipping, keep_all
from xmcjax.lanes._device_block import Shared
from xmcjax.lanes._job import Job, Weights
from xmcjax.lanes._parts import Parts
from xmcjax.linops import LinOp
from xmcjax.losses import MarginLoss
from xmcjax.penalties import L2
from xmcjax.solvers import Status, newton_cg
from xmcjax.solvers.far_starts import FARTHER, LARGE

# A start with a larger ‖(w, b)‖ counts as one of this size, so that its lane is checked a few times at most.
_LARGEST = float(np.finfo(np.float32).max)


class Solved(NamedTuple):
    """What a lane ended with.

    Example:
        >>> from xmcjax.lanes import Job
        >>> job = Job(3, np.array([0]), 1e-3, None, 1.0, np.zeros(0, int), np.zeros(0), 0.0)
        >>> kept = Weights(np.array([1, 3]), np.float32([0.5, -2.0]))
        >>> Solved(job, kept, 4, 0.0, 0, 5, 9, 2, 1.5, 1e-4, doubtful=False).w.tolist()
        [0.0, 0.5, 0.0, -2.0]
    """

    job: Job
    weights: Weights
    n_features: int
    bias: float
    status: int
    newton_steps: int
    cg_steps: int
    active: int
    value: float
    gradient_norm: float
    doubtful: bool  #: whether a certifier has to check it; then all of its weights are there

    @property
    def w(self) -> np.ndarray:
        """The weights as an array, [d]."""
        w = np.zeros(self.n_features, self.weights.values.dtype)
        w[self.weights.indices] = self.weights.values
        return w


class StepRecord(NamedTuple):
    """Numbers of one step of the busy lanes, for figures: arrays of one number per lane, and the step's time.

    Example:
        >>> import scipy.sparse as sp
        >>> from xmcjax.lanes import OneVsAll, train_one_vs_all
        >>> records, X, Y = [], np.eye(4, dtype=np.float32), sp.csr_array(np.eye(4))
        >>> _ = train_one_vs_all(X, Y, OneVsAll(), lambda result: None, observe=records.append)
        >>> first = records[0]
        >>> first.newton_steps.tolist() == [0] * len(first.labels), (first.active <= 4).all().item()
        (True, True)
    """

    labels: np.ndarray
    newton_steps: np.ndarray  #: made so far; 0 for the step that takes the starting weights
    cg_steps: np.ndarray  #: made so far
    active: np.ndarray  #: rows with a slope or a curvature
    multiplier: np.ndarray  #: of the line search
    value: np.ndarray  #: with the part of C that the lane had in the step (:mod:`xmcjax.lanes._parts`)
    gradient_norm: np.ndarray
    status: np.ndarray
    seconds: float  #: of the step, all lanes together
    thread_seconds: float  #: processor time of the thread that made it: all of a native step


class Lanes:
    """B lanes of :mod:`xmcjax.solvers.newton_cg` over one feature matrix, for one host thread.

    A step is begun by :meth:`begin` and awaited by :meth:`finish`; what a device is asked to do in between,
    it does after the step. A job whose objective is not finite at its start begins once more, from zero.

    Args:
        op, loss, weight, hp, options: of :class:`xmcjax.lanes._device_block.Shared`.
        size: B.
        clipping: which weights are not read out; None for zeros only.
        takes_over: called with the Newton steps, CG steps and active rows of each lane that is under way;
            where it returns true the lane ends here, RUNNING and doubtful. None for never.
        first_part: the part of C with which a lane on the host begins again where its steps are short
            (:mod:`xmcjax.lanes._parts`); None for the whole of C, always.
        doubts: called with the jobs and the numbers of lanes that end; returns which of them are doubtful.
        largest_row: ‖x_i‖ is at most this; None where no job starts far from its end. Where a start is so
            large that its rounding may matter, ``xmcjax.solvers.far_starts`` checks the scores at the end.

    Example:
        >>> import scipy.sparse as sp
        >>> from xmcjax import linops
        >>> from xmcjax.lanes import Job, Lanes
        >>> from xmcjax.losses import MARGIN_LOSSES
        >>> op = linops.make(sp.csr_array(np.float32([[1, 0], [0, 1], [1, 1]])))
        >>> lanes = Lanes(op, MARGIN_LOSSES["squared_hinge"], np.ones(1), newton_cg.HParams(), size=2)
        >>> at_zero = None, 1.0, np.zeros(0, int), np.zeros(0), 0.0
        >>> lanes.start([Job(label, np.array([label]), 1e-3, *at_zero) for label in (0, 1)])
        >>> solved = []
        >>> while lanes.busy:
        ...     lanes.begin()
        ...     ended, numbers = lanes.finish()
        ...     solved += ended()
        >>> sorted(end.job.label for end in solved), solved[0].w.shape
        ([0, 1], (2,))
    """

    def __init__(
        self,
        op: LinOp,
        loss: MarginLoss,
        weight: np.ndarray,
        hp: newton_cg.HParams,
        size: int,
        clipping: Clipping | None = None,
        doubts: Callable[[Sequence[Job], dict[str, np.ndarray]], Sequence[bool]] | None = None,
        largest_row: float | None = None,
        takes_over: Callable[[int, int, int], bool] | None = None,
        first_part: float | None = None,
        **options,
    ):
        self._n_features, self._keep_all = op.shape[1], keep_all(op.dtype)
        self._clipping, self._doubts = clipping or self._keep_all, doubts
        shared = Shared(op, loss, weight, hp, **options)
        self._block = make_block(shared, size, by_part=first_part is not None)
        penalised = not isinstance(shared.penalty, L2)
        self._parts = None
        if first_part is not None:
            self._parts = Parts(first_part, hp.max_steps, size, penalised=penalised)
        self._jobs: list[Job | None] = [None] * size
        self._largest_row, self._takes_over = largest_row, takes_over
        self._base: tuple[np.ndarray | None, float] = None, 0.0  # base of the last start, and its ‖·‖²
        self._far = np.zeros(size)  # ‖(w, b)‖ of each lane's start if large, else 0
        self._from_zero = np.zeros(size, bool)  # lanes whose jobs have begun once more

    @property
    def idle(self) -> int:
        """How many lanes have no job."""
        return self._jobs.count(None)

    @property
    def busy(self) -> bool:
        """Whether any lane has a job."""
        return self.idle < len(self._jobs)

    def start(self, jobs: Iterable[Job]) -> None:
        """Gives jobs, at most as many as :attr:`idle`, to idle lanes."""
        jobs = list(jobs)
        free = [lane for lane, job in enumerate(self._jobs) if job is None]
        if len(jobs) > len(free):
            raise ValueError(f"expected at most {len(free)} jobs for the idle lanes, got {len(jobs)}")
        placed = list(zip(free, jobs, strict=False))
        for lane, job in placed:
            self._jobs[lane] = job
            self._far[lane], self._from_zero[lane] = self._size_if_large(job), False
            if self._parts is not None:
                self._parts.start(lane)
        self._block.start(placed)

    def _size_if_large(self, job: Job) -> float:
        """‖(w, b)‖ of a start; 0 where its scores are too small to leave their rounding."""
        if self._largest_row is None:
            return 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # the label's status reports an overflow
            square = self._square(job)
        of_weights = math.sqrt(max(square, 0.0))
        large = self._largest_row * of_weights + abs(job.bias) > LARGE
        return min(math.hypot(of_weights, job.bias), _LARGEST) if large else 0.0

    def _square(self, job: Job) -> float:
        """‖w‖² of a start."""
        values = job.values.astype(np.float64)
        square = float(values @ values)
        if job.base is None:
            return square
        if self._base[0] is not job.base:
            base = job.base.astype(np.float64)
            self._base = job.base, float(base @ base)
        both = float(job.base[job.indices].astype(np.float64) @ values)
        return square + job.scale * (job.scale * self._base[1] + 2 * both)

    def close(self) -> None:
        """Waits for a step that has begun, so that the memory of the lanes is free once they are dropped."""
        self._block.close()

    def begin(self) -> None:
        """Begins one Newton step of every busy lane."""
        self._begin = time.perf_counter(), time.thread_time()
        self._block.begin()

    def finish(self) -> tuple[Callable[[], list[Solved]], StepRecord]:
        """Waits for the step; returns a function that waits for solutions of ended lanes, and a record."""
        last = self._block.numbers()
        self._begin_from_zero(last)
        self._take_parts(last)
        self._go_on(last)
        seconds, thread_seconds = time.perf_counter() - self._begin[0], time.thread_time() - self._begin[1]
        busy = np.array([lane for lane, job in enumerate(self._jobs) if job is not None], int)
        record = StepRecord(
            labels=np.array([job.label for job in self._jobs if job is not None], np.int64),
            newton_steps=last["steps"][busy],
            **{name: last[name][busy] for name in StepRecord._fields if name in last},
            seconds=seconds,
            thread_seconds=thread_seconds,
        )
        left = self._left(last, busy)
        ended = sorted(busy[~newton_cg.moving(record.status)].tolist() + left)
        if not ended:
            return list, record
        jobs = {lane: job for lane in ended if (job := self._jobs[lane]) is not None}
        doubtful = self._doubtful(last, jobs) | set(left)
        certain = [lane for lane in ended if lane not in doubtful]
        reads = [
            (some, self._block.read(some, clipping, [jobs[lane].heaviest for lane in some]))
            for some, clipping in ((certain, self._clipping), (sorted(doubtful), self._keep_all))
            if some
        ]
        for lane in ended:
            self._jobs[lane], self._far[lane] = None, 0.0

        def solved() -> list[Solved]:
            found = {lane: w for some, read in reads for lane, w in zip(some, read(), strict=True)}
            return [
                Solved(
                    jobs[lane],
                    found[lane],
                    self._n_features,
                    float(last["bias"][lane]),
                    int(last["status"][lane]),
                    int(last["steps"][lane]),
                    int(last["cg_steps"][lane]),
                    int(last["active"][lane]),
                    float(last["value"][lane]),
                    float(last["gradient_norm"][lane]),
                    lane in doubtful,
                )
                for lane in ended
            ]

        return solved, record

    def _begin_from_zero(self, last: dict[str, np.ndarray]) -> None:
        """Lanes whose objective is not finite at the start that they were given begin from zero."""
        lost = (last["status"] == Status.NONFINITE) & (last["steps"] == 0) & ~self._from_zero
        found = [(lane, self._jobs[lane]) for lane in np.flatnonzero(lost).tolist()]
        again = [(lane, job.from_zero()) for lane, job in found if job is not None]
        self._block.start(again)
        for lane, _ in again:
            self._far[lane], self._from_zero[lane] = 0.0, True
            last["status"][lane] = Status.RUNNING

    def _take_parts(self, last: dict[str, np.ndarray]) -> None:
        """Restarts lanes that are to have another part of C from their weights."""
        if self._parts is None or not isinstance(self._block, HostBlock):
            return
        numbers = zip(*(last[name].tolist() for name in ("status", "steps", "multiplier")), strict=True)
        for lane, (job, of_lane) in enumerate(zip(self._jobs, numbers, strict=True)):
            part = None if job is None else self._parts.next(lane, *of_lane)
            if job is not None and part is not None:
                self._block.weigh(lane, job, part)
                last["status"][lane] = Status.RUNNING

    def _go_on(self, last: dict[str, np.ndarray]) -> None:
        """Restarts converged lanes of large starts whose scores have drifted from those of their weights."""
        far = np.flatnonzero((self._far > 0) & (last["status"] == Status.CONVERGED))
        if len(far):
            again = self._block.again(far.tolist(), self._far[far])
            last["status"][again] = Status.RUNNING
            self._far[again] /= FARTHER  # an upper bound of ‖(w, b)‖ at the restart

    def _left(self, last: dict[str, np.ndarray], busy: np.ndarray) -> list[int]:
        """The lanes under way that `takes_over` ends here."""
        if self._takes_over is None:
            return []
        work = [last[name].tolist() for name in ("steps", "cg_steps", "active")]
        running = busy[last["status"][busy] == Status.RUNNING].tolist()
        left = [lane for lane in running if self._takes_over(*(of_lanes[lane] for of_lanes in work))]
        if left:
            self._block.leave(left)
        return left

    def _doubtful(self, last: dict[str, np.ndarray], jobs: dict[int, Job]) -> set[int]:
        if self._doubts is None:
            return set()
        lanes = list(jobs)
        numbers = {name: of_lanes[lanes] for name, of_lanes in last.items()}
        said = self._doubts(list(jobs.values()), numbers)
        return {lane for lane, doubtful in zip(lanes, said, strict=True) if doubtful}
