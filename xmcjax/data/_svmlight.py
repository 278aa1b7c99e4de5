"""The svmlight / libsvm text format, with one class per row or with lists of labels.

C.-C. Chang and C.-J. Lin, LIBSVM: a library for support vector machines, ACM TIST 2(3), 2011. There is
one line per row, ``class index:value index:value ... # comment``; there is no header, so that the caller
has to say what a file does not (where its numbers start, how many columns there are).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import flag, whole_number
from xmcjax._sparse import Sparse, array, is_sparse
from xmcjax.data._matrices import canonical_features, canonical_labels, check_rows
from xmcjax.data._text import RowReader, feature_matrix, label_matrix, value_dtype
from xmcjax.data._text_format import MAX_COLUMNS, Head, RowFormat
from xmcjax.data._text_writer import label_lists, row_lines, write_text


def load_svmlight(
    path: str | os.PathLike[str],
    multilabel: bool = False,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool = False,
    dtype: np.typing.DTypeLike = np.float32,
    *,
    first_label: int = 0,
    parser: str | None = None,
    max_memory: int | None = None,
) -> tuple[sp.csr_matrix, Any]:
    """Reads a data set in svmlight/libsvm text.

    Each row is ``class f:v f:v ...`` or, with ``multilabel``, ``l1,l2,... f:v f:v ...``, where a
    row without labels starts with a blank. ``#`` ends a line, and a line that starts with it is
    no row. An empty line is a row without labels in multi-label files and an error otherwise. A query id
    (``qid:7``) behind the labels is ignored. Where the numbering starts is never guessed from the file.
    Everything else is as in ``load_xmc`` (docs/reference/formats.md lists every case).

    Args:
        path: plain text, or compressed as the suffix .gz or .xz says.
        multilabel: whether a row has a list of labels instead of one class.
        n_features: d; larger indices are errors. By default the largest index in this file: give
            a test file the d of its training file.
        n_labels: L of a multi-label file; by default from the largest label in this file.
        zero_based: whether features count from 0 instead of from 1.
        dtype: of the values, float32 or float64.
        first_label: the number of the first label of a multi-label file: label ``l`` of the file
            is column ``l - first_label``. Classes are kept as they are.
        parser: "native" (C++) or "python"; by default the native one where it was built.
        max_memory: bytes that reading may take; by default 20 times the file's size on disk and 64 MB.

    Returns:
        X, CSR [n, d] of ``dtype``, and y: classes, int64 [n], as they stand in the file (gaps and
        negative numbers included); with ``multilabel`` CSR [n, L] of ones of ``dtype``.

    Raises:
        DataFormatError: at the first place that breaks the format; also a file without any row, or one
            whose reading takes too much memory.
        OSError: the file cannot be read.
        ValueError: an option that does not fit the others.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
        >>> length = path.write_text("3 1:0.5 2:1\\n")
        >>> X, y = load_svmlight(path)
        >>> X.toarray().tolist(), y.tolist()
        ([[0.5, 1.0]], [3])
    """
    options = (multilabel, n_features, n_labels, zero_based, dtype)
    (rows,) = svmlight_pieces(
        path, *options, first_label=first_label, parser=parser, max_memory=max_memory, piece=None
    )
    return rows


def svmlight_pieces(
    path: str | os.PathLike[str],
    multilabel: bool = False,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool = False,
    dtype: np.typing.DTypeLike = np.float32,
    *,
    first_label: int = 0,
    parser: str | None = None,
    max_memory: int | None = None,
    piece: int | None,
    labelled: bool = True,
) -> Iterator[tuple[sp.csr_matrix, Any]]:
    """As ``load_svmlight``, in pieces of about ``piece`` bytes; one piece where ``piece`` is None.

    Without ``n_features`` and ``n_labels`` the sizes of a piece are those of its own rows. Where ``labelled``
    is False, y is None: labels are ignored and may be absent.
    """
    _check_options(flag("multilabel", multilabel), n_features, n_labels, first_label)
    flag("zero_based", zero_based)
    row_format = RowFormat(
        value_dtype(dtype),
        head=(Head.LABELS if multilabel else Head.CLASS) if labelled else Head.PASSED_OVER,
        comments=True,
        first_feature=0 if zero_based else 1,
        first_label=first_label,
        n_features=n_features,
        n_labels=n_labels,
    )
    reader = RowReader(path, parser, max_memory)
    n_rows = 0
    with reader.chunks() as chunks:
        for rows in reader.pieces(chunks, row_format, piece=piece):
            n_rows += rows.n_rows
            X = feature_matrix(rows, rows.max_feature + 1 if n_features is None else n_features)
            if not labelled:
                yield X, None
            elif multilabel:
                width = rows.max_label + 1 if n_labels is None else n_labels
                yield X, label_matrix(rows, width, row_format.dtype)
            else:
                yield X, rows.classes
    if n_rows == 0:
        raise reader.error(1, 1, "at least one row", "none")


def _check_options(multilabel: bool, n_features: int | None, n_labels: int | None, first_label: int) -> None:
    for name, size in (("n_features", n_features), ("n_labels", n_labels), ("first_label", first_label)):
        if size is not None or name == "first_label":
            whole_number(name, size, 0, MAX_COLUMNS)
    if not multilabel and (n_labels is not None or first_label != 0):
        raise ValueError("n_labels and first_label are about lists of labels: they need multilabel=True")


def save_svmlight(
    path: str | os.PathLike[str],
    X: Sparse,
    y: np.ndarray | Sparse,
    zero_based: bool = False,
    *,
    first_label: int = 0,
) -> None:
    """Writes a data set in svmlight/libsvm text, so that ``load_svmlight`` gives it back.

    Zeros are left out, rows are sorted by index, and the decimals are enough to restore every
    value of X exactly. The file appears under its name only when it is complete.

    Args:
        path: where to; .gz and .xz compress.
        X: features, sparse [n, d], float32 or float64.
        y: classes, integers [n], or labels, sparse [n, L] with entries 0 and 1 only.
        zero_based: whether the features of the file count from 0 instead of from 1.
        first_label: the number that label 0 gets in a multi-label file.

    Raises:
        ValueError: X and y differ in their number of rows, or hold what the format cannot.
        OSError: the file cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
        >>> save_svmlight(path, sp.csr_matrix([[0.5, 1.0]]), np.array([3]))
        >>> path.read_text().strip()
        '3 1:0.5 2:1.0'
    """
    X = canonical_features(X)
    first = 0 if zero_based else 1
    if is_sparse(y):
        _check_options(True, None, None, first_label)
        Y = canonical_labels(y)
        check_rows(X, Y)
        heads = label_lists(Y, first_label)
    else:
        _check_options(False, None, None, first_label)
        classes = class_vector(y)
        check_rows(X, classes)
        heads = map(str, classes.tolist())
    write_text(path, row_lines(heads, X, first))


def class_vector(y: np.ndarray) -> np.ndarray:
    """Classes as int64 [n].

    Raises:
        ValueError: y does not have one integer per row.
    """
    classes = array(y, "y")
    if classes.ndim != 1 or classes.dtype.kind not in "iu":
        found = f"{classes.dtype} {list(classes.shape)}"
        lists = "; lists of labels are a sparse matrix, such as scipy.sparse.csr_matrix(Y)"
        raise ValueError(f"classes must be integers [n], got {found}{lists if classes.ndim == 2 else ''}")
    return classes.astype(np.int64)
