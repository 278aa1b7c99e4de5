"""Arrays that are stored once on the disk of each host and mapped by the workers there.

Workers are on the same host if they share a folder of Dask's workers (``dask worker --local-directory``, by
default one for all workers of a user).
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xmcjax._matrix_pipes import arrays_of, of_arrays

_READY = "ready"


def folder_of(local_directory: str, run: str) -> Path:
    """The folder of the arrays of a run on the host of a worker.

    Args:
        local_directory: the folder of the worker, beside those of all workers of its host.
        run: the name of the run.
    """
    return Path(local_directory).parent / f"xmcjax-{run}"


def ready(folder: Path) -> bool:
    """Whether the arrays are there, complete."""
    return (folder / _READY).exists()


def write(folder: Path, matrices: Mapping[str, Any]) -> None:
    """Writes matrices into a new folder; another worker of the host may have done it meanwhile.

    Raises:
        OSError: the matrices cannot be written; nothing is left of them.
    """
    if ready(folder):
        return
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}-"))
    try:
        forms = {}
        for name, matrix in matrices.items():
            form, arrays = arrays_of(matrix)
            forms[name] = form, list(matrix.shape)
            for k, array in enumerate(arrays):
                np.save(scratch / f"{name}-{k}.npy", array)
        (scratch / _READY).write_text(json.dumps(forms))
        try:
            scratch.rename(folder)
        except OSError:
            if not ready(folder):
                raise
            shutil.rmtree(scratch)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def read(folder: Path) -> dict[str, Any] | None:
    """The matrices, mapped into memory; None where the host does not have them."""
    try:
        forms = json.loads((folder / _READY).read_text())
    except FileNotFoundError:
        return None
    return {name: _read(folder, name, *form) for name, form in forms.items()}


def _read(folder: Path, name: str, form: str, shape: list[int]):
    arrays = [np.load(folder / f"{name}-{k}.npy", mmap_mode="r") for k in range(1 if form == "dense" else 3)]
    return of_arrays(form, arrays, shape)
