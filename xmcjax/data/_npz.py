"""The binary form of a data set: the CSR arrays in one npz file, read several times faster than text.

Members (each a .npy): ``format`` (the text below), ``X_data``, ``X_indices``, ``X_indptr``,
``X_shape``, and either ``Y_indices``, ``Y_indptr``, ``Y_shape`` (labels; the ones are implied) or
``y`` (classes).
"""

from __future__ import annotations

import math
import os
import stat
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
import scipy.sparse as sp

from xmcjax._file_kinds import kind_of
from xmcjax._sparse import Sparse, compressed_fault, is_sparse
from xmcjax.data._atomic import atomic_write
from xmcjax.data._errors import DataFormatError
from xmcjax.data._files import CHUNK
from xmcjax.data._matrices import canonical_features, canonical_labels, check_rows
from xmcjax.data._memory import MemoryBound
from xmcjax.data._svmlight import class_vector
from xmcjax.data._text import value_dtype
from xmcjax.data._text_format import MAX_COLUMNS

FORMAT = "xmcjax-data-1"
# What one byte of a deflated member can unpack to, at most.
_MAX_RATIO = 1032
# What a byte of a member takes until it is checked and part of a matrix, at most.
_COPIES = 4


def save_npz(
    path: str | os.PathLike[str], X: Sparse, y: np.ndarray | Sparse, *, compressed: bool = False
) -> None:
    """Writes a data set as one npz file, so that ``load_npz`` gives it back bit by bit.

    Zeros are left out and rows are sorted by index. The file appears under its name only when it
    is complete; equal data give equal bytes.

    Args:
        path: where to, under exactly this name.
        X: features, sparse [n, d], float32 or float64, finite.
        y: labels, sparse [n, L] with entries 0 and 1 only, or classes, integers [n].
        compressed: smaller, and several times slower to read.

    Raises:
        ValueError: X and y differ in their number of rows, or hold what the format cannot.
        OSError: the file cannot be written.
    """
    X = canonical_features(X)
    arrays = {"format": np.array(FORMAT), "X_data": X.data, **_structure("X", X)}
    if is_sparse(y):
        Y = canonical_labels(y)
        check_rows(X, Y)
        arrays |= _structure("Y", Y)
    else:
        arrays["y"] = class_vector(y)
        check_rows(X, arrays["y"])
    with atomic_write(path) as file:
        (np.savez_compressed if compressed else np.savez)(file, **arrays)


def _structure(name: str, matrix: sp.csr_matrix) -> dict[str, np.ndarray]:
    return {
        f"{name}_indices": matrix.indices.astype(np.int32, copy=False),
        f"{name}_indptr": matrix.indptr.astype(np.int64, copy=False),
        f"{name}_shape": np.array(matrix.shape, np.int64),
    }


def load_npz(
    path: str | os.PathLike[str],
    dtype: np.typing.DTypeLike | None = None,
    *,
    max_memory: int | None = None,
) -> tuple[sp.csr_matrix, sp.csr_matrix | np.ndarray]:
    """Reads a data set written by ``save_npz``.

    Nothing in the file is trusted: sizes are checked before memory is asked for, checksums while
    reading, and indices, their order and the values afterwards. Pickled objects are never read.

    Args:
        path: the file.
        dtype: of the values, float32 or float64; by default as stored.
        max_memory: bytes that reading may take; by default 20 times the file's size on disk and 64 MB.

    Returns:
        X, CSR [n, d], and labels, CSR [n, L] of ones of the dtype of X, or classes, int64 [n].

    Raises:
        DataFormatError: the file is no regular file, no such npz, or damaged, or reading it takes too much
            memory.
        OSError: the file cannot be read.
    """
    path = Path(path)
    wanted = None if dtype is None else value_dtype(dtype)
    bound = MemoryBound(path, max_memory)
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # of a directory the system says what it is
        raise DataFormatError(
            path, None, None, "a regular file, because npz is read from its end", kind_of(mode)
        )
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _Archive(archive, bound).dataset(wanted)
        except DataFormatError:
            raise
        # All that zipfile is known to raise on a damaged archive: ValueError for names that are no
        # text, RuntimeError for a member marked as encrypted.
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            ValueError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            # zipfile quotes damaged names, which may have thousands of bytes
            why = str(error) if len(str(error)) < 200 else f"{str(error)[:200]}…"
            raise DataFormatError(
                path, None, None, "a complete npz file", f"a damaged one ({why})"
            ) from error


