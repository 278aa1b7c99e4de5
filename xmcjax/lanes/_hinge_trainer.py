"""Training with the hinge, which has no curvature for Newton's method: by its dual, some labels at a time."""

from __future__ import annotations

import math
import time

import numpy as np
import scipy.sparse as sp

from xmcjax.lanes._certificate import GAP
from xmcjax.lanes._clipping import EXPECTED, Clipping
from xmcjax.lanes._devices import Place
from xmcjax.lanes._dropping import dropping, objective_of
from xmcjax.lanes._job import Weights
from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._queue import Queue
from xmcjax.lanes._results import LabelResult, made
from xmcjax.lanes._trainer import Trainer
from xmcjax.solvers import Status
from xmcjax.solvers.multiclass_dual import LabelHinges, Labels, LabelSolution

# _TOGETHER: most labels of a block; they share the passes that look at all rows, and the optimum without
# labels, from which they start. _BYTES: most bytes of their weights, or dual variables, in float64.
_TOGETHER, _BYTES = 64, 256 << 20
# Passes over the rows that stand for one of `max_iter`.
_PASSES = 10


class HingeTrainer(Trainer):
    """Trains labels with the hinge and the penalty ½‖w‖², by native kernels on the host in any case."""

    def __init__(
        self, X, Y, sample_weight, label_weights: LabelWeights | None, options: OneVsAll, sink, observe
    ):
        if observe is not None:
            raise ValueError(
                f"observe: expected None with the loss {options.loss.name}, which has no Newton steps"
            )
        super().__init__(X, Y, sample_weight, label_weights, options, sink, observe)
        data = self._data
        self.places, self.workers = [Place(None, data.op)], options.threads
        self._size = options.block_size or labels_together(*data.X.shape)
        # the relative gap, worked out in float64, is at most GAP where a label has converged
        tol, passes = min(options.tol, GAP), float(_PASSES * options.max_iter)
        bias, labels = options.fit_intercept, data.Y.shape[1]
        self._hinges = LabelHinges(data.X, data.dtype, data.row_weight, bias, labels, tol, passes)
        self._sparsifier, self._clipping = dropping(data, options, objective_of(data, options))

    def _solve(self, queue: Queue, place: int) -> None:
        while not self._stop.is_set() and not queue.finished:
            taken = self._taken(queue, self._size)
            if not taken:
                time.sleep(1e-3)  # others may come
            else:
                for result in self._results(np.array([label for label, _ in taken], np.int64)):
                    if self._wanted is None or result.label in self._wanted:
                        self._output.result(result)

    def _results(self, numbers: np.ndarray) -> list[LabelResult]:
        """The results of these labels."""
        positive, negative = self._data.weights_of(numbers)
        labels = Labels(numbers, sp.csc_array(self._data.Y[:, numbers]), positive, negative)
        found, bias = self._hinges.solved(labels), self._options.fit_intercept
        kept, rise = self._clipped(labels, found)
        results = []
        for k, label in enumerate(numbers.tolist()):
            status, value = int(found.status[k]), float(found.value[k])
            b = float(found.W[-1, k]) if bias else 0.0
            weights_of = kept[k]
            if self._sparsifier is not None and status != Status.NONFINITE:
                w = found.W[:-1, k] if bias else found.W[:, k]
                first, last = labels.rows.indptr[k : k + 2]
                by_label = float(positive[k]), float(negative[k])
                chosen = self._sparsifier.kept(w, b, value, labels.rows.indices[first:last], *by_label)
                weights_of = Weights(chosen, w[chosen])
            numbers_of = dict(newton_steps=math.ceil(found.passes[k]), value=value, rise=float(rise[k]))
            # the norm whose ½ ‖∇P‖² is the gap: both bound P − min P
            norm = math.sqrt(2 * found.gap[k]) if found.gap[k] >= 0 else math.nan
            results.append(
                made(label, weights_of, b, status, self._data.dtype, gradient_norm=norm, **numbers_of)
            )
        return results

    def _clipped(self, labels: Labels, found: LabelSolution) -> tuple[list[Weights], np.ndarray]:
        """The weights that are kept, without the bias, and the rise of P, relative to P, without the others.

        Where the rule adapts, t is halved until P, evaluated anew, rises by ``EXPECTED`` at most.
        """
        rule, W = self._clipping, found.W
        features = len(W) - self._options.fit_intercept
        most, kept, rise = _largest(rule, W[:features]), W.copy(), np.zeros(W.shape[1])
        left = np.flatnonzero((most > 0) & (found.status != Status.NONFINITE))
        for scale in rule.scales():
            some = W[:, left]
            small = np.abs(some) < (scale * most[left]).astype(W.dtype)
            small[features:] = False
            kept[:, left] = np.where(small, 0, some)
            rise[left] = 0.0
            dropped = left[small.any(axis=0) & np.any(small & (some != 0), axis=0)]
            if dropped.size:
                values = self._hinges.values(labels.some(dropped), kept[:, dropped])
                rise[dropped] = (values - found.value[dropped]) / found.value[dropped]
            left = left[~(rise[left] <= EXPECTED)]
            if not (rule.adapts and left.size):
                break
        places = [np.flatnonzero(column) for column in kept[:features].T]
        return [Weights(index, kept[index, k]) for k, index in enumerate(places)], rise


def labels_together(n: int, d: int) -> int:
    """The default number of labels of a block."""
    return max(1, min(_TOGETHER, _BYTES // (12 * max(n, d + 1))))  # dual variables with their places


def _largest(rule: Clipping, W: np.ndarray) -> np.ndarray:
    """The largest t of each label."""
    if not rule.adapts:
        return np.full(W.shape[1], rule.most)
    norms = np.sqrt(np.einsum("jk,jk->k", W, W, dtype=np.float64))
    return np.minimum(rule.most, rule.part * norms)
