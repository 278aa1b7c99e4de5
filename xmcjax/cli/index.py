"""``xmcjax index``."""

from __future__ import annotations

import dataclasses

from xmcjax.cli import _report
from xmcjax.cli._options import Directory
from xmcjax.models import write_index


@dataclasses.dataclass(frozen=True)
class Options:
    """Store the weights of a model by feature too, so that models of any size predict single rows at once.

    Attributes:
        model: a linear model; the file is written into it and is as large as its shards.
    """

    model: Directory


def run(options: Options) -> None:
    """Writes the index; it appears under its name when it is complete."""
    _report.print_written(write_index(options.model))
