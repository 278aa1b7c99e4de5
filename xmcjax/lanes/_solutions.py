"""From what a lane ended with to the result of its label: certified, without weights that do not matter."""

from __future__ import annotations

import numpy as np

from xmcjax.lanes._certificate import GAP
from xmcjax.lanes._certifier import Certifier, PenalisedCertifier
from xmcjax.lanes._clipping import EXPECTED, Clipping, CloserLook
from xmcjax.lanes._dropping import dropping, objective_of
from xmcjax.lanes._job import Weights
from xmcjax.lanes._lanes import Solved
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._results import LabelResult, made
from xmcjax.lanes._training_data import TrainingData
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers import Status, newton_cg


class Solutions:
    """What becomes of the weights of lanes that have ended.

    Args:
        data: on which they are trained.
        options: how.

    Attributes:
        clipping: the rule by which lanes leave out weights when they are read; None where all of them are
            needed here.
        certifier: of optima in float64; None where the penalty has no conjugate.
    """

    def __init__(self, data: TrainingData, options: OneVsAll):
        X, self._dtype = data.X, data.dtype
        l2_bias = options.hparams().l2_bias
        self._objective = objective_of(data, options)
        self._sparsifier, self._clipping = dropping(data, options, self._objective)
        self._closer_look = CloserLook(X, self._objective)
        self._whole = self._sparsifier is not None or options.init.tree  # weights are needed as they are
        self.clipping: Clipping | None = None if self._whole else self._clipping
        self.certifier: Certifier | PenalisedCertifier | None = None
        # whole numbers and bools, for which NumPy knows no rounding, are converted as for the operator
        real = X if X.dtype.kind == "f" else X.astype(self._dtype)
        retries = options.max_iter >= newton_cg.HParams().max_steps
        problem = real, options.loss, data.row_weight, l2_bias, options.penalty, retries
        if isinstance(options.penalty, L2):
            self.certifier = Certifier(*problem)
        elif type(options.penalty).conjugate is not Penalty.conjugate:
            self.certifier = PenalisedCertifier(*problem)

    def certified(self, end: Solved) -> Solved:
        """The end with the status that is certain in float64, and better weights where rounding misled it."""
        if not end.doubtful:
            return end
        assert self.certifier is not None
        if self.certifier.believes(end.w, end.status, end.active):
            return end
        job = end.job
        y, c = self._objective.targets(job.positives, job.positive_weight, job.negative_weight, np.float64)
        status, under_way = Status(end.status), end.status == Status.RUNNING
        # a lane that has converged is within its tolerance by its own gradient
        tolerance = np.inf if status == Status.CONVERGED else job.tolerance
        found = self.certifier.certified(end.w, end.bias, y, c, tolerance, under_way=under_way)
        if found.gap <= GAP and found.ended:
            status = Status.CONVERGED
        elif (status == Status.CONVERGED or under_way) and not found.gap <= GAP:
            status = Status.STALLED
        elif under_way:
            status = Status.LINE_SEARCH_FAILED
        kept = np.flatnonzero(found.w)
        return end._replace(
            weights=Weights(kept, found.w[kept]),
            bias=found.bias,
            status=int(status),
            value=found.value,
            gradient_norm=found.gradient_norm,
        )

    def result(self, end: Solved) -> LabelResult:
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
                weights = self._clipped(end)
            if weights.expected_rise > EXPECTED and not self._clipping.adapts:
                rise = self._closer_look.rise(weights, end.bias, end.value, job.positives, *by_label)
        return made(
            job.label,
            weights,
            end.bias,
            end.status,
            self._dtype,
            newton_steps=end.newton_steps,
            cg_steps=end.cg_steps,
            value=end.value,
            gradient_norm=end.gradient_norm,
            rise=rise,
        )

    def _clipped(self, end: Solved) -> Weights:
        """The weights that are kept of a label that was read out whole."""
        w, job = end.w, end.job
        by_label = job.positive_weight, job.negative_weight

        def risen(dropped: np.ndarray, _: float) -> float:
            kept = w - dropped  # those that are not dropped, to the bit
            return self._closer_look.value(kept, end.bias, job.positives, *by_label) - end.value

        return self._clipping.weights(w, end.value, float(end.active), job.heaviest, risen)

    def of_start(self, label: int, w: np.ndarray, bias: float) -> LabelResult:
        """A label that keeps its starting weights, because no step is to be made."""
        kept = np.flatnonzero(w)
        return made(label, Weights(kept, w[kept]), bias, Status.MAX_STEPS, self._dtype)
