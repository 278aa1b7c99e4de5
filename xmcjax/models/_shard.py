"""One shard: consecutive labels as a safetensors file.

============  =========  ============  =====================================================
tensor        dtype      shape         meaning
============  =========  ============  =====================================================
indptr        int64      [m + 1]       where the weights of each label start
indices       int32      [nonzeros]    features, ascending within a label
values        float32/64 [nonzeros]    weights, none of them zero
intercept     float32/64 [m]           the bias of each label
status        int8       [m]           how its training ended (`xmcjax.solvers.Status`)
newton_steps  int32      [m]           Newton steps taken
cg_steps      int32      [m]           conjugate-gradient steps taken
============  =========  ============  =====================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import number, whole_number
from xmcjax._index_faults import compressed_fault
from xmcjax._rising import rises_in_rows
from xmcjax._row_groups import groups, groups_of
from xmcjax.models._base import NO_POSITIVES, STATUSES
from xmcjax.models._errors import ModelFormatError
from xmcjax.models._tensors import described, header, reading

#: How many weights are read or written at a time where a whole shard is not needed at once.
PART = 1 << 18
_OF_WEIGHTS = ("indices", "values")
#: The least and the largest value of each number that is stored per label.
RANGES = {
    "status": (STATUSES[0], STATUSES[-1]),
    "newton_steps": (0, np.iinfo(np.int32).max),
    "cg_steps": (0, np.iinfo(np.int32).max),
}
_TYPES = {name: np.dtype(np.int8 if name == "status" else np.int32) for name in RANGES}


class LabelWeights(NamedTuple):
    """The result of one label, checked and ready to be stored."""

    indices: np.ndarray
    values: np.ndarray
    intercept: float
    status: int
    newton_steps: int
    cg_steps: int


class Shard(NamedTuple):
    """The arrays of a shard, as in the table above; lane i is label ``first_label + i``."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    intercept: np.ndarray
    status: np.ndarray
    newton_steps: np.ndarray
    cg_steps: np.ndarray

    def part(self, first: int, last: int) -> Shard:
        """Its lanes first … last − 1."""
        begin, end = self.indptr[first], self.indptr[last]
        numbers = (array[first:last] for array in self[3:])
        return Shard(
            self.indptr[first : last + 1] - begin, self.indices[begin:end], self.values[begin:end], *numbers
        )


def checked_weights(
    label: int,
    indices,
    values,
    bias: float,
    status: int,
    newton_steps: int,
    cg_steps: int,
    *,
    n_features: int,
    dtype: np.dtype,
) -> LabelWeights:
    """The result of a label as it is stored; the arguments are those of ``ShardWriter.add``.

    Raises:
        ValueError, TypeError: as there.

    Example:
        >>> kept = checked_weights(
        ...     4, [0, 2], np.float32([0.5, 0]), 0.0, 0, 3, 5, n_features=3, dtype=np.dtype("float32")
        ... )
        >>> kept.indices.tolist()  # without the zero
        [0]
    """
    indices, values = _sparse.dense(indices, "indices"), _sparse.dense(values, "values")
    if indices.size == 0:
        indices = indices.astype(np.int32)
    if indices.ndim != 1 or values.shape != indices.shape or indices.dtype.kind not in "iu":
        raise ValueError(
            f"label {label}: expected indices (integers) and values of one length, found shapes "
            f"{indices.shape}, {values.shape} and indices of type {indices.dtype}"
        )
    if values.dtype != dtype:
        raise TypeError(f"label {label}: expected values of type {dtype}, found {values.dtype}")
    with np.errstate(over="ignore"):
        stored_bias = dtype.type(number("bias", bias))
    if not (np.isfinite(values).all() and np.isfinite(stored_bias)):
        raise ValueError(f"label {label}: expected finite weights, found nan or infinity")
    if indices.size and (indices[0] < 0 or indices[-1] >= n_features or (indices[1:] <= indices[:-1]).any()):
        raise ValueError(
            f"label {label}: expected ascending features from 0 to {n_features - 1}, found others"
        )
    # Boolean indexing copies: the caller may use its buffers again.
    kept = values != 0
    steps = (whole_number(n, s, 0) for n, s in (("newton_steps", newton_steps), ("cg_steps", cg_steps)))
    status = whole_number("status", status, STATUSES[0], STATUSES[-1])
    return LabelWeights(indices[kept].astype(np.int32), values[kept], float(bias), status, *steps)


