"""Data files named on the command line: how they are read, and the checks that concern two files."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax.cli._data_options import UNSIZED, WITH_HEADER, DataOptions, Source
from xmcjax.cli._streams import read_seekable, seekable
from xmcjax.data import (
    DataFormatError,
    Dataset,
    Transforms,
    join_features,
    join_pieces,
    load,
    load_feature_pieces,
    load_features,
    load_labels,
)
from xmcjax.models import ModelError

#: The member of the meta data of a model that says how many of its last features are of --more-features;
#: models that were trained without that flag lack it.
MORE_FEATURES = "more_features"
# If there are more than _MANY_LABELS labels, and fewer than 1 in _GAPS of them has a row, the labels do not
# count from 0: they are hashes, for example.
_MANY_LABELS, _GAPS = 1_000_000, 1000
_MOST_LABELS = 2**31 - 1
# The largest absolute value of a class, so that differences of classes fit into int64.
_MOST_OF_A_CLASS = 2**62
# About how many bytes of rows are predicted at a time.
_PIECE = 16 << 20


class Joined(NamedTuple):
    """A data set, and how many of its last columns are from a file of more features (0 without one)."""

    dataset: Dataset
    beside: int


def read_training(options: Any) -> Joined:
    """The training data that the flags of ``train`` name.

    Raises:
        ValueError: a flag about test data without ``--test``, or options that do not fit.
        DataFormatError, OSError: as in :func:`read`.
    """
    for flag, path in (
        ("--test-labels-file", options.test_labels_file),
        ("--test-more-features", options.test_more_features),
    ):
        if path is not None and options.test is None:
            raise ValueError(f"{flag} needs --test, got none")
    if options.test is not None:
        format = options.files.format_of(options.test, alone=options.test_labels_file is not None)
        trained = None if options.more_features is None else f" {options.more_features}"
        check_beside("--test-more-features", format, options.test_more_features, trained)
    sources = _sources(options)
    options.files.check(*sources)
    return read(
        options.train,
        options.files,
        labels=options.labels_file,
        more=options.more_features,
        dtype=options.dtype,
        lists_from_0=options.files.first_label_is_for_svmlight(*sources),
    )


def _sources(options: Any) -> tuple[Source, Source]:
    """The data of training and of ``--test`` that the flags of ``train`` name."""
    return (
        Source(options.train, options.labels_file, options.more_features),
        Source(options.test, options.test_labels_file, options.test_more_features),
    )


def check_beside(flag: str, format: str, more: Path | None, trained: str | None) -> None:
    """Checks that data without a stated width have a second source if and only if the training data had one.

    Data that state their width may hold both sources already joined.

    Args:
        flag: the flag of the second source.
        format: the format of the first source.
        more: the second source, or None.
        trained: what the error says after "further features" of the second source of training; None where
            training had none.

    Raises:
        ValueError: the second source is missing, or there must be none.
    """
    if format not in UNSIZED or (more is None) == (trained is None):
        return
    if more is None:
        raise ValueError(f"{flag}: expected further features{trained} as in training, got none")
    raise ValueError(f"{flag}: expected no further features, as training had none, got {more}")


def check_numbers(options: Any, dataset: Dataset) -> None:
    """Checks that labels are numbered from 0, because one-vs-all training solves a problem for each number.

    Args:
        options: the flags by which the data were read.
        dataset: the data of :func:`read_training`.

    Raises:
        ValueError: hardly any number up to the largest has a row, and no flag states the number of labels.
    """
    where, format = options.files.place_of_labels(options.train, options.labels_file)
    if format not in UNSIZED or options.files.sizes[1] is not None or dataset.n_labels <= _MANY_LABELS:
        return
    used = len(np.unique(dataset.y.indices))
    if used * _GAPS < dataset.n_labels:
        raise ValueError(
            f"{where}: expected labels that count from 0, found numbers up to {dataset.n_labels - 1:,}, "
            f"of which {used:,} have a row: number them anew"
        )


def read_test(options: Any, training: Joined) -> Dataset | None:
    """The data of ``--test``, which have the features and labels of the training data; None without them.

    Raises:
        DataFormatError, OSError, ValueError: as in :func:`read`.
    """
    if options.test is None:
        return None
    like = training.dataset
    _check_sizes(options, (like.X.shape[1] - training.beside, like.n_labels))
    return read(
        options.test,
        options.files,
        labels=options.test_labels_file,
        more=options.test_more_features,
        dtype=like.X.dtype.name,
        n_features=like.X.shape[1],
        n_labels=like.n_labels,
        beside=training.beside or None,
        like=f"as in {options.train}",
        lists_from_0=options.files.first_label_is_for_svmlight(*_sources(options)),
    ).dataset


def _check_sizes(options: Any, sizes: tuple[int, int]) -> None:
    """Checks that flags with sizes agree with the training data, if ``--test`` does not state its sizes.

    Raises:
        ValueError: the sizes differ.
    """
    files, labels = options.files, options.test_labels_file
    places = (
        ("--n-features", options.test, files.format_of(options.test, alone=labels is not None)),
        ("--n-labels", *files.place_of_labels(options.test, labels)),
    )
    for (flag, path, format), given, size in zip(places, files.sizes, sizes, strict=True):
        if format in UNSIZED and given not in (None, size):
            raise ValueError(f"{flag}: expected {size} for {path} as in {options.train}, got {given}")


def read(
    path: Path,
    options: DataOptions,
    *,
    labels: Path | None = None,
    more: Path | None = None,
    dtype: str = "float32",
    n_features: int | None = None,
    n_labels: int | None = None,
    least_labels: int = 0,
    more_labels: Callable[[int], None] | None = None,
    beside: int | None = None,
    like: str = "",
    lists_from_0: bool = False,
) -> Joined:
    """Features and label matrix.

    Args:
        path: the file of features, and of labels where they have no file of their own.
        options: how files are written, checked for all files of the command.
        labels: a file of labels, or None.
        more: a file of features to stand beside the others, or None.
        dtype: of the values.
        n_features: how many features there must be, with those of `more`; None for any number.
        n_labels: how many labels there must be. A format that does not state their number is
            taken to have at least that many.
        least_labels: the least number of labels for a format that does not state it.
        more_labels: called with `least_labels` where the rows show fewer labels; it may raise an error.
        beside: how many columns `more` must have; None for any number.
        like: where `n_features` and `n_labels` come from, for the error.
        lists_from_0: whether lists of labels in other formats than svmlight are allowed together with
            ``--first-label``, because that flag is for another file of the command.

    Raises:
        DataFormatError: a file breaks its format, or has another size, or no rows.
        OSError: it cannot be read.
        ValueError: options that do not fit.
    """
    (X, y), columns = load_files(
        path, options, labels=labels, more=more, dtype=dtype, n_features=n_features, beside=beside
    )
    format = options.format_of(path, alone=labels is not None)
    where, of_labels = options.place_of_labels(path, labels)
    line = _header_line(format)
    if n_features is not None and X.shape[1] != n_features:
        raise DataFormatError(path, line, None, f"{n_features} features {like}", str(X.shape[1]))
    if n_labels is None:  # otherwise the option was used for the training data
        check_lists(path, labels, options, y)
    states_sizes = of_labels not in UNSIZED and sp.issparse(y)
    counts_from_0 = sp.issparse(y) and of_labels != "svmlight"
    if options.first_label and counts_from_0 and of_labels not in WITH_HEADER and not lists_from_0:
        raise ValueError(f"--first-label is for classes and svmlight, {where} has lists that count from 0")
    Y = sp.csr_matrix(y) if sp.issparse(y) else _class_matrix(where, y, options.first_label)
    if not states_sizes:
        if more_labels is not None and least_labels > max(Y.shape[1], n_labels or 0):
            more_labels(least_labels)
        Y.resize(Y.shape[0], max(Y.shape[1], n_labels or 0, least_labels))
    if 0 in (X.shape[0], X.shape[1], Y.shape[1]):
        found = f"{X.shape[0]} rows, {X.shape[1]} features and {Y.shape[1]} labels"
        raise DataFormatError(path, line, None, "at least one row, feature and label", found)
    if states_sizes and n_labels is not None and Y.shape[1] != n_labels:
        line = _header_line(of_labels)
        raise DataFormatError(where, line, None, f"{n_labels} labels {like}", str(Y.shape[1]))
    return Joined(Dataset(X, Y), columns)


def check_lists(path: Path, labels: Path | None, options: DataOptions, y: Any) -> None:
    """Checks that a file that ``--n-labels`` is for has lists of labels.

    Args:
        path, labels, options: as in :func:`read`.
        y: the labels, a matrix or classes.

    Raises:
        ValueError: the file has classes.
    """
    where, format = options.place_of_labels(path, labels)
    if options.sizes[1] is not None and format in UNSIZED and not sp.issparse(y):
        raise ValueError(f"--n-labels is for lists of labels, {where} has a class for each row")


def load_files(
    path: Path,
    options: DataOptions,
    *,
    labels: Path | None,
    more: Path | None,
    dtype: str | None,
    n_features: int | None = None,
    beside: int | None = None,
) -> Joined:
    """Features and labels as the files have them.

    Args:
        path, options, labels, more, n_features, beside: as in :func:`read`.
        dtype: of the values; None for that of the files.

    Raises:
        DataFormatError, OSError, ValueError: as in :func:`read`.
    """
    format = options.format_of(path, alone=labels is not None)
    numbers = {} if dtype is None else {"dtype": dtype}
    further = None
    if more is not None:
        kind = options.format_of_more(more)
        further = read_seekable(load_features, more, kind, **numbers, **options.of_features(kind, beside))
        _check_width(more, kind, further, beside)
        n_features = None if n_features is None else max(n_features - further.shape[1], 0)
    own_features, own_labels = options.sizes
    of_features = options.of_features(format, own_features if n_features is None else n_features)
    if labels is None:
        both = of_features | options.of_labels(format, own_labels)
        X, y = read_seekable(load, path, format, **numbers, **both)
    else:
        X = read_seekable(load_features, path, format, **numbers, **of_features)
        kind = options.format_of_labels(labels)
        y = read_seekable(load_labels, labels, kind, **numbers, **options.of_labels(kind, own_labels))
        if y.shape[0] != X.shape[0]:
            raise _other_rows(labels, kind, f"{X.shape[0]}", path, y.shape[0])
    if further is None or more is None:
        return Joined(Dataset(X, y), 0)
    if further.shape[0] != X.shape[0]:
        raise _other_rows(more, options.format_of_more(more), f"{X.shape[0]}", path, further.shape[0])
    return Joined(Dataset(join_features(X, further), y), further.shape[1])


def read_features(
    path: Path,
    options: DataOptions,
    *,
    more: Path | None = None,
    dtype: str,
    n_features: int,
    beside: int | None = None,
    like: str,
) -> Generator[Any]:
    """The features of a file some rows at a time; its labels are ignored, whatever their numbers.

    Args:
        path, options, more, dtype, n_features, beside, like: as in :func:`read`.

    Raises:
        DataFormatError, OSError, ValueError: as in :func:`read`, when the faulty place is reached.
    """
    format = options.format_of(path)
    n_rows = 0
    for X in _feature_pieces(path, format, options, more, dtype, n_features, beside):
        if X.shape[1] != n_features:
            line = _header_line(format)
            raise DataFormatError(path, line, None, f"{n_features} features {like}", str(X.shape[1]))
        n_rows += X.shape[0]
        if X.shape[0]:
            yield X
    if n_rows == 0:
        raise DataFormatError(path, _header_line(format), None, "at least one row and feature", "none")


def _feature_pieces(
    path: Path,
    format: str,
    options: DataOptions,
    more: Path | None,
    dtype: str,
    n_features: int,
    beside: int | None,
) -> Iterator[Any]:
    if more is None:
        return _pieces(path, format, dtype, options.of_features(format, n_features))
    kind = options.format_of_more(more)
    further = _pieces(more, kind, dtype, options.of_features(kind, beside))
    first = next(further)  # even an empty file has one piece
    _check_width(more, kind, first, beside)
    own = options.of_features(format, max(n_features - first.shape[1], 0))
    pieces = _pieces(path, format, dtype, own)

    def refuse(rows: int, others: int) -> DataFormatError:
        # of the longer source only the rows read so far are known
        found = f"more than {rows}" if others > rows else others
        return _other_rows(more, kind, "as many", path, found)

    return join_pieces(pieces, itertools.chain([first], further), refuse)


def _pieces(path: Path, format: str, dtype: str, own: dict[str, Any]) -> Iterator[Any]:
    """Features of a file or a stream, some rows at a time, read with the options `own`."""
    with seekable(path, own["max_memory"], format) as place:
        yield from load_feature_pieces(place, format, dtype=dtype, piece=_PIECE, **own)


def _check_width(path: Path, format: str, further: Any, wanted: int | None) -> None:
    """Checks that a second source has as many columns as in training; None for any number."""
    if wanted is not None and further.shape[1] != wanted:
        expected = f"{wanted} columns as in training"
        raise DataFormatError(path, _header_line(format), None, expected, str(further.shape[1]))


def _other_rows(path: Path, format: str, wanted: str, like: Path, found: int | str) -> DataFormatError:
    return DataFormatError(path, _header_line(format), None, f"{wanted} rows as in {like}", str(found))


def _header_line(format: str) -> int | None:
    """The number of the line that states the sizes of a file; None for a format without such a line."""
    return 1 if format in WITH_HEADER else None


def _class_matrix(path: Path, classes: np.ndarray, first: int) -> sp.csr_matrix:
    """One label per row: class `first` is label 0."""
    if abs(first) > _MOST_OF_A_CLASS:
        raise ValueError(f"--first-label: expected a number of up to {_MOST_OF_A_CLASS:,}, got {first}")
    labels = classes - first
    wrong = np.flatnonzero((labels < 0) | (labels > _MOST_LABELS))
    if wrong.size:
        row = int(wrong[0])
        expected = f"classes from {first} on (--first-label says where they start)"
        raise DataFormatError(path, None, None, expected, f"{classes[row]} in row {row + 1}")
    n = len(labels)
    parts = (np.ones(n, np.float32), labels, np.arange(n + 1))
    return sp.csr_matrix(parts, shape=(n, int(labels.max(initial=-1)) + 1))


@contextlib.contextmanager
def of_file(path: Path | None, before: int = 0) -> Iterator[None]:
    """A context in which errors about rows name the file; where `before` rows were read, they say so.

    Raises:
        ValueError: the error, with the file before its sentence.
    """
    try:
        yield
    except (DataFormatError, ModelError):  # these name a file already
        raise
    except ValueError as error:
        place = f"{path}: after {before:,} rows" if before else path
        raise ValueError(f"{place}: {error}") from error


def transformed(path: Path, X: Any, transforms: Transforms):
    """The features of a file after the transforms of a model.

    Raises:
        ValueError: values that a transform cannot take, naming the file.
    """
    with of_file(path):
        return transforms.apply(X)


def transformed_test(options: Any, test: Dataset | None, transforms: Transforms) -> Dataset | None:
    """The data of ``--test`` after the transforms of the training data; None without such data.

    Raises:
        ValueError: as :func:`transformed`.
    """
    return None if test is None else test._replace(X=transformed(options.test, test.X, transforms))
