"""``xmcjax evaluate``."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Annotated

import numpy as np
import scipy.sparse as sp
import tyro

from xmcjax._arguments import whole_number
from xmcjax._words import counted
from xmcjax.cli import _report
from xmcjax.cli._data import read
from xmcjax.cli._data_options import AUTO, DataOptions, PredictionFormatName, Source
from xmcjax.cli._options import File, PresetName, check_preset, check_uncompressed, parse_size
from xmcjax.cli._streams import seekable
from xmcjax.data import DataFormatError, Dataset, MemoryBound, load_pairs
from xmcjax.metrics import (
    PROPENSITY_METRICS,
    above_thresholds,
    by_frequency,
    f1_thresholds,
    inverse_propensities,
    macro_f1,
    micro_f1,
)
from xmcjax.models import read_predictions

# Bytes that the metrics take per label.
_LABEL = 64
# Edges of bins are below this, because they are int64.
_BEYOND_BINS = 2**63


@dataclasses.dataclass(frozen=True)
class Options:
    """Compare predictions with the truth: precision, nDCG, recall, coverage and F1 in per cent.

    Attributes:
        data: the rows that were predicted, with their true labels.
        predictions: what `xmcjax predict` wrote.
        predictions_format: of these; auto: the suffix says it, of .jsonl and .npz; any other file is text.
        labels_file: the true labels, where they have a file of their own.
        train: training data; with them the propensity-scored metrics are shown too.
        train_labels_file: labels of these, where they have a file of their own.
        propensities: the data set or family whose constants A and B are used for these.
        k: numbers of labels per row.
        bins: ascending numbers that divide labels by their rows in the training data: with 2 10 those below
            2, below 10, and the others; shown for each are precision, the parts of P, and recall.
        held_out: rows that were held out, with their labels: on their predictions the threshold of each label
            with the best F1 is found, and F1 with these thresholds is shown too.
        held_out_predictions: of these rows, by the same model, with scores, which are compared with those of
            --predictions.
        held_out_labels_file: labels of these rows, where they have a file of their own.
        filter_labels: pairs of a row and a label, one per line, that count neither as predictions nor as
            truth.
    """

    data: File
    predictions: File
    predictions_format: PredictionFormatName = AUTO
    labels_file: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    train: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    train_labels_file: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    propensities: PresetName = "default"
    k: tuple[int, ...] = (1, 3, 5)
    bins: tuple[int, ...] = ()
    held_out: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    held_out_predictions: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    held_out_labels_file: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    filter_labels: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    files: DataOptions = dataclasses.field(default_factory=DataOptions)


def run(options: Options) -> None:
    """Reads, compares and prints."""
    if not options.k or min(options.k) < 1:
        raise ValueError(f"--k: expected numbers from 1 on, got {' '.join(map(str, options.k)) or 'none'}")
    whole_number("--k", max(options.k), 1)
    if len(set(options.k)) < len(options.k):
        raise ValueError(f"--k: expected each number once, got {' '.join(map(str, options.k))}")
    check_preset(options.propensities)
    if options.train is None and options.propensities != "default":
        raise ValueError(f"--propensities {options.propensities} needs --train, got none")
    if options.train is None and options.train_labels_file is not None:
        raise ValueError("--train-labels-file needs --train, got none")
    if options.bins and options.train is None:
        raise ValueError("--bins needs --train, got none")
    if options.bins and not all(a < b for a, b in itertools.pairwise((0, *options.bins, _BEYOND_BINS))):
        given = " ".join(map(str, options.bins))
        raise ValueError(f"--bins: expected ascending numbers from 1 on, got {given}")
    if (options.held_out is None) != (options.held_out_predictions is None):
        given, other = ("--held-out", "--held-out-predictions")[:: 1 if options.held_out else -1]
        raise ValueError(f"{given} needs {other}, got none")
    if options.held_out is None and options.held_out_labels_file is not None:
        raise ValueError("--held-out-labels-file needs --held-out, got none")
    check_uncompressed(options.predictions, "predictions", "--predictions")
    if options.held_out_predictions is not None:
        check_uncompressed(options.held_out_predictions, "predictions", "--held-out-predictions")
    sources = (
        Source(options.data, options.labels_file),
        Source(options.train, options.train_labels_file),
        Source(options.held_out, options.held_out_labels_file),
    )
    options.files.check(*sources)
    lists_from_0 = options.files.first_label_is_for_svmlight(*sources)
    labels, scores = _predictions(options, options.predictions)
    # A file of truth that does not state its number of labels may lack the highest predicted label.
    least = int(labels.max(initial=0)) + 1
    bound = MemoryBound(options.predictions, parse_size(options.files.max_memory))
    bound.seen(labels.nbytes)  # for a stream, whose size is not known

    def check_memory(n_labels: int) -> None:
        text = f"labels up to {n_labels - 1}, which no row of {options.labels_file or options.data} shows"
        bound.check(_LABEL * n_labels, text)

    truth, _ = read(
        options.data,
        options.files,
        labels=options.labels_file,
        least_labels=least,
        more_labels=check_memory,
        lists_from_0=lists_from_0,
    )
    where = options.labels_file or options.data
    _check_rows(options.predictions, labels, truth)
    _check_labels(options.predictions, labels, truth.n_labels, where)
    limits = (
        None if options.held_out is None else _thresholds(options, truth.n_labels, str(where), lists_from_0)
    )
    scored = _score_matrix(labels, scores, truth.n_labels)
    if options.filter_labels is not None:
        labels, truth = _without_pairs(options, labels, truth)
    q, frequencies = None, None
    if options.train is not None:
        train, _ = read(
            options.train,
            options.files,
            labels=options.train_labels_file,
            n_labels=truth.n_labels,
            like=f"as in {where}",
            lists_from_0=lists_from_0,
        )
        if train.n_labels > truth.n_labels:
            truth.y.resize(truth.n_rows, train.n_labels)
        q = inverse_propensities(train.y, dataset=options.propensities)
        frequencies = np.bincount(train.y.indices, minlength=truth.y.shape[1])
    ks, longest = options.k, labels.shape[1]
    if longest == 0:
        raise DataFormatError(options.predictions, None, None, "predictions", "none in any line")
    if longest < min(max(ks), truth.n_labels):
        _report.warn(
            f"{options.predictions} has at most {counted(longest, 'label')} a line: the others count as wrong"
        )
    if longest < max(ks):
        # --k may be very large, but columns beyond the predictions and the true labels of every row do not
        # change the metrics.
        columns = min(max(ks), max(longest, int(np.diff(truth.y.indptr).max())))
        padding = ((0, 0), (0, columns - longest))
        labels = np.pad(labels, padding, constant_values=-1)
    found = f"{truth.n_rows:,}, {counted(truth.n_labels, 'label')}"
    _report.print_field("rows", found, rows=truth.n_rows, labels=truth.n_labels)
    _report.print_metrics(truth.y, labels, ks)
    if q is not None:
        _report.print_metrics(truth.y, labels, ks, PROPENSITY_METRICS, head=False, inverse_propensities=q)
    if limits is not None:
        _print_thresholds(truth, above_thresholds(scored, limits[0]), labels, *limits)
    if options.bins:
        _print_bins(truth, labels, ks, frequencies, options.bins)


def _predictions(options: Options, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores of a file of predictions."""
    form = None if options.predictions_format == AUTO else options.predictions_format
    memory = parse_size(options.files.max_memory)
    # a stream whose format no flag names is text, which needs no copy
    with seekable(path, memory, form or "text") as place:
        return read_predictions(place, form, max_memory=memory)


