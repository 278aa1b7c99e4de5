"""How long a run will take, before it begins."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._one_vs_all import make_trainer
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._queue import make_queue
from xmcjax.lanes._results import LabelResult
from xmcjax.native import StopFlag

# Labels of the first sample, and how many times larger the next is.
_FIRST, _LARGER = 64, 2


class Forecast(NamedTuple):
    """What a sample of the labels says of all of them."""

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

    A sample takes labels at even distances from their list by the number of positives. What a run costs
    beside its labels, and the lanes that idle at its end, are in every sample alike: all labels take the time
    of the largest, and for each label that it lacks what a label more has cost between the last two.

    Args:
        X, Y, options, label_weights: of :func:`train_one_vs_all`.
        labels: of the run; None for all.
        patience: seconds, about, which the samples may take.

    Raises:
        TypeError, ValueError: as there; an initialisation that takes labels in an order of its own.
    """
    if options.init.tree:
        raise ValueError(f"init {options.init.name} starts labels from one another: a sample says nothing")
    begin = time.perf_counter()
    trainer = make_trainer(X, Y, None, label_weights, options, _forget, None)
    counts = np.diff(trainer.Y.indptr)
    labels = np.arange(len(counts)) if labels is None else labels
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


def _forget(result: LabelResult) -> None:
    """A sink for the trainer from which the samples are made."""


def _spread(ordered: np.ndarray, size: int) -> np.ndarray:
    """So many at even distances, or all."""
    if size >= len(ordered):
        return ordered
    return ordered[((np.arange(size) + 0.5) * len(ordered) / size).astype(np.int64)]
