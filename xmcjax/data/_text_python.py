"""The reader of text rows in Python, for machines without the native library.

The same arrays and the same first fault as native/text_reader.cc, about a hundred times slower.
"""

from __future__ import annotations

import array
import math
import re

import numpy as np

from xmcjax.data._text_format import Fault, Kind, RowFormat, TextRows, strip_line_end

_NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS = re.compile(rb"[0-9]+")
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_TOKEN = re.compile(rb"[^ \t]+")
_MAX_DIGITS = 18  # any integer of so many digits fits an int64
# From half a unit in the last place above the largest float32 on, rounding gives infinity.
_OVERFLOW = {np.dtype(np.float32): 2.0**128 - 2.0**103, np.dtype(np.float64): math.inf}


class _FaultError(Exception):
    """An item that breaks the format; ``offset`` counts from the start of the line."""

    def __init__(self, kind: Kind, offset: int):
        super().__init__(kind, offset)
        self.kind = kind
        self.offset = offset


class PythonParser:
    """Collects rows in arrays of the standard library."""

    def __init__(self, row_format: RowFormat, lines: int = 0):
        self.lines = lines
        self._format = row_format
        self._overflow = _OVERFLOW[row_format.dtype]
        self._rows = 0
        self._max_feature = -1
        self._max_label = -1
        self._indptr = array.array("q", [0])
        self._indices = array.array("i")
        self._values = array.array("f" if row_format.dtype == np.float32 else "d")
        self._label_indptr = array.array("q", [0])
        self._label_indices = array.array("i")
        self._classes = array.array("q")

    def feed(self, buffer: bytes, start: int = 0) -> Fault | None:
        while start < len(buffer):
            newline = buffer.find(b"\n", start)
            stop = len(buffer) if newline < 0 else newline + 1
            line = strip_line_end(buffer[start:stop])
            try:
                self._read_line(line)
            except _FaultError as fault:
                return Fault(fault.kind, start + fault.offset, self.lines)
            self.lines += 1
            start = stop
        return None

    def finish(self) -> TextRows:
        return TextRows(
            self._rows,
            self._max_feature,
            self._max_label,
            np.array(self._indptr, np.int64),
            np.array(self._indices, np.int32),
            np.array(self._values, self._format.dtype),
            np.array(self._label_indptr, np.int64),
            np.array(self._label_indices, np.int32),
            np.array(self._classes, np.int64),
        )

    def _read_line(self, line: bytes) -> None:
        if self._format.comments:
            if line.startswith(b"#"):
                return
            line = line.partition(b"#")[0]
        if self._rows == self._format.n_rows:
            raise _FaultError(Kind.ROWS, 0)
        tokens = [(match.start(), match.group()) for match in _TOKEN.finditer(line)]
        if self._format.classes:
            offset, token = tokens.pop(0) if tokens else (len(line), b"")
            self._classes.append(_class(token, offset))
        else:
            labels = tokens.pop(0)[1] if tokens and tokens[0][0] == 0 else b""
            self._read_labels(labels)
        self._read_features(tokens)
        self._rows += 1

    def _read_labels(self, text: bytes) -> None:
        offset = 0
        labels: list[tuple[int, int]] = []
        for item in text.split(b",") if text else ():
            label = _bounded(item, self._format.first_label, self._format.label_bound())
            if label is None:
                raise _FaultError(Kind.LABEL, offset)
            labels.append((label, offset))
            offset += len(item) + 1
        _check_once(labels, Kind.LABEL_TWICE)
        self._label_indices.extend(sorted(label for label, _ in labels))
        self._label_indptr.append(len(self._label_indices))
        self._max_label = max(self._max_label, *(label for label, _ in labels), -1)

    def _read_features(self, tokens: list[tuple[int, bytes]]) -> None:
        row: list[tuple[int, float]] = []
        offsets: list[tuple[int, int]] = []
        for offset, token in tokens:
            left, colon, right = token.partition(b":")
            if not colon:
                raise _FaultError(Kind.PAIR, offset)
            index = _bounded(left, self._format.first_feature, self._format.feature_bound())
            if index is None:
                raise _FaultError(Kind.INDEX, offset)
            value = float(right) if _NUMBER.fullmatch(right) else math.inf
            if not abs(value) < self._overflow:
                raise _FaultError(Kind.VALUE, offset + len(left) + 1)
            row.append((index, value))
            offsets.append((index, offset))
        _check_once(offsets, Kind.INDEX_TWICE)
        for index, value in sorted(row):
            self._values.append(value)
            # A value can also become zero when it is rounded to float32.
            if self._values[-1] == 0:
                self._values.pop()
            else:
                self._indices.append(index)
        self._indptr.append(len(self._indices))
        self._max_feature = max(self._max_feature, *(index for index, _ in row), -1)


def _bounded(text: bytes, first: int, count: int) -> int | None:
    """The digits of ``text`` as a number counted from ``first``, or None outside the bounds."""
    if not _DIGITS.fullmatch(text):
        return None
    digits = text.lstrip(b"0")
    if len(digits) > _MAX_DIGITS:
        return None
    number = int(digits or b"0") - first
    return number if 0 <= number < count else None


def _class(text: bytes, offset: int) -> int:
    if _INTEGER.fullmatch(text):
        digits = text.lstrip(b"+-").lstrip(b"0")
        if len(digits) <= _MAX_DIGITS:
            number = int(digits or b"0")
            return -number if text.startswith(b"-") else number
    elif _NUMBER.fullmatch(text):
        value = float(text)
        # Above 2^53 a double no longer tells two neighbouring integers apart.
        if value.is_integer() and abs(value) <= 2.0**53:
            return int(value)
    raise _FaultError(Kind.CLASS, offset)


def _check_once(items: list[tuple[int, int]], kind: Kind) -> None:
    """Raises at the first item, in the order of the text, whose number was there before."""
    seen: set[int] = set()
    for number, offset in items:
        if number in seen:
            raise _FaultError(kind, offset)
        seen.add(number)
