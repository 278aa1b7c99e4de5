"""The reader of text rows in Python, for machines without the native library.

It gives the same arrays and the same first fault as native/text/text_reader.cc, about a hundred times slower.
"""

from __future__ import annotations

import array
import itertools
import math
import re

import numpy as np

from xmcjax.data._text_format import Fault, Head, Kind, RowFormat, TextRows, strip_line_end

_NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS = re.compile(rb"[0-9]+")
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_QUERY = re.compile(rb"[ \t]+qid:[0-9]+(?![^ \t])")
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
            _array(self._indptr, np.int64),
            _array(self._indices, np.int32),
            _array(self._values, self._format.dtype),
            _array(self._label_indptr, np.int64),
            _array(self._label_indices, np.int32),
            _array(self._classes, np.int64),
        )

    def _read_line(self, line: bytes) -> None:
        if self._format.comments:
            if line.startswith(b"#"):
                return
            line = line.partition(b"#")[0]
        if self._rows == self._format.n_rows:
            raise _FaultError(Kind.ROWS, 0)
        if self._format.head is Head.LABELS:
            first = _TOKEN.match(line)
            stop = first.end() if first else 0
            self._read_labels(line[:stop])
        else:
            first = _TOKEN.search(line)
            begin, stop = first.span() if first else (len(line), len(line))
            if self._format.head is Head.CLASS:
                self._classes.append(_class(line[begin:stop], begin))
            elif b":" in line[begin:stop]:
                stop = 0
        if self._format.comments and (query := _QUERY.match(line, stop)):
            stop = query.end()
        self._read_features(line, stop)
        self._rows += 1

    # Items go into arrays at once: as Python objects they would take a hundred times the line's length.

    def _read_labels(self, text: bytes) -> None:
        begin, last, ascending = len(self._label_indices), -1, True
        stop = -1
        while stop < len(text) and text:
            offset = stop + 1
            stop = text.find(b",", offset)
            stop = len(text) if stop < 0 else stop
            label = _bounded(text[offset:stop], self._format.first_label, self._format.label_bound())
            if label is None:
                raise _FaultError(Kind.LABEL, offset)
            ascending = ascending and label > last
            last = label
            self._label_indices.append(label)
        if not ascending:
            labels = np.frombuffer(self._label_indices, np.int32)[begin:]
            order, repeat = _order(labels)
            if repeat is not None:
                items = re.finditer(rb"[^,]+", text)
                raise _FaultError(Kind.LABEL_TWICE, next(itertools.islice(items, repeat, None)).start())
            labels[:] = labels[order]
            last = int(labels[-1])
        self._label_indptr.append(len(self._label_indices))
        self._max_label = max(self._max_label, last)

    def _read_features(self, line: bytes, start: int) -> None:
        begin, last, ascending, zeros = len(self._indices), -1, True, False
        for match in _TOKEN.finditer(line, start):
            left, colon, right = match.group().partition(b":")
            if not colon:
                raise _FaultError(Kind.PAIR, match.start())
            index = _bounded(left, self._format.first_feature, self._format.feature_bound())
            if index is None:
                raise _FaultError(Kind.INDEX, match.start())
            value = float(right) if _NUMBER.fullmatch(right) else math.inf
            if not abs(value) < self._overflow:
                raise _FaultError(Kind.VALUE, match.start() + len(left) + 1)
            ascending = ascending and index > last
            last = index
            self._indices.append(index)
            self._values.append(value)
            # A value can also become zero when it is rounded to float32.
            zeros = zeros or self._values[-1] == 0
        if not ascending:
            last = self._sort(begin, line, start)
        if zeros:
            kept = begin
            for place in range(begin, len(self._indices)):
                if self._values[place] != 0:
                    self._indices[kept], self._values[kept] = self._indices[place], self._values[place]
                    kept += 1
            del self._indices[kept:], self._values[kept:]
        self._indptr.append(len(self._indices))
        self._max_feature = max(self._max_feature, last)

    def _sort(self, begin: int, line: bytes, start: int) -> int:
        """Sorts the row that starts at entry ``begin``, and returns its largest index."""
        indices = np.frombuffer(self._indices, np.int32)[begin:]
        values = np.frombuffer(self._values, self._format.dtype)[begin:]
        order, repeat = _order(indices)
        if repeat is not None:
            tokens = _TOKEN.finditer(line, start)
            raise _FaultError(Kind.INDEX_TWICE, next(itertools.islice(tokens, repeat, None)).start())
        indices[:], values[:] = indices[order], values[order]
        return int(indices[-1])


def _array(column: array.array, dtype: np.typing.DTypeLike) -> np.ndarray:
    """The column without a copy."""
    return np.frombuffer(column, dtype) if column else np.empty(0, dtype)


def _order(numbers: np.ndarray) -> tuple[np.ndarray, int | None]:
    """The permutation that sorts the numbers, and the place of the first one that repeats an earlier one."""
    order = np.argsort(numbers, kind="stable")
    ranked = numbers[order]
    again = order[1:][ranked[1:] == ranked[:-1]]
    return order, int(again.min()) if again.size else None


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
