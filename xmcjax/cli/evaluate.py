"""``xmcjax evaluate``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from xmcjax._arguments import whole_number
from xmcjax.cli import _report
from xmcjax.cli._data import DataOptions, read
from xmcjax.cli._options import File, PresetName, check_preset, parse_size
from xmcjax.data import DataFormatError, Dataset
from xmcjax.metrics import PROPENSITY_METRICS, inverse_propensities
from xmcjax.models import read_predictions


@dataclasses.dataclass(frozen=True)
class Options:
    """Compare predictions with the truth: precision, nDCG and top-k accuracy in per cent.

    Attributes:
        data: the rows that were predicted, with their true labels.
        predictions: what `xmcjax predict` wrote.
        train: training data; with them the propensity-scored metrics are shown too.
        propensities: the data set or family whose constants A and B are used for these.
        k: numbers of labels per row.
    """

    data: File
    predictions: File
    train: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    propensities: PresetName = "default"
    k: tuple[int, ...] = (1, 3, 5)
    files: DataOptions = dataclasses.field(default_factory=DataOptions)


def run(options: Options) -> None:
    """Reads, compares and prints."""
    if not options.k or min(options.k) < 1:
        raise ValueError(f"--k: expected numbers from 1 on, got {' '.join(map(str, options.k)) or 'none'}")
    whole_number("--k", max(options.k), 1)
    check_preset(options.propensities)
    if options.train is None and options.propensities != "default":
        raise ValueError(f"--propensities {options.propensities} needs --train, got none")
    labels, _ = read_predictions(options.predictions, max_memory=parse_size(options.files.max_memory))
    # A file that does not state its number of labels need not show the highest one.
    truth = read(options.data, options.files, least_labels=int(labels.max(initial=0)) + 1)
    _check_rows(options.predictions, labels, truth)
    _check_labels(options.predictions, labels, truth.n_labels, options.data)
    q = None
    if options.train is not None:
        train = read(options.train, options.files, n_labels=truth.n_labels, like=f"as in {options.data}")
        if train.n_labels > truth.n_labels:
            truth.y.resize(truth.n_rows, train.n_labels)
        q = inverse_propensities(train.y, dataset=options.propensities)
    ks, longest = options.k, labels.shape[1]
    if longest == 0:
        raise DataFormatError(options.predictions, None, None, "predictions", "none in any line")
    if longest < max(ks):
        _report.warn(f"{options.predictions} has at most {longest} labels a line: the others count as wrong")
        padding = ((0, 0), (0, max(ks) - longest))
        labels = np.pad(labels, padding, constant_values=-1)
    found = f"{truth.n_rows:,}, {truth.n_labels:,} labels"
    _report.print_field("rows", found, rows=truth.n_rows, labels=truth.n_labels)
    _report.print_metrics(truth.y, labels, ks)
    if q is not None:
        _report.print_metrics(truth.y, labels, ks, PROPENSITY_METRICS, head=False, inverse_propensities=q)


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
