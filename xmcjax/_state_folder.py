"""Where the command line keeps the state of a run whose labels are trained together: beside its model."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder(model: str | os.PathLike[str]) -> Path:
    """The folder for the state of the run that makes a model."""
    model = Path(os.path.abspath(model))
    return model.with_name(f"{model.name}.state")


def no_model(directory: Path, manifest: str) -> FileNotFoundError:
    """The error where a model is expected; it names the state of a run that has not made it yet."""
    state = state_folder(directory)
    found = f"no {manifest}"
    if state.is_dir():
        found += f", but the state of a run that has not ended in {directory.with_name(state.name)}"
        found += ": the command that trained goes on with it by --resume"
    return FileNotFoundError(f"{directory}: expected a model, found {found}")
