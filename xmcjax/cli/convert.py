"""``xmcjax convert``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import tyro

from xmcjax import data
from xmcjax.cli import _report
from xmcjax.cli._data import check_lists, load_files
from xmcjax.cli._data_options import AUTO, FormatName, SizedDataOptions, Source
from xmcjax.cli._options import File, check_compression, check_out
from xmcjax.data import ALONE, FORMATS, format_of, promises_other_text


@dataclasses.dataclass(frozen=True)
class Options:
    """Write a data set in another format, as a rule npz, which is read several times faster.

    Attributes:
        data: file to read.
        out: file to write, an old one is replaced; --out-format, or its suffix, says how.
        labels_file: labels of the rows, where they have a file of their own.
        more_features: features to stand beside those of --data, row by row.
        out_labels: file for the labels, where they are to have one of their own; --out then holds one matrix.
        out_format: of the output; auto: the suffix says it, of .npz, .npy, .parquet, .arrow and .feather; any
            other file is xmc, or matrix where --out-labels is given, but for names that promise another text,
            such as .csv and .svm: for these it must be given.
    """

    data: File
    out: File
    labels_file: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    more_features: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    out_labels: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    out_format: FormatName = AUTO
    files: SizedDataOptions = dataclasses.field(default_factory=SizedDataOptions)


def run(options: Options) -> None:
    """Converts; the output appears under its name when it is complete."""
    files, out, out_labels = options.files, options.out, options.out_labels
    inputs = [path for path in (options.data, options.labels_file, options.more_features) if path is not None]
    check_out(out, *inputs)
    check_compression(out, "--out")
    if out_labels is not None:
        check_out(out_labels, *inputs, out, flag="--out-labels")
        check_compression(out_labels, "--out-labels")
    files.check(Source(options.data, options.labels_file, options.more_features))
    if files.first_label and not (files.format == "svmlight" and files.multilabel):
        raise ValueError(
            "--first-label: convert renumbers svmlight --multilabel files only, classes are kept"
        )
    # wrong names are reported before a long read
    given, alone = None if options.out_format == AUTO else options.out_format, out_labels is not None
    usual = "matrix" if alone else "xmc"
    if given is None and promises_other_text(out):
        raise ValueError(f"--out: expected --out-format, as the name promises no {usual} text: {out}")
    written = format_of(out, given, usual)
    possible = ALONE if alone else tuple(FORMATS)
    if written not in possible:
        what = "a matrix alone" if alone else "features and labels (--out-labels writes two files)"
        raise ValueError(f"--out: expected one of {', '.join(possible)} for {what}, got {written}: {out}")
    dataset, _ = load_files(
        options.data, files, labels=options.labels_file, more=options.more_features, dtype=None
    )
    check_lists(options.data, options.labels_file, files, dataset.y)
    if written == "xmc" and not dataset.multilabel:
        raise ValueError(f"{inputs[0]}: expected lists of labels to write xmc text, found one class per row")
    if out_labels is None:
        data.save(out, *dataset, written)
    else:
        data.labels_format(out_labels, dataset.y)  # refuses these labels before any file is replaced
        data.save_features(out, dataset.X, written)
        data.save_labels(out_labels, dataset.y)
    stream = _report.summary_stream(*(path for path in (out, out_labels) if path is not None))
    _report.describe_data(dataset, file=stream)
    _report.print_written(out, stream)
    if out_labels is not None:
        _report.print_written(out_labels, stream, name="labels")
