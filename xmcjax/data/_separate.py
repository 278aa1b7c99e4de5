"""Features and labels in files of their own, and features of two sources side by side."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import flag, name_of, whole_number
from xmcjax._finite import first_place
from xmcjax._sparse import is_sparse
from xmcjax.data._archive import open_npz
from xmcjax.data._arrow import table_pieces
from xmcjax.data._errors import DataFormatError
from xmcjax.data._matrices import canonical_features, canonical_labels, dense_features
from xmcjax.data._matrix_text import load_matrix, matrix_pieces, save_matrix
from xmcjax.data._npy import load_npy, load_npy_labels, npy_pieces, save_npy
from xmcjax.data._npz import is_of_scipy, load_npz
from xmcjax.data._scipy_npz import load_scipy_npz, save_scipy_npz
from xmcjax.data._svmlight import class_vector, svmlight_pieces
from xmcjax.data._text import value_dtype
from xmcjax.data._xmc import xmc_pieces

#: The formats that suffixes stand for.
SUFFIXES = {
    ".npz": "npz",
    ".npy": "npy",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}


class Reader(NamedTuple):
    """How one matrix is read from a file of a format.

    Attributes:
        features: function (path, **options) -> X.
        labels: function (path, **options) -> y.
        pieces: function (path, piece=bytes, **options) -> pieces of X; None if files are only read whole.

    Example:
        >>> READERS["npy"].features.__name__
        'load_npy'
    """

    features: Callable[..., Any]
    labels: Callable[..., Any]
    pieces: Callable[..., Iterator[Any]] | None = None


def _of_both(pieces: Callable, of_features: dict[str, Any], of_labels: dict[str, Any]) -> Reader:
    """The reader of a format that has features and labels in one file.

    Args:
        pieces: reads pieces of both.
        of_features: options of `pieces` to read only features.
        of_labels: options of `pieces` to read only labels.
    """

    def read(what: str, own: dict[str, Any], path, options: dict[str, Any], piece: int | None = None):
        others = sorted(own.keys() & options.keys())
        if others:
            raise TypeError(f"{path}: expected options of reading {what} alone, got {', '.join(others)}")
        return pieces(path, **options, **own, piece=piece)

    def features(path, **options):
        ((X, _),) = read("features", of_features, path, options)
        return X

    def labels(path, **options):
        ((_, y),) = read("labels", of_labels, path, options)
        return y

    def parts(path, *, piece, **options):
        return (X for X, _ in read("features", of_features, path, options, piece))

    return Reader(features, labels, parts)


def _npz(scipy: Callable, place: int) -> Callable[..., Any]:
    """A reader of npz files of ``save_npz`` or of scipy: the members tell. Only scipy's may hold zeros."""

    def read(path, dtype=None, *, zeros=False, max_memory=None):
        kept = {"zeros": True} if flag("zeros", zeros) else {}
        with open_npz(path, max_memory, 0) as archive:
            of_scipy = is_of_scipy(archive.names)
        if of_scipy:
            return scipy(path, dtype, max_memory=max_memory, **kept)
        return load_npz(path, dtype, max_memory=max_memory)[place]

    return read


def _ones(load: Callable) -> Callable[..., sp.csr_matrix]:
    """A reader of label matrices, made from a reader of matrices: it checks that all entries are 1."""

    def read(path, dtype: Any = np.float32, **options):
        Y = load(path, dtype, **options)
        place = first_place(Y, Y.data != 1)
        if place is not None:
            found = f"{place[2]} in row {place[0] + 1}, column {place[1]}"
            raise DataFormatError(path, None, None, "a label matrix of zeros and ones", found)
        return Y

    return read


def _npy_labels(path, dtype: np.typing.DTypeLike = np.float32, *, max_memory: int | None = None):
    y = load_npy_labels(path, max_memory=max_memory)
    return y if y.ndim == 1 else sp.csr_matrix(_sparse.of_dense(y, value_dtype(dtype)))


