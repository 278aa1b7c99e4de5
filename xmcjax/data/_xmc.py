"""The text format of the Extreme Classification Repository.

K. Bhatia, K. Dahiya, H. Jain, P. Kar, A. Mittal, Y. Prabhu, M. Varma, The Extreme Classification
Repository: Multi-label Datasets and Code, http://manikvarma.org/downloads/XC/XMLRepository.html,
2016. A first line ``n d L``, then one line per row: ``label,label index:value index:value``.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import flag
from xmcjax._sparse import Sparse, array, is_sparse
from xmcjax.data._matrices import canonical_features, canonical_labels, check_rows
from xmcjax.data._text import RowReader, feature_matrix, label_matrix, value_dtype
from xmcjax.data._text_format import MAX_COLUMNS, MAX_ROWS, RowFormat
from xmcjax.data._text_header import first_line, read_header
from xmcjax.data._text_writer import label_lists, row_lines, write_text

_FIELDS = (
    ("the number of rows n", MAX_ROWS),
    ("the number of features d", MAX_COLUMNS),
    ("the number of labels L", MAX_COLUMNS),
)


def load_xmc(
    path: str | os.PathLike[str],
    dtype: np.typing.DTypeLike = np.float32,
    *,
    one_based: bool = False,
    parser: str | None = None,
    max_memory: int | None = None,
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Reads a multi-label data set in the text format of the XMC repository.

    The first line is ``n d L``; then each row is ``l1,l2,... f:v f:v ...`` with labels and features
    counted from 0, or from 1 where the caller says so: it is not guessed. A row without labels starts
    with a blank, a row may have no features, and an empty line is a row with neither. The header is
    binding: it gives the shapes, and every number and the count of rows are checked against it. Order
    within a row is free, and a value of zero is dropped. Faults are reported, never repaired:
    duplicates, numbers out of range, nan and infinities (docs/reference/formats.md lists every case).

    Args:
        path: plain text, or compressed as the suffix .gz or .xz says.
        dtype: of the values, float32 or float64. A value is the double nearest to its decimal
            text, then rounded to this type.
        one_based: whether labels and features count from 1 instead of from 0.
        parser: "native" (C++) or "python"; by default the native one where it was built.
        max_memory: bytes that reading may take; by default 20 times the file's size on disk and 64 MB.

    Returns:
        X, CSR [n, d] of ``dtype``, and Y, CSR [n, L] of ones of ``dtype``; rows sorted by index,
        index arrays int32 up to 2^31 - 1 non-zeros, int64 above.

    Raises:
        DataFormatError: at the first place that breaks the format, or where reading takes too much memory.
        OSError: the file cannot be read.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
        >>> length = path.write_text("1 2 3\\n0,2 1:0.5\\n")
        >>> X, Y = load_xmc(path)
        >>> X.toarray().tolist(), Y.toarray().tolist()
        ([[0.0, 0.5]], [[1.0, 0.0, 1.0]])
    """
    options: dict[str, Any] = dict(one_based=one_based, parser=parser, max_memory=max_memory)
    (rows,) = xmc_pieces(path, dtype, **options, piece=None)
    return rows


def xmc_pieces(
    path: str | os.PathLike[str],
    dtype: np.typing.DTypeLike = np.float32,
    *,
    one_based: bool = False,
    parser: str | None = None,
    max_memory: int | None = None,
    piece: int | None,
) -> Iterator[tuple[sp.csr_matrix, sp.csr_matrix]]:
    """As ``load_xmc``, in pieces of about ``piece`` bytes; one piece where ``piece`` is None."""
    dtype, first = value_dtype(dtype), int(flag("one_based", one_based))
    reader = RowReader(path, parser, max_memory)
    with reader.chunks() as chunks:
        head, start, line = first_line(reader, chunks, "n d L")
        n, d, L = read_header(reader, line, _FIELDS, "n d L")
        row_format = RowFormat(
            dtype, first_feature=first, first_label=first, n_rows=n, n_features=d, n_labels=L
        )
        for rows in reader.pieces(chunks, row_format, head, start, lines=1, piece=piece):
            yield feature_matrix(rows, d), label_matrix(rows, L, dtype)


def save_xmc(path: str | os.PathLike[str], X: Sparse, Y: Sparse, *, one_based: bool = False) -> None:
    """Writes a data set in the text format of the XMC repository, so that ``load_xmc`` gives it back.

    Zeros are left out, rows are sorted by index, and the decimals are enough to restore every
    value of X exactly. The file appears under its name only when it is complete.

    Args:
        path: where to; .gz and .xz compress.
        X: features, sparse [n, d], float32 or float64.
        Y: labels, sparse [n, L], with entries 0 and 1 only.
        one_based: whether labels and features of the file count from 1 instead of from 0.

    Raises:
        TypeError: X or Y is no sparse matrix, or X is of another dtype.
        ValueError: X and Y differ in their number of rows, X has a value that is not finite, or
            Y one other than 0 and 1; Y is a class vector, which xmc does not hold.
        OSError: the file cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
        >>> save_xmc(path, sp.csr_matrix([[0.0, 0.5]]), sp.csr_matrix([[1.0, 0.0, 1.0]]))
        >>> path.read_text().splitlines()
        ['1 2 3', '0,2 1:0.5']
    """
    if not is_sparse(Y) and array(Y, "Y").ndim == 1:
        raise ValueError(
            f"{os.fspath(path)}: expected lists of labels, a sparse matrix [n, L], to write xmc text, found "
            "one class per row: svmlight, npz, parquet and arrow hold classes"
        )
    X, Y, first = canonical_features(X), canonical_labels(Y), int(flag("one_based", one_based))
    check_rows(X, Y)
    header = f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n"
    write_text(path, itertools.chain([header], row_lines(label_lists(Y, first), X, first)))