def _thresholds(options: Options, n_labels: int, where: str, lists_from_0: bool) -> tuple[np.ndarray, int]:
    """The threshold of each label, and the number of held-out rows that the thresholds were found on."""
    assert options.held_out is not None and options.held_out_predictions is not None
    path = options.held_out_predictions
    labels, scores = _predictions(options, path)
    held_out, _ = read(
        options.held_out,
        options.files,
        labels=options.held_out_labels_file,
        n_labels=n_labels,
        like=f"as in {where}",
        lists_from_0=lists_from_0,
    )
    if held_out.n_labels > n_labels:
        expected = f"labels below {n_labels}, as in {where}"
        raise DataFormatError(options.held_out, None, None, expected, f"{held_out.n_labels} labels")
    _check_rows(path, labels, held_out)
    _check_labels(path, labels, n_labels, Path(where))
    Y = sp.csr_array(held_out.y)
    return f1_thresholds(Y, _score_matrix(labels, scores, n_labels)), held_out.n_rows


def _score_matrix(labels: np.ndarray, scores: np.ndarray, n_labels: int) -> sp.csr_array:
    """Predictions of a file as a matrix of scores."""
    rows, places = np.nonzero(labels >= 0)
    entries = scores[rows, places], (rows, labels[rows, places])
    return sp.csr_array(entries, shape=(len(labels), n_labels))


