"""The flags that say how the data files of a command are written, and which files each flag is for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from xmcjax._options import flag_of
from xmcjax.cli._options import one_of, parse_size
from xmcjax.data import READERS, format_of
from xmcjax.models import PREDICTION_FORMATS

# Stands for the format that the suffix of the file selects.
AUTO = "auto"
# The formats whose first line states sizes.
WITH_HEADER = ("xmc", "matrix")
# The formats that do not state how many features and labels there are.
UNSIZED = ("svmlight", "parquet", "arrow")
_TABLES = ("parquet", "arrow")
#: For each option that does not apply to all formats, the formats that it is for.
_MEANT_FOR = {
    "multilabel": ("svmlight",),
    "zero_based": ("svmlight",),
    "one_based": WITH_HEADER,
    "feature_columns": _TABLES,
    "label_column": _TABLES,
    "n_features": UNSIZED,
}

if TYPE_CHECKING:
    FormatName = MoreFormatName = PredictionFormatName = DtypeName = str
else:
    FormatName = one_of((AUTO, *READERS))
    # svmlight does not state its width, which is needed to join features
    MoreFormatName = one_of((AUTO, *(name for name in READERS if name != "svmlight")))
    PredictionFormatName = one_of((AUTO, *PREDICTION_FORMATS))
    DtypeName = one_of(("float32", "float64"))


class Source(NamedTuple):
    """The files that the rows for one purpose, such as training, are read from.

    Attributes:
        data: features, and labels where they have no file of their own; None where the command has none.
        labels: a file of labels, or None.
        more: a file of features to stand beside the others, or None.
    """

    data: Path | None
    labels: Path | None = None
    more: Path | None = None


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """How the data files are written. What a file does not say is never guessed.

    Attributes:
        format: of the data files. auto: the suffix says it, of .npz, .npy, .parquet, .arrow and .feather; any
            other file is xmc, the text of the XMC repository with features and labels, or matrix, a sparse
            matrix as text, where the labels have a file of their own. All text may be compressed (.gz, .xz).
        labels_format: of files of labels; auto: as above, any other file is matrix.
        more_format: of files of more features, likewise.
        multilabel: svmlight files have lists of labels, not one class per row.
        zero_based: svmlight files count features from 0, not from 1.
        one_based: xmc and matrix files count features and labels from 1, not from 0.
        first_label: number of the first label in svmlight files and of the first class anywhere:
            label l of the file is label l - first_label of the model. xmc counts from 0.
        feature_columns: of Parquet and Arrow files: one, of lists of numbers, or two, of lists of indices and
            of values; features, or feature_indices and feature_values, if not given.
        label_column: of Parquet and Arrow files: lists of labels, or classes.
        max_memory: that reading a file may take, such as 500MB or 4GB; 20 times its size on disk and 64 MB
            if not given.
    """

    format: FormatName = AUTO
    labels_format: FormatName = AUTO
    more_format: MoreFormatName = AUTO
    multilabel: bool = False
    zero_based: bool = False
    one_based: bool = False
    first_label: int = 0
    feature_columns: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [NAME]")] = ()
    label_column: Annotated[str, tyro.conf.arg(metavar="NAME")] = "labels"
    max_memory: Annotated[str | None, tyro.conf.arg(metavar="SIZE")] = None

    def format_of(self, path: Path, *, alone: bool = False) -> str:
        """The format of a data file; `alone` says that the labels are in another file."""
        return format_of(path, None if self.format == AUTO else self.format, "matrix" if alone else "xmc")

    def format_of_labels(self, path: Path) -> str:
        """The format of a file of labels."""
        return format_of(path, None if self.labels_format == AUTO else self.labels_format, "matrix")

    def format_of_more(self, path: Path) -> str:
        """The format of a file of more features."""
        return format_of(path, None if self.more_format == AUTO else self.more_format, "matrix")

    def place_of_labels(self, data: Path, labels: Path | None) -> tuple[Path, str]:
        """The file that labels are read from, which is `data` where `labels` is None, and its format."""
        if labels is None:
            return data, self.format_of(data)
        return labels, self.format_of_labels(labels)

    def check(self, *sources: Source, labelled: bool = True) -> None:
        """Checks that each option has a meaning for at least one file of the command.

        Args:
            sources: all data of the command.
            labelled: whether the command reads labels; if not, ``first_label`` has no effect.

        Raises:
            ValueError: an option has no meaning; the error names a file of each format.
        """
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        given = [name for name, default in defaults.items() if getattr(self, name) != default]
        for name, what, paths in (
            ("labels_format", "a file of labels alone", [source.labels for source in sources]),
            ("more_format", "a file of more features", [source.more for source in sources]),
        ):
            if name in given and not any(paths):
                raise ValueError(f"{flag_of(name, None)} is for {what}, got none")
        formats: dict[str, Path] = {}
        of_labels: dict[str, Path] = {}
        for format, path, labels in self._files(sources):
            formats.setdefault(format, path)
            if labels and labelled:
                of_labels.setdefault(format, path)
        if not formats:
            if given:
                raise ValueError(f"{flag_of(given[0], None)} is for data files, got none")
            return
        for name, meant in _MEANT_FOR.items():
            if name in given and not set(meant) & formats.keys():
                flag = flag_of(name, None)
                raise ValueError(f"{flag} is for --format {_either(meant)}: {_listed(formats)}")
        if self.sizes[1] is not None and not set(UNSIZED) & of_labels.keys():
            stated = "which do not state how many there are"
            raise ValueError(
                f"--n-labels is for labels in {_either(UNSIZED)}, {stated}: {_listed(of_labels)}"
            )
        if self.sizes[1] is not None and not self.multilabel and not set(_TABLES) & of_labels.keys():
            said = f"of svmlight files, such as {of_labels['svmlight']}, it needs --multilabel"
            raise ValueError(f"--n-labels is for lists of labels: {said}")
        if self.first_label and of_labels and of_labels.keys() <= {*WITH_HEADER}:
            raise ValueError(
                f"--first-label is for svmlight files and classes: {_listed(of_labels)}, from 0 on"
            )

    def first_label_is_for_svmlight(self, *sources: Source) -> bool:
        """Whether labels are read from svmlight, where lists and classes alike count from ``first_label``."""
        return any(labels and format == "svmlight" for format, _, labels in self._files(sources))

    def _files(self, sources: Iterable[Source]) -> Iterator[tuple[str, Path, bool]]:
        """The format of each file, its name, and whether labels are read there."""
        for data, labels, more in sources:
            if data is None:
                continue
            yield self.format_of(data, alone=labels is not None), data, labels is None
            if labels is not None:
                yield self.format_of_labels(labels), labels, True
            if more is not None:
                yield self.format_of_more(more), more, False

    def of_features(self, format: str, n_features: int | None) -> dict[str, Any]:
        """Keyword arguments of the reader of features alone, without ``first_label``: labels are not read."""
        options = self._of_format(format)
        if format in _TABLES:
            options["feature_columns"] = self.feature_columns or None
        return options | ({"n_features": n_features} if format in UNSIZED else {})

    def of_labels(self, format: str, n_labels: int | None) -> dict[str, Any]:
        """Keyword arguments of the reader of labels alone."""
        options = self._of_format(format)
        if format == "svmlight" and self.multilabel:
            options |= {"first_label": self.first_label, "n_labels": n_labels}
        if format in _TABLES:
            options |= {"label_column": self.label_column, "n_labels": n_labels}
        return options

    def _of_format(self, format: str) -> dict[str, Any]:
        """Keyword arguments of all readers of a format."""
        options: dict[str, Any] = {"max_memory": parse_size(self.max_memory)}
        if format in WITH_HEADER:
            options["one_based"] = self.one_based
        if format == "svmlight":
            options |= {"multilabel": self.multilabel, "zero_based": self.zero_based}
        return options

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        """The numbers of features and labels that flags give; None for each that is not given."""
        return None, None


@dataclasses.dataclass(frozen=True)
class SizedDataOptions(DataOptions):
    """How the data files are written. What a file does not say is never guessed.

    Attributes:
        n_features: of a file of svmlight, Parquet or Arrow; the largest index in it if not given.
        n_labels: of such a file with lists of labels, likewise.
    """

    n_features: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    n_labels: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        return self.n_features, self.n_labels


def _either(names: tuple[str, ...]) -> str:
    """The names joined with commas and "or"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _listed(formats: Mapping[str, Path]) -> str:
    """A text that names a file of each format, and the format."""
    return " and ".join(f"{path} is {format}" for format, path in formats.items())
