"""Prediction files: one line per instance, ``label:score`` pairs, best first, separated by blanks."""

from __future__ import annotations

import array
import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from xmcjax import _sparse
from xmcjax.data import DataFormatError, MemoryBound, atomic_write

_ROWS_PER_CHUNK = 8192
_TOKEN = re.compile(rb"\S+")
_PAIR = re.compile(rb"(\d{1,10}):([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_MAX_LABEL = 2**31 - 1
# Bytes that a row, a pair, and an entry of the padded arrays take until the arrays are made.
_ROW, _ENTRY, _PLACE = 20, 24, 12
# The most memory, in bytes, that a byte of text takes while its line is read.
_LINE_COST = 8
_CHECKED = 1 << 20


def write_predictions(path: str | os.PathLike[str], labels, scores) -> None:
    """Write top-k predictions; an old file is replaced only when the new one is whole.

    Labels of −1 are no predictions and are left out, so a line may be short or empty. Scores are
    written with the fewest digits that give the same number of their type back.

    Args:
        path: the file.
        labels: integers [n, K], best first, −1 for none.
        scores: floating point [n, K].

    Raises:
        ValueError: shapes that differ, or what `read_predictions` refuses: a score that is not finite or that
            float32 cannot hold, a label of 2^31 or more, a label twice in a row, or scores that rise.
        TypeError: labels that are not integers or scores that are not floating point.
        OSError: the file cannot be written.
    """
    checked = _checked(labels, scores)  # before an old file is touched
    with prediction_file(path) as write:
        write(*checked)


@contextlib.contextmanager
def prediction_file(path: str | os.PathLike[str]) -> Iterator[Callable[[Any, Any], None]]:
    """A prediction file that is written some rows at a time.

    Args:
        path: the file; as in `write_predictions`, an old one is replaced when the block ends well.

    Yields:
        ``write(labels, scores)``, with the arguments and errors of `write_predictions`, for the next rows.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "predictions.txt")
        >>> with prediction_file(path) as write:
        ...     write([[3, 1]], np.float32([[0.5, -1]]))
        ...     write([[2, -1]], np.float32([[1, 0]]))
        >>> print(path.read_text(), end="")
        3:0.5 1:-1.0
        2:1.0
    """
    with atomic_write(path) as file:

        def write(labels, scores) -> None:
            file.writelines(_lines(*_checked(labels, scores)))

        yield write


def _checked(labels, scores) -> tuple[np.ndarray, np.ndarray]:
    labels, scores = _sparse.array(labels, "labels"), _sparse.array(scores, "scores")
    if labels.ndim != 2 or labels.shape != scores.shape:
        raise ValueError(
            f"expected labels and scores of one shape [n, K], found {labels.shape}, {scores.shape}"
        )
    if labels.dtype.kind not in "iu" or scores.dtype.kind != "f":
        raise TypeError(
            f"expected integer labels and floating-point scores, found {labels.dtype}, {scores.dtype}"
        )
    wrong = (labels >= 0) & ~np.isfinite(scores)
    if wrong.any():
        row, place = np.argwhere(wrong)[0]
        raise ValueError(
            f"expected finite scores, found {scores[row, place]} for label {labels[row, place]} in row {row}"
        )
    _check_readable(labels, scores)
    return labels, scores


def _check_readable(labels: np.ndarray, scores: np.ndarray) -> None:
    """Raises ValueError where `read_predictions` would refuse what is written."""
    kept = labels >= 0
    for row, place in np.argwhere(labels > _MAX_LABEL)[:1]:
        raise ValueError(f"expected labels of at most {_MAX_LABEL}, found {labels[row, place]} in row {row}")
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large becomes infinite
        too_large = kept & ~np.isfinite(scores.astype(np.float32))
    for row, place in np.argwhere(too_large)[:1]:
        raise ValueError(
            f"expected scores that float32 can hold, found {scores[row, place]} for label "
            f"{labels[row, place]} in row {row}"
        )
    # the least score up to each place, that of the prediction before it as long as none rises
    least = np.minimum.accumulate(np.where(kept, scores, np.inf), axis=1)
    for row, place in np.argwhere(kept[:, 1:] & (scores[:, 1:] > least[:, :-1]))[:1]:
        found = f"{scores[row, place + 1]} after {least[row, place]}"
        raise ValueError(f"expected scores best first, found {found} in row {row}")
    ranked = np.sort(np.where(kept, labels.astype(np.int64), -1), axis=1)
    for row, place in np.argwhere((ranked[:, 1:] >= 0) & (ranked[:, 1:] == ranked[:, :-1]))[:1]:
        raise ValueError(
            f"expected each label once per row, found label {ranked[row, place]} again in row {row}"
        )


def _lines(labels: np.ndarray, scores: np.ndarray):
    for start in range(0, len(labels), _ROWS_PER_CHUNK):
        rows = slice(start, start + _ROWS_PER_CHUNK)
        texts = np.where(labels[rows] >= 0, scores[rows], 0).astype("U32").tolist()
        lines = [
            " ".join([f"{label}:{text}" for label, text in zip(*row, strict=True) if label >= 0])
            for row in zip(labels[rows].tolist(), texts, strict=True)
        ]
        yield ("\n".join(lines) + "\n").encode()


def read_predictions(
    path: str | os.PathLike[str], *, max_memory: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Read a prediction file.

    Args:
        path: the file. Blanks may be repeated and lines may end in CR LF; every line, the last
            one too, must end, because a file that was cut off would otherwise pass for whole.
        max_memory: bytes that reading may take; by default 20 times the file's size and 64 MB.

    Returns:
        ``(labels, scores)``: int32 [n, K] padded with −1, float32 [n, K] padded with −inf, where K
        is the length of the longest line.

    Raises:
        DataFormatError: naming line and column: not a pair ``label:score``, a label of 2^31 or
            more, a score that float32 cannot hold, a label twice in a line, scores that rise
            (the best come first), a last line without its end, or arrays that take too much memory, as
            where one long line pads many short ones.
        OSError: the file cannot be read.
    """
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
            for token in _TOKEN.finditer(line):
                pair = _PAIR.fullmatch(token.group())
                if pair is None or int(pair[1]) > _MAX_LABEL:
                    raise _pair_error(path, number, token)
                labels.append(int(pair[1]))
                scores.append(float(pair[2]))
            lengths.append(len(labels) - begin)
            if lengths[-1] > 1:
                _check_line(path, number, line, labels[begin:], scores[begin:])
            position += len(line)
            if position - checked > _CHECKED:
                bound.seen(position)
                held = _ROW * number + _ENTRY * len(labels) + _LINE_COST * len(line)
                bound.check(held, f"the first {number:,} lines")
                checked = position
    rows, width = len(lengths), max(lengths, default=0)
    padded = f"{rows:,} lines padded to the longest, of {width:,} predictions"
    bound.check(_PLACE * rows * width + _ENTRY * len(labels), padded)
    # Too large for float32 becomes infinite without a warning here, and is refused below.
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


def _column(line: bytes, place: int) -> int:
    """The column, from 1, of the token with this place in the line."""
    return next(itertools.islice(_TOKEN.finditer(line), place, None)).start() + 1


def _pair_error(path, number: int, token: re.Match[bytes]) -> DataFormatError:
    text = token.group().decode("utf-8", "backslashreplace")
    return DataFormatError(
        path,
        number,
        token.start() + 1,
        f"label:score (a label from 0 to {_MAX_LABEL}, a finite score)",
        repr(text[:40]),
    )


def _check_line(path, number: int, line: bytes, labels: array.array, scores: array.array) -> None:
    for place in range(1, len(scores)):
        if scores[place] > scores[place - 1]:
            raise DataFormatError(
                path,
                number,
                _column(line, place),
                "scores best first",
                f"{scores[place]!r} after {scores[place - 1]!r}",
            )
    order = np.argsort(np.array(labels, np.int32), kind="stable")
    ranked = np.array(labels, np.int32)[order]
    again = order[1:][ranked[1:] == ranked[:-1]]
    if again.size:
        place = int(again.min())
        raise DataFormatError(
            path, number, _column(line, place), "each label once per line", f"label {labels[place]} again"
        )
