"""``xmcjax convert``."""

from __future__ import annotations

import dataclasses

from xmcjax import data
from xmcjax.cli import _report
from xmcjax.cli._data import AUTO, FormatName, SizedDataOptions
from xmcjax.cli._options import File, check_out


@dataclasses.dataclass(frozen=True)
class Options:
    """Write a data set in another format, as a rule npz, which is read several times faster.

    Attributes:
        data: file to read.
        out: file to write, an old one is replaced; --out-format, or its name ending in .npz, says how.
        out_format: of the output; auto: a file named .npz is npz, any other xmc.
    """

    data: File
    out: File
    out_format: FormatName = AUTO
    files: SizedDataOptions = dataclasses.field(default_factory=SizedDataOptions)


def run(options: Options) -> None:
    """Converts; the output appears under its name when it is complete."""
    files = options.files
    check_out(options.out, options.data)
    if files.first_label and not (files.format == "svmlight" and files.multilabel):
        raise ValueError(
            "--first-label: convert renumbers svmlight --multilabel files only, classes are kept"
        )
    out_format = None if options.out_format == AUTO else options.out_format
    dataset = data.convert(options.data, options.out, files.reader_name, out_format, **files.reader())
    stream = _report.summary_stream(options.out)
    _report.describe_data(dataset, file=stream)
    _report.print_written(options.out, stream)
