"""Dense arrays as npy files, such as embeddings: mapped into memory if they can be used as stored."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from xmcjax import _sparse
from xmcjax._finite import place_not_finite
from xmcjax.data._archive import array_header, check_seekable
from xmcjax.data._atomic import atomic_write
from xmcjax.data._errors import DataFormatError
from xmcjax.data._memory import MemoryBound
from xmcjax.data._text import value_dtype
from xmcjax.data._text_format import MAX_COLUMNS

# About how many bytes of an array are checked or converted at a time.
_PART = 8 << 20


def load_npy(
    path: str | os.PathLike[str],
    dtype: np.typing.DTypeLike | None = None,
    *,
    max_memory: int | None = None,
) -> np.ndarray:
    """Reads dense features from an npy file.

    An array of the wanted type in row-major order is mapped into memory and never copied: the system reads
    its pages when they are needed and drops them again. Every number is checked once. If another program
    changes or truncates the file while it is mapped, the array changes, or the process ends.

    Args:
        path: the file; numbers of any real type.
        dtype: of the result, float32 or float64; by default float64 if the file has float64, else float32.
        max_memory: bytes that reading may take, for an array that is not mapped; by default 20 times the
            file's size and 64 MB.

    Returns:
        Array [n, d], finite; read-only where it is mapped.

    Raises:
        DataFormatError: the file is no regular file, no npy, damaged, of another number of axes, or has
            numbers that are not finite, or reading takes too much memory.
        OSError: the file cannot be read.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/X.npy"
        >>> np.save(path, np.float32([[0.5, 1.0]]))
        >>> load_npy(path).tolist()
        [[0.5, 1.0]]
    """
    bound = MemoryBound(path, max_memory)
    mapped, wanted = _features(path, dtype)
    if mapped.dtype == wanted and mapped.flags.c_contiguous:
        for start, part in _parts(mapped):
            _check_finite(path, part, start, wanted)
        return mapped
    bound.check(mapped.size * wanted.itemsize, f"an array {list(mapped.shape)} of {wanted}")
    X = np.empty(mapped.shape, wanted)
    for start, part in _parts(mapped):
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            X[start : start + len(part)] = part
        _check_finite(path, X[start : start + len(part)], start, wanted)
    return X


def npy_pieces(
    path: str | os.PathLike[str],
    dtype: np.typing.DTypeLike | None = None,
    *,
    max_memory: int | None = None,
    piece: int,
) -> Iterator[np.ndarray]:
    """As ``load_npy``, in pieces of about ``piece`` bytes."""
    MemoryBound(path, max_memory)  # refuses an invalid max_memory
    mapped, wanted = _features(path, dtype)
    if len(mapped) == 0:
        yield np.empty(mapped.shape, wanted)
    for start, part in _parts(mapped, piece):
        with np.errstate(over="ignore"):
            X = np.ascontiguousarray(part, wanted)
        _check_finite(path, X, start, wanted)
        yield X


def load_npy_labels(path: str | os.PathLike[str], *, max_memory: int | None = None) -> np.ndarray:
    """Reads labels from an npy file: classes, integers [n], or a label matrix [n, L] of zeros and ones.

    Args:
        path: the file.
        max_memory: bytes that reading may take; by default 20 times the file's size and 64 MB.

    Returns:
        Classes, int64 [n], or the label matrix as stored, mapped into memory and checked.

    Raises:
        DataFormatError: as in ``load_npy``, or other numbers.
        OSError: the file cannot be read.
    """
    bound = MemoryBound(path, max_memory)
    mapped = _mapped(path)
    if mapped.ndim == 1:
        if mapped.dtype.kind not in "iu":
            raise DataFormatError(
                path, None, None, "classes, whole numbers [n]", f"numbers of {mapped.dtype}"
            )
        bound.check(8 * mapped.size, f"{mapped.size} classes")
        if mapped.size and mapped.max() > np.iinfo(np.int64).max:
            raise DataFormatError(path, None, None, "classes below 2^63", str(mapped.max()))
        return mapped.astype(np.int64)
    _need_two_axes(path, mapped, "classes, [n], or a label matrix, [n, L]")
    for start, part in _parts(mapped):
        wrong = np.argwhere((part != 0) & (part != 1))
        if len(wrong):
            row, label = (int(place) for place in wrong[0])
            found = f"{part[row, label]} in row {start + row + 1}, column {label}"
            raise DataFormatError(path, None, None, "a label matrix of zeros and ones", found)
    return mapped


def save_npy(path: str | os.PathLike[str], X: np.ndarray) -> None:
    """Writes an array, so that ``load_npy`` and ``numpy.load`` give it back.

    Args:
        path: where to, under exactly this name, which appears when the file is complete.
        X: real numbers, features [n, d] or classes [n].

    Raises:
        TypeError: no real numbers.
        ValueError: numbers that are not finite, or another number of axes.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/X.npy"
        >>> save_npy(path, np.float32([[0.5, 1.0]]))
        >>> np.load(path).tolist()
        [[0.5, 1.0]]
    """
    X = _sparse.dense(X)
    if X.ndim not in (1, 2):
        raise ValueError(f"X: expected one or two axes, found shape {list(X.shape)}")
    place = place_not_finite(X[:, None] if X.ndim == 1 else X)
    if place is not None:
        raise ValueError(f"X must be finite, but X[{place[0]}, {place[1]}] is {place[2]}")
    with atomic_write(path) as file:
        np.lib.format.write_array(file, np.ascontiguousarray(X), allow_pickle=False)


def _features(path: str | os.PathLike[str], dtype: np.typing.DTypeLike | None) -> tuple[np.ndarray, np.dtype]:
    """The mapped array of a file of features, and the dtype in which they are wanted."""
    wanted = None if dtype is None else value_dtype(dtype)
    mapped = _mapped(path)
    _need_two_axes(path, mapped, "features, [n, d]")
    if wanted is None:
        wanted = np.dtype(np.float64 if mapped.dtype == np.float64 else np.float32)
    return mapped, wanted


def _mapped(path: str | os.PathLike[str]) -> np.ndarray:
    """The array of a file, mapped into memory; none of its numbers is read yet."""
    path = Path(path)
    check_seekable(path, "npy is mapped into memory")
    with open(path, "rb") as file:
        try:
            shape, fortran_order, dtype = array_header(file)
        except ValueError as error:
            why = " ".join(str(error).split())
            raise DataFormatError(path, None, None, "an npy file", f"another one ({why[:200]})") from error
        offset, size = file.tell(), os.fstat(file.fileno()).st_size
        if dtype.kind not in "biuf" or dtype.itemsize > 8:
            raise DataFormatError(path, None, None, "real numbers of at most 64 bits", f"an array of {dtype}")
        needed = math.prod(shape) * dtype.itemsize
        if size - offset != needed:
            expected = f"{needed} bytes of an array {list(shape)} of {dtype}"
            raise DataFormatError(path, None, None, expected, str(size - offset))
        if max(shape, default=0) > sys.maxsize // 8:
            raise DataFormatError(path, None, None, "an array that memory can address", str(list(shape)))
        if needed == 0:
            return np.empty(shape, dtype)
        order = "F" if fortran_order else "C"
        return np.asarray(np.memmap(file, dtype, "r", offset, shape, order))


def _need_two_axes(path: str | os.PathLike[str], X: np.ndarray, what: str) -> None:
    if X.ndim != 2 or X.shape[1] > MAX_COLUMNS:
        raise DataFormatError(path, None, None, what, f"an array {list(X.shape)}")


def _parts(X: np.ndarray, size: int = _PART) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, rows) of an array, about `size` bytes at a time."""
    rows = max(1, size // max(1, X.shape[1] * X.itemsize))
    for start in range(0, len(X), rows):
        yield start, X[start : start + rows]


def _check_finite(path: str | os.PathLike[str], X: np.ndarray, start: int, dtype: np.dtype) -> None:
    place = place_not_finite(X)
    if place is not None:
        row, column, value = place
        found = f"{value} in row {start + row + 1}, column {column}"
        raise DataFormatError(path, None, None, f"finite {dtype.name} numbers", found)