def _table(kind: str) -> Reader:
    of_features, of_labels = dict(label_column=None, n_labels=None), dict(feature_columns=(), n_features=None)
    return _of_both(partial(table_pieces, kind), of_features, of_labels)


#: For each format, how features, or labels, are read without the other.
READERS: dict[str, Reader] = {
    "xmc": _of_both(xmc_pieces, {}, {}),
    "svmlight": _of_both(svmlight_pieces, dict(labelled=False), dict(labelled=True)),
    "npz": Reader(_npz(load_scipy_npz, 0), _npz(_ones(load_scipy_npz), 1)),
    "matrix": Reader(load_matrix, _ones(load_matrix), matrix_pieces),
    "npy": Reader(load_npy, _npy_labels, npy_pieces),
    "parquet": _table("parquet"),
    "arrow": _table("arrow"),
}


#: The formats that hold a single matrix and can be written.
ALONE = ("npz", "matrix", "npy")


def format_of(path: str | os.PathLike[str], format: str | None, other: str) -> str:
    """The name of a format.

    Args:
        path: the file, whose suffix decides where ``format`` is None.
        format: a name, or None.
        other: the format for a suffix that is not in ``SUFFIXES``.

    Raises:
        ValueError: no such format.

    Example:
        >>> format_of("train.npz", None, "xmc"), format_of("train.txt", None, "xmc")
        ('npz', 'xmc')
    """
    found = of_suffix(path, name_of("other", other, READERS)) if format is None else format
    return name_of("format", found, READERS)


def promises_other_text(path: str | os.PathLike[str]) -> bool:
    """Whether the name of a file to be written promises a kind of text that its suffix does not select.

    Example:
        >>> promises_other_text("a.csv.gz"), promises_other_text("a.svm"), promises_other_text("a.txt")
        (True, True, False)
    """
    plain = Path(path).name.lower().removesuffix(".gz").removesuffix(".xz")
    return plain.endswith((".csv", ".tsv", ".json", ".jsonl", ".svm", ".svmlight", ".libsvm"))


def of_suffix(path: str | os.PathLike[str], other: str) -> str:
    """The format that the suffix of a file stands for; ``other`` where it stands for none.

    Raises:
        ValueError: it stands for a table with named columns, where nothing says which one is the label.
    """
    suffix = Path(path).suffix
    if suffix.lower() in (".csv", ".tsv", ".xlsx"):
        raise ValueError(
            f"{path}: expected features and labels, found a table ({suffix}): read it with numpy or pandas "
            "and give its columns to fit, or to data.save in npz for the command line (a format that is "
            "named is read)"
        )
    return SUFFIXES.get(suffix, other)


def load_features(path: str | os.PathLike[str], format: str | None = None, **options: Any) -> Any:
    """Reads features from a file; labels in the file are left out.

    Args:
        path: the file.
        format: "matrix", "npz" (of ``save_npz`` or of ``scipy.sparse.save_npz``: the file says which), "npy",
            "parquet", "arrow", "xmc" or "svmlight". Without it the suffix says it: .npz, .npy, .parquet,
            .arrow, .feather; any other is "matrix".
        **options: of the format's reader (``load_matrix``, ``load_scipy_npz``, ``load_npy``,
            ``load_parquet``, ``load_xmc``, ``load_svmlight``), except options about labels.

    Returns:
        CSR [n, d], or an array where the file has dense features.

    Raises:
        DataFormatError: the file breaks its format.
        ImportError: a Parquet or Arrow file without pyarrow.
        OSError: the file cannot be read.
        TypeError: an option that the format's reader does not have, or that is about labels.
        ValueError: no such format.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> path = tempfile.mkdtemp() + "/X.npy"
        >>> np.save(path, np.float32([[0.5, 1.0]]))
        >>> load_features(path).tolist()
        [[0.5, 1.0]]
    """
    return READERS[format_of(path, format, "matrix")].features(path, **options)


