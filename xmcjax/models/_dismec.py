"""Models of dismecpp: a file of JSON that names files of weights.

E. Schultheis, R. Babbar, Speeding-up one-versus-all training for extreme classification via mean-separating
initialization, Machine Learning 111, 2022, and its program. The JSON has ``num-features``, ``num-labels`` and
``files``, each of these with the labels ``first`` … ``first + count − 1`` in a file beside it, in one of the
formats ``DenseTXT``, ``SparseTXT`` and ``DenseNPY``. Where the program was given ``--augment-for-bias``, the
last feature is the bias; the file does not say so.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax._file_kinds import kind_of
from xmcjax.data import DataFormatError, MemoryBound, atomic_write, load_matrix, load_npy
from xmcjax.models._errors import ModelFormatError
from xmcjax.models._foreign import (
    CUT,
    ForeignModel,
    numbers_of,
    of_finite_type,
    of_matrix,
    told_of_never,
    trained_biases,
)
from xmcjax.models._linear import LinearModel
from xmcjax.models._manifest import check_regular

_FORMATS = ("DenseTXT", "SparseTXT", "DenseNPY")
_MOST = 2**31 - 1
# _JSON: the most bytes of the JSON, which names one file for some thousands of labels each. _NUMBER: the
# most characters of a number in a text of weights.
_JSON = 16 << 20
_NUMBER = 40
# Bytes that a weight takes until all are one matrix.
_WEIGHT = 40
# A file has _LABELS labels, as dismecpp writes them, or more where there would be more than _FILES files,
# which are all open at a time.
_LABELS, _FILES = 4096, 256


def read_dismec(
    path: str | os.PathLike[str], bias: float | None = None, max_memory: int | None = None
) -> ForeignModel:
    """A model that dismecpp trained, in float32 as dismecpp has it.

    Args:
        path: the JSON.
        bias: value of the last feature, which is the bias; None where there is no bias.
        max_memory: bytes that reading a file may take; None allows 20 times its size and 64 MB.

    Raises:
        ModelFormatError: a damaged or missing file, or labels that are missing or there twice.
        DataFormatError: damaged weights, or too much memory.
        OSError: a file cannot be read.
    """
    path = Path(path)
    d, files = _contents(path)
    if bias is not None and d < 2:
        raise ModelFormatError(path, "two features at least, the last of them the bias", str(d))
    parts = []
    for first, count, name, format in files:
        beside = path.with_name(name)
        if not beside.exists():
            raise ModelFormatError(path, f"a file {name} with the labels from {first} on", "none")
        check_regular(beside)
        parts.append(_weights(beside, format, (count, d), max_memory))
    return of_matrix(sp.csr_array(sp.vstack(parts, "csr")), bias, "dismec")


def _contents(path: Path) -> tuple[int, list[tuple[int, int, str, str]]]:
    """Features, and (first, count, name, format) of each file, ascending."""

    def need(condition: bool, expected: str, found: Any) -> None:
        if not condition:
            raise ModelFormatError(path, expected, repr(found)[:80])

    with open(path, "rb") as file:
        raw = file.read(_JSON + 1)
    need(len(raw) <= _JSON, f"JSON of at most {_JSON} bytes", "more")
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(path, "a model of dismecpp in JSON", " ".join(str(error).split())) from error
    need(isinstance(content, dict), "a JSON object", type(content).__name__)
    sizes = [content.get(key) for key in ("num-features", "num-labels")]
    for key, size in zip(("num-features", "num-labels"), sizes, strict=True):
        need(type(size) is int and 1 <= size <= _MOST, f"{key!r} from 1 to {_MOST}", size)
    listed = content.get("files")
    need(isinstance(listed, list), "a list 'files'", listed)
    files = []
    for entry in listed:
        need(isinstance(entry, dict), "an object for each file", entry)
        first, count, name, format = (entry.get(key) for key in ("first", "count", "file", "weight-format"))
        need(type(first) is int and first >= 0, "'first' as a label", first)
        need(type(count) is int and count >= 1, "'count' as a number of labels", count)
        plain = isinstance(name, str) and name not in ("", ".", "..") and "\0" not in name
        need(plain and Path(name).name == name and "\\" not in name, "'file' as a name beside the JSON", name)
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            need(False, "'file' as a name beside the JSON", name)
        need(format in _FORMATS, f"'weight-format' of {', '.join(_FORMATS)}", format)
        files.append((first, count, name, format))
    end = 0
    for first, count, name, _ in sorted(files):
        need(
            first == end,
            f"weights of label {min(first, end)} once, of {end} next",
            f"label {first} in {name}",
        )
        end = first + count
    need(end == sizes[1], f"weights of {sizes[1]} labels", end)
    return sizes[0], sorted(files)


def _weights(path: Path, format: str, shape: tuple[int, int], max_memory: int | None) -> sp.csr_array:
    float32 = np.dtype(np.float32)
    if format.endswith("TXT"):
        _check_end(path)
    if format == "SparseTXT":
        return sp.csr_array(load_matrix(path, float32, shape=shape, max_memory=max_memory))
    if format == "DenseNPY":
        W = load_npy(path, float32, max_memory=max_memory)
        if W.shape != shape:
            raise DataFormatError(path, None, None, f"weights {list(shape)}", f"an array {list(W.shape)}")
        return sp.csr_array(W)
    return of_finite_type(_dense_text(path, shape, max_memory), float32, path)


def _check_end(path: Path) -> None:
    """Raises DataFormatError where the last line of a text is not complete: its last number may be cut."""
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                raise DataFormatError(path, None, None, *CUT)


def _dense_text(path: Path, shape: tuple[int, int], max_memory: int | None) -> sp.csr_array:
    """The weights of a text that has a line for each label, with a number for each feature."""
    bound, (count, d) = MemoryBound(path, max_memory), shape
    lengths, indices, values = [0], [np.zeros(0, np.int32)], [np.zeros(0)]
    position = held = 0
    with open(path, "rb") as file:
        for number in range(1, count + 2):
            line = file.readline(_NUMBER * d + _NUMBER)
            position += len(line)
            bound.seen(position)
            if number > count:
                if line.strip():
                    raise DataFormatError(path, number, 1, f"{count} lines, one per label", "one more")
                break
            if not line:
                found = f"the end of the file after {number - 1}"
                raise DataFormatError(path, number, 1, f"{count} lines, one per label", found)
            weights = numbers_of(line)
            if weights is None or len(weights) != d:
                found = "others" if weights is None else str(len(weights))
                raise DataFormatError(path, number, 1, f"{d} weights", found)
            stored = np.flatnonzero(weights)
            lengths.append(len(stored))
            indices.append(stored.astype(np.int32))
            values.append(weights[stored])
            held += _WEIGHT * len(stored)
            bound.check(held, f"the weights of {number:,} labels", number)
    parts = np.concatenate(values), np.concatenate(indices), np.cumsum(lengths)
    return sp.csr_array(parts, shape=shape)


def write_dismec(path: str | os.PathLike[str], model: LinearModel) -> list[str]:
    """Writes a model for dismecpp's ``predict``. Returns what a user should be told about the file.

    The weights are text beside the JSON. All files are complete before the first one replaces an old one, and
    the JSON is replaced last. Where a label has a bias, it is stored as the weight of a last feature, for
    which the program is given ``--augment-for-bias=1``.

    Raises:
        OSError: a file cannot be written.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        found = kind_of(path.stat().st_mode)
        raise ValueError(f"{path}: expected a file, because files of weights stand beside it, found {found}")
    trained, bias = trained_biases(model)
    with_bias, files = bool(bias.any()), []
    labels = max(_LABELS, -(-model.n_labels // _FILES))
    # all files are complete before the first one replaces an old one; the JSON is replaced last
    with contextlib.ExitStack() as written:
        head = written.enter_context(atomic_write(path))
        for first in range(0, model.n_labels, labels):
            files.append(_write_weights(path, model, first, labels, bias, written))
        content = {"num-features": model.n_features + with_bias, "num-labels": model.n_labels, "files": files}
        head.write((json.dumps(content, indent=4) + "\n").encode())
    if with_bias:
        told = "the last feature is the bias: give dismecpp --augment-for-bias=1"
    else:
        told = "no label has a bias, and no feature stands for one: give dismecpp no --augment-for-bias"
    return [told, *told_of_never(trained)]


def _write_weights(
    path: Path, model: LinearModel, first: int, labels: int, bias: np.ndarray, written: contextlib.ExitStack
) -> dict[str, Any]:
    """Writes the weights of some labels; the file appears when the stack is left. Returns its JSON entry."""
    last = min(first + labels, model.n_labels)
    name = f"{path.name}.weights-{first}-{last - 1}"
    coef = of_finite_type(model.weights(first, last), np.dtype(np.float32), model.directory)
    file = written.enter_context(atomic_write(path.with_name(name)))
    for label in range(last - first):
        span = slice(coef.indptr[label], coef.indptr[label + 1])
        pairs = list(zip(coef.indices[span].tolist(), coef.data[span].tolist(), strict=True))
        if bias[first + label]:
            pairs.append((model.n_features, float(bias[first + label])))
        file.write((" ".join([f"{j}:{value:.9g}" for j, value in pairs]) + " \n").encode())
    return {"first": first, "count": last - first, "file": name, "weight-format": "SparseTXT"}
