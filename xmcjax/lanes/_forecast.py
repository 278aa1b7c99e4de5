"""How long a run will take, before it begins."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax.data import make_power_law
from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._memory import Shape
from xmcjax.lanes._one_vs_all import make_trainer
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._precision import precision
from xmcjax.lanes._queue import make_queue
from xmcjax.lanes._results import LabelResult
from xmcjax.lanes._training_data import check_labels
from xmcjax.native import StopFlag

# Labels of the first sample per worker, and how many times larger each next sample is.
_FIRST, _LARGER = 64, 2
# Most entries of the features, and most labels, of a data set that is made whole. Of a larger shape only a
# part is made, with rows, features and labels that are all fewer by the same factor.
_MADE = 1_000_000


class Forecast(NamedTuple):
    """What a sample of the labels says of all of them.

    Example:
        >>> said = Forecast(sample=100, spent=1.5, seconds=90.0, weights=2e6)
        >>> f"{said.seconds / 60} minutes, {said.weights * 8 / 1e6:.0f} MB"
        '1.5 minutes, 16 MB'
    """

    sample: int  #: labels of the largest sample
    spent: float  #: seconds that the samples took
    seconds: float  #: of training all labels
    weights: float  #: that are stored, of all labels


def forecast(
    X,
    Y,
    options: OneVsAll,
    *,
    label_weights: LabelWeights | None = None,
    labels: np.ndarray | None = None,
    patience: float = 4.0,
) -> Forecast:
    """Trains samples of the labels, each twice as large as the one before, and says how long all take.

    A sample takes labels at even distances from the list of labels by their numbers of positives. What a run
    costs beside its labels, and by lanes that idle at its end, is the same in every sample. The forecast is
    therefore the time of the last sample, plus the cost of one more label between the last two samples for
    each label that the last one lacks.

    Args:
        X, Y, options, label_weights: of :func:`train_one_vs_all`.
        labels: of the run; None for all.
        patience: seconds, about, which the samples may take.

    Raises:
        TypeError, ValueError: as :func:`train_one_vs_all`; an init that takes labels in an order of its own.

    Example:
        >>> from xmcjax.data import make_power_law
        >>> from xmcjax.lanes import OneVsAll, forecast
        >>> X, Y = make_power_law(200, 50, 6)
        >>> found = forecast(X, Y, OneVsAll(), patience=0.1)
        >>> 0 < found.sample <= 6, found.seconds >= 0
        (True, True)
    """
    if options.init.tree:
        raise ValueError(f"init {options.init.name} starts labels from one another: a sample says nothing")
    X = _sparse.matrix(X)
    with precision(X.dtype):
        return _of_samples(X, Y, options, label_weights, labels, patience)


def _of_samples(X, Y, options: OneVsAll, label_weights, labels, patience: float) -> Forecast:
    begin = time.perf_counter()
    trainer = make_trainer(X, Y, None, label_weights, options, _forget, None)
    counts = np.diff(trainer.Y.indptr)
    labels = np.arange(len(counts)) if labels is None else check_labels(labels, len(counts))
    ordered = labels[np.argsort(-counts[labels], kind="stable")]
    found: list[tuple[int, float, int]] = []  # labels, seconds, stored weights of each sample
    size = _FIRST * trainer.workers
    while True:
        chosen = _spread(ordered, size)
        stored = 0

        def sink(result: LabelResult) -> None:
            nonlocal stored
            stored += len(result.values)

        stop = StopFlag()
        with stop.heeded():
            queue = make_queue(trainer.Y, chosen, tree=False, threads=trainer.workers)
            seconds = trainer.again(sink, stop).run(queue).seconds
        found.append((len(chosen), seconds, stored))
        spent = time.perf_counter() - begin
        if len(chosen) == len(ordered) or (spent + _LARGER * seconds > patience and len(found) > 1):
            break
        size *= _LARGER
    count, seconds, stored = found[-1]
    if count < len(ordered):
        before = found[-2]
        of_one = max(seconds - before[1], 0.0) / (count - before[0])
        seconds += of_one * (len(ordered) - count)
    return Forecast(count, spent, seconds, stored * len(ordered) / max(count, 1))


def forecast_of_shape(shape: Shape, options: OneVsAll, dtype: str) -> tuple[np.ndarray, Forecast]:
    """The numbers of positives of labels that are made for a shape, and the forecast for such data.

    Where the shape is large, two parts of it are made, one a fourth of the other. The time and the weights of
    a label are assumed to grow on with the size as they do from one part to the other, by the same power.

    Args:
        shape: of the data, which follow Zipf's law.
        options: of training.
        dtype: of the features.

    Example:
        >>> from xmcjax.lanes import OneVsAll, Shape, forecast_of_shape
        >>> shape = Shape(rows=200, features=50, entries=2000, positives=300, labels=10)
        >>> positives, found = forecast_of_shape(shape, OneVsAll(), "float32")
        >>> len(positives), found.sample <= 10
        (10, True)
    """
    part = min(1.0, _MADE / shape.entries, _MADE / shape.labels)
    X, Y = _made(shape, part, dtype)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    found = forecast(X, Y, options)
    if part == 1:
        return counts, found
    fourth = forecast(*_made(shape, part / 4, dtype), options)

    def of_all(larger: float, smaller: float, least: float) -> float:
        growth = max(larger / 4 / smaller, least)  # per label, of which `larger` has 4 times as many
        return larger / part * growth ** math.log(1 / part, 4)

    # a label goes over all rows at least once
    seconds, weights = of_all(found.seconds, fourth.seconds, 4), of_all(found.weights, fourth.weights, 1)
    spent = found.spent + fourth.spent
    return counts, Forecast(found.sample + fourth.sample, spent, seconds, weights)


def _made(shape: Shape, part: float, dtype: str) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Data with this part of the rows, features and labels of a shape."""
    n, d, labels = (max(1, round(count * part)) for count in (shape.rows, shape.features, shape.labels))
    return make_power_law(
        n,
        d,
        labels,
        labels_per_row=min(shape.positives / shape.rows, labels),
        nonzeros_per_row=min(shape.entries / shape.rows, d),
        dtype=dtype,
    )


def _forget(result: LabelResult) -> None:
    """A sink for the trainer from which the samples are made."""


def _spread(ordered: np.ndarray, size: int) -> np.ndarray:
    """`size` labels at even distances, or all."""
    if size >= len(ordered):
        return ordered
    return ordered[((np.arange(size) + 0.5) * len(ordered) / size).astype(np.int64)]
