"""One sparse matrix in the form of ``scipy.sparse.save_npz``, which PECOS and others exchange."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import flag
from xmcjax._index_faults import compressed_fault
from xmcjax._sparse import Sparse
from xmcjax.data._archive import Archive, open_npz
from xmcjax.data._atomic import atomic_write
from xmcjax.data._errors import DataFormatError
from xmcjax.data._matrices import canonical_features
from xmcjax.data._npz import is_of_scipy
from xmcjax.data._text import value_dtype
from xmcjax.data._text_format import MAX_COLUMNS

# The most bytes of memory per byte of a member until the matrix is made: _COPIES for CSR, whose values are
# cast; _CONVERTED for CSC and COO, which are put into another order, with work space for that.
_COPIES = 2
_CONVERTED = 5
_COMPRESSED, _ENTRIES = ("csr", "csc"), "coo"


def load_scipy_npz(
    path: str | os.PathLike[str],
    dtype: np.typing.DTypeLike | None = None,
    *,
    zeros: bool = False,
    add_up: bool = True,
    max_memory: int | None = None,
) -> sp.csr_matrix:
    """Reads a matrix that ``scipy.sparse.save_npz`` wrote.

    Nothing in the file is trusted, as in ``load_npz``. Rows are sorted by index, and entries with the same
    row and column are added up.

    Args:
        path: the file, of a matrix in the format CSR, CSC or COO.
        dtype: of the values, float32 or float64; by default float64 if the file has float64, else float32.
        zeros: whether zeros that the file has are kept.
        add_up: whether entries with the same row and column are added up; if not, they are refused.
        max_memory: bytes that reading may take; by default 20 times the file's size on disk and 64 MB.

    Returns:
        CSR [n, m], finite.

    Raises:
        DataFormatError: the file is no such npz, or damaged, or reading it takes too much memory.
        OSError: the file cannot be read.

    Example:
        >>> import tempfile
        >>> import scipy.sparse as sp
        >>> path = tempfile.mkdtemp() + "/X.npz"
        >>> sp.save_npz(path, sp.csr_matrix([[0.5, 0.0]]))
        >>> load_scipy_npz(path).toarray().tolist()
        [[0.5, 0.0]]
    """
    wanted = None if dtype is None else value_dtype(dtype)
    with open_npz(path, max_memory, _COPIES) as archive:
        return _matrix(archive, wanted, flag("zeros", zeros), flag("add_up", add_up))


def _matrix(archive: Archive, wanted: np.dtype | None, zeros: bool, add_up: bool) -> sp.csr_matrix:
    expected = "an npz file of scipy.sparse.save_npz"
    if not is_of_scipy(archive.names):
        missing = sorted({"format", "shape", "data"} - archive.names)
        raise archive.error(expected, f"one without a member {missing[0]!r}")
    format = archive.member("format", "SU", 0).item()
    format = format.decode("ascii", "backslashreplace") if isinstance(format, bytes) else format
    if format not in (*_COMPRESSED, _ENTRIES):
        raise archive.error("a matrix in the format csr, csc or coo", repr(format)[:40])
    shape = archive.member("shape", "iu").tolist()
    if len(shape) != 2 or not (shape[0] >= 0 and 0 <= shape[1] <= MAX_COLUMNS):
        raise archive.error("two sizes in shape", str(shape)[:80])
    values = _values(archive, wanted)
    if format == _ENTRIES:
        matrix = _of_entries(archive, shape, values)
    else:
        matrix = _of_lines(archive, format, shape, values)
    if not add_up and _sparse.canonical_csr(matrix).nnz < matrix.nnz:
        raise _several(archive, matrix)
    matrix = sp.csr_matrix(_sparse.canonical_csr(matrix, zeros=zeros))
    if not np.isfinite(matrix.data).all():  # sums of finite entries may overflow
        raise archive.error(f"finite {matrix.dtype.name} sums of entries of one place", "others")
    matrix.has_canonical_format = True
    return matrix


def _several(archive: Archive, matrix: Any) -> DataFormatError:
    """The error that names a place with several entries."""
    places = matrix.tocoo()
    order = np.lexsort((places.col, places.row))
    row, column = places.row[order], places.col[order]
    again = np.flatnonzero((row[1:] == row[:-1]) & (column[1:] == column[:-1]))[0]
    found = f"column {column[again]} again in row {row[again] + 1}"
    return archive.error("one entry for each place of the matrix", found)


def _of_lines(archive: Archive, format: str, shape: list[int], values: np.ndarray):
    """The matrix of an archive whose format is CSR or CSC."""
    indices, indptr = archive.member("indices", "iu"), archive.member("indptr", "iu")
    major, minor, line = (*shape, "row") if format == "csr" else (*shape[::-1], "column")
    fault = compressed_fault(indptr, indices, len(values), major, minor, line)
    if fault is not None:
        raise archive.error(f"in the matrix {fault.expected}", fault.found)
    if format == "csc":
        _check(archive, values.nbytes + indices.nbytes + indptr.nbytes, shape[0])
    index = _sparse.index_type(*shape, len(values))
    parts = values, indices.astype(index, copy=False), indptr.astype(index, copy=False)
    return (sp.csr_matrix if format == "csr" else sp.csc_matrix)(parts, shape=tuple(shape), copy=False)


def _of_entries(archive: Archive, shape: list[int], values: np.ndarray):
    """The matrix of an archive whose format is COO."""
    index = _sparse.index_type(*shape, len(values))
    places = []
    for name, size in zip(("row", "col"), shape, strict=True):
        numbers = archive.member(name, "iu")
        if len(numbers) != len(values):
            raise archive.error(f"as many numbers in {name!r} as values, {len(values)}", str(len(numbers)))
        wrong = np.flatnonzero((numbers < 0) | (numbers >= size))
        if wrong.size:
            raise archive.error(f"numbers from 0 to {size - 1} in {name!r}", str(numbers[wrong[0]]))
        places.append(numbers.astype(index, copy=False))
    _check(archive, values.nbytes + places[0].nbytes + places[1].nbytes, shape[0])
    return sp.coo_matrix((values, tuple(places)), shape=tuple(shape))


def _values(archive: Archive, wanted: np.dtype | None) -> np.ndarray:
    values = archive.member("data", "biuf")
    if wanted is None:
        wanted = np.dtype(np.float64 if values.dtype == np.float64 else np.float32)
    if values.dtype.itemsize > 8:
        raise archive.error("values of at most 64 bits", str(values.dtype))
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        cast = values.astype(wanted, copy=False)
    if not np.isfinite(cast).all():
        raise archive.error(f"finite {wanted.name} numbers in data", "others")
    return cast


def _check(archive: Archive, held: int, rows: int) -> None:
    """Checks that there is memory to put the entries of a matrix into the order of its rows."""
    needed = _CONVERTED * held + 16 * rows
    archive.check_memory(needed, f"a matrix of {rows:,} rows, {held:,} bytes in another order")


def save_scipy_npz(
    path: str | os.PathLike[str], X: Sparse, *, zeros: bool = False, compressed: bool = True
) -> None:
    """Writes a sparse matrix so that ``scipy.sparse.load_npz`` reads it, as CSR with sorted rows.

    The file appears under its name only when it is complete; equal matrices give equal bytes.

    Args:
        path: where to, under exactly this name.
        X: sparse [n, m], float32 or float64, finite.
        zeros: whether stored zeros are kept.
        compressed: smaller, and several times slower to read.

    Raises:
        ValueError: values that are not finite, or a malformed matrix.
        TypeError: other values than float32 and float64.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> import scipy.sparse as sp
        >>> path = tempfile.mkdtemp() + "/X.npz"
        >>> save_scipy_npz(path, sp.csr_matrix([[0.5, 0.0]]))
        >>> sp.load_npz(path).toarray().tolist()
        [[0.5, 0.0]]
    """
    X = canonical_features(X, zeros=flag("zeros", zeros))
    arrays = {
        "indices": X.indices,
        "indptr": X.indptr,
        "format": np.array(b"csr"),
        "shape": np.array(X.shape, np.int64),
        "data": X.data,
    }
    with atomic_write(path) as file:
        (np.savez_compressed if flag("compressed", compressed) else np.savez)(file, **arrays)
