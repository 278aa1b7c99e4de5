"""Prediction files: one line an instance, ``label:score`` pairs, best first, separated by blanks."""

from __future__ import annotations

import os
import re

import numpy as np

from xmcjax.data import DataFormatError, atomic_write

_ROWS_A_CHUNK = 8192
_PAIR = re.compile(rb"(\d{1,10}):([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_MAX_LABEL = 2**31 - 1


def write_predictions(path: str | os.PathLike[str], labels, scores) -> None:
    """Write top-k predictions; an old file is replaced only when the new one is whole.

    Labels of −1 are no predictions and are left out, so a line may be short or empty. Scores are
    written with the fewest digits that give the same number of their type back.

    Args:
        path: the file.
        labels: integers [n, K], best first, −1 for none.
        scores: floating point [n, K].

    Raises:
        ValueError: shapes that differ, or a score that is not finite beside a label.
        TypeError: labels that are not integers or scores that are not floating point.
        OSError: the file cannot be written.
    """
    labels, scores = np.asarray(labels), np.asarray(scores)
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
    with atomic_write(path) as file:
        file.writelines(_lines(labels, scores))


def _lines(labels: np.ndarray, scores: np.ndarray):
    for start in range(0, len(labels), _ROWS_A_CHUNK):
        rows = slice(start, start + _ROWS_A_CHUNK)
        texts = np.where(labels[rows] >= 0, scores[rows], 0).astype("U32").tolist()
        lines = [
            " ".join([f"{label}:{text}" for label, text in zip(*row, strict=True) if label >= 0])
            for row in zip(labels[rows].tolist(), texts, strict=True)
        ]
        yield ("\n".join(lines) + "\n").encode()


def read_predictions(path: str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read a prediction file.

    Args:
        path: the file. Blanks may be repeated and lines may end in CR LF; every line, the last
            one too, must end, because a file that was cut off would otherwise pass for whole.

    Returns:
        ``(labels, scores)``: int32 [n, K] padded with −1, float32 [n, K] padded with −inf, where K
        is the length of the longest line.

    Raises:
        DataFormatError: naming line and column: not a pair ``label:score``, a label of 2^31 or
            more, a score that float32 cannot hold, a label twice in a line, scores that rise
            (they go best first), or a last line without its end.
        OSError: the file cannot be read.
    """
    rows: list[list[int]] = []
    values: list[list[float]] = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                raise DataFormatError(
                    path, number, len(line) + 1, "a line end", "the end of the file (cut off?)"
                )
            labels, scores = [], []
            for token in line.split():
                pair = _PAIR.fullmatch(token)
                if pair is None or int(pair[1]) > _MAX_LABEL:
                    raise _pair_error(path, number, line, len(labels))
                labels.append(int(pair[1]))
                scores.append(float(pair[2]))
            if len(labels) > 1:
                _check_line(path, number, line, labels, scores)
            rows.append(labels)
            values.append(scores)
    lengths = np.array([len(row) for row in rows], np.int64)
    width = int(lengths.max(initial=0))
    top = np.full((len(rows), width), -1, np.int32)
    best = np.full((len(rows), width), -np.inf, np.float32)
    filled = np.arange(width) < lengths[:, None]
    top[filled] = np.array([label for row in rows for label in row], np.int32)
    # Checked below: too large for float32 becomes infinite without a warning here.
    with np.errstate(over="ignore"):
        best[filled] = np.array([score for row in values for score in row], np.float64).astype(np.float32)
    if not np.isfinite(best[filled]).all():
        row, place = np.argwhere(filled & ~np.isfinite(best))[0]
        raise DataFormatError(
            path, int(row) + 1, None, "scores that float32 can hold", repr(values[row][place])
        )
    return top, best


def _column(line: bytes, place: int) -> int:
    """The column, from 1, of the token with this place in the line."""
    return [match.start() for match in re.finditer(rb"\S+", line)][place] + 1


def _pair_error(path, number: int, line: bytes, place: int) -> DataFormatError:
    token = line.split()[place].decode("utf-8", "backslashreplace")
    return DataFormatError(
        path,
        number,
        _column(line, place),
        f"label:score (a label from 0 to {_MAX_LABEL}, a finite score)",
        repr(token[:40]),
    )


def _check_line(path, number: int, line: bytes, labels: list[int], scores: list[float]) -> None:
    for place in range(1, len(scores)):
        if scores[place] > scores[place - 1]:
            raise DataFormatError(
                path,
                number,
                _column(line, place),
                "scores best first",
                f"{scores[place]!r} after {scores[place - 1]!r}",
            )
    if len(set(labels)) < len(labels):
        seen: set[int] = set()
        for place, label in enumerate(labels):
            if label in seen:
                raise DataFormatError(
                    path, number, _column(line, place), "each label once a line", f"label {label} again"
                )
            seen.add(label)
