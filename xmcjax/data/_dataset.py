"""A data set whatever its format: load, save, convert, and a fingerprint for what is trained on it."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import name_of, whole_number
from xmcjax._sparse import Sparse, is_sparse
from xmcjax._words import counted
from xmcjax.data._arrow import load_arrow, load_parquet, table_pieces
from xmcjax.data._arrow_writer import save_arrow, save_parquet
from xmcjax.data._matrices import canonical_features, canonical_labels, check_rows, dense_features
from xmcjax.data._npz import load_npz, save_npz
from xmcjax.data._separate import READERS, of_suffix, promises_other_text
from xmcjax.data._svmlight import class_vector, load_svmlight, save_svmlight, svmlight_pieces
from xmcjax.data._xmc import load_xmc, save_xmc, xmc_pieces


class Format(NamedTuple):
    """How files of one format are read and written.

    Attributes:
        load: reads a file.
        save: writes a file.
        pieces: reads a file some rows at a time, or None where it can be read as a whole only.

    Example:
        >>> FORMATS["xmc"].load.__name__, FORMATS["xmc"].save.__name__
        ('load_xmc', 'save_xmc')
    """

    load: Callable[..., tuple[Any, Any]]
    save: Callable[..., None]
    pieces: Callable[..., Iterator[tuple[Any, Any]]] | None = None


FORMATS: dict[str, Format] = {
    "xmc": Format(load_xmc, save_xmc, xmc_pieces),
    "svmlight": Format(load_svmlight, save_svmlight, svmlight_pieces),
    "npz": Format(load_npz, save_npz),
    "parquet": Format(load_parquet, save_parquet, partial(table_pieces, "parquet")),
    "arrow": Format(load_arrow, save_arrow, partial(table_pieces, "arrow")),
}
# The formats that can hold dense features.
_DENSE = ("parquet", "arrow")


class Dataset(NamedTuple):
    """Features and labels; unpacks as ``X, y = dataset``.

    Attributes:
        X: features, CSR or an array, [n, d].
        y: labels, CSR [n, L] of ones, or classes, int64 [n].

    Example:
        >>> import numpy as np
        >>> Dataset(np.eye(3), np.array([0, 1, 1])).describe()
        '3 rows, 3 features (dense), 2 classes'
    """

    X: Any
    y: Any

    @property
    def multilabel(self) -> bool:
        """Whether ``y`` is a label matrix."""
        return is_sparse(self.y)

    @property
    def n_rows(self) -> int:
        return self.X.shape[0]

    @property
    def n_features(self) -> int:
        return self.X.shape[1]

    @property
    def n_labels(self) -> int:
        """L, or the number of different classes."""
        return self.y.shape[1] if self.multilabel else np.unique(self.y).size

    def describe(self) -> str:
        """Sizes in one line."""
        rows = max(self.n_rows, 1)
        nonzeros = f"{self.X.nnz / rows:.1f} non-zeros per row" if is_sparse(self.X) else "dense"
        text = f"{counted(self.n_rows, 'row')}, {counted(self.n_features, 'feature')} ({nonzeros}), "
        if not self.multilabel:
            return text + ("1 class" if self.n_labels == 1 else f"{self.n_labels:,} classes")
        used = np.unique(self.y.indices).size
        return text + f"{counted(self.n_labels, 'label')} ({used:,} in use, {self.y.nnz / rows:.2f} per row)"

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the data themselves: equal for equal data, whatever file they came from.

        Dense features differ from sparse ones of the same values: training may round them differently.

        Raises:
            ValueError: X holds values that are not finite, or y is no label matrix or class vector.
        """
        if is_sparse(self.X):
            X, kind = canonical_features(self.X), ""
            arrays = [X.indptr.astype("<i8"), X.indices.astype("<i4"), X.data]
        else:
            X, kind = dense_features(self.X), "dense "
            arrays = [X]
        arrays[-1] = arrays[-1].astype(X.dtype.newbyteorder("<"), copy=False)
        if self.multilabel:
            Y = canonical_labels(self.y)
            check_rows(X, Y)
            label_shape = list(Y.shape)
            arrays += [Y.indptr.astype("<i8"), Y.indices.astype("<i4")]
        else:
            classes = class_vector(self.y)
            label_shape = [len(classes)]
            arrays.append(classes.astype("<i8"))
        digest = hashlib.sha256(f"{kind}{list(X.shape)} {X.dtype.name} {label_shape}".encode())
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def load(path: str | os.PathLike[str], format: str | None = None, **options: Any) -> Dataset:
    """Reads a data set in any of the formats of ``FORMATS``.

    Args:
        path: the file.
        format: "xmc", "svmlight", "npz", "parquet" or "arrow". Without it the suffix says it: .npz,
            .parquet, .arrow, .feather; any other is "xmc".
        **options: of the format's reader: ``load_xmc``, ``load_svmlight``, ``load_npz``, ``load_parquet``,
            ``load_arrow``. ``load_features`` and ``load_labels`` read files of only features or labels.

    Raises:
        DataFormatError: the file breaks its format.
        ImportError: a Parquet or Arrow file without pyarrow.
        OSError: the file cannot be read.
        ValueError: no such format.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
        >>> length = path.write_text("1 2 3\\n0,2 1:0.5\\n")
        >>> load(path).y.toarray().tolist()
        [[1.0, 0.0, 1.0]]
    """
    return Dataset(*FORMATS[_format(path, format)].load(path, **options))


