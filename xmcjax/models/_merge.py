"""Joining parts of a model, each trained on its own range of labels, into one model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import flag
from xmcjax._systems import saved_by_estimator
from xmcjax.models import _manifest
from xmcjax.models._calibration import Calibration, write_calibration
from xmcjax.models._errors import ModelError
from xmcjax.models._linear import LinearModel
from xmcjax.models._vacant import check_place, check_vacant
from xmcjax.models._writer import ShardWriter


def merge_models(
    parts: Sequence[str | os.PathLike[str]], directory: str | os.PathLike[str], *, resume: bool = False
) -> LinearModel:
    """Joins parts of one model; the result has the bytes of a model that was trained at once.

    Only a calibration may differ: labels of fewer than ten positive rows share a slope and an offset, which
    each part has fitted to its own labels.

    Args:
        parts: directories of complete models of the same data and options. Each label is in exactly one of
            them. Every file is compared with its hash.
        directory: of the result, new or empty.
        resume: whether the directory may hold a part of the result, from a run that was interrupted.

    Returns:
        The result.

    Raises:
        ModelError: a damaged or incomplete part, one of other data or options, a label that is in no part,
            or one that is in two. The message names the parts and the range.
        FileExistsError: the directory holds anything.
        ValueError: no parts, or a directory within another model (unless with `resume` it holds a model).
        OSError: a file that cannot be read or written.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from xmcjax.models import ShardWriter
        >>> folder, meta = tempfile.mkdtemp(), {"n_features": 2, "n_labels": 2, "dtype": "float32"}
        >>> for part in (0, 1):
        ...     with ShardWriter(f"{folder}/{part}", meta, (part, part + 1), 1) as writer:
        ...         writer.add(part, [0], np.float32([1]))
        >>> merge_models([f"{folder}/0", f"{folder}/1"], f"{folder}/whole").n_labels
        2
    """
    if not isinstance(parts, (list, tuple)):
        raise TypeError(f"parts: expected a list of directories, found {type(parts).__name__}")
    parts = [Path(part) for part in parts]
    if not parts:
        raise ValueError("parts: expected at least one directory, got none")
    if flag("resume", resume):
        check_place(Path(directory))
    else:
        check_vacant(directory)
    models = sorted((LinearModel.load(part, verify="full") for part in parts), key=lambda m: m.label_range)
    first = models[0]
    for model in models if len(models) > 1 else ():
        _check_part(model)
    for model in models[1:]:
        _check_same(first, model)
    # the parts share their meta data, so that either all of them have a calibration or none has
    parts_of_it = [part for part in (model.calibration_of() for model in models) if part is not None]
    calibration = Calibration.joined(*parts_of_it) if parts_of_it else None
    _check_ranges(models)
    names = first.names()
    unnamed = names.classes is None and names.features is None
    writer = ShardWriter(
        directory,
        first.meta,
        shard_size=first.shard_size,
        transforms_arrays=first.transforms_arrays(),
        resume=resume,
        names=None if unnamed else names,
    )
    with writer:
        for begin, end in writer.missing_shards():
            inside = (
                (model, max(begin, model.label_range[0]), min(end, model.label_range[1])) for model in models
            )
            _add(writer, [(model, low, high) for model, low, high in inside if low < high])
    if calibration is not None:
        write_calibration(directory, calibration)
    return LinearModel.load(directory, verify="size")


def _check_part(model: LinearModel) -> None:
    """Checks that a model may be one of several parts."""
    if "parameters" not in model.meta:
        return
    found = f"a model of the system {model.meta.get('system')}"
    if saved_by_estimator(model.meta):
        found = "a model that an estimator saved"
    raise ModelError(
        f"{model.directory}: expected a part of a one-vs-all training, found {found}, which is no part to "
        "merge"
    )


def _add(writer: ShardWriter, parts: Sequence[tuple[LinearModel, int, int]]) -> None:
    """Adds a shard made of labels first … last − 1 of one model or several."""
    labels = np.arange(parts[0][1], parts[-1][2])
    W = [model.weights(first, last) for model, first, last in parts]
    numbers = [(model.intercept_of(*of), *model.training_of(*of)) for model, *of in parts]
    names = ("intercept", "status", "newton_steps", "cg_steps")
    arrays = dict(zip(names, map(np.concatenate, zip(*numbers, strict=True)), strict=True))
    writer.add_shard(parts[0][1], labels, W[0] if len(W) == 1 else sp.vstack(W, format="csr"), **arrays)


def _check_same(one: LinearModel, other: LinearModel) -> None:
    """Checks that two parts were trained alike."""
    known = [{**model.meta, "shard_size": model.shard_size, **model.file_hashes()} for model in (one, other)]
    meta = _manifest.in_order(one.meta.keys() | other.meta.keys())
    for key in dict.fromkeys([*meta, *known[0], *known[1]]):
        wanted, found = (values.get(key, "nothing") for values in known)
        if found != wanted:
            raise ModelError(
                f"{other.directory}: expected {key} = {wanted!r} as in {one.directory}, found {found!r}"
            )


def _check_ranges(models: Sequence[LinearModel]) -> None:
    end, before = 0, None
    for model in models:
        low, high = model.label_range
        if low < end:
            last = min(end, high) - 1
            raise ModelError(
                f"{model.directory}: expected every label in one part, found labels {low} to {last} in "
                f"{before} too"
            )
        if low > end:
            raise ModelError(f"expected every label in a part, found labels {end} to {low - 1} in none")
        end, before = high, model.directory
    if end < models[0].n_labels:
        last = models[0].n_labels - 1
        raise ModelError(f"expected every label in a part, found labels {end} to {last} in none")
