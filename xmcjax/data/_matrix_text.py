"""One sparse matrix as text: the ``trn_X_Xf.txt`` and ``trn_X_Y.txt`` of the XMC repository.

A first line ``n m``, then one line per row: ``index:value index:value``. The repository also offers its data
sets in this form, features and labels in separate files, and pyxclib reads and writes such files.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import flag, whole_number
from xmcjax._sparse import Sparse
from xmcjax.data._matrices import canonical_features
from xmcjax.data._text import RowReader, feature_matrix, value_dtype
from xmcjax.data._text_format import MAX_COLUMNS, MAX_ROWS, RowFormat
from xmcjax.data._text_header import first_line, read_header
from xmcjax.data._text_writer import matrix_lines, write_text

_FIELDS = (("the number of rows n", MAX_ROWS), ("the number of columns m", MAX_COLUMNS))


def load_matrix(
    path: str | os.PathLike[str],
    dtype: np.typing.DTypeLike = np.float32,
    *,
    shape: tuple[int, int] | None = None,
    one_based: bool = False,
    parser: str | None = None,
    max_memory: int | None = None,
) -> sp.csr_matrix:
    """Reads a sparse matrix in text: a header ``n m``, then rows of ``index:value``.

    The header is binding, an empty line is an empty row, and everything else is as in ``load_xmc``.

    Args:
        path: plain text, or compressed as the suffix .gz or .xz says.
        dtype: of the values, float32 or float64.
        shape: n and m of a file without a header.
        one_based: whether columns count from 1 instead of from 0.
        parser: "native" (C++) or "python"; by default the native one where it was built.
        max_memory: bytes that reading may take; by default 20 times the file's size on disk and 64 MB.

    Returns:
        CSR [n, m] of ``dtype``, rows sorted by index, without stored zeros.

    Raises:
        DataFormatError: at the first place that breaks the format, or where reading takes too much memory.
        OSError: the file cannot be read.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "X.txt"
        >>> length = path.write_text("1 3\\n0:0.5 2:1\\n")
        >>> load_matrix(path).toarray().tolist()
        [[0.5, 0.0, 1.0]]
    """
    options: dict[str, Any] = dict(shape=shape, one_based=one_based, parser=parser, max_memory=max_memory)
    (matrix,) = matrix_pieces(path, dtype, **options, piece=None)
    return matrix


def matrix_pieces(
    path: str | os.PathLike[str],
    dtype: np.typing.DTypeLike = np.float32,
    *,
    shape: tuple[int, int] | None = None,
    one_based: bool = False,
    parser: str | None = None,
    max_memory: int | None = None,
    piece: int | None,
) -> Iterator[sp.csr_matrix]:
    """As ``load_matrix``, in pieces of about ``piece`` bytes; one piece where ``piece`` is None."""
    dtype, first = value_dtype(dtype), int(flag("one_based", one_based))
    reader = RowReader(path, parser, max_memory)
    with reader.chunks() as chunks:
        if shape is None:
            head, start, line = first_line(reader, chunks, "n m")
            n_rows, n_columns = read_header(reader, line, _FIELDS, "n m")
        else:
            head, start = None, 0
            n_rows, n_columns = _sizes(shape)
        row_format = RowFormat(
            dtype, column="column", first_feature=first, n_rows=n_rows, n_features=n_columns, n_labels=0
        )
        for rows in reader.pieces(
            chunks, row_format, head, start, lines=int(shape is None), piece=piece, unlabelled=True
        ):
            yield feature_matrix(rows, n_columns)


def _sizes(shape: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise TypeError(f"shape: expected two whole numbers, got {shape!r}")
    rows = whole_number("shape", shape[0], 0, MAX_ROWS)
    return rows, whole_number("shape", shape[1], 0, MAX_COLUMNS)


def save_matrix(path: str | os.PathLike[str], X: Sparse, *, one_based: bool = False) -> None:
    """Writes a sparse matrix in text, so that ``load_matrix`` gives it back.

    Zeros are left out, rows are sorted by index, and the decimals are enough to restore every value
    exactly. The file appears under its name only when it is complete.

    Args:
        path: where to; .gz and .xz compress.
        X: sparse [n, m], float32 or float64, finite.
        one_based: whether columns of the file count from 1 instead of from 0.

    Raises:
        ValueError: values that are not finite, or a malformed matrix.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> from xmcjax.data import load_matrix
        >>> path = tempfile.mkdtemp() + "/X.txt"
        >>> save_matrix(path, sp.csr_matrix([[0.5, 0.0, 1.0]]))
        >>> load_matrix(path).toarray().tolist()
        [[0.5, 0.0, 1.0]]
    """
    X, first = canonical_features(X), int(flag("one_based", one_based))
    write_text(path, itertools.chain([f"{X.shape[0]} {X.shape[1]}\n"], matrix_lines(X, first)))
