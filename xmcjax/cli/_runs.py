"""The records of the runs that made a model, in ``run.json`` beside it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xmcjax._cores import usable_cores
from xmcjax._topology import Share, format_cores
from xmcjax.cli._environment import native_isa, versions
from xmcjax.cli._report import warn
from xmcjax.cli._training import Outcome
from xmcjax.data import atomic_write
from xmcjax.models import RUN_FILE, ModelFormatError, check_regular


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The records of a ``run.json``, the first run first; none where there is no such file.

    A file with a single record, as earlier versions wrote it, is a list of one.

    Raises:
        ModelFormatError: it holds anything else.
        OSError: it cannot be read.
    """
    try:
        check_regular(path)
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    except ModelFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(path, "the records of runs in JSON", f"a damaged file ({error})") from error
    runs = [content] if isinstance(content, dict) else content
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise ModelFormatError(path, "a list of the records of runs", "something else")
    return runs


def version_and_seconds(run: Mapping[str, Any]) -> tuple[Any, Any]:
    """The version of the library and the seconds of training in a record; None for what is missing."""
    versions, seconds = run.get("versions"), run.get("seconds")
    version = versions.get("xmcjax") if isinstance(versions, dict) else None
    return version, seconds.get("training") if isinstance(seconds, dict) else None


def known_runs(directory: Path) -> list[dict[str, Any]]:
    """The records beside a model that is shown; if they cannot be read, none, and a warning.

    Raises:
        OSError: as :func:`read_runs`.
    """
    try:
        return read_runs(directory / RUN_FILE)
    except ModelFormatError as error:
        warn(f"{error}; it is no part of the model")
        return []


def write_run_file(
    directory: Path,
    command: str,
    options: Any,
    outcome: Outcome,
    seconds: dict[str, float],
    shares: Sequence[Share] = (),
):
    """Adds a run of one-vs-all to the ``run.json`` beside a model, see :func:`add_record`."""
    summary = outcome.summary
    more = {
        "nodes": [
            {"node": s.node.number, "cores": format_cores(s.node.cores), "threads": s.threads} for s in shares
        ],
        "labels_trained": outcome.trained,
        "labels_missing": outcome.missing,
        "statuses": {status.name.lower(): count for status, count in sorted(summary.statuses.items())},
        "newton_steps": summary.newton_steps,
        "cg_steps": summary.cg_steps,
    }
    add_record(
        directory,
        command,
        options,
        more,
        seconds | {"training": summary.seconds, "first_step": summary.first_step_seconds},
    )


def add_record(
    directory: Path, command: str, options: Any, more: Mapping[str, Any], seconds: Mapping[str, float]
) -> None:
    """Adds a run to the ``run.json`` beside a model, with all that the bytes of the model do not depend on.

    If the existing file cannot be read, it stays as it is, and a warning says that this run is not in it.
    """
    path = directory / RUN_FILE
    try:
        runs = read_runs(path)
    except ModelFormatError as error:
        warn(f"{error}; it is left as it is, without a record of this run")
        return
    record = {
        "command": command,
        "options": dataclasses.asdict(options),
        "host": os.uname().nodename,
        "cores": usable_cores(),
        "native": native_isa(),
        "versions": versions(),
        **more,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
    }
    with atomic_write(path) as file:
        file.write(json.dumps([*runs, record], indent=1, default=str).encode() + b"\n")
