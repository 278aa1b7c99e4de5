"""Data sets in Parquet and Arrow files, where columns hold lists, read through pyarrow.

| column | what a row has there |
|---|---|
| ``labels`` | a list of labels, from 0, or one class |
| ``features`` | a list of d numbers: dense features |
| ``feature_indices``, ``feature_values`` | or two lists of one length instead: sparse features, from 0 |

The caller can give other names of these columns. No other columns are read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import whole_number
from xmcjax._finite import place_not_finite
from xmcjax._pyarrow import pyarrow
from xmcjax._rising import rises_in_rows
from xmcjax.data._archive import check_seekable
from xmcjax.data._errors import DataFormatError
from xmcjax.data._memory import MemoryBound
from xmcjax.data._text import value_dtype
from xmcjax.data._text_format import MAX_COLUMNS

DENSE, SPARSE, LABELS = "features", ("feature_indices", "feature_values"), "labels"
ROWS, _FEW_ROWS = 8192, 64  # the most rows worked on at a time; rows of Parquet unpacked at a time
_SMALL = 1 << 20  # bytes of batches that are worked on together
_MAGIC = b"ARROW1"  # begins an Arrow file, but not a stream


class Columns(NamedTuple):
    """What is read of a file.

    Attributes:
        features: one name, of a column of lists of numbers; two names, of lists of indices and of values;
            () to leave features out; None for the usual names.
        labels: a name, or None to leave labels out.
    """

    features: tuple[str, ...] | None
    labels: str | None


def columns(features: str | Sequence[str] | None, labels: str | None) -> Columns:
    """Names of columns, checked.

    Raises:
        TypeError: no names.
        ValueError: more than two for features, or one twice.
    """
    if features is not None:
        features = (features,) if isinstance(features, str) else features
        if not isinstance(features, Sequence) or not all(isinstance(name, str) for name in features):
            raise TypeError(f"feature_columns: expected names, got {features!r}")
        features = tuple(features)
        if len(features) > 2:
            raise ValueError(
                "feature_columns: expected one column of lists of numbers, or two, of indices and of values, "
                f"got {len(features)}"
            )
        if len(set(features)) < len(features):
            raise ValueError(f"feature_columns: expected each column once, got {features!r}")
    if labels is not None and not isinstance(labels, str):
        raise TypeError(f"label_column: expected a name, got {labels!r}")
    return Columns(features, labels)


class TableReader:
    """One pass over a Parquet or Arrow file.

    Args:
        path: the file.
        wanted: which columns.
        dtype: of the values, float32 or float64.
        n_features, n_labels: sizes, or None to take the largest index in the rows.
        max_memory: bytes that reading may take; None allows 20 times the file's size and 64 MB.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        wanted: Columns,
        dtype: np.typing.DTypeLike,
        n_features: int | None,
        n_labels: int | None,
        max_memory: int | None,
    ):
        self.path = Path(path)
        self._wanted = wanted
        self._dtype = value_dtype(dtype)
        self._sizes = [
            None if size is None else whole_number(name, size, 0, MAX_COLUMNS)
            for name, size in (("n_features", n_features), ("n_labels", n_labels))
        ]
        self._bound = MemoryBound(path, max_memory)
        self._pa = pyarrow()
        self._rows = 0  # rows of the file before the current batch

    def pieces(self, piece: int | None) -> Iterator[tuple[Any, Any]]:
        """(X, y) in pieces of about `piece` bytes, or all rows together; what is left out is None.

        Raises:
            DataFormatError: the file is damaged, has other columns, or takes too much memory.
        """
        features, labels, held, given = [], [], 0, False
        for X, y in self._parts(_SMALL if piece is None else min(_SMALL, piece)):
            features.append(X)
            labels.append(y)
            held += _bytes(X) + _bytes(y)
            if piece is None:
                self._bound.check(2 * held, f"the first {self._rows:,} rows")
            elif held >= piece:
                yield self._joined(features, labels)
                features, labels, held, given = [], [], 0, True
        if features or not given:
            yield self._joined(features, labels)

    def _parts(self, most: int) -> Iterator[tuple[Any, Any]]:
        """(X, y) of each batch, X dense or a tuple (lengths, indices, values); `most` as below."""
        with self._errors():
            for batch in self._gathered(most):
                X = self._features(batch)
                y = None if self._wanted.labels is None else self._labels(batch.column(self._wanted.labels))
                self._rows += batch.num_rows
                yield X, y

    def _gathered(self, most: int) -> Iterator[Any]:
        """The batches; small ones are joined up to `most` bytes, because each step has a fixed cost."""
        held, rows, size = [], 0, 0
        for number, batch in enumerate(self._batches()):
            batch.validate(full=True)  # before anything uses its offsets
            if number == 0:  # given alone, so that wrong types of columns are refused before any other work
                yield batch
                continue
            more = batch.nbytes
            if held and size + more > most:  # a large batch is not copied
                yield self._together(held)
                held, rows, size = [], 0, 0
            if batch.num_rows:
                held.append(batch)
                rows, size = rows + batch.num_rows, size + more
            if rows >= ROWS or size >= most:
                yield self._together(held)
                held, rows, size = [], 0, 0
        if held:
            yield self._together(held)

    def _together(self, batches: list[Any]) -> Any:
        """Joins batches of few bytes into one."""
        if len(batches) == 1:
            return batches[0]
        (whole,) = self._pa.Table.from_batches(batches).combine_chunks().to_batches()
        return whole

    def _batches(self) -> Iterator[Any]:
        """The batches of rows, of the wanted columns."""
        raise NotImplementedError

    def _names(self, schema: Any) -> list[str]:
        """The columns to read; sets the usual names where none are given."""
        present, features = set(schema.names), self._wanted.features
        if features is None:
            features = (DENSE,) if DENSE in present else SPARSE
            self._wanted = self._wanted._replace(features=features)
        labels = self._wanted.labels
        if labels in features:
            raise self._error("labels in another column than the features", f"both in {labels!r}")
        names = [*features, *([] if labels is None else [labels])]
        for name in names:
            if schema.names.count(name) != 1:
                several = "several" if name in present else "none"
                listed = ", ".join(map(repr, schema.names[:8])) or "no columns"
                raise self._error(f"a column {name!r}", f"{several} among {listed}")
        return names

    def _features(self, batch: Any) -> Any:
        names = self._wanted.features
        if not names:
            return None
        lists = [self._lists(batch.column(name), name) for name in names]
        if len(names) == 1:
            lengths, values = lists[0]
            width = self._sizes[0]
            if width is None and len(lengths):
                width = self._sizes[0] = int(lengths[0])
            wrong = np.flatnonzero(lengths != width)
            if wrong.size:
                found = f"{lengths[wrong[0]]} in {self._row(wrong[0])}"
                raise self._error(f"lists of {width} numbers in column {names[0]!r}", found)
            X = self._values(values, names[0]).reshape(len(lengths), width or 0)
            place = place_not_finite(X)
            if place is not None:
                raise self._not_finite(names[0], place[2], place[0])
            return X
        (lengths, indices), (others, values) = lists
        wrong = np.flatnonzero(lengths != others)
        if wrong.size:
            found = f"{lengths[wrong[0]]} and {others[wrong[0]]} in {self._row(wrong[0])}"
            raise self._error(f"as many entries in {names[0]!r} as in {names[1]!r}", found)
        indices = self._places(indices, lengths, names[0], self._sizes[0])
        values = self._values(values, names[1])
        finite = np.isfinite(values)
        if not finite.all():
            at = int(np.argmin(finite))
            row = int(np.searchsorted(np.cumsum(lengths), at, side="right"))
            raise self._not_finite(names[1], values[at], row)
        return lengths, indices, values

    def _labels(self, column: Any) -> Any:
        """Classes, or a tuple (lengths, labels)."""
        name, types = self._wanted.labels, self._pa.types
        assert name is not None
        if types.is_integer(column.type):
            self._no_nulls(column, name)
            classes = column.to_numpy(zero_copy_only=False)
            if classes.dtype == np.uint64 and (classes > np.iinfo(np.int64).max).any():
                raise self._error(f"classes below 2^63 in column {name!r}", "a larger one")
            return classes.astype(np.int64)
        lengths, labels = self._lists(column, name, "whole numbers, or lists")
        return lengths, self._places(labels, lengths, name, self._sizes[1])

    def _lists(self, column: Any, name: str, expected: str = "lists") -> tuple[np.ndarray, Any]:
        """(lengths, entries) of a column of lists; `expected` is for the error."""
        types = self._pa.types
        kinds = types.is_list, types.is_large_list, types.is_fixed_size_list
        if not any(is_kind(column.type) for is_kind in kinds):
            raise self._error(f"{expected} in column {name!r}", f"{column.type}")
        self._no_nulls(column, name)
        entries = column.flatten()
        self._no_nulls(entries, name)
        if types.is_fixed_size_list(column.type):
            return np.full(len(column), column.type.list_size, np.int64), entries
        offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        return np.diff(offsets), entries

    def _no_nulls(self, column: Any, name: str) -> None:
        if column.null_count:
            raise self._error(f"no nulls in column {name!r}", str(column.null_count))

    def _values(self, entries: Any, name: str) -> np.ndarray:
        types = self._pa.types
        if not (types.is_floating(entries.type) or types.is_integer(entries.type)):
            raise self._error(f"lists of numbers in column {name!r}", f"lists of {entries.type}")
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            return entries.to_numpy(zero_copy_only=False).astype(self._dtype)

    def _places(self, entries: Any, lengths: np.ndarray, name: str, size: int | None) -> np.ndarray:
        """Column or label numbers as int32; checks that a row has each of them once."""
        if not self._pa.types.is_integer(entries.type):
            raise self._error(f"lists of whole numbers in column {name!r}", f"lists of {entries.type}")
        places = entries.to_numpy(zero_copy_only=False)
        ends = np.cumsum(lengths)
        size = MAX_COLUMNS if size is None else size
        if places.size and not 0 <= places.min() <= places.max() < size:
            at = int(np.argmax((places < 0) | (places >= size)))
            row = self._row(int(np.searchsorted(ends, at, side="right")))
            raise self._error(f"numbers from 0 to {size - 1} in column {name!r}", f"{places[at]} in {row}")
        if not rises_in_rows(places, ends):
            self._refuse_repeated(places, np.repeat(np.arange(len(lengths)), lengths), name)
        return places.astype(np.int32)

    def _refuse_repeated(self, places: np.ndarray, rows: np.ndarray, name: str) -> None:
        order = np.lexsort((places, rows))
        again = (places[order][1:] == places[order][:-1]) & (rows[1:] == rows[:-1])
        if again.any():
            at = int(np.argmax(again))
            found = f"{places[order][at]} again in {self._row(rows[at])}"
            raise self._error(f"each number once in a row of column {name!r}", found)

    def _joined(self, features: list, labels: list) -> tuple[Any, Any]:
        """The parts as matrices; they are dropped one after another, so that no second copy exists."""
        X = y = None
        if self._wanted.features:
            size = self._sizes[0]
            if len(self._wanted.features) == 1:
                X = _stacked(features, (0, size or 0), self._dtype)
            else:
                X = self._csr(features, size)
        if self._wanted.labels is not None:
            if labels and isinstance(labels[0], np.ndarray):
                y = _stacked(labels, (0,), np.dtype(np.int64))
            else:
                y = self._csr([(n, l, np.ones(len(l), self._dtype)) for n, l in labels], self._sizes[1])
        return X, y

    def _csr(self, parts: list, size: int | None) -> sp.csr_matrix:
        lengths = _stacked([part[0] for part in parts], (0,), np.dtype(np.int64))
        indices = _stacked([part[1] for part in parts], (0,), np.dtype(np.int32))
        values = _stacked([part[2] for part in parts], (0,), self._dtype)
        parts.clear()
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        size = int(indices.max(initial=-1)) + 1 if size is None else size
        matrix = _sparse.canonical_csr(
            sp.csr_matrix((values, indices, indptr), shape=(len(lengths), size)), zeros=False
        )
        matrix.has_canonical_format = True
        return matrix

    def _row(self, row: int) -> str:
        return f"row {self._rows + int(row) + 1}"

    def _not_finite(self, name: str, value: Any, row: int) -> DataFormatError:
        return self._error(
            f"finite {self._dtype.name} numbers in column {name!r}", f"{value} in {self._row(row)}"
        )

    def _error(self, expected: str, found: str) -> DataFormatError:
        return DataFormatError(self.path, None, None, expected, found)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns what pyarrow raises into a DataFormatError of one sentence."""
        try:
            yield
        except DataFormatError:
            raise
        except (self._pa.ArrowException, ValueError, TypeError, OSError, MemoryError, LookupError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            why = " ".join(str(error).split())
            raise self._error(f"a complete {self._kind} file", f"a damaged one ({why[:200]})") from error

    _kind = "Parquet or Arrow"


class _ParquetReader(TableReader):
    _kind = "Parquet"

    def _batches(self) -> Iterator[Any]:
        check_seekable(self.path, "Parquet is read from its end")
        with open(self.path, "rb") as raw, self._pa.parquet.ParquetFile(raw) as file:
            names = self._names(file.schema_arrow)
            # Few rows at a time, because how many bytes rows unpack to is known only afterwards. The column
            # metadata of the file are not asked: if they are damaged, reading them ends the process.
            yield from file.iter_batches(_FEW_ROWS, columns=names, use_threads=False)


class _ArrowReader(TableReader):
    _kind = "Arrow"

    def _batches(self) -> Iterator[Any]:
        check_seekable(self.path, "Arrow files are read in several places")
        with open(self.path, "rb") as raw:
            whole = raw.read(len(_MAGIC)) == _MAGIC
            raw.seek(0)
            if whole:
                with self._pa.ipc.open_file(raw) as file:
                    names = self._names(file.schema)
                    for number in range(file.num_record_batches):
                        yield from _cut(file.get_batch(number), names)
            else:
                with self._pa.ipc.open_stream(raw) as stream:
                    names = self._names(stream.schema)
                    for batch in stream:
                        yield from _cut(batch, names)


def _cut(batch: Any, names: list[str]) -> Iterator[Any]:
    """The wanted columns of a batch, some rows at a time."""
    for start in range(0, batch.num_rows, ROWS):
        yield batch.select(names).slice(start, ROWS)


def _bytes(part: Any) -> int:
    if part is None:
        return 0
    return part.nbytes if isinstance(part, np.ndarray) else sum(array.nbytes for array in part)


def _stacked(parts: list, empty: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Arrays one after another; the list is emptied as they are copied."""
    if len(parts) == 1:
        return parts.pop()
    shape = (sum(map(len, parts)), *(parts[0].shape[1:] if parts else empty[1:]))
    whole, start = np.empty(shape, dtype), 0
    for place, part in enumerate(parts):
        whole[start : start + len(part)] = part
        start += len(part)
        parts[place] = None
    parts.clear()
    return whole


