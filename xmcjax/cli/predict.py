"""``xmcjax predict``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from xmcjax._arguments import job_count
from xmcjax._links import link_of
from xmcjax._options import SHARED
from xmcjax._words import counted
from xmcjax.cli import _report
from xmcjax.cli._cluster import ClusterOptions
from xmcjax.cli._data import check_beside, of_file, read_features, transformed
from xmcjax.cli._data_options import AUTO, DataOptions, PredictionFormatName, Source
from xmcjax.cli._more import columns_beside
from xmcjax.cli._options import Directory, File, check_out, check_uncompressed, described
from xmcjax.data import Transforms
from xmcjax.models import (
    INDEX,
    LinearModel,
    Predictor,
    predict_topk,
    prediction_file,
    system_of,
)

# A model with at most this many weights is held in memory while the data are read; the weights of a larger
# model are read anew for each piece of the data.
_HELD = 1 << 27


@described(SHARED)
@dataclasses.dataclass(frozen=True)
class Options:
    """Write the best labels of each row, best first, with their scores.

    Attributes:
        model: a model that `xmcjax train` made, or an estimator saved. It knows its transforms.
        data: features; labels in the file are not looked at.
        more_features: features to stand beside those of --data, row by row.
        out: file for the predictions; an old one is replaced.
        out_format: text, a line of label:score pairs per row; jsonl, a line of JSON per row; npz, scores as a
            sparse matrix in the form of scipy. auto: the suffix says it, of .jsonl and .npz; any other file
            is text.
        top_k: labels per row; never more than the model has.
        probabilities: write label:probability, where the model has a loss that knows them, the logistic loss
            of one-vs-all, label by label, multinomial and kernel, or was trained with a calibration. The
            labels are those of the best scores, in the order of their probabilities: after a sigmoid
            calibration the first of --top-k 3 need not be the one of --top-k 1.
    """

    model: Directory
    data: File
    out: File
    out_format: PredictionFormatName = AUTO
    more_features: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    top_k: int = 5
    probabilities: bool = False
    n_jobs: int = SHARED["n_jobs"].of_flag
    files: DataOptions = dataclasses.field(default_factory=DataOptions)
    cluster: ClusterOptions = dataclasses.field(default_factory=ClusterOptions)


Predicted = tuple[np.ndarray, np.ndarray]


class Opened(NamedTuple):
    """A model of any system.

    Attributes:
        best: function (X, k) -> (labels, scores), both [n, k], for features after the transforms.
        finished: function that turns (labels, scores) of `best` into those that the file gets.
        transforms: of the features.
        n_features, n_labels: of the model.
        columns: one more than the largest label that can be predicted.
        dtype: of features and scores.
        numbers: the class of each label, if classes are numbers from 0, which then stand in predictions and
            data; None if the places of labels stand there.
        named: whether predicted labels are places of classes that have names.
    """

    best: Callable[[Any, int], Predicted]
    finished: Callable[[np.ndarray, np.ndarray], Predicted]
    transforms: Transforms
    n_features: int
    n_labels: int
    columns: int
    dtype: str
    numbers: np.ndarray | None
    named: bool


def run(options: Options) -> None:
    """Predicts and writes piece by piece; the output is complete or not there at all."""
    from tqdm import tqdm

    threads = job_count(options.n_jobs, "--n-jobs")
    if options.top_k < 1:
        raise ValueError(f"--top-k: expected at least 1, got {options.top_k}")
    inputs = [path for path in (options.data, options.more_features) if path is not None]
    check_out(options.out, *inputs, model=options.model)
    check_uncompressed(options.out, "predictions")
    options.files.check(Source(options.data, more=options.more_features), labelled=False)
    system, flag = system_of(options.model), options.cluster.flag()
    if flag is not None and system == "kernel":
        raise ValueError(f"{flag}: expected a linear model, found one of the system kernel: {options.model}")
    beside = columns_beside(options.model)
    if beside is not None:
        trained = f" of {beside} columns" if beside else None
        format = options.files.format_of(options.data)
        check_beside("--more-features", format, options.more_features, trained)
    model = opened(options.model, threads, probabilities=options.probabilities)
    top_k = min(options.top_k, model.n_labels)
    pieces = read_features(
        options.data,
        options.files,
        more=options.more_features,
        dtype=model.dtype,
        n_features=model.n_features,
        beside=beside or None,
        like=f"as in {options.model}",
    )
    n_rows, most, form = 0, 0, None if options.out_format == AUTO else options.out_format
    stream = _report.summary_stream(options.out)
    with (
        options.cluster.opened(threads, stream=stream) as cluster,
        contextlib.closing(pieces),
        prediction_file(options.out, form, n_labels=model.columns) as write,
        tqdm(unit="row", unit_scale=True, desc="predict", disable=None, file=sys.stderr) as bar,
    ):
        rows = (transformed(options.data, X, model.transforms) for X in pieces)

        def best(X) -> Predicted:
            with of_file(options.data, n_rows):
                return model.best(X, top_k)

        if cluster is None:
            predicted = map(best, rows)
        else:
            predicted = cluster.predict(options.model, rows, top_k, options.probabilities)
        for found in predicted:
            labels, scores = model.finished(*found)
            with of_file(options.data):
                write(labels, scores)
            # untrained labels are never predicted, so that a row may have fewer than --top-k labels
            most = max(most, int((labels >= 0).sum(axis=1).max()))
            n_rows += len(labels)
            bar.update(len(labels))
    written = f"{options.out} ({counted(n_rows, 'row')}, {counted(most, 'label')} per row)"
    _report.print_field(
        "predictions", written, stream, file=str(options.out), rows=n_rows, labels_per_row=most
    )
    if model.named:
        text = f"the labels are their places; xmcjax inspect --model {options.model} names them"
        _report.print_field("classes", text, stream, numbered=False)


def opened(directory: Path, threads: int, *, probabilities: bool) -> Opened:
    """The model of a directory.

    Args:
        directory: of a model of any system.
        threads: how many threads predict.
        probabilities: whether to give probabilities in place of scores.

    Raises:
        ValueError: a model that knows no probabilities.
        ModelFormatError, OSError: the model cannot be read.
    """
    return (_kernel if system_of(directory) == "kernel" else _linear)(directory, threads, probabilities)


def _linear(directory: Path, threads: int, probabilities: bool) -> Opened:
    model = LinearModel.load(directory)
    first, last = model.label_range
    if probabilities and link_of(model.meta) is None:
        raise ValueError(
            f"--probabilities: expected a model whose loss is a likelihood (the logistic loss of one-vs-all, "
            f"multinomial, kernel) or that is calibrated, {directory} has another one"
        )
    best = functools.partial(predict_topk, model, threads=threads)
    if probabilities or model.n_weights <= _HELD or (directory / INDEX).exists():
        predictor = Predictor(model, n_jobs=threads)
        best = functools.partial(predictor.predict_topk, probabilities=probabilities)
    by_probability = probabilities and model.calibration() is not None
    classes = model.names().classes
    numbers = _numbers(classes)
    return Opened(
        best,
        _finished(by_probability, numbers),
        model.transforms(),
        model.n_features,
        last - first,
        _columns(numbers, model.n_labels),
        model.dtype.name,
        numbers,
        named=classes is not None and numbers is None,
    )


def _kernel(directory: Path, threads: int, probabilities: bool) -> Opened:
    from xmcjax.cli._cache import compilation_cache
    from xmcjax.estimators import KernelLogisticClassifier

    classifier: Any = KernelLogisticClassifier.load(directory)
    classes, transforms = classifier.classes_, getattr(classifier, "transforms_", Transforms((), {}))
    classifier.transforms_ = None  # each piece is transformed already

    def best(X, k: int) -> tuple[np.ndarray, np.ndarray]:
        with compilation_cache():
            names, values = classifier.predict_topk(X, k, probabilities=probabilities)
        return np.searchsorted(classes, names), values

    numbers = _numbers(classes)
    return Opened(
        best,
        _finished(False, numbers),
        transforms,
        classifier.n_features_in_,
        len(classes),
        _columns(numbers, len(classes)),
        classifier.dual_coef_.dtype.name,
        numbers,
        named=numbers is None,
    )


def _finished(
    by_probability: bool, numbers: np.ndarray | None
) -> Callable[[np.ndarray, np.ndarray], Predicted]:
    """The function that is applied to predictions before they are written.

    Args:
        by_probability: whether the labels with the best scores are sorted by probability.
        numbers: of :class:`Opened`.
    """

    def finished(labels: np.ndarray, scores: np.ndarray) -> Predicted:
        if by_probability:
            order = np.argsort(-scores, axis=1, kind="stable")
            labels, scores = (np.take_along_axis(a, order, axis=1) for a in (labels, scores))
        if numbers is not None:
            labels = np.where(labels < 0, labels, numbers[labels])
        return labels, scores

    return finished


def _numbers(classes: np.ndarray | None) -> np.ndarray | None:
    """The classes if they are numbers from 0, as the labels of a file are; else None."""
    if classes is None or classes.dtype.kind not in "iu" or not len(classes):
        return None
    return classes if 0 <= classes[0] <= classes[-1] < 2**31 - 1 else None


def _columns(numbers: np.ndarray | None, n_labels: int) -> int:
    """One more than the largest label that can be predicted."""
    return n_labels if numbers is None else int(numbers[-1]) + 1