class Content(NamedTuple):
    """What a shard is written from, checked.

    Attributes:
        numbers: the arrays other than those of the weights, by name.
        parts: a function; each call gives the arrays of the weights, ``indices`` and ``values``, in parts.
    """

    numbers: dict[str, np.ndarray]
    parts: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]]

    @property
    def nonzeros(self) -> int:
        """Its weights."""
        return int(self.numbers["indptr"][-1])

    def encoded(self) -> Iterator[bytes | memoryview]:
        """The bytes of its file; they depend on the labels alone.

        Raises:
            ValueError: the weights were changed meanwhile and do not fit the header.
        """
        count, dtype = len(self.numbers["status"]), self.numbers["intercept"].dtype
        layout = _layout(count, self.nonzeros, dtype)
        shapes = {name: (kind, (length,)) for name, (kind, length) in layout.items()}
        yield header(json.dumps(described(shapes), separators=(",", ":")))
        for name, (kind, length) in layout.items():
            if name in self.numbers:
                yield self.numbers[name].data
                continue
            place, written = _OF_WEIGHTS.index(name), 0
            for part in self.parts():
                yield np.ascontiguousarray(part[place], kind).data
                written += len(part[place])
            if written != length:
                raise ValueError(
                    f"expected weights that stay as they are while they are written, found {written:,} "
                    f"{name} where there were {length:,}"
                )


def of_labels(labels: Sequence[LabelWeights], dtype: np.dtype) -> Content:
    """The content of a shard of consecutive labels."""
    indices = np.concatenate([label.indices for label in labels])
    values = np.concatenate([label.values for label in labels])
    numbers = {
        "indptr": np.cumsum([0] + [len(label.indices) for label in labels], dtype=np.int64),
        "intercept": np.array([label.intercept for label in labels], dtype),
        **{name: np.array([getattr(label, name) for label in labels], _TYPES[name]) for name in RANGES},
    }
    return Content(numbers, lambda: [(indices, values)])


def checked_rows(
    labels, W, numbers: dict[str, np.ndarray], bounds: tuple[int, int], *, n_features: int, dtype: np.dtype
) -> tuple[np.ndarray, Any]:
    """Labels, int64, and their weights, as `of_rows` takes them; the arguments are those of `add_rows`.

    Args:
        bounds: (first, one past the last) label that is allowed.

    Raises:
        ValueError, TypeError: as :meth:`xmcjax.models.ShardWriter.add`.
    """
    labels, W = _sparse.dense(labels, "labels"), _sparse.matrix(W, "W")
    if W.dtype != dtype:
        raise TypeError(f"W: expected values of type {dtype}, found {W.dtype}")
    for name, array in {"labels": labels, **numbers}.items():
        if array.ndim != 1 or (name != "intercept" and array.dtype.kind not in "iu"):
            found = f"values of type {array.dtype}, shape {list(array.shape)}"
            raise ValueError(f"{name}: expected whole numbers in one dimension, found {found}")
    rows, (first, last) = len(labels), bounds
    if W.shape != (rows, n_features) or any(len(array) != rows for array in numbers.values()):
        lengths = [len(array) for array in numbers.values()]
        raise ValueError(
            f"expected rows of {n_features} weights and numbers for {rows} labels, found weights of shape "
            f"{list(W.shape)} and numbers for {lengths}"
        )
    if rows and (labels[0] < first or labels[-1] >= last or (labels[1:] <= labels[:-1]).any()):
        raise ValueError(f"labels: expected ascending labels from {first} to {last - 1}, found others")
    return labels.astype(np.int64), W