def _print_thresholds(
    truth: Dataset, predicted: sp.csr_array, labels: np.ndarray, limits: np.ndarray, n_rows: int
) -> None:
    """Prints F1 with thresholds.

    Args:
        truth: the true labels of the rows.
        predicted: the predictions above the thresholds.
        labels: predictions that count, [n, k].
        limits: the thresholds.
        n_rows: how many rows the thresholds were found on.
    """
    listed = _score_matrix(labels, np.ones(labels.shape), truth.n_labels)
    predicted.resize(listed.shape)
    predicted = sp.csr_array(predicted.multiply(listed).astype(bool).astype(np.int64))
    Y = sp.csr_array(truth.y).astype(bool).astype(np.int64)
    found = {"miF1": 100 * micro_f1(Y, predicted), "maF1": 100 * macro_f1(Y, predicted)}
    known = int(np.isfinite(limits).sum())
    text = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    text += f", with thresholds of {counted(known, 'label')} found on {counted(n_rows, 'row')}"
    _report.print_field("thresholds", text, **found, labels=known, rows=n_rows)


def _without_pairs(options: Options, labels: np.ndarray, truth: Dataset) -> tuple[np.ndarray, Dataset]:
    """Predictions and truth without the filtered pairs; later predictions of a row move up."""
    assert options.filter_labels is not None
    n, L = truth.n_rows, truth.n_labels
    memory = parse_size(options.files.max_memory)
    rows, columns = load_pairs(options.filter_labels, n_rows=n, n_labels=L, max_memory=memory).T
    left_out = rows * L + columns
    Y = sp.csr_matrix(truth.y, copy=True)
    row = np.repeat(np.arange(n), np.diff(Y.indptr))
    Y.data[np.isin(row * L + Y.indices, left_out)] = 0
    Y.eliminate_zeros()
    place = np.repeat(np.arange(n), labels.shape[1])
    gone = np.isin(place * L + labels.ravel(), left_out).reshape(labels.shape) & (labels >= 0)
    order = np.argsort(gone, axis=1, kind="stable")
    labels = np.take_along_axis(np.where(gone, -1, labels), order, axis=1)
    return labels, Dataset(truth.X, Y)


def _print_bins(truth: Dataset, labels: np.ndarray, ks, frequencies, edges: tuple[int, ...]) -> None:
    """Prints a table of the bins for each k."""
    names = [f"< {edges[0]}", *(f"{a} to {b - 1}" for a, b in itertools.pairwise(edges)), f">= {edges[-1]}"]
    known = {}
    for k in ks:
        held = min(k, labels.shape[1])
        found = by_frequency(truth.y, labels, held, frequencies=frequencies, edges=edges)
        precision = found.precision * (held / k)
        _report.print_lines(["", f"{'rows in training':<18}{'labels':>8}{f'P@{k}':>8}{f'R@{k}':>8}"])
        _report.print_lines(
            f"{name:<18}{found.labels[i]:>8}{100 * precision[i]:>8.2f}{100 * found.recall[i]:>8.2f}"
            for i, name in enumerate(names)
        )
        values = zip(names, found.labels, 100 * precision, 100 * found.recall, strict=True)
        known[str(k)] = [{"bin": n, "labels": int(l), "P": float(p), "R": float(r)} for n, l, p, r in values]
    _report.print_values("bins", known)


def _check_rows(path: Path, labels: np.ndarray, truth: Dataset) -> None:
    if len(labels) != truth.n_rows:
        line = min(len(labels), truth.n_rows) + 1
        raise DataFormatError(
            path, line, None, f"{truth.n_rows} lines, one per row of the data", str(len(labels))
        )


def _check_labels(path: Path, labels: np.ndarray, n_labels: int, data: Path) -> None:
    wrong = np.argwhere(labels >= n_labels)
    if len(wrong):
        row, place = (int(i) for i in wrong[0])
        expected = f"labels below {n_labels}, the number in {data}"
        raise DataFormatError(path, row + 1, None, expected, str(labels[row, place]))
