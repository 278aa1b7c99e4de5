"""``xmcjax predict``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import tyro

from xmcjax.cli import _report
from xmcjax.cli._data import DataOptions, read, transformed
from xmcjax.cli._environment import check_threads
from xmcjax.cli._options import Directory, File, check_out
from xmcjax.lanes import precision
from xmcjax.models import LinearModel, predict_topk, write_predictions


@dataclasses.dataclass(frozen=True)
class Options:
    """Write the best labels of each row, best first, as pairs label:score.

    Attributes:
        model: a model that `xmcjax train` made. It knows its transforms of the features.
        data: features; labels in the file are not looked at.
        out: file for the predictions, one line a row; plain text. An old one is replaced.
        top_k: labels a row; never more than the model has.
        threads: one a core if not given.
    """

    model: Directory
    data: File
    out: File
    top_k: int = 5
    threads: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    files: DataOptions = dataclasses.field(default_factory=DataOptions)


def run(options: Options) -> None:
    """Predicts and writes, complete or not at all."""
    threads = check_threads(options.threads)
    if options.top_k < 1:
        raise ValueError(f"--top-k: expected at least 1, got {options.top_k}")
    check_out(options.out, options.data, model=options.model)
    if options.out.suffix in (".gz", ".xz"):
        raise ValueError(
            f"--out: predictions are plain text, expected no {options.out.suffix}: {options.out}"
        )
    model = LinearModel.load(options.model)
    X = read(
        options.data,
        options.files,
        dtype=model.dtype.name,
        n_features=model.n_features,
        like=f"as in {options.model}",
        labelled=False,
    ).X
    X = transformed(options.data, X, model.transforms())
    first, last = model.label_range
    top_k = min(options.top_k, last - first)
    with precision(model.dtype):
        labels, scores = predict_topk(model, X, top_k, threads=threads)
    write_predictions(options.out, labels, scores)
    written = f"{options.out} ({len(labels):,} rows, {top_k} labels a row)"
    _report.print_field("predictions", written, _report.summary_stream(options.out))
