"""``xmcjax merge``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from xmcjax.cli import _report
from xmcjax.cli._options import Directory
from xmcjax.models import merge_models


@dataclasses.dataclass(frozen=True)
class Options:
    """Join parts of a model that were trained with `xmcjax train --labels A:B`, here or on other machines.

    The parts must be whole, of the same data and options, and hold every label once. The model has the bytes
    of one that was trained at once, but for the calibration of labels of few rows, which share one in a part.

    Attributes:
        parts: directories of the parts, in any order.
        model: new or empty directory for the model.
        resume: continue a merge that was interrupted.
    """

    parts: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR [DIR ...]")]
    model: Directory
    resume: bool = False


def run(options: Options) -> None:
    """Joins and shows the size."""
    if not options.parts:
        raise ValueError("--parts: expected at least one directory, got none")
    merged = merge_models(options.parts, options.model, resume=options.resume)
    _report.print_field(
        "labels", f"{merged.n_labels:,} of {len(options.parts)} parts", labels=merged.n_labels
    )
    _report.print_model(options.model)
