"""Data files named on the command line: how they are read, and the checks that concern two files."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import scipy.sparse as sp
import tyro

from xmcjax.cli._options import one_of, parse_size
from xmcjax.data import FORMATS, DataFormatError, Dataset, Transforms, load, load_pieces

# The format that the suffix of the file stands for.
AUTO = "auto"

if TYPE_CHECKING:
    FormatName = DtypeName = str
else:
    FormatName = one_of((AUTO, *FORMATS))
    DtypeName = one_of(("float32", "float64"))

_MOST_LABELS = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """How the data files are written. What a file does not say is never guessed.

    Attributes:
        format: of the data files. auto: a file named .npz is npz, any other is xmc, the text of
            the XMC repository. All text may be compressed (.gz, .xz).
        multilabel: svmlight files have lists of labels, not one class per row.
        zero_based: svmlight files count features from 0, not from 1.
        first_label: number of the first label in svmlight files and of the first class anywhere:
            label l of the file is label l - first_label of the model. xmc counts from 0.
        max_memory: that reading a file may take, such as 500MB or 4GB; 20 times its size on disk and 64 MB
            if not given.
    """

    format: FormatName = AUTO
    multilabel: bool = False
    zero_based: bool = False
    first_label: int = 0
    max_memory: Annotated[str | None, tyro.conf.arg(metavar="SIZE")] = None

    @property
    def reader_name(self) -> str | None:
        """The format as ``xmcjax.data.load`` takes it."""
        return None if self.format == AUTO else self.format

    def check_first_label(self, path: Path) -> None:
        """Whether ``first_label`` has a meaning for a file.

        Raises:
            ValueError: it is set and the file is XMC text, which counts from 0.
        """
        xmc = self.format == "xmc" or (self.format == AUTO and path.suffix != ".npz")
        if self.first_label and xmc:
            raise ValueError(f"--first-label is for svmlight files and classes: {path} is xmc, from 0 on")

    def reader(self, **sizes: int | None) -> dict[str, Any]:
        """Keyword arguments of ``xmcjax.data.load``; ``sizes`` are for svmlight alone.

        Raises:
            ValueError: an option that the format has no use for.
        """
        most = {"max_memory": parse_size(self.max_memory)}
        if self.format == "svmlight":
            options = most | {"multilabel": self.multilabel, "zero_based": self.zero_based} | sizes
            return options | ({"first_label": self.first_label} if self.multilabel else {})
        for name in ("multilabel", "zero_based"):
            if getattr(self, name):
                raise ValueError(f"--{name.replace('_', '-')} is for --format svmlight")
        return most


@dataclasses.dataclass(frozen=True)
class SizedDataOptions(DataOptions):
    """How the data files are written. What a file does not say is never guessed.

    Attributes:
        n_features: of an svmlight file; the largest index in it if not given.
        n_labels: of an svmlight file with lists of labels, likewise.
    """

    n_features: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    n_labels: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None

    def reader(self, **sizes: int | None) -> dict[str, Any]:
        own = {"n_features": self.n_features, "n_labels": self.n_labels}
        if self.format != "svmlight":
            for name, number in own.items():
                if number is not None:
                    raise ValueError(f"--{name.replace('_', '-')} is for --format svmlight")
        return super().reader(**own | {k: v for k, v in sizes.items() if v is not None})


def read(
    path: Path,
    options: DataOptions,
    *,
    dtype: str = "float32",
    n_features: int | None = None,
    n_labels: int | None = None,
    least_labels: int = 0,
    like: str = "",
) -> Dataset:
    """Features and label matrix of a file.

    Args:
        path: the file.
        options: how it is written.
        dtype: of the values.
        n_features: how many there must be; None for any number.
        n_labels: how many labels there must be. A format that does not state their number is
            taken to have at least that many.
        least_labels: how many a format that does not state their number has at least.
        like: where the two come from, for the error.

    Raises:
        DataFormatError: the file breaks its format, or has another size, or no rows.
        OSError: it cannot be read.
        ValueError: options that do not fit.
    """
    options.check_first_label(path)
    reader = options.reader(n_features=n_features)
    X, y = load(path, options.reader_name, dtype=dtype, **reader)
    states_sizes, line = _header(path, options, y)
    if n_features is not None and X.shape[1] != n_features:
        raise DataFormatError(path, line, None, f"{n_features} features {like}", str(X.shape[1]))
    if states_sizes and options.first_label:
        raise ValueError(f"--first-label is for classes and svmlight, {path} has lists that count from 0")
    Y = sp.csr_matrix(y) if sp.issparse(y) else _class_matrix(path, y, options.first_label)
    if not states_sizes:
        Y.resize(Y.shape[0], max(Y.shape[1], n_labels or 0, least_labels))
    if 0 in (X.shape[0], X.shape[1], Y.shape[1]):
        found = f"{X.shape[0]} rows, {X.shape[1]} features and {Y.shape[1]} labels"
        raise DataFormatError(path, line, None, "at least one row, feature and label", found)
    if states_sizes and n_labels is not None and Y.shape[1] != n_labels:
        raise DataFormatError(path, line, None, f"{n_labels} labels {like}", str(Y.shape[1]))
    return Dataset(X, Y)


def read_test(path: Path, train: Path, options: DataOptions, like: Dataset) -> Dataset:
    """The data of ``--test``, which have the features and labels of the training data.

    Raises:
        DataFormatError, OSError, ValueError: as in ``read``.
    """
    sizes = {"n_features": like.X.shape[1], "n_labels": like.n_labels}
    return read(path, options, dtype=like.X.dtype.name, **sizes, like=f"as in {train}")


def read_features(
    path: Path, options: DataOptions, *, dtype: str, n_features: int, like: str
) -> Generator[sp.csr_matrix]:
    """The features of a file some rows at a time; its labels may be empty or numbered anyhow.

    Args:
        path, options, dtype, n_features, like: as in ``read``.

    Raises:
        DataFormatError, OSError, ValueError: as in ``read``, when the place is reached.
    """
    options.check_first_label(path)
    reader = options.reader(n_features=n_features)
    if "first_label" in reader:
        reader["first_label"] = 0  # a label before the first one is no error here
    n_rows = 0
    for X, y in load_pieces(path, options.reader_name, dtype=dtype, **reader):
        line = _header(path, options, y)[1]
        if X.shape[1] != n_features:
            raise DataFormatError(path, line, None, f"{n_features} features {like}", str(X.shape[1]))
        n_rows += X.shape[0]
        if X.shape[0]:
            yield X
    if n_rows == 0:
        raise DataFormatError(path, line, None, "at least one row and feature", "none")


def _header(path: Path, options: DataOptions, y: Any) -> tuple[bool, int | None]:
    """Whether a file states its sizes, and the line where it does."""
    states_sizes = options.format != "svmlight" and sp.issparse(y)
    return states_sizes, 1 if states_sizes and path.suffix != ".npz" else None


def _class_matrix(path: Path, classes: np.ndarray, first: int) -> sp.csr_matrix:
    """One label per row: class `first` is label 0."""
    labels = classes - first
    wrong = np.flatnonzero((labels < 0) | (labels > _MOST_LABELS))
    if wrong.size:
        row = int(wrong[0])
        expected = f"classes from {first} on (--first-label says where they start)"
        raise DataFormatError(path, None, None, expected, f"{classes[row]} in row {row + 1}")
    n = len(labels)
    parts = (np.ones(n, np.float32), labels, np.arange(n + 1))
    return sp.csr_matrix(parts, shape=(n, int(labels.max(initial=-1)) + 1))


def transformed(path: Path, X: sp.csr_matrix, transforms: Transforms):
    """The features of a file after the transforms of a model.

    Raises:
        ValueError: values that a transform cannot take, naming the file.
    """
    try:
        return transforms.apply(X)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
