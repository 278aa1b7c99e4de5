"""One-vs-all training: every label a lane."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse, linops
from xmcjax._arguments import MOST_THREADS, instance, name_of, number, whole_number
from xmcjax._finite import place_not_finite
from xmcjax._range import check_range
from xmcjax.inits import Init, Labels, MeanSeparating, TrainingSet
from xmcjax.lanes._certificate import GAP, Certifier
from xmcjax.lanes._clipping import EXPECTED, NOTHING_RAISED, Clipping, CloserLook, Raised, make_clipping
from xmcjax.lanes._devices import lanes_that_fit, placed, worker_count
from xmcjax.lanes._job import Job, Weights
from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._lanes import Lanes, Solved, StepRecord
from xmcjax.lanes._objective import Objective
from xmcjax.lanes._queue import Queue, by_positives, make_queue
from xmcjax.lanes._sparsify import Sparsifier
from xmcjax.lanes._stopping import StoppingRule
from xmcjax.losses import MarginLoss, squared_hinge
from xmcjax.native import Interrupted, StopFlag
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers import Status, newton_cg

# A lane is refilled as soon as it ends; but where starts have more than this share of the rows
# active, a whole block starts at once: the products over nearly all rows then serve every lane.
CROWDED = 0.2
BIASES = ("regularised", "free", "none")
NO_WEIGHTS = Weights(np.zeros(0, np.int64), np.zeros(0))


@dataclasses.dataclass(frozen=True)
class OneVsAll:
    """How to train; the problem of each label is

        min R(w) [+ R(b)] + C Σ_i s_i c_i φ(y_i (w·x_i + b)),

    s_i = 1 without sample weights, and c_i = 1 without weights of the label.

    Attributes:
        loss: φ.
        penalty: R; ½‖w‖² by default.
        init: starting weights.
        C: weight of the losses.
        eps: ε₀ of the stopping rule (paper 000, eqs. 12 and 13). The Newton decrement must be small
            too: see ``decrement`` of :class:`xmcjax.solvers.newton_cg.HParams`. With ½‖w‖² a label that
            ends CONVERGED has f within 0.5% of its minimum: where C ‖x‖² is so large that rows which leave
            the loss, or rounding, may have misled the solver, the duality gap is worked out in float64
            (:mod:`xmcjax.lanes._certificate`).
        clip: weights below this in absolute value are dropped after training; the bias is kept. None for
            those whose part of the label's scores is too small to matter, whatever the scale of the features
            (:mod:`xmcjax.lanes._clipping`); 0 keeps all.
        sparsify: in place of clip: as many of a label's smallest weights are dropped as raise its
            objective by this part at most.
        bias: "regularised" like a feature of value 1, "free" of regularisation, or "none".
        max_iter: Newton steps a label; 0 returns the starting weights, of which none is dropped.
        block_size: lanes that share a pass over X; None for 32 on a CPU and as many as fit, up to 512, on
            a GPU.
        threads: host threads, each with lanes of its own; each GPU has one. The weights of the native
            kernels depend on neither.
        backend: of :func:`xmcjax.linops.make`; "auto" takes the kernels for a GPU for a sparse X where
            :func:`xmcjax.linops.gpu_ready`, and the native kernels for a dense X too, where there are
            any: a step that visits active rows only is as fast, and compiles in a tenth of a second
            instead of three.
    """

    loss: MarginLoss = squared_hinge
    init: Init = dataclasses.field(default_factory=MeanSeparating)
    C: float = 1.0
    eps: float = 0.01
    clip: float | None = None
    sparsify: float | None = None
    bias: Literal["regularised", "free", "none"] = "regularised"
    max_iter: int = 100
    block_size: int | None = None
    threads: int = 1
    backend: str = "auto"
    penalty: Penalty = L2()  # noqa: RUF009 – frozen

    def __post_init__(self):
        for name, base in (("loss", MarginLoss), ("init", Init), ("penalty", Penalty)):
            instance(name, getattr(self, name), base)
        if not 0 < number("C", self.C) < np.inf:
            raise ValueError(f"expected C > 0, got {self.C}")
        if not number("eps", self.eps) > 0:
            raise ValueError(f"expected eps > 0, got {self.eps}")
        if self.clip is not None and not number("clip", self.clip) >= 0:
            raise ValueError(f"expected clip ≥ 0, got {self.clip}")
        if self.sparsify is not None and not 0 < number("sparsify", self.sparsify) < np.inf:
            raise ValueError(f"expected sparsify > 0, got {self.sparsify}")
        name_of("bias", self.bias, BIASES)
        name_of("backend", self.backend, linops.BACKENDS)
        whole_number("max_iter", self.max_iter, 0)
        whole_number("threads", self.threads, 1, MOST_THREADS)
        if self.block_size is not None:
            whole_number("block_size", self.block_size, 1)
        if not self.loss.smooth:
            raise TypeError(
                f"one-vs-all training needs a loss with curvature, which {self.loss.name} has not; "
                "take squared_hinge, huber_hinge or logistic"
            )

    def hparams(self) -> newton_cg.HParams:
        """Of the solver."""
        l2_bias = {"regularised": 1.0, "free": 0.0, "none": -1.0}[self.bias]
        return newton_cg.HParams(l2=1.0, l2_bias=l2_bias, max_steps=self.max_iter)


class LabelResult(NamedTuple):
    """A trained label, clipped."""

    label: int
    indices: np.ndarray  #: features with a weight, ascending
    values: np.ndarray
    bias: float
    status: int
    newton_steps: int
    cg_steps: int
    value: float  #: f before clipping; NaN where nothing was solved
    gradient_norm: float
    rise: float = 0.0  #: of f by a clip that was given, relative to f, where it was looked at


@dataclasses.dataclass
class Summary:
    """Totals of a run.

    Attributes:
        statuses: number of labels by :class:`xmcjax.solvers.Status`.
        newton_steps, cg_steps: totals over labels.
        active: rows with a slope or a curvature, summed over steps.
        steps: steps summed over labels, the one that takes the starting weights included.
        seconds: of training, without reading and writing.
        first_step_seconds: of the first step, which compiles.
        raised: what a clip that was given has done to objectives.
    """

    statuses: dict[Status, int] = dataclasses.field(default_factory=dict)
    newton_steps: int = 0
    cg_steps: int = 0
    active: int = 0
    steps: int = 0
    seconds: float = 0.0
    first_step_seconds: float = 0.0
    raised: Raised = NOTHING_RAISED

    def add(self, result: LabelResult) -> None:
        """Counts a label."""
        status = Status(result.status)
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.raised = self.raised.with_label(result.label, result.rise)
        self.newton_steps += result.newton_steps
        self.cg_steps += result.cg_steps


def train_one_vs_all(
    X,
    Y,
    options: OneVsAll,
    sink: Callable[[LabelResult], None],
    *,
    sample_weight: np.ndarray | None = None,
    label_weights: LabelWeights | None = None,
    labels: np.ndarray | None = None,
    may_begin: Callable[[int], bool] | None = None,
    observe: Callable[[StepRecord], None] | None = None,
) -> Summary:
    """Trains one binary classifier a label and hands each to `sink` when it is done.

    Nothing is kept: memory does not grow with the number of labels.

    Args:
        X: features, scipy.sparse or dense [n, d], finite.
        Y: labels, scipy.sparse [n, L]; every stored non-zero is a label.
        options: how.
        sink: called with each label's result, in the order in which they end, one call at a time.
        sample_weight: s ≥ 0, [n]; a weight of 2 is the same as the row twice, 0 as without it, in
            the starting weights and the stopping rule too. None for ones.
        label_weights: of the rows with and without each label, besides s; they change neither
            starting weights nor the share of positives in the stopping rule. None for ones.
        labels: numbers of the labels to train, in the order in which they are begun; None for all, those
            with the most positives first, which is the fastest order.
        may_begin: asked before a label is begun, in the order of `labels`, one call at a time; after
            the first no, no other is begun, and those under way are finished. Not with an
            initialisation that takes labels in an order of its own (``Init.tree``).
        observe: called with the numbers of every step, for figures, one call at a time.

    Raises:
        TypeError: X or Y is no matrix of real numbers.
        ValueError: a malformed matrix; X, Y and sample_weight of different length, no rows, a value of X
            that is not finite, a weight that is not finite or negative, or no weight above zero; C times a
            weight outside the range of X's type; `may_begin` with a tree.
    """
    if may_begin is not None and options.init.tree:
        raise ValueError(
            f"init {options.init.name} takes labels in the order of its tree: it cannot be told to begin "
            "no other"
        )
    Y = _label_matrix(Y)
    labels = check_labels(labels, Y.shape[1])
    trainer = Trainer(X, Y, sample_weight, label_weights, options, sink, observe)
    if labels is None:
        labels = all_labels(trainer.Y)
    tree = options.init.tree and options.max_iter > 0
    return trainer.run(
        make_queue(
            trainer.Y,
            labels,
            tree=tree,
            weight=trainer.weight,
            threads=trainer.workers,
            may_begin=may_begin,
        ),
        set(labels.tolist()) if tree else None,
    )


def all_labels(Y: sp.csc_array) -> np.ndarray:
    """Numbers of all labels, those with the most positives first."""
    n_labels = Y.shape[1]
    return by_positives(np.diff(Y.indptr), np.arange(n_labels), n_labels)


def check_labels(labels, n_labels: int) -> np.ndarray | None:
    """Numbers of labels, None for all.

    Raises:
        TypeError: numbers that are not whole.
        ValueError: one that is repeated or out of range, or no vector.
    """
    if labels is None:
        return None
    labels = _sparse.array(labels, "labels")
    if labels.size and labels.dtype.kind not in "iu":
        raise TypeError(f"labels: expected whole numbers, got values of type {labels.dtype}")
    if labels.ndim != 1:
        raise ValueError(f"labels: expected a vector, got shape {list(labels.shape)}")
    labels = labels.astype(np.int64)
    if len(np.unique(labels)) < len(labels) or ((labels < 0) | (labels >= n_labels)).any():
        raise ValueError(
            f"expected different labels from 0 to {n_labels - 1}, got a repeated one or one outside"
        )
    return labels


def _label_matrix(Y) -> Any:
    """Y as checked CSR or an array, [n, L], of finite numbers."""
    Y = _sparse.matrix(Y, "Y")
    if Y.ndim != 2:
        raise ValueError(f"Y: expected a label matrix [n, L], got {Y.ndim} dimension(s)")
    place = place_not_finite(Y)
    if place is not None:
        row, label, value = place
        raise ValueError(f"Y: expected finite entries, found {value} in row {row}, label {label}")
    return Y


def label_columns(Y) -> sp.csc_array:
    """The label matrix as CSC of ones, float32 [n, L]; every stored non-zero is a label."""
    columns = sp.csc_array(_sparse.matrix(Y, "Y"), dtype=np.float32, copy=True)
    columns.eliminate_zeros()
    columns.sum_duplicates()
    columns.data[:] = 1
    return columns


def check_sample_weight(weight, n: int) -> np.ndarray:
    """Sample weights as float64 [n].

    Raises:
        TypeError: no real numbers.
        ValueError: another shape, or weights that are not finite, not ≥ 0, or all zero.
    """
    weight, n = _sparse.numbers(weight, "sample_weight"), whole_number("n", n, 0)
    if weight.shape != (n,):
        raise ValueError(f"expected sample_weight of shape ({n},), got {weight.shape}")
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if wrong.size:
        raise ValueError(
            f"expected finite sample weights ≥ 0, found {weight[wrong[0]]} for row {wrong[0]} of X"
        )
    if not weight.any():
        raise ValueError("expected a sample weight above zero, found only zeros")
    return weight


def _by_length(X) -> np.ndarray:
    """The rows of a CSR matrix, those with the fewest entries first.

    Where rows of the same length follow one another the processor foresees the ends of their loops.
    """
    return np.argsort(np.diff(X.indptr), kind="stable")


class Trainer:
    """One run of :func:`train_one_vs_all`, whose arguments it takes.

    Attributes:
        Y: labels, CSC [n, L] of ones, of the rows that count, in the order of training.
        weight: s of these rows, or None.
        workers: host threads that make steps.
    """

    def __init__(
        self, X, Y, sample_weight, label_weights: LabelWeights | None, options: OneVsAll, sink, observe
    ):
        X, Y = _sparse.matrix(X), _label_matrix(Y)
        if X.ndim != 2:
            raise ValueError(f"X: expected a matrix [n, d], got {X.ndim} dimension(s)")
        if X.shape[0] != Y.shape[0]:
            raise ValueError(f"expected as many rows in Y as in X, {X.shape[0]}, got {Y.shape[0]}")
        if X.shape[0] == 0:
            raise ValueError("expected at least one row, got none")
        linops.check_features(X)
        self.weight = None  # s [n]; None for ones
        if sample_weight is not None:
            weight = check_sample_weight(sample_weight, X.shape[0])
            kept = np.flatnonzero(weight)
            if len(kept) < len(weight):
                X, Y = X[kept], Y[kept]
            self.weight = weight[kept]
        if label_weights is not None and len(label_weights.positive) != Y.shape[1]:
            raise ValueError(f"expected weights of {Y.shape[1]} labels, got {len(label_weights.positive)}")
        self._label_weights = label_weights
        self._options = options
        self._sink, self._observe = sink, observe
        backend = options.backend
        if backend == "auto" and linops.native_ready():
            backend = "native"
        elif backend == "auto" and sp.issparse(X) and linops.gpu_ready():
            backend = "gpu"
        if backend == "native" and sp.issparse(X):
            order = _by_length(X)
            X, Y = X[order], Y[order]
            self.weight = None if self.weight is None else self.weight[order]
        self.Y = label_columns(Y)
        options.init.check(X.shape[1], Y.shape[1], options.bias != "none")
        self._op = linops.make(X, backend=backend)
        if (
            backend == "native"
            and sp.issparse(X)
            and isinstance(self._op, linops.Csr)
            and X.dtype == self._op.dtype
        ):
            X = self._op.to_scipy()  # the sorted copy goes
        self._X: Any = X
        #: X on each device
        self._places = placed(self._op)
        self.workers = worker_count(self._places, options.threads)
        self._size = options.block_size or lanes_that_fit(self._op, self._places[0].device)
        self._dtype = np.dtype(self._op.dtype)
        has_bias = options.bias != "none"
        self._rule = StoppingRule(X, self.weight, options.loss, options.C, options.eps, has_bias)
        # C s
        self._row_weight = options.C * (np.ones(1) if self.weight is None else self.weight)
        check_range("expected C times the sample weights", self._row_weight, self._dtype)
        l2_bias = max(options.hparams().l2_bias, 0)
        objective = Objective(X.shape[0], options.loss, options.penalty, self._row_weight, l2_bias)
        sparsify = options.sparsify if options.max_iter > 0 else None
        self._sparsifier = None if sparsify is None else Sparsifier(X, objective, sparsify)
        # starting weights that were asked for stay as they are
        clip = options.clip if options.max_iter > 0 and sparsify is None else 0
        self._clipping = make_clipping(X, self._row_weight, options.loss, clip)
        self._closer_look = CloserLook(X, objective)
        self._objective = objective
        self._certifier = None
        if isinstance(options.penalty, L2):
            # whole numbers and bools are those of the operator: NumPy has no rounding of theirs
            real = X if X.dtype.kind == "f" else X.astype(self._dtype)
            self._certifier = Certifier(real, options.loss, self._row_weight, options.hparams().l2_bias)
        # Device results are awaited a step later, but for the starts that a tree waits for.
        self._overlaps = not (isinstance(self._op, linops.Csr) and self._op.native) and not options.init.tree
        self._whole = self._sparsifier is not None or options.init.tree  # weights are needed as they are
        self._lock = threading.Lock()
        self._compiling = [threading.Lock() for _ in self._places]
        self._compiled = [False for _ in self._places]
        self._stop = StopFlag()
        self._summary = Summary()
        self._wanted: set[int] | None = None

    def run(self, queue: Queue, wanted: set[int] | None = None) -> Summary:
        """Trains what the queue gives; hands out labels that are wanted, or all."""
        begin = time.perf_counter()
        self._wanted = wanted
        training = TrainingSet(
            self._X,
            self.Y,
            self._rule.total / self._rule.n,
            self._options.loss,
            self._options.bias != "none",
            self._solve_one,
            self.weight,
        )
        self._starts = self._options.init.prepare(training)
        if self._options.max_iter == 0:
            self._emit_starts(queue)
        elif self.workers == 1:
            self._work(queue, 0)
        else:
            with ThreadPoolExecutor(self.workers, "xmcjax") as pool:
                # settings made with JAX's context managers hold in their own thread only
                x64, device = jax.config.jax_enable_x64, jax.config.jax_default_device  # type: ignore

                def work(place: int):
                    there = jax.default_device(self._places[place].device or device)
                    with jax.enable_x64(x64), there, self._stop.heeded():
                        self._work(queue, place)

                workers = [pool.submit(work, k % len(self._places)) for k in range(self.workers)]
                try:
                    for worker in workers:
                        worker.result()
                except BaseException:
                    self._stop.set()  # Ctrl-C arrives in this thread: the workers do not see it
                    raise
        self._summary.seconds = time.perf_counter() - begin
        return self._summary

    def _work(self, queue: Queue, place: int) -> None:
        try:
            clipping = None if self._whole else self._clipping
            doubts = None if self._certifier is None else self._certifier.doubts
            lanes = self._lanes(self._options.hparams(), place, clipping, doubts)
            jobs: collections.deque[Job] = collections.deque()
            together = False
            waiting: Callable[[], list[Solved]] = list  # of the step before
            while not self._stop.is_set():
                idle = lanes.idle
                if not together or idle == self._size:
                    if len(jobs) < idle:
                        jobs.extend(self._jobs(self._taken(queue, idle)))
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
                        jobs.extend(self._jobs(self._taken(queue, len(solved) - len(jobs))))
                    waiting, record = lanes.finish()
                fresh = record.newton_steps == 0
                if fresh.any():
                    together = record.active[fresh].mean() > CROWDED * self._op.shape[0]
                if not self._overlaps:
                    self._end(queue, waiting())
                    waiting = list
                with self._lock:
                    self._summary.active += int(record.active.sum())
                    self._summary.steps += len(record.active)
                    if self._observe is not None:
                        self._hand_out(self._observe, record)
        except Interrupted:  # the reason is raised by whoever set the flag
            return
        except BaseException:
            self._stop.set()
            raise

    def _end(self, queue: Queue, solved: list[Solved]) -> None:
        """Hands out what has been solved."""
        for end in solved:
            if end.doubtful:
                end = self._certified(end)
            if self._options.init.tree:
                queue.done(end.job.label, end.w, end.bias)
            if self._wanted is None or end.job.label in self._wanted:
                self._emit(self._dropped(end))

    def _certified(self, end: Solved) -> Solved:
        """With the status that is certain in float64, and weights that are better where rounding ended it."""
        assert self._certifier is not None
        job = end.job
        y, c = self._objective.targets(job.positives, job.positive_weight, job.negative_weight, np.float64)
        found = self._certifier.certified(end.w, end.bias, y, c)
        status = Status(end.status)
        if status == Status.CONVERGED and found.gap > GAP:
            status = Status.STALLED
        elif found.gap <= GAP and found.gradient_norm <= job.tolerance:
            status = Status.CONVERGED
        kept = np.flatnonzero(found.w)
        return end._replace(
            weights=Weights(kept, found.w[kept]),
            bias=found.bias,
            status=int(status),
            value=found.value,
            gradient_norm=found.gradient_norm,
        )

    def _lanes(
        self, hp: newton_cg.HParams, place: int = 0, clipping: Clipping | None = None, doubts=None
    ) -> Lanes:
        options = self._options
        more = dict(by_label=self._label_weights is not None, penalty=options.penalty)
        op = self._places[place].op
        return Lanes(op, options.loss, self._row_weight, hp, self._size, clipping, doubts, **more)

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
            with self._lock:
                first = time.perf_counter() - begin
                self._summary.first_step_seconds = self._summary.first_step_seconds or first

    def _solve_one(self, positives: np.ndarray, loose: bool) -> tuple[np.ndarray, float]:
        """The optimum of one problem from zero, for initialisations."""
        # A start is solved however few steps the labels are given.
        hp = self._options.hparams()
        lanes = self._lanes(hp._replace(max_steps=max(hp.max_steps, newton_cg.HParams().max_steps)))
        zero = np.zeros(0, np.int64)
        counts = self._rule.counts([positives])
        tolerance = float(self._rule.gradient_norms_at_zero(counts, self._rule.sums([positives]))[0])
        tolerance *= self._options.eps if loose else float(self._rule.factors(counts)[0])
        lanes.start([Job(-1, positives, tolerance, None, 0.0, zero, np.zeros(0), 0.0)])
        while True:
            with self._first_step(0):
                lanes.begin()
                waiting, _ = lanes.finish()
            for end in waiting():
                return end.w, end.bias

    def _labels(self, ids: list[int]) -> Labels:
        indptr, indices = self.Y.indptr, self.Y.indices
        positives = [indices[indptr[label] : indptr[label + 1]] for label in ids]
        rule = self._rule
        return Labels(np.array(ids, np.int64), positives, rule.counts(positives), rule.sums(positives))

    def _weights_of(self, ids) -> tuple[np.ndarray, np.ndarray]:
        """Weights of the rows with and without each of these labels."""
        if self._label_weights is None:
            return np.ones(len(ids)), np.ones(len(ids))
        return self._label_weights.positive[ids], self._label_weights.negative[ids]

    def _taken(self, queue: Queue, idle: int):
        """Labels to be solved, with their starts; those without positives are handed out at once."""
        taken = queue.take(idle)
        counts = np.diff(self.Y.indptr)
        for label, _ in taken:
            if counts[label] == 0:
                self._emit(self._result(label, NO_WEIGHTS, 0.0, Status.NO_POSITIVES))
                queue.done(label, np.zeros(0), 0.0)
        return [(label, parent) for label, parent in taken if counts[label] > 0]

    def _jobs(self, taken) -> list[Job]:
        if not taken:
            return []
        labels = self._labels([label for label, _ in taken])
        starts = self._starts(labels)
        positive, negative = self._weights_of(labels.ids)
        tolerance = self._rule.gradient_norms_at_zero(labels.counts, labels.sums, positive, negative)
        tolerance *= self._rule.factors(labels.counts)
        jobs = []
        for k, (label, parent) in enumerate(taken):
            first, last = starts.sparse.indptr[k : k + 2]
            job = Job(
                label,
                labels.positives[k],
                float(tolerance[k]),
                starts.base,
                float(starts.scale[k]),
                starts.sparse.indices[first:last],
                starts.sparse.data[first:last],
                float(starts.bias[k]),
                float(positive[k]),
                float(negative[k]),
            )
            if parent is not None:
                empty = np.zeros(0, np.int64)
                job = dataclasses.replace(
                    job, base=parent[0], scale=1.0, indices=empty, values=np.zeros(0), bias=parent[1]
                )
            jobs.append(job)
        return jobs

    def _emit_starts(self, queue: Queue) -> None:
        while not queue.finished:
            taken = self._taken(queue, self._size)
            if not taken:
                continue
            W, b = self._starts(self._labels([label for label, _ in taken])).dense()
            for k, (label, _) in enumerate(taken):
                w = W[:, k]
                kept = np.flatnonzero(w)
                self._emit(self._result(label, Weights(kept, w[kept]), float(b[k]), Status.MAX_STEPS))

    def _dropped(self, end: Solved) -> LabelResult:
        """What is handed out: without the weights that are dropped after training."""
        weights, job = end.weights, end.job
        by_label = job.positive_weight, job.negative_weight
        rise = 0.0
        if end.status != Status.NONFINITE:
            if self._sparsifier is not None:
                w = end.w
                kept = self._sparsifier.kept(w, end.bias, end.value, job.positives, *by_label)
                weights = Weights(kept, w[kept])
            elif self._whole or end.doubtful:
                weights = self._clipping.weights(end.w, end.value, end.active * max(by_label))
            if weights.expected_rise > EXPECTED and not self._clipping.adapts:
                rise = self._closer_look.rise(weights, end.bias, end.value, job.positives, *by_label)
        return self._result(
            job.label,
            weights,
            end.bias,
            end.status,
            newton_steps=end.newton_steps,
            cg_steps=end.cg_steps,
            value=end.value,
            gradient_norm=end.gradient_norm,
            rise=rise,
        )

    def _result(self, label, weights: Weights, bias, status, **numbers) -> LabelResult:
        if status == Status.NONFINITE:
            weights, bias = NO_WEIGHTS, 0.0  # there is no weight worth keeping
        nothing: dict[str, Any] = dict(newton_steps=0, cg_steps=0, value=np.nan, gradient_norm=np.nan)
        values = weights.values.astype(self._dtype)
        return LabelResult(label, weights.indices, values, float(bias), int(status), **(nothing | numbers))

    def _emit(self, result: LabelResult) -> None:
        with self._lock:
            self._summary.add(result)
            self._hand_out(self._sink, result)

    def _hand_out(self, receive: Callable, result) -> None:
        """Calls a function of the caller, holding the lock; never again after a call that failed."""
        if self._stop.is_set():
            return
        try:
            receive(result)
        except BaseException:
            self._stop.set()
            raise
