"""The binary problem of a label, as a job for a lane: its rows, its tolerance, its starting weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import instance
from xmcjax.inits import INITS, Init, Labels, Starts, TrainingSet
from xmcjax.lanes import _dual_starts, _row_starts
from xmcjax.lanes._certifier import mean_curvature
from xmcjax.lanes._job import Job
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._queue import Parent
from xmcjax.lanes._stopping import StoppingRule
from xmcjax.lanes._training_data import TrainingData
from xmcjax.penalties import L2
from xmcjax.solvers import newton_cg

_NO_FEATURES = np.zeros(0, np.int64)


class Problems:
    """The problems of all labels.

    Args:
        data: on which they are made.
        options: how they are trained.
        threads: for what is worked out of many labels together.
    """

    def __init__(self, data: TrainingData, options: OneVsAll, threads: int = 1):
        self._data, self._options = data, options
        has_bias = options.fit_intercept
        self._rule = StoppingRule(
            data.X, data.weight, options.loss, options.C, options.tol, has_bias, threads
        )
        self._starts: Callable[[Labels], Starts] | None = None

    def prepare_starts(
        self,
        solve: Callable[[np.ndarray, bool], tuple[np.ndarray, float]],
        among_rows: Callable[[], Callable[[Labels], Starts]],
    ) -> None:
        """Prepares the starting weights, unless this was done before.

        Args:
            solve: gives (w, b) at the optimum for positive rows; its second argument says whether loosely.
            among_rows: makes starts in the span of the rows, called where these serve.
        """
        if self._starts is not None:
            return
        data, options = self._data, self._options
        wide, has_dual = _row_starts.serves(data), _dual_starts.serves(data, options)
        if self._may_start_elsewhere() and (wide or has_dual):
            curvature = mean_curvature(data.X, options.loss, data.row_weight)
            if wide and _row_starts.pays(curvature):
                self._starts = among_rows()
                return
            if has_dual and _dual_starts.pays(data.X.shape, curvature):
                self._starts = _dual_starts.DualStarts(data, options, curvature)
                return
        mean, has_bias = self._rule.total / self._rule.n, options.fit_intercept
        self._starts = options.init.prepare(
            TrainingSet(data.X, data.Y, mean, options.loss, has_bias, solve, data.weight, data.columns)
        )
        if not callable(self._starts):
            raise TypeError(
                f"init {options.init.name}: expected a function of labels from prepare, got {self._starts!r}"
            )

    def _may_start_elsewhere(self) -> bool:
        """Whether nobody asked for other starts or fewer steps, and labels are solved on the host."""
        options = self._options
        usual = options.init.replaceable is not None and options.max_iter >= newton_cg.HParams().max_steps
        return usual and self._data.native and isinstance(options.penalty, L2)

    def starts(self, ids: list[int]) -> Starts:
        """Starting weights of labels."""
        return self._starts_of(self._labels(ids))

    def from_zero(self, positives: np.ndarray, loose: bool) -> Job:
        """The problem with these positive rows, which starts from zero.

        Args:
            positives: rows with target +1.
            loose: whether ε₀ ‖∇f(0)‖ is small enough, however few the positives are.
        """
        counts = self._rule.counts([positives])
        tolerance = float(self._rule.gradient_norms_at_zero(counts, self._rule.sums([positives]))[0])
        tolerance *= self._options.tol if loose else float(self._rule.factors(counts)[0])
        return Job(-1, positives, tolerance, None, 0.0, _NO_FEATURES, np.zeros(0), 0.0)

    def nearest_bias(self, positives: np.ndarray, bias: float) -> float:
        """The bias of a solution.

        Without positives the best free bias is −∞: then it is the nearest to 0 with negligible losses.
        """
        if len(positives) or self._options.hparams().l2_bias != 0:
            return bias
        return max(bias, -self._rule.enough_margin())

    def jobs(self, taken: Sequence[tuple[int, Parent | None]]) -> list[Job]:
        """Problems of labels that a queue gave; one with a parent starts from the parent's solution."""
        if not taken:
            return []
        labels = self._labels([label for label, _ in taken])
        starts = self._starts_of(labels)
        positive, negative = self._data.weights_of(labels.ids)
        tolerance = self._rule.gradient_norms_at_zero(labels.counts, labels.sums, positive, negative)
        tolerance *= self._rule.factors(labels.counts)
        of_positives, of_negatives = self._rule.totals(labels.counts, positive, negative)
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
                float(of_positives[k]),
                float(of_negatives[k]),
            )
            if parent is not None:
                w, bias = parent
                job = dataclasses.replace(
                    job, base=w, scale=1.0, indices=_NO_FEATURES, values=np.zeros(0), bias=bias
                )
            jobs.append(job)
        return jobs

    def _starts_of(self, labels: Labels) -> Starts:
        assert self._starts is not None, "prepare_starts comes first"
        starts, columns = self._starts(labels), self._data.columns
        if type(self._options.init) not in INITS.values():
            starts = _of_own(self._options.init, starts, len(labels.ids), {columns.width, columns.count})
        return starts.over(columns)

    def _labels(self, ids: list[int]) -> Labels:
        indptr, indices = self._data.Y.indptr, self._data.Y.indices
        positives = [indices[indptr[label] : indptr[label + 1]] for label in ids]
        rule = self._rule
        return Labels(np.array(ids, np.int64), positives, rule.counts(positives), rule.sums(positives))


def _of_own(init: Init, starts: Starts, k: int, widths: set[int]) -> Starts:
    """Checks the starts of a user's own init for k labels; `widths` are possible numbers of features."""
    name = f"init {init.name}"
    instance(name, starts, Starts)
    sparse = _sparse.csr(starts.sparse, f"{name}: sparse")
    d = sparse.shape[1]
    if sparse.shape[0] != k or d not in widths:
        features = " or ".join(map(str, sorted(widths)))
        raise ValueError(f"{name}: expected sparse of shape [{k}, {features}], got {list(sparse.shape)}")
    arrays = {"scale": (starts.scale, (k,)), "bias": (starts.bias, (k,))}
    if starts.base is not None:
        arrays["base"] = (starts.base, (d,))
    made = {"sparse": sparse.data}
    for field, (array, shape) in arrays.items():
        made[field] = _sparse.dense(array, f"{name}: {field}")
        if made[field].shape != shape:
            raise ValueError(
                f"{name}: expected {field} of shape {list(shape)}, got {list(made[field].shape)}"
            )
    for field, array in made.items():
        if not np.isfinite(array).all():
            raise ValueError(
                f"{name}: expected {field} of finite numbers, got {array[~np.isfinite(array)][0]}"
            )
    if starts.base is None and made["scale"].any():
        raise ValueError(f"{name}: expected a base where a scale is not 0, got None")
    return Starts(made.get("base"), made["scale"], sparse, made["bias"])
