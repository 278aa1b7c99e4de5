"""What a model says of the ``--more-features`` of its training."""

from __future__ import annotations

from pathlib import Path

from xmcjax.cli._data import MORE_FEATURES
from xmcjax.cli._runs import read_runs
from xmcjax.models import RUN_FILE, ModelFormatError, meta_of


def columns_beside(directory: Path) -> int | None:
    """How many columns a second source had in the training of a model.

    Returns:
        0 where there was none; None where it is not known: a model of an earlier version or of an estimator.

    Raises:
        ModelFormatError, OSError: the manifest cannot be read.
    """
    meta = meta_of(directory)
    if MORE_FEATURES not in meta:
        return 0 if _without(directory / RUN_FILE) else None
    columns = meta[MORE_FEATURES]
    if not isinstance(columns, int) or isinstance(columns, bool) or columns < 1:
        expected = f"{MORE_FEATURES} as a number of columns"
        raise ModelFormatError(directory / "manifest.json", expected, repr(columns)[:40])
    return columns


def _without(path: Path) -> bool:
    """Whether the records of the runs that made a model say that none had ``--more-features``."""
    try:
        runs = read_runs(path)
    except (ModelFormatError, OSError):
        return False  # the file is no part of the model, and without it the answer is not known
    given = [run.get("options") for run in runs if run.get("command") == "train"]
    return bool(given) and all(
        isinstance(options, dict) and options.get(MORE_FEATURES, "") is None for options in given
    )
