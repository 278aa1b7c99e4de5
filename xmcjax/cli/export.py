"""``xmcjax export``."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from xmcjax.cli import _report
from xmcjax.cli._options import Directory, File, check_out, check_uncompressed, one_of
from xmcjax.models import EXCHANGES, export_model

if TYPE_CHECKING:
    ExchangeName = str
else:
    ExchangeName = one_of(EXCHANGES)


@dataclasses.dataclass(frozen=True)
class Options:
    """Write a linear model for another program.

    Attributes:
        model: a model that `xmcjax train` made, or an estimator saved.
        out: file to write, an old one is replaced.
        format: liblinear, text that LIBLINEAR predicts with; dismec, JSON of dismecpp with files of weights
            beside it; npz, weights in the form of scipy, the bias as last row; onnx, a graph that has the
            transforms of the model in it.
    """

    model: Directory
    out: File
    format: ExchangeName


def run(options: Options) -> None:
    """Writes; the file appears under its name when it is complete."""
    check_out(options.out, model=options.model)
    check_uncompressed(options.out, "models for other programs")
    told = export_model(options.model, options.out, options.format)
    stream = _report.summary_stream(options.out)
    files = json.loads(options.out.read_bytes())["files"] if options.format == "dismec" else []
    beside = [options.out.with_name(file["file"]) for file in files]
    more = f"{EXCHANGES[options.format].what}, "
    _report.print_written(options.out, stream, more=more, beside=beside)
    if told:
        _report.print_field("note", "; ".join(told), stream)
