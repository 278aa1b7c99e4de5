"""What training gives back: a result for each label, and totals of the run."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from xmcjax._used_columns import UsedColumns
from xmcjax.lanes._clipping import NOTHING_RAISED, Raised
from xmcjax.lanes._job import Weights
from xmcjax.lanes._lanes import StepRecord
from xmcjax.native import StopFlag
from xmcjax.solvers import Status


class LabelResult(NamedTuple):
    """A trained label, clipped.

    Example:
        >>> import scipy.sparse as sp
        >>> from xmcjax.lanes import OneVsAll, train_one_vs_all
        >>> found = []
        >>> summary = train_one_vs_all(np.eye(4), sp.csr_matrix(np.eye(4)), OneVsAll(), found.append)
        >>> isinstance(found[0], LabelResult), found[0].status
        (True, 1)
    """

    label: int
    indices: np.ndarray  #: features with a weight, ascending
    values: np.ndarray
    bias: float
    status: int
    newton_steps: int  #: with the hinge, passes of coordinate ascent over the rows
    cg_steps: int
    value: float  #: f before clipping; NaN where nothing was solved
    gradient_norm: float  #: with the hinge √2(P − D); half its square bounds P − min P
    rise: float = 0.0  #: of f by a clip that was given, relative to f; NaN if not worked out


_NO_WEIGHTS = Weights(np.zeros(0, np.int64), np.zeros(0))


def made(label: int, weights: Weights, bias: float, status: int, dtype, **numbers: Any) -> LabelResult:
    """A result with its weights in the dtype of training; without weights where numbers overflowed.

    Args:
        label, bias, status: of the result.
        weights: that are kept.
        dtype: of training.
        numbers: the other fields, where something was solved.
    """
    if status == Status.NONFINITE:
        weights, bias = _NO_WEIGHTS, 0.0  # there is no weight worth keeping
    nothing: dict[str, Any] = dict(newton_steps=0, cg_steps=0, value=np.nan, gradient_norm=np.nan)
    values = weights.values.astype(dtype)
    return LabelResult(label, weights.indices, values, float(bias), int(status), **(nothing | numbers))


def without_positives(label: int, dtype) -> LabelResult:
    """The result of a label that no row has."""
    return made(label, _NO_WEIGHTS, 0.0, Status.NO_POSITIVES, dtype)


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

    Example:
        >>> from xmcjax.solvers import Status
        >>> Summary(statuses={Status.CONVERGED: 4}, newton_steps=16).newton_steps
        16
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


class Output:
    """Counts results and steps of all threads, and hands them to the functions of the caller.

    Args:
        sink: called with each result, one call at a time.
        observe: called with the numbers of every step, or None.
        stop: set when `sink` or `observe` fails; neither is called after that.
        columns: those that training works on; its results name features by their places among them.
    """

    def __init__(
        self,
        sink: Callable[[LabelResult], None],
        observe: Callable[[StepRecord], None] | None,
        stop: StopFlag,
        columns: UsedColumns,
    ):
        self._sink, self._observe, self._stop, self._columns = sink, observe, stop, columns
        self._lock = threading.Lock()
        self.summary = Summary()

    def result(self, result: LabelResult) -> None:
        """Counts and hands out the result of a label."""
        if self._columns.numbers is not None:
            result = result._replace(indices=self._columns.numbers[result.indices])
        with self._lock:
            self.summary.add(result)
            self._hand_out(self._sink, result)

    def step(self, record: StepRecord) -> None:
        """Counts a step of a thread's lanes, and hands out its numbers."""
        with self._lock:
            self.summary.active += int(record.active.sum())
            self.summary.steps += len(record.active)
            if self._observe is not None:
                self._hand_out(self._observe, record)

    def first_step(self, seconds: float) -> None:
        """Takes the seconds of a step that compiled; the first such step counts."""
        with self._lock:
            self.summary.first_step_seconds = self.summary.first_step_seconds or seconds

    def _hand_out(self, receive: Callable, result) -> None:
        """Calls a function of the caller, holding the lock; never again after a call that failed."""
        if self._stop.is_set():
            return
        try:
            receive(result)
        except BaseException:
            self._stop.set()
            raise