def load_labels(path: str | os.PathLike[str], format: str | None = None, **options: Any) -> Any:
    """Reads labels from a file; features in the file are left out.

    Args:
        path: the file.
        format: as in ``load_features``.
        **options: of the format's reader; ``label_column`` and ``n_labels`` of Parquet and Arrow files.

    Returns:
        CSR [n, L] of ones, or classes, int64 [n].

    Raises:
        DataFormatError, ImportError, OSError, TypeError, ValueError: as ``load_features``.

    Example:
        >>> import tempfile
        >>> import scipy.sparse as sp
        >>> path = tempfile.mkdtemp() + "/Y.npz"
        >>> save_labels(path, sp.csr_matrix([[1.0, 0.0, 1.0]]))
        >>> load_labels(path).toarray().tolist()
        [[1.0, 0.0, 1.0]]
    """
    return READERS[format_of(path, format, "matrix")].labels(path, **options)


def load_feature_pieces(
    path: str | os.PathLike[str], format: str | None = None, *, piece: int = 32 << 20, **options: Any
) -> Iterator[Any]:
    """As ``load_features``, some rows at a time, so that a file of any length takes little memory.

    Args:
        path, format: as in ``load_features``.
        piece: about how many bytes a piece takes. An npz file is one piece.
        **options: of the format's reader. Sparse features of svmlight, Parquet and Arrow need
            ``n_features``, or the d of each piece is that of its own rows.

    Yields:
        Features of rows that follow one another; the last piece may have none.

    Raises:
        DataFormatError, ImportError, OSError, ValueError: as ``load_features``, at the faulty place.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> path = tempfile.mkdtemp() + "/X.npy"
        >>> np.save(path, np.float32([[0.5, 1.0], [0.0, 1.0]]))
        >>> sum(len(piece) for piece in load_feature_pieces(path))
        2
    """
    reader = READERS[format_of(path, format, "matrix")]
    whole_number("piece", piece, 1, sys.maxsize)
    if reader.pieces is None:
        yield reader.features(path, **options)
    else:
        yield from reader.pieces(path, **options, piece=piece)


def save_features(path: str | os.PathLike[str], X: Any, format: str | None = None) -> None:
    """Writes features alone, so that ``load_features`` reads them; complete or not at all.

    Args:
        path: the file.
        X: [n, d], float32 or float64, finite.
        format: "npz" (as ``scipy.sparse.save_npz``) or "matrix", which hold sparse features, or "npy", which
            holds dense ones. Without it the suffix says it: .npz, .npy; any other is "matrix".

    Raises:
        TypeError, ValueError: sparse features for npy, another format, or what it cannot hold.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> path = tempfile.mkdtemp() + "/X.npy"
        >>> save_features(path, np.float32([[0.5, 1.0]]))
        >>> load_features(path).tolist()
        [[0.5, 1.0]]
    """
    written = name_of("format", format_of(path, format, "matrix"), ALONE)
    if written == "npy":
        if is_sparse(X):
            raise ValueError(f"{path}: expected dense features to write npy, found sparse ones")
        save_npy(path, dense_features(X))
        return
    X = X if is_sparse(X) else _sparse.of_dense(dense_features(X))
    (save_scipy_npz if written == "npz" else save_matrix)(path, X)


def labels_format(path: str | os.PathLike[str], y: Any, format: str | None = None) -> str:
    """The format in which labels alone are written.

    Args:
        path, y, format: of :func:`save_labels`.

    Raises:
        TypeError, ValueError: another format, or one that cannot hold them.

    Example:
        >>> import numpy as np
        >>> labels_format("y.npy", np.array([0, 1]))
        'npy'
    """
    written = name_of("format", format_of(path, format, "matrix"), ALONE)
    if (written == "npy") == is_sparse(y):
        what = "a label matrix" if is_sparse(y) else "one class per row"
        others = "npz and matrix hold it" if is_sparse(y) else "npy holds it"
        raise ValueError(f"{path}: {what} cannot be written as {written}; {others}")
    return written


