"""``xmcjax predict``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools

from xmcjax._options import SHARED
from xmcjax.cli import _report
from xmcjax.cli._data import DataOptions, read_features, transformed
from xmcjax.cli._options import Directory, File, check_jobs, check_out, described
from xmcjax.models import INDEX, LinearModel, Predictor, predict_topk, prediction_file

# Weights up to which all are held while the data are read; of more, each piece of the data reads them anew.
_HELD = 1 << 27


@described(SHARED)
@dataclasses.dataclass(frozen=True)
class Options:
    """Write the best labels of each row, best first, as pairs label:score.

    Attributes:
        model: a model that `xmcjax train` made. It knows its transforms of the features.
        data: features; labels in the file are not looked at.
        out: file for the predictions, one line per row; plain text. An old one is replaced.
        top_k: labels per row; never more than the model has.
    """

    model: Directory
    data: File
    out: File
    top_k: int = 5
    n_jobs: int = SHARED["n_jobs"].of_flag
    files: DataOptions = dataclasses.field(default_factory=DataOptions)


def run(options: Options) -> None:
    """Predicts and writes piece by piece; the output is complete or not there at all."""
    threads = check_jobs(options.n_jobs)
    if options.top_k < 1:
        raise ValueError(f"--top-k: expected at least 1, got {options.top_k}")
    check_out(options.out, options.data, model=options.model)
    if options.out.suffix in (".gz", ".xz"):
        raise ValueError(
            f"--out: predictions are plain text, expected no {options.out.suffix}: {options.out}"
        )
    model = LinearModel.load(options.model)
    transforms = model.transforms()
    first, last = model.label_range
    top_k = min(options.top_k, last - first)
    pieces = read_features(
        options.data,
        options.files,
        dtype=model.dtype.name,
        n_features=model.n_features,
        like=f"as in {options.model}",
    )
    best = functools.partial(predict_topk, model, threads=threads)
    if model.n_weights <= _HELD or (options.model / INDEX).exists():
        best = Predictor(model, n_jobs=threads).predict_topk
    n_rows = 0
    with contextlib.closing(pieces), prediction_file(options.out) as write:
        for X in pieces:
            write(*best(transformed(options.data, X, transforms), top_k))
            n_rows += X.shape[0]
    written = f"{options.out} ({n_rows:,} rows, {top_k} labels per row)"
    _report.print_field("predictions", written, _report.summary_stream(options.out))
