"""The binary form of a data set: the CSR arrays in one npz file, read several times faster than text.

Members (each a .npy): ``format`` (the text below), ``X_data``, ``X_indices``, ``X_indptr``,
``X_shape``, and either ``Y_indices``, ``Y_indptr``, ``Y_shape`` (labels; the ones are implied) or
``y`` (classes).
"""

from __future__ import annotations

import os
from collections.abc import Set

import numpy as np
import scipy.sparse as sp

from xmcjax._index_faults import compressed_fault
from xmcjax._rising import rises_in_rows
from xmcjax._sparse import Sparse, is_sparse
from xmcjax.data._archive import Archive, open_npz
from xmcjax.data._atomic import atomic_write
from xmcjax.data._matrices import canonical_features, canonical_labels, check_rows
from xmcjax.data._svmlight import class_vector
from xmcjax.data._text import rising_csr, value_dtype
from xmcjax.data._text_format import MAX_COLUMNS

FORMAT = "xmcjax-data-1"
# The most bytes of memory that a byte of a member takes until it is checked and part of a matrix.
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

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.npz"
        >>> save_npz(path, sp.csr_matrix([[0.5, 0.0]]), sp.csr_matrix([[1.0, 0.0, 1.0]]))
        >>> load_npz(path)[1].toarray().tolist()
        [[1.0, 0.0, 1.0]]
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

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.npz"
        >>> save_npz(path, sp.csr_matrix([[0.5, 0.0]]), np.array([3]))
        >>> X, y = load_npz(path)
        >>> y.tolist()
        [3]
    """
    wanted = None if dtype is None else value_dtype(dtype)
    with open_npz(path, max_memory, _COPIES) as archive:
        return _dataset(archive, wanted)


def is_of_scipy(names: Set[str]) -> bool:
    """Whether an npz file with these members is one of ``scipy.sparse.save_npz``."""
    return {"format", "shape", "data"} <= names


def _dataset(archive: Archive, wanted: np.dtype | None) -> tuple[sp.csr_matrix, sp.csr_matrix | np.ndarray]:
    expected = "an npz file written by save_npz"
    if "format" not in archive.names:
        raise archive.error(expected, "one without a member 'format'")
    if is_of_scipy(archive.names):
        found = (
            "one of scipy.sparse.save_npz, which holds one matrix: labels have a file of their own "
            "(--labels-file)"
        )
        raise archive.error(expected, found)
    name = str(archive.member("format", "U", 0))
    if name != FORMAT:
        raise archive.error(f"the format {FORMAT!r}", repr(name))
    values = archive.member("X_data", "f")
    if values.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise archive.error("X_data of float32 or float64", str(values.dtype))
    if not np.isfinite(values).all():
        raise archive.error("finite values in X_data", "others")
    if wanted is not None:
        values = values.astype(wanted, copy=False)
    X = _matrix(archive, "X", values)
    if "Y_indices" not in archive.names:
        y = archive.member("y", "i").astype(np.int64, copy=False)
    else:
        y = _matrix(archive, "Y", None, values.dtype)
    if y.shape[0] != X.shape[0]:
        raise archive.error(f"labels of {X.shape[0]} rows as in X", str(y.shape[0]))
    return X, y


def _matrix(
    archive: Archive, name: str, values: np.ndarray | None, ones: np.dtype | None = None
) -> sp.csr_matrix:
    shape = archive.member(f"{name}_shape", "i").tolist()
    indices = archive.member(f"{name}_indices", "i")
    indptr = archive.member(f"{name}_indptr", "i")
    if len(shape) != 2 or not (shape[0] >= 0 and 0 <= shape[1] <= MAX_COLUMNS):
        raise archive.error(f"two sizes in {name}_shape", str(shape))
    if indices.dtype != np.int32:
        raise archive.error(f"{name}_indices of int32", str(indices.dtype))
    entries = indices.size if values is None else values.size
    fault = compressed_fault(indptr, indices, entries, *shape)
    if fault is not None:
        raise archive.error(f"in {name} {fault.expected}", fault.found)
    if indptr[-1] != indices.size:
        raise archive.error(f"{name}_indptr rising from 0 to the {indices.size} entries", str(indptr[-1]))
    if not rises_in_rows(indices, indptr):
        raise archive.error(f"{name}_indices rising in every row", "others")
    if values is None:
        values = np.ones(indices.size, ones)
    return rising_csr(values, indices, indptr, (shape[0], shape[1]))