def save_labels(path: str | os.PathLike[str], y: Any, format: str | None = None) -> None:
    """Writes labels alone, so that ``load_labels`` reads them; complete or not at all.

    Args:
        path: the file.
        y: labels, sparse [n, L] with entries 0 and 1 only, or classes, integers [n].
        format: as in ``save_features``; classes are written as "npy", label matrices as "npz" or "matrix".

    Raises:
        TypeError, ValueError: another format, or what it cannot hold.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> import scipy.sparse as sp
        >>> path = tempfile.mkdtemp() + "/Y.npz"
        >>> save_labels(path, sp.csr_matrix([[1.0, 0.0, 1.0]]))
        >>> load_labels(path).nnz
        2
    """
    written = labels_format(path, y, format)
    if written == "npy":
        save_npy(path, class_vector(y))
        return
    Y = canonical_labels(y)
    if Y.dtype not in (np.float32, np.float64):
        Y = Y.astype(np.float32)
    (save_scipy_npz if written == "npz" else save_matrix)(path, Y)


def join_features(X: Any, more: Any) -> Any:
    """Features of two sources side by side, such as tf-idf and embeddings.

    Args:
        X: [n, d], sparse or dense.
        more: [n, e], sparse or dense.

    Returns:
        [n, d + e] in the wider of the two dtypes: an array if both are dense, else CSR without zeros.

    Raises:
        TypeError: no matrices of real numbers.
        ValueError: another number of rows, or a malformed matrix.

    Example:
        >>> import numpy as np
        >>> join_features(np.float32([[1.0]]), np.float32([[2.0, 3.0]])).tolist()
        [[1.0, 2.0, 3.0]]
    """
    parts = [_sparse.matrix(X), _sparse.matrix(more, "more")]
    for name, part in zip(("X", "more"), parts, strict=True):
        if part.ndim != 2:
            raise ValueError(f"{name}: expected features [n, d], got {part.ndim} dimension(s)")
    if parts[0].shape[0] != parts[1].shape[0]:
        raise ValueError(f"more: expected {parts[0].shape[0]} rows as in X, got {parts[1].shape[0]}")
    dtype = np.result_type(parts[0].dtype, parts[1].dtype, np.float32)
    if not any(map(is_sparse, parts)):
        joined = np.empty((len(parts[0]), sum(part.shape[1] for part in parts)), dtype)
        joined[:, : parts[0].shape[1]], joined[:, parts[0].shape[1] :] = parts
        return joined
    matrices = [
        canonical_features(
            part.astype(dtype, copy=False) if is_sparse(part) else _sparse.of_dense(part, dtype)
        )
        for part in parts
    ]
    joined = sp.csr_matrix(sp.hstack(matrices, "csr"))
    joined.has_canonical_format = True
    return joined


def join_pieces(
    first: Iterator[Any], second: Iterator[Any], refuse: Callable[[int, int], Exception]
) -> Iterator[Any]:
    """Pieces of two sources, joined row by row, although their pieces end at different rows.

    Args:
        first, second: pieces of features.
        refuse: function (rows, more rows) -> the error for sources with different numbers of rows. Of the
            longer source the number counts only the rows read so far.

    Raises:
        Exception: what ``refuse`` gives.

    Example:
        >>> import numpy as np
        >>> counts = iter([np.ones((2, 1)), np.ones((1, 1))])
        >>> vectors = iter([np.zeros((1, 2)), np.zeros((2, 2))])
        >>> joined = join_pieces(counts, vectors, lambda rows, more: ValueError(f"{rows} and {more} rows"))
        >>> np.vstack(list(joined)).tolist()
        [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    sources, rows = (first, second), [0, 0]
    left: list[Any] = [None, None]
    while True:
        for place, source in enumerate(sources):
            while left[place] is None or left[place].shape[0] == 0:
                following = next(source, None)
                if following is None:
                    break
                rows[place] += following.shape[0]
                left[place] = following
        ended = [part is None or part.shape[0] == 0 for part in left]
        if ended[0] != ended[1]:
            raise refuse(*rows)
        if left[0] is None or left[1] is None:
            return
        count = min(part.shape[0] for part in left)
        yield join_features(left[0][:count], left[1][:count])
        if ended[0]:
            return
        left = [part[count:] for part in left]
