"""What a line of text may hold, and how a fault in it is worded: shared by both readers of text.

The grammar of a line, in bytes::

    row    = [labels] {blank index ":" value} [blank] [comment] ["\\r"] "\\n"
    labels = label {"," label}     or, where a row has one class, [blank] integer
    blank  = one or more spaces or tabs
    value  = [sign] (digits ["." digits] | "." digits) [("e" | "E") [sign] digits]

With ``Head.PASSED_OVER`` a first item without a colon is skipped, whatever it is. In a format with comments,
such as svmlight, a query id behind the labels is skipped, too: blank "qid:" digits.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import NamedTuple, Protocol

import numpy as np

# Column and label numbers are int32, and so is the number of columns.
MAX_COLUMNS = 2**31 - 1
MAX_ROWS = 2**63 - 1


class Kind(enum.IntEnum):
    """What is wrong with an item; the numbers are those of ``Fault`` in native/text/text_reader.cc."""

    LABEL = 1
    LABEL_TWICE = 2
    CLASS = 3
    PAIR = 4
    INDEX = 5
    INDEX_TWICE = 6
    VALUE = 7
    ROWS = 8


class Head(enum.IntEnum):
    """What stands before the features of a row; the numbers are those of ``Head`` in text_reader.cc."""

    LABELS = 0
    CLASS = 1
    PASSED_OVER = 2  # nothing, or one item that is skipped


class Fault(NamedTuple):
    """The first item of a buffer that breaks the format."""

    kind: Kind
    offset: int  # its first byte in the buffer
    lines: int  # lines of the file before the one it is in


class TextRows(NamedTuple):
    """The rows of a file as CSR arrays, with ``classes``, or with label arrays, or with neither."""

    n_rows: int
    max_feature: int  # largest column met, -1: none
    max_label: int
    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    label_indptr: np.ndarray
    label_indices: np.ndarray
    classes: np.ndarray


@dataclasses.dataclass(frozen=True)
class RowFormat:
    """The options of the grammar. A size that is not known beforehand is None."""

    dtype: np.dtype
    head: Head = Head.LABELS
    column: str = "feature"  # what errors call a column, because the text may be a matrix of labels
    comments: bool = False  # "#" ends a line, and a line that starts with it is no row
    first_feature: int = 0  # the file's number of column 0
    first_label: int = 0
    n_features: int | None = None
    n_labels: int | None = None
    n_rows: int | None = None

    def feature_bound(self) -> int:
        return MAX_COLUMNS if self.n_features is None else self.n_features

    def label_bound(self) -> int:
        return MAX_COLUMNS if self.n_labels is None else self.n_labels

    def memory(self, text: bytes) -> int:
        """The most bytes that the rows of a text take until their matrices are made: row pointers of features
        and labels in 64 and in 32 bits, indices, values, and a one beside each label.
        """
        entry = 4 + self.dtype.itemsize
        code = np.frombuffer(text, np.uint8)
        lines, features, commas = (int(np.count_nonzero(code == ord(mark))) for mark in "\n:,")
        return lines * (24 + entry) + (features + commas) * entry


class Parser(Protocol):
    """Turns chunks of whole lines into rows: ``_text_native`` and ``_text_python``."""

    def feed(self, buffer: bytes, start: int = 0) -> Fault | None:
        """Reads the lines of ``buffer[start:]``; after a fault the parser must not be used again."""
        ...

    @property
    def lines(self) -> int:
        """The number of lines read."""
        ...

    def finish(self) -> TextRows:
        """The rows; afterwards the parser must not be used again."""
        ...


def describe(kind: Kind, row_format: RowFormat, item: bytes = b"") -> str:
    """What the format asks for where ``kind`` went wrong, with this item."""
    features = _span(row_format.first_feature, row_format.feature_bound())
    labels = _span(row_format.first_label, row_format.label_bound())
    match kind:
        case Kind.LABEL:
            return f"a label {labels} (a row without labels starts with a blank)"
        case Kind.LABEL_TWICE:
            return "each label once in a row"
        case Kind.CLASS:
            return "one class, an integer (lists of labels are read with multilabel or --multilabel)"
        case Kind.PAIR:
            return "index:value"
        case Kind.INDEX:
            hint = ""
            if row_format.first_feature == 1 and item and not item.strip(b"0"):  # comments are svmlight's
                counts = "leave out one_based or --one-based for"
                if row_format.comments:
                    counts = "zero_based or --zero-based reads"
                hint = f" ({counts} files that count from 0)"
            return f"a {row_format.column} index {features}{hint}"
        case Kind.INDEX_TWICE:
            return f"each {row_format.column} index once in a row"
        case Kind.VALUE:
            return f"a finite {row_format.dtype.name} number"
        case Kind.ROWS:
            return f"{row_format.n_rows} rows as in the header"


def _span(first: int, count: int) -> str:
    return f"from {first} to {first + count - 1}" if count > 0 else "where there are any (their number is 0)"


# The item that a fault points at, matched in a line without its line break.
_ITEM = {
    Kind.LABEL: re.compile(rb"[^ \t,]*"),
    Kind.LABEL_TWICE: re.compile(rb"[^ \t,#]*"),
    Kind.CLASS: re.compile(rb"[^ \t#]*"),
    Kind.PAIR: re.compile(rb"[^ \t#]*"),
    Kind.INDEX: re.compile(rb"[^ \t:]*"),
    Kind.INDEX_TWICE: re.compile(rb"[^ \t:]*"),
    Kind.VALUE: re.compile(rb"[^ \t]*"),
    Kind.ROWS: re.compile(rb".*", re.DOTALL),
}
_SHOWN = 40


def quote(item: bytes) -> str:
    """An item of a file, printable and at most 40 characters long."""
    text = item[:_SHOWN].decode("utf-8", "backslashreplace")
    return repr(text) + ("…" if len(item) > _SHOWN else "")


def item_at(kind: Kind, line: bytes, column: int) -> bytes:
    """What stands at byte ``column`` (from 0) of a line, up to where such an item ends."""
    match = _ITEM[kind].match(line, column)
    return match.group() if match is not None else b""


def found(kind: Kind, line: bytes, column: int) -> str:
    """The text at byte ``column`` (from 0) of a line."""
    if kind is Kind.ROWS:
        return "one more line"
    item = item_at(kind, line, column)
    if item:
        return quote(item)
    return "the end of the line" if column >= len(line) else quote(line[column : column + 1])


def strip_line_end(line: bytes) -> bytes:
    """The line without ``\\n`` or ``\\r\\n``."""
    return line.removesuffix(b"\n").removesuffix(b"\r")