class _Archive:
    """The members of an open npz file, checked."""

    def __init__(self, archive: zipfile.ZipFile, bound: MemoryBound):
        self._path = bound.path
        self._archive = archive
        self._bound = bound
        self._size = bound.size
        self._held = 0  # bytes of the members that were read
        self._names = set(archive.namelist())

    def dataset(self, wanted: np.dtype | None) -> tuple[sp.csr_matrix, sp.csr_matrix | np.ndarray]:
        if "format.npy" not in self._names:
            raise self._error("an npz file written by save_npz", "one without a member 'format'")
        name = str(self._member("format", "U", 0))
        if name != FORMAT:
            raise self._error(f"the format {FORMAT!r}", repr(name))
        values = self._member("X_data", "f")
        if values.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise self._error("X_data of float32 or float64", str(values.dtype))
        if not np.isfinite(values).all():
            raise self._error("finite values in X_data", "others")
        if wanted is not None:
            values = values.astype(wanted, copy=False)
        X = self._matrix("X", values)
        if "Y_indices.npy" not in self._names:
            y = self._member("y", "i").astype(np.int64, copy=False)
            self._check_rows(X, y.size)
            return X, y
        Y = self._matrix("Y", None, values.dtype)
        self._check_rows(X, Y.shape[0])
        return X, Y

    def _check_rows(self, X: sp.csr_matrix, rows: int) -> None:
        if rows != X.shape[0]:
            raise self._error(f"labels of {X.shape[0]} rows as in X", str(rows))

    def _matrix(self, name: str, values: np.ndarray | None, ones: np.dtype | None = None) -> sp.csr_matrix:
        shape = self._member(f"{name}_shape", "i").tolist()
        indices = self._member(f"{name}_indices", "i")
        indptr = self._member(f"{name}_indptr", "i")
        if len(shape) != 2 or not (shape[0] >= 0 and 0 <= shape[1] <= MAX_COLUMNS):
            raise self._error(f"two sizes in {name}_shape", str(shape))
        if indices.dtype != np.int32:
            raise self._error(f"{name}_indices of int32", str(indices.dtype))
        entries = indices.size if values is None else values.size
        fault = compressed_fault(indptr, indices, entries, *shape)
        if fault is not None:
            raise self._error(f"in {name} {fault.expected}", fault.found)
        if indptr[-1] != indices.size:
            raise self._error(f"{name}_indptr rising from 0 to the {indices.size} entries", str(indptr[-1]))
        # Inside a row each index is above the one before it.
        rises = indices[1:] > indices[:-1]
        starts = indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < indices.size)]
        rises[starts - 1] = True
        if not rises.all():
            raise self._error(f"{name}_indices rising in every row", "others")
        if values is None:
            values = np.ones(indices.size, ones)
        if indptr[-1] <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)
        matrix = sp.csr_matrix((values, indices, indptr), shape=tuple(shape), copy=False)
        matrix.has_canonical_format = True
        return matrix

    def _member(self, name: str, kind: str, ndim: int = 1) -> np.ndarray:
        """An array of the wanted kind of dtype and number of axes."""
        if f"{name}.npy" not in self._names:
            raise self._error(f"a member {name!r}", "none")
        info = self._archive.getinfo(f"{name}.npy")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._error(f"member {name!r} stored or deflated", f"method {info.compress_type}")
        if not 0 <= info.header_offset < self._size:
            raise self._error(f"member {name!r} inside the file", f"at byte {info.header_offset}")
        with self._archive.open(info) as member:
            try:
                version = np.lib.format.read_magic(member)
                header = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }[version](member)
            except (ValueError, KeyError) as error:
                raise self._error(f"an array as member {name!r}", f"a damaged one ({error})") from error
            shape, fortran_order, dtype = header
            if dtype.kind != kind or len(shape) != ndim or fortran_order or dtype.byteorder == ">":
                raise self._error(
                    f"{ndim} axes and dtype kind {kind!r} in {name}", f"{list(shape)} of {dtype}"
                )
            size = math.prod(shape) * dtype.itemsize
            # A small file must not make the program ask for a large block of memory.
            attainable = min(info.file_size, _MAX_RATIO * min(info.compress_size, self._size) + CHUNK)
            if size != info.file_size - member.tell() or size > attainable:
                raise self._error(f"{size} bytes in {name}", str(info.file_size - member.tell()))
            self._held += size
            self._bound.check(_COPIES * self._held, f"members that unpack to {self._held:,} bytes")
            block = bytearray(size)
            _fill(member, block)
            return np.frombuffer(block, dtype).reshape(shape)

    def _error(self, expected: str, found: str) -> DataFormatError:
        return DataFormatError(self._path, None, None, expected, found)


def _fill(member: IO[bytes], block: bytearray) -> None:
    view = memoryview(block)
    begin = 0
    while data := member.read(min(CHUNK, len(view) - begin) or 1):
        view[begin : begin + len(data)] = data
        begin += len(data)
    if begin < len(view):
        raise EOFError("the archive ends early")
