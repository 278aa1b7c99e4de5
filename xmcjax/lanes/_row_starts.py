"""Starts of labels where rows are few and features many: the minima in the span of the rows.

Labels are solved there in float64, about d/n times as fast. Lanes start from these solutions, so that the
result and the status of a label refer to X itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from xmcjax._row_span import EASY, RowSpan, is_wide
from xmcjax.inits import Labels, Starts
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._precision import precision
from xmcjax.lanes._queue import make_queue
from xmcjax.lanes._results import LabelResult
from xmcjax.lanes._training_data import TrainingData
from xmcjax.native import StopFlag

if TYPE_CHECKING:
    from xmcjax.lanes._trainer import Trainer

# Factor of the tolerance of training: so near to the minimum, the first lower bound shows that a start is
# near enough.
_TIGHT = 1e-2


def serves(data: TrainingData) -> bool:
    """Whether features are dense, and rows are few (``is_wide``)."""
    return not sp.issparse(data.X) and is_wide(data.X.shape)


def pays(mean: float) -> bool:
    """Whether many Newton steps are to be expected of a mean of κ C s ‖x‖²."""
    return EASY < mean < np.inf


class RowStarts:
    """Starting weights of labels, as an initialisation gives them.

    Args:
        data: for which :func:`serves` and :func:`pays` are true.
        options: how labels are trained.
        make: makes a trainer of features, of the labels and weights of `data`, and of options.
    """

    def __init__(
        self, data: TrainingData, options: OneVsAll, make: Callable[[np.ndarray, OneVsAll], Trainer]
    ):
        self._span = RowSpan(data.X.astype(np.float64))
        assert options.init.replaceable is not None
        exact = dataclasses.replace(
            options,
            init=options.init.replaceable,
            clip=0.0,
            sparsify_rise=None,
            tol=_TIGHT * options.tol,
            n_jobs=1,
            block_size=None,
        )
        with precision(np.float64):
            self._trainer = make(self._span.features, exact)

    def __call__(self, labels: Labels) -> Starts:
        found: dict[int, LabelResult] = {}
        with precision(np.float64):
            trainer = self._trainer.again(lambda result: found.update({result.label: result}), StopFlag())
            trainer.run(make_queue(trainer.Y, labels.ids, tree=False, weight=trainer.weight))
        results = [found[label] for label in labels.ids.tolist()]
        W = np.array([self._weights(result) for result in results])
        k, d = W.shape
        places = np.tile(np.arange(d), k), np.arange(0, k * d + 1, d)
        bias = np.array([result.bias for result in results])
        return Starts(None, np.zeros(k), sp.csr_array((W.ravel(), *places), shape=(k, d)), bias)

    def _weights(self, result: LabelResult) -> np.ndarray:
        """The weights of one label for X: the sums of a product for several may depend on their number."""
        v = np.zeros(self._span.features.shape[1])
        v[result.indices] = result.values
        return self._span.weights(v)
