"""Models that predict from their training rows: a directory of arrays with a manifest.

================================ ====================================================================
file                             content
================================ ====================================================================
``manifest.json``                format ``xmcjax-kernel-model``: meta data, and the other files
``arrays.safetensors``           the arrays that ``meta`` describes
``names.json``                   of classes and features; only where they have any
``transforms.safetensors``       of the features; only where there are any
================================ ====================================================================
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import flag, instance
from xmcjax._state_folder import no_model
from xmcjax._systems import FIRST_SYSTEM
from xmcjax.data import Transforms, atomic_write, make_folder
from xmcjax.models import _manifest
from xmcjax.models._errors import ModelFormatError
from xmcjax.models._lock import DirectoryLock
from xmcjax.models._manifest import ARRAYS, KERNEL_FORMAT, MANIFEST, NAMES, TRANSFORMS
from xmcjax.models._names import Names, decode
from xmcjax.models._tensors import reading, transforms_of
from xmcjax.models._vacant import check_place, check_vacant, clear_unfinished

_SCHEMA_VERSION = 1


class KernelArrays(NamedTuple):
    """What a directory holds."""

    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]
    names: Names
    transforms: Transforms


def write_kernel_model(
    directory: str | os.PathLike[str],
    meta: dict[str, Any],
    arrays: Mapping[str, np.ndarray],
    names: Names | None = None,
    transforms: Transforms | None = None,
    *,
    held: bool = False,
) -> None:
    """Writes a model: first its files, last the manifest, without which they are no model.

    Args:
        directory: new or empty.
        meta: JSON values, at least n_features, n_labels and dtype.
        arrays: by name.
        names: of classes and features, or None.
        transforms: of the features, or None.
        held: whether the caller has :func:`reserved` the directory.

    Raises:
        FileExistsError: the directory holds anything else than left-overs of a killed writer that writes a
            model in one go.
        TypeError, ValueError: what cannot be stored.
        OSError: the directory cannot be made or written.

    Example:
        >>> import tempfile
        >>> from xmcjax.models import write_kernel_model
        >>> meta = {"n_features": 2, "n_labels": 2, "dtype": "float32"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_kernel_model(folder, meta, {"alpha": np.eye(2, dtype=np.float32)})
        ...     sorted(path.name for path in Path(folder).iterdir() if not path.name.startswith("."))
        ['arrays.safetensors', 'manifest.json']
    """
    from safetensors.numpy import save

    directory, meta = Path(directory), _manifest.check_meta(meta)
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays: expected arrays by name, found {type(arrays).__name__}")
    if names is not None:
        instance("names", names, Names)
    contiguous = {name: np.ascontiguousarray(_sparse.dense(a, name)) for name, a in arrays.items()}
    files = {ARRAYS: save(contiguous)}
    if names is not None:
        files[NAMES] = names.encode()
        decode(directory / NAMES, files[NAMES], meta["n_labels"], meta["n_features"])
    if transforms is not None and transforms.arrays:
        files[TRANSFORMS] = save({name: np.ascontiguousarray(a) for name, a in transforms.arrays.items()})
    records = {name: dataclasses.asdict(_manifest.record(name, content)) for name, content in files.items()}
    content = {"format": KERNEL_FORMAT, "schema_version": _SCHEMA_VERSION, "meta": meta}
    content |= {name.partition(".")[0]: record for name, record in records.items()}
    check_place(directory)
    make_folder(directory)
    with DirectoryLock(directory, flag("held", held)):
        check_vacant(directory, resumable=False, unfinished=True)
        clear_unfinished(directory)
        for name, raw in (*files.items(), (MANIFEST, _manifest.sealed(content))):
            with atomic_write(directory / name) as file:
                file.write(raw)


def read_kernel_model(directory: str | os.PathLike[str]) -> KernelArrays:
    """Reads a model and compares every file with its hash.

    Raises:
        ModelFormatError: a damaged, missing or foreign file.
        OSError: no such directory, no manifest in it, or no permission.

    Example:
        >>> import tempfile
        >>> from xmcjax.models import read_kernel_model, write_kernel_model
        >>> meta = {"n_features": 2, "n_labels": 2, "dtype": "float32"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_kernel_model(folder, meta, {"alpha": np.eye(2, dtype=np.float32)})
        ...     model = read_kernel_model(folder)
        >>> model.meta["n_labels"], model.arrays["alpha"].tolist()
        (2, [[1.0, 0.0], [0.0, 1.0]])
    """
    from safetensors.numpy import load

    directory = Path(directory)
    content, path = _content(directory), directory / MANIFEST
    meta, _ = _manifest.checked_head(path, content, KERNEL_FORMAT, _SCHEMA_VERSION)
    found: dict[str, bytes] = {}
    for name in (ARRAYS, NAMES, TRANSFORMS):
        file = _manifest.file_of(path, content, name.partition(".")[0], name)
        if file is not None:
            found[name] = _manifest.checked_bytes(directory, file)
    if ARRAYS not in found:
        raise ModelFormatError(path, f"the file {ARRAYS}", "none")
    stored: dict[str, dict[str, np.ndarray]] = {}
    for name in (ARRAYS, TRANSFORMS):
        with reading(directory / name):
            stored[name] = load(found[name]) if name in found else {}
    names = Names()
    if NAMES in found:
        names = decode(directory / NAMES, found[NAMES], meta["n_labels"], meta["n_features"])
    transforms = transforms_of(path, meta, stored[TRANSFORMS])
    arrays = {name: _sparse.array(array, name) for name, array in stored[ARRAYS].items()}
    return KernelArrays(meta, arrays, names, transforms)


def system_of(directory: str | os.PathLike[str]) -> str:
    """The system of :data:`xmcjax._systems.SYSTEMS` that trained the model in a directory.

    Raises:
        ModelFormatError: a damaged manifest, or another system.
        OSError: no such directory, no manifest in it, or no permission.

    Example:
        >>> import tempfile
        >>> from xmcjax import OneVsAllClassifier
        >>> folder = tempfile.mkdtemp()
        >>> OneVsAllClassifier().fit([[0.0], [1.0]], [0, 1]).save(folder)
        >>> system_of(folder)
        'one-vs-all'
    """
    content = _content(Path(directory))
    if isinstance(content, dict) and content.get("format") == KERNEL_FORMAT:
        return "kernel"
    system = _meta(content).get("system", FIRST_SYSTEM)
    return system if isinstance(system, str) else FIRST_SYSTEM


def meta_of(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """How the model in a directory was made, whatever its system. Only its manifest is read.

    Raises:
        ModelFormatError, OSError: as :func:`system_of`, but for a system of any name.

    Example:
        >>> import tempfile
        >>> from xmcjax import OneVsAllClassifier
        >>> folder = tempfile.mkdtemp()
        >>> OneVsAllClassifier().fit([[0.0], [1.0]], [0, 1]).save(folder)
        >>> meta_of(folder)["n_features"]
        1
    """
    return _meta(_content(Path(directory)))


def _meta(content: Any) -> dict[str, Any]:
    meta = content.get("meta") if isinstance(content, dict) else None
    return meta if isinstance(meta, dict) else {}


def _content(directory: Path) -> Any:
    _manifest.check_directory(directory)
    try:
        return _manifest.unsealed(directory / MANIFEST)[0]
    except FileNotFoundError as error:
        raise no_model(directory, MANIFEST) from error
