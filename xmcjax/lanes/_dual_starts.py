"""Starts of labels with the squared hinge where rows are few and their features long: ascent of the dual.

Where C ‖x‖² is large compared with the curvature 1 of the penalty, Newton's method makes tens of steps, as
rows enter and leave the loss. With more features than rows, the rows have little in common, and some passes
of coordinate ascent over the dual of :mod:`xmcjax.lanes._dual_end` come near to the minimum. Lanes start from
there, so that the result and the status of a label are those of its lane.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax import native
from xmcjax.inits import Labels, Starts
from xmcjax.lanes._dual_end import DualEnd, bias_feature, with_bias
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._training_data import TrainingData

# Pairs of the fewest features per row and the least mean of κ C s ‖x‖² with which these starts pay.
_PAYS = ((4.0, 15.0), (1.0, 100.0))
# Ascent ends at a relative gap of _GAP over the mean of κ C s ‖x‖², where the gradient is small as well, or
# after _PASSES over the rows, _PASSES_FREE with a free bias.
_GAP, _PASSES, _PASSES_FREE = 3e-4, 50.0, 100.0


def serves(data: TrainingData, options: OneVsAll) -> bool:
    """Whether labels have such a dual, and there are at least as many features as rows."""
    n, d = data.X.shape
    return d >= n and DualEnd.serves(options.loss)


def pays(shape: tuple[int, int], mean: float) -> bool:
    """Whether many Newton steps are to be expected of a mean of κ C s ‖x‖² and features [n, d]."""
    n, d = shape
    return mean < np.inf and any(d >= part * n and mean > least for part, least in _PAYS)


class DualStarts:
    """Starting weights of labels, as an initialisation gives them.

    Args:
        data: for which :func:`serves` and :func:`pays` are true.
        options: how labels are trained.
        mean: of κ C s ‖x‖².
    """

    def __init__(self, data: TrainingData, options: OneVsAll, mean: float):
        self._data, r = data, options.hparams().l2_bias
        self._free, self._bias = r == 0, bias_feature(data.X, r)
        self._tolerance = _GAP / mean
        self._X, self._dense = with_bias(data.X, self._bias, data.dtype), not sp.issparse(data.X)

    def __call__(self, labels: Labels) -> Starts:
        weights, k = self._data.label_weights, len(labels.ids)
        ends = np.cumsum([0, *map(len, labels.positives)])
        rows = np.concatenate(labels.positives)
        of_labels = sp.csc_array((np.ones(len(rows), np.int8), rows, ends), shape=(self._X.shape[0], k))
        ascent = native.SeparateAscent(
            self._X,
            of_labels,
            "ovr_squared",
            self._data.row_weight,
            positive=None if weights is None else weights.positive[labels.ids],
            negative=None if weights is None else weights.negative[labels.ids],
            numbers=np.zeros(k, np.int64),  # the order of the rows is the same for all
            of=1,
            dense=self._dense,
            free=self._free,
        )
        ascent.advance(self._tolerance, _PASSES_FREE if self._free else _PASSES)
        W = ascent.weights
        bias = np.zeros(k)
        if self._bias > 0:
            W, bias = W[:-1], W[-1].astype(np.float64) * self._bias
        return Starts(None, np.zeros(k), sp.csr_array(np.ascontiguousarray(W.T)), bias)
