"""What the prediction files with a line per row have in common."""

from __future__ import annotations

import abc
import array
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from xmcjax.data import DataFormatError, MemoryBound, atomic_write
from xmcjax.models._prediction_checks import checked

_ROWS_PER_CHUNK = 8192
# Bytes of memory while a file is read: per row, per pair label:score, and per place of the padded arrays.
_ROW, _ENTRY, _PLACE = 20, 24, 12
# The most memory, in bytes, that a byte of text takes while its line is read.
_LINE_COST = 8
# The memory is checked anew after this many bytes of text.
_CHECKED = 1 << 20


class Form(abc.ABC):
    """The form of a line with the predictions of a row."""

    @abc.abstractmethod
    def line(self, pairs: Iterable[tuple[int, str]]) -> str:
        """The line, with its line break, for pairs of a label and its score as text."""

    @abc.abstractmethod
    def pairs(self, path, number: int, line: bytes) -> Iterable[tuple[int, float]]:
        """The pairs (label, score) of a line with its line break.

        Raises:
            DataFormatError: the line has another form; the error says that it is line ``number``.
        """

    @abc.abstractmethod
    def column(self, line: bytes, place: int) -> int | None:
        """The column, from 1, at which prediction number `place` begins; None where it is not known."""


@contextlib.contextmanager
def writer(path, form: Form) -> Iterator[Callable[[Any, Any], None]]:
    """Gives ``write(labels, scores)`` for some rows at a time; the file appears if the block ends well."""
    rows = 0
    with atomic_write(path) as file:

        def write(labels, scores) -> None:
            nonlocal rows
            labels, scores = checked(labels, scores, rows)
            file.writelines(_lines(form, labels, scores))
            rows += len(labels)

        yield write


def _lines(form: Form, labels: np.ndarray, scores: np.ndarray) -> Iterator[bytes]:
    for start in range(0, len(labels), _ROWS_PER_CHUNK):
        rows = slice(start, start + _ROWS_PER_CHUNK)
        texts = np.where(labels[rows] >= 0, scores[rows], 0).astype("U32").tolist()
        lines = [
            form.line([(label, text) for label, text in zip(*row, strict=True) if label >= 0])
            for row in zip(labels[rows].tolist(), texts, strict=True)
        ]
        yield "".join(lines).encode()


def read(path, form: Form, max_memory: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores of a file, padded; errors as in :func:`xmcjax.models.read_predictions`."""
    bound = MemoryBound(path, max_memory)
    lengths, labels, scores = array.array("q"), array.array("i"), array.array("d")
    position = checked = 0  # bytes read, and the bytes at which the memory was last checked
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                raise DataFormatError(
                    path, number, len(line) + 1, "a line end", "the end of the file (cut off?)"
                )
            begin = len(labels)
            for label, score in form.pairs(path, number, line):
                labels.append(label)
                scores.append(score)
            lengths.append(len(labels) - begin)
            if lengths[-1] > 1:
                _check_line(form, path, number, line, labels[begin:], scores[begin:])
            position += len(line)
            if position - checked > _CHECKED:
                bound.seen(position)
                held = _ROW * number + _ENTRY * len(labels) + _LINE_COST * len(line)
                bound.check(held, f"the first {number:,} lines")
                checked = position
    rows, width = len(lengths), max(lengths, default=0)
    padded = f"{rows:,} lines padded to the longest, of {width:,} predictions"
    bound.check(_PLACE * rows * width + _ENTRY * len(labels), padded)
    # A score too large for float32 becomes infinite without a warning here, and is refused below.
    with np.errstate(over="ignore"):
        rounded = np.array(scores, np.float64).astype(np.float32)
    lengths = np.frombuffer(lengths, np.int64) if rows else np.empty(0, np.int64)
    wrong = np.flatnonzero(~np.isfinite(rounded))
    if wrong.size:
        row = int(np.searchsorted(np.cumsum(lengths), wrong[0], side="right"))
        raise DataFormatError(path, row + 1, None, "scores that float32 can hold", repr(scores[wrong[0]]))
    top = np.full((rows, width), -1, np.int32)
    best = np.full((rows, width), -np.inf, np.float32)
    filled = np.arange(width) < lengths[:, None]
    top[filled] = np.array(labels, np.int32)
    best[filled] = rounded
    return top, best


def _check_line(form: Form, path, number: int, line: bytes, labels: array.array, scores: array.array) -> None:
    for place in range(1, len(scores)):
        if scores[place] > scores[place - 1]:
            raise DataFormatError(
                path,
                number,
                form.column(line, place),
                "scores best first",
                f"{scores[place]!r} after {scores[place - 1]!r}",
            )
    order = np.argsort(np.array(labels, np.int32), kind="stable")
    ranked = np.array(labels, np.int32)[order]
    again = order[1:][ranked[1:] == ranked[:-1]]
    if again.size:
        place = int(again.min())
        raise DataFormatError(
            path, number, form.column(line, place), "each label once per line", f"label {labels[place]} again"
        )