def load_pieces(
    path: str | os.PathLike[str], format: str | None = None, *, piece: int = 32 << 20, **options: Any
) -> Iterator[Dataset]:
    """Reads a data set some rows at a time, so that a file of any length takes little memory.

    Args:
        path, format: as in ``load``.
        piece: about how many bytes the matrices of a piece take. An npz file is one piece.
        **options: of the format's reader, as in ``load``. ``max_memory`` bounds what a line may take.
            svmlight, Parquet and Arrow need ``n_features`` (and ``n_labels``), or the sizes of each piece
            are those of its own rows.

    Yields:
        Data sets of rows that follow one another; the last one may have none.

    Raises:
        DataFormatError, OSError, ValueError: as in ``load``, when the faulty place is reached.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
        >>> length = path.write_text("3 2 3\\n0,2 1:0.5\\n1 0:1.0\\n2 0:2.0\\n")
        >>> sum(piece.X.sum().item() for piece in load_pieces(path))
        3.5
    """
    entry = FORMATS[_format(path, format)]
    whole_number("piece", piece, 1, sys.maxsize)
    if entry.pieces is None:
        yield Dataset(*entry.load(path, **options))
        return
    for X, y in entry.pieces(path, **options, piece=piece):
        yield Dataset(X, y)


def save(
    path: str | os.PathLike[str],
    X: Sparse | np.ndarray,
    y: Sparse | np.ndarray,
    format: str | None = None,
    **options: Any,
) -> None:
    """Writes a data set in any of the formats of ``FORMATS``, complete or not at all.

    Args:
        path: the file.
        X: features [n, d], sparse or dense; the formats of sparse ones leave out zeros.
        y: labels, sparse [n, L], or classes, integers [n].
        format: as in ``load``.
        **options: of the format's writer: ``save_xmc``, ``save_svmlight``, ``save_npz``.

    Raises:
        OSError: the file cannot be written.
        TypeError, ValueError: the format cannot hold these data, or there is no such format.

    Example:
        >>> import tempfile
        >>> import scipy.sparse as sp
        >>> path = tempfile.mkdtemp() + "/a.npz"
        >>> save(path, sp.csr_matrix([[0.5, 0.0]]), sp.csr_matrix([[1.0, 0.0, 1.0]]))
        >>> load(path).describe()
        '1 row, 2 features (1.0 non-zeros per row), 3 labels (2 in use, 2.00 per row)'
    """
    written = _format_to_write(path, format)
    if not is_sparse(X) and written not in _DENSE:
        X = _sparse.of_dense(dense_features(X))
    FORMATS[written].save(path, X, y, **options)


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    format: str | None = None,
    target_format: str | None = None,
    **options: Any,
) -> Dataset:
    """Reads ``source`` and writes it as ``target``, as a rule text to npz for repeated use.

    Args:
        source: the file to read.
        target: the file to write; it appears under its name only when it is complete.
        format: of the source, as in ``load``.
        target_format: of the target, as in ``save``.
        **options: of the source's reader.

    Returns:
        The data set.

    Raises:
        DataFormatError: the source breaks its format.
        OSError: a file cannot be read or written.
        ValueError: no such format, or one that cannot hold these data.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> length = (folder / "a.txt").write_text("1 2 3\\n0,2 1:0.5\\n")
        >>> converted = convert(folder / "a.txt", folder / "a.npz")
        >>> load(folder / "a.npz").y.toarray().tolist()
        [[1.0, 0.0, 1.0]]
    """
    written = _format_to_write(target, target_format)  # a wrong name is reported before a long read
    dataset = load(source, format, **options)
    if written == "xmc" and not dataset.multilabel:
        raise ValueError(
            f"{source}: expected lists of labels to write {written} text, found one class per row"
        )
    save(target, *dataset, written)
    return dataset


def _format_to_write(path: str | os.PathLike[str], format: str | None) -> str:
    if format is None and promises_other_text(path):
        raise ValueError(f"{path}: expected a format by its name, as that of the file promises no xmc text")
    return _format(path, format)


def _format(path: str | os.PathLike[str], format: str | None) -> str:
    found = of_suffix(path, "xmc") if format is None else format
    if isinstance(found, str) and found in READERS and found not in FORMATS:
        raise ValueError(
            f"{path}: expected features and labels in one file, got one of the format {found}, which holds "
            "one matrix: labels have a file of their own (--labels-file)"
        )
    return name_of("format", found, FORMATS)