def of_rows(first: int, last: int, labels: np.ndarray, W, numbers: dict[str, np.ndarray]) -> Content:
    """The content of a shard of labels first … last − 1, some of which are rows of a matrix.

    Args:
        first, last: of the shard.
        labels: the label of each row. Other labels have no positives.
        W: the weights of these labels, as `checked_rows` returned them.
        numbers: ``intercept`` and the members of `RANGES`, each with a value per row.

    Raises:
        ValueError: as :meth:`xmcjax.models.ShardWriter.add`.
    """
    dtype = W.dtype
    absent = {"intercept": 0, "status": NO_POSITIVES, "newton_steps": 0, "cg_steps": 0}
    stored = {name: np.full(last - first, absent[name], _TYPES.get(name, dtype)) for name in absent}
    for name, (low, high) in RANGES.items():
        for extreme in (numbers[name].min(), numbers[name].max()) if len(labels) else ():
            whole_number(name, extreme, low, high)
    for name, array in numbers.items():
        with np.errstate(over="ignore"):
            stored[name][labels - first] = array
    lengths, row = np.zeros(last - first, np.int64), 0
    finite = np.isfinite(stored["intercept"][labels - first])
    for part in _parts(W):
        rows = slice(row, row + part.shape[0])
        lengths[labels[rows] - first] = np.diff(part.indptr)
        if not np.isfinite(part.data).all():
            places = np.flatnonzero(~np.isfinite(part.data))
            finite[row + np.searchsorted(part.indptr, places, side="right") - 1] = False
        row = rows.stop
    if not finite.all():
        label = labels[np.argmin(finite)]
        raise ValueError(f"label {label}: expected finite weights, found nan or infinity")
    stored["indptr"] = np.concatenate([[0], np.cumsum(lengths)])
    return Content(stored, lambda: ((part.indices, part.data) for part in _parts(W)))


def _parts(W) -> Iterator[Any]:
    """The rows of a matrix as CSR without zeros, some at a time."""
    for first, last in groups_of(W, PART):
        rows = _sparse.rows_of(W, slice(first, last))
        yield _sparse.canonical_csr(rows, zeros=False) if sp.issparse(rows) else _sparse.of_dense(rows)


def _layout(n_labels: int, nonzeros: int, dtype: np.dtype) -> dict[str, tuple[np.dtype, int]]:
    """Type and length of each array of a shard, in the order of the file."""
    return {
        "indptr": (np.dtype(np.int64), n_labels + 1),
        "intercept": (dtype, n_labels),
        "values": (dtype, nonzeros),
        "cg_steps": (_TYPES["cg_steps"], n_labels),
        "indices": (np.dtype(np.int32), nonzeros),
        "newton_steps": (_TYPES["newton_steps"], n_labels),
        "status": (_TYPES["status"], n_labels),
    }


def decode(path: Path, n_labels: int, nonzeros: int, n_features: int, dtype: np.dtype) -> Shard:
    """Read a shard and check it against what the manifest says of it.

    Raises:
        ModelFormatError: no safetensors file, or arrays that are not those of a shard of
            ``n_labels`` labels and ``nonzeros`` weights on ``n_features`` features.
        OSError: the file cannot be read.
    """
    ((_, shard),) = decode_parts(path, n_labels, nonzeros, n_features, dtype, max(1, nonzeros))
    return shard


