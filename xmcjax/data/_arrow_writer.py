"""Data sets as Parquet and Arrow files, with the columns that the readers take."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from xmcjax._pyarrow import pyarrow
from xmcjax._sparse import Sparse, is_sparse
from xmcjax.data._arrow import DENSE, LABELS, ROWS, SPARSE
from xmcjax.data._atomic import atomic_write
from xmcjax.data._matrices import canonical_features, canonical_labels, check_rows, dense_features
from xmcjax.data._svmlight import class_vector


def _table(X: Any, y: Any) -> Any:
    """A table with the usual names of columns."""
    pa, content = pyarrow(), {}
    if is_sparse(X):
        X = canonical_features(X)
        offsets = X.indptr.astype(np.int64)
        for name, array in zip(SPARSE, (X.indices, X.data), strict=True):
            content[name] = pa.LargeListArray.from_arrays(offsets, pa.array(array))
    else:
        X = dense_features(X)
        if not X.shape[1]:
            raise ValueError(f"X: expected at least one column of dense features, found the shape {X.shape}")
        content[DENSE] = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    y = canonical_labels(y) if is_sparse(y) else class_vector(y)
    check_rows(X, y)
    if is_sparse(y):
        offsets = y.indptr.astype(np.int64)
        content[LABELS] = pa.LargeListArray.from_arrays(offsets, pa.array(y.indices))
    else:
        content[LABELS] = pa.array(y)
    return pa.table(content)


def save_parquet(path: str | os.PathLike[str], X: Sparse | np.ndarray, y: Sparse | np.ndarray) -> None:
    """Writes a data set as a Parquet file with columns of lists, so that ``load_parquet`` reads it.

    Args:
        path: where to, under exactly this name, which appears when the file is complete.
        X: features [n, d], sparse or dense, float32 or float64, finite.
        y: labels, sparse [n, L] with entries 0 and 1 only, or classes, integers [n].

    Raises:
        TypeError, ValueError: what a file cannot hold, or shapes that differ.
        ImportError: pyarrow is not installed (the extra ``arrow``).
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_parquet(f"{folder}/points.parquet", np.eye(3), np.array([2, 0, 1]))
        ...     pyarrow().parquet.read_schema(f"{folder}/points.parquet").names
        ['features', 'labels']
    """
    table = _table(X, y)
    with atomic_write(path) as file:
        pyarrow().parquet.write_table(table, file)


def save_arrow(path: str | os.PathLike[str], X: Sparse | np.ndarray, y: Sparse | np.ndarray) -> None:
    """Writes a data set as an Arrow file with columns of lists, so that ``load_arrow`` reads it.

    Arguments and errors are those of :func:`save_parquet`.

    Example:
        >>> import tempfile
        >>> import scipy.sparse as sp
        >>> from xmcjax.data import load_arrow, save_arrow
        >>> X, Y = sp.csr_array(np.eye(3)), sp.csr_array([[1, 0], [1, 1], [0, 0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_arrow(f"{folder}/train.arrow", X, Y)
        ...     X_read, Y_read = load_arrow(f"{folder}/train.arrow")
        >>> (abs(X_read - X)).nnz, (abs(Y_read - Y)).nnz  # the same
        (0, 0)
    """
    table = _table(X, y)
    with atomic_write(path) as file, pyarrow().ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=ROWS)