READERS = {"parquet": _ParquetReader, "arrow": _ArrowReader}


def table_pieces(
    kind: str,
    path: str | os.PathLike[str],
    dtype: np.typing.DTypeLike = np.float32,
    *,
    feature_columns: str | Sequence[str] | None = None,
    label_column: str | None = LABELS,
    n_features: int | None = None,
    n_labels: int | None = None,
    max_memory: int | None = None,
    piece: int | None,
) -> Iterator[tuple[Any, Any]]:
    """As ``load_parquet`` or ``load_arrow``, in pieces of about ``piece`` bytes; None is one piece."""
    wanted = columns(feature_columns, label_column)
    yield from READERS[kind](path, wanted, dtype, n_features, n_labels, max_memory).pieces(piece)


def load_parquet(
    path: str | os.PathLike[str],
    dtype: np.typing.DTypeLike = np.float32,
    *,
    feature_columns: str | Sequence[str] | None = None,
    label_column: str | None = LABELS,
    n_features: int | None = None,
    n_labels: int | None = None,
    max_memory: int | None = None,
) -> tuple[Any, Any]:
    """Reads a data set from a Parquet file whose columns hold lists.

    Args:
        path: the file.
        dtype: of the values, float32 or float64.
        feature_columns: one column of lists of d numbers each, for dense features; or two columns, of lists
            of indices and of lists of values, for sparse features. None is the column "features" if it is
            there, else "feature_indices" and "feature_values"; () leaves features out.
        label_column: lists of labels, or one class in each row; None leaves labels out.
        n_features: d; sparse features beyond it are errors. By default the largest index in this file: give
            a test file the d of its training file.
        n_labels: L where rows have lists of labels; by default the largest label in this file and one.
        max_memory: bytes that reading may take; by default 20 times the file's size and 64 MB.

    Returns:
        X, an array or CSR [n, d], and y: CSR [n, L] of ones, or classes, int64 [n]; None for what is left
        out. Indices and labels count from 0.

    Raises:
        DataFormatError: the file is damaged, lacks a column, has nulls, other types, numbers that are out of
            range, twice in a row or not finite, or reading takes too much memory.
        ImportError: pyarrow is not installed (the extra ``arrow``).
        OSError: the file cannot be read.

    Example:
        >>> import tempfile
        >>> import scipy.sparse as sp
        >>> from xmcjax.data import load_parquet, save_parquet
        >>> Y = sp.csr_array([[1, 0, 1], [0, 1, 0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_parquet(f"{folder}/train.parquet", sp.csr_array(np.eye(2)), Y)
        ...     X, _ = load_parquet(f"{folder}/train.parquet", n_features=5, label_column=None)
        ...     _, labels = load_parquet(f"{folder}/train.parquet", feature_columns=())
        >>> X.shape, labels.toarray().tolist()
        ((2, 5), [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    """
    return _whole("parquet", path, dtype, feature_columns, label_column, n_features, n_labels, max_memory)