def decode_parts(
    path: Path, n_labels: int, nonzeros: int, n_features: int, dtype: np.dtype, most: int = PART
) -> Iterator[tuple[int, Shard]]:
    """As :func:`decode`, in parts of consecutive labels with about ``most`` weights: for each part its first
    label, counted from the first of the shard, and its arrays.
    """
    from safetensors import safe_open

    wanted = _layout(n_labels, nonzeros, dtype)
    with reading(path), safe_open(path, framework="numpy") as file:
        names = sorted(file.keys())
        if names != sorted(wanted):
            raise ModelFormatError(path, f"the arrays {', '.join(sorted(wanted))}", ", ".join(names))
        for name, (_, length) in wanted.items():
            shape = list(file.get_slice(name).get_shape())
            if shape != [length]:
                raise ModelFormatError(path, f"{name} of shape [{length}]", f"{shape}")
        of_labels = {name: file.get_tensor(name) for name in Shard._fields if name not in _OF_WEIGHTS}
        for name, array in of_labels.items():
            _check_of_labels(path, name, array, *wanted[name], nonzeros)
        indptr = of_labels.pop("indptr")
        for first, last in groups(indptr, most):
            begin, end = int(indptr[first]), int(indptr[last])
            weights = {name: _entries(file, name, begin, end, *wanted[name]) for name in _OF_WEIGHTS}
            _check_weights(path, indptr, begin, end, wanted, n_features, **weights)
            numbers = {name: array[first:last] for name, array in of_labels.items()}
            yield first, Shard(indptr[first : last + 1] - begin, **weights, **numbers)


def decode_of_labels(path: Path, name: str, n_labels: int, nonzeros: int, dtype: np.dtype) -> np.ndarray:
    """An array of a shard with a number for each label, or ``indptr``, without reading the others.

    Raises:
        ModelFormatError, OSError: as :func:`decode`.
    """
    from safetensors import safe_open

    with reading(path), safe_open(path, framework="numpy") as file:
        array = file.get_tensor(name)
    _check_of_labels(path, name, array, *_layout(n_labels, nonzeros, dtype)[name], nonzeros)
    return array


def _entries(file, name: str, begin: int, end: int, kind: np.dtype, length: int) -> np.ndarray:
    """Entries begin … end − 1 of an array; safetensors refuses to read an empty range of a longer array."""
    if end - begin == length:
        return file.get_tensor(name)
    return file.get_slice(name)[begin:end] if begin < end else np.empty(0, kind)


def _check_type(path: Path, name: str, array: np.ndarray, kind: np.dtype, length: int) -> None:
    if array.shape != (length,):
        raise ModelFormatError(path, f"{name} of shape [{length}]", f"{list(array.shape)}")
    if array.dtype != kind:
        raise ModelFormatError(path, f"{name} of type {kind}", f"{array.dtype}")


def _check_of_labels(
    path: Path, name: str, array: np.ndarray, kind: np.dtype, length: int, nonzeros: int
) -> None:
    """Checks an array with a number per label of a shard."""
    _check_type(path, name, array, kind, length)
    if name == "indptr":
        # zeros stand for the indices, which are not read here: only indptr is checked
        fault = compressed_fault(
            array, np.broadcast_to(np.int32(0), nonzeros), nonzeros, length - 1, 1, "label"
        )
        if fault is not None:
            raise ModelFormatError(path, *fault)
        if array[-1] != nonzeros:
            raise ModelFormatError(path, f"indptr rising from 0 to {nonzeros}", f"an end at {array[-1]}")
    elif name == "intercept":
        if not np.isfinite(array).all():
            raise ModelFormatError(path, "finite intercept", "nan or infinity")
    else:
        low, high = RANGES[name]
        wrong = array[(array < low) | (array > high)]
        if wrong.size:
            raise ModelFormatError(path, f"{name} from {low} to {high}", str(wrong[0]))


def _check_weights(
    path: Path, indptr: np.ndarray, begin: int, end: int, wanted, n_features: int, *, indices, values
) -> None:
    """Checks weights number begin … end − 1 of a shard."""
    for name, array in (("indices", indices), ("values", values)):
        _check_type(path, name, array, wanted[name][0], end - begin)
    # where the weights of each label of the shard start, counted from `begin`
    starts = np.clip(indptr, begin, end) - begin
    fault = compressed_fault(starts, indices, end - begin, len(starts) - 1, n_features, "label")
    if fault is not None:
        raise ModelFormatError(path, *fault)
    if not rises_in_rows(indices, starts):
        raise ModelFormatError(path, "ascending features within a label", "other orders")
    if not np.isfinite(values).all():
        raise ModelFormatError(path, "finite values", "nan or infinity")