def load_arrow(
    path: str | os.PathLike[str],
    dtype: np.typing.DTypeLike = np.float32,
    *,
    feature_columns: str | Sequence[str] | None = None,
    label_column: str | None = LABELS,
    n_features: int | None = None,
    n_labels: int | None = None,
    max_memory: int | None = None,
) -> tuple[Any, Any]:
    """Reads a data set from an Arrow file (IPC, also called Feather) or stream whose columns hold lists.

    Arguments, result and errors are those of :func:`load_parquet`.

    Example:
        >>> import tempfile
        >>> from xmcjax.data import load_arrow, save_arrow
        >>> X = np.float32([[0, 1], [2, 0], [3, 4]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_arrow(f"{folder}/points.arrow", X, np.array([0, 1, 1]))
        ...     X_read, y = load_arrow(f"{folder}/points.arrow")
        >>> np.array_equal(X_read, X), y.tolist()
        (True, [0, 1, 1])
    """
    return _whole("arrow", path, dtype, feature_columns, label_column, n_features, n_labels, max_memory)


def _whole(kind, path, dtype, feature_columns, label_column, *sizes) -> tuple[Any, Any]:
    """A whole table as one piece; `sizes` are n_features, n_labels and max_memory."""
    wanted = columns(feature_columns, label_column)
    (whole,) = READERS[kind](path, wanted, dtype, *sizes).pieces(None)
    return whole
