"""Prediction files: text, JSON lines, or a sparse matrix of scores."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xmcjax._arguments import name_of, whole_number
from xmcjax.models import _prediction_jsonl, _prediction_lines, _prediction_npz, _prediction_text
from xmcjax.models._prediction_checks import MAX_LABEL, checked

Write = Callable[[Any, Any], None]


class PredictionFormat(NamedTuple):
    """How prediction files of one format are read and written.

    Attributes:
        suffix: the suffix of a path that stands for the format.
        writer: function (path, n_labels) -> a context that gives ``write(labels, scores)``.
        read: function (path, max_memory) -> labels and scores, padded.
    """

    suffix: str
    writer: Callable[[Any, int | None], contextlib.AbstractContextManager[Write]]
    read: Callable[[Any, int | None], tuple[np.ndarray, np.ndarray]]


def _of_lines(suffix: str, form: _prediction_lines.Form) -> PredictionFormat:
    def write(path, n_labels: int | None):
        return _prediction_lines.writer(path, form)

    def read(path, max_memory: int | None) -> tuple[np.ndarray, np.ndarray]:
        return _prediction_lines.read(path, form, max_memory)

    return PredictionFormat(suffix, write, read)


#: text: per row a line of ``label:score`` pairs, best first. jsonl: per row a line like
#: ``{"labels": [3, 1], "scores": [0.5, -1.0]}``. npz: scores as a CSR matrix [n, L] in the form of
#: ``scipy.sparse.save_npz``.
PREDICTION_FORMATS = {
    "text": _of_lines("", _prediction_text.Text()),
    "jsonl": _of_lines(".jsonl", _prediction_jsonl.JsonLines()),
    "npz": PredictionFormat(".npz", _prediction_npz.writer, _prediction_npz.read),
}


def _format(path: str | os.PathLike[str], format: str | None) -> PredictionFormat:
    if format is None:
        suffix = Path(path).suffix
        found = [name for name, entry in PREDICTION_FORMATS.items() if entry.suffix == suffix]
        format = found[0] if found else "text"
    return PREDICTION_FORMATS[name_of("format", format, PREDICTION_FORMATS)]


def write_predictions(
    path: str | os.PathLike[str],
    labels,
    scores,
    format: str | None = None,
    *,
    n_labels: int | None = None,
) -> None:
    """Write top-k predictions; an old file is replaced only when the new one is whole.

    Labels of −1 are no predictions and are left out, so a line may be short or empty. Scores are
    written with the fewest digits that give the same number of their type back.

    Args:
        path: the file.
        labels: integers [n, K], best first, −1 for none.
        scores: floating point [n, K].
        format: of ``PREDICTION_FORMATS``; None is what the suffix stands for, .jsonl or .npz, else text.
        n_labels: L, the columns of an npz; by default the largest label and one.

    Raises:
        ValueError: shapes that differ, or what `read_predictions` refuses: a score that is not finite or that
            float32 cannot hold, a label of 2^31 or more, a label twice in a row, or scores that rise; in npz
            also a label of `n_labels` or more.
        TypeError: labels that are not integers or scores that are not floating point.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> from xmcjax.models import read_predictions
        >>> path = tempfile.mkdtemp() + "/top2.txt"
        >>> write_predictions(path, np.array([[1, 0]]), np.float32([[0.5, 0.25]]))
        >>> read_predictions(path)[0].tolist()
        [[1, 0]]
    """
    rows = checked(labels, scores)  # before an old file is touched
    with prediction_file(path, format, n_labels=n_labels) as write:
        write(*rows)


@contextlib.contextmanager
def prediction_file(
    path: str | os.PathLike[str], format: str | None = None, *, n_labels: int | None = None
) -> Iterator[Write]:
    """A prediction file that is written some rows at a time.

    text and jsonl are written as the rows come; npz holds all predictions, 8 bytes each, until the end.

    Args:
        path: the file; as in `write_predictions`, an old one is replaced when the block ends well.
        format, n_labels: as in `write_predictions`.

    Yields:
        ``write(labels, scores)``, with the arguments and errors of `write_predictions`, for the next rows.
        Errors number the rows of the file, from 0.

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
    if n_labels is not None:
        n_labels = whole_number("n_labels", n_labels, 0, MAX_LABEL)
    with _format(path, format).writer(path, n_labels) as write:
        yield write


def read_predictions(
    path: str | os.PathLike[str], format: str | None = None, *, max_memory: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Read a prediction file.

    Args:
        path: the file. In text, blanks may be repeated and lines may end in CR LF; every line, the last
            one too, must end, because a file that was cut off would otherwise pass for whole.
        format: as in `write_predictions`.
        max_memory: bytes that reading may take; by default 20 times the file's size and 64 MB.

    Returns:
        ``(labels, scores)``: int32 [n, K] padded with −1, float32 [n, K] padded with −inf, where K
        is the length of the longest line.

    Raises:
        DataFormatError: naming line and column of text: not a pair ``label:score``, a label of 2^31 or
            more, a score that float32 cannot hold, a label twice in a line, scores that rise
            (the best come first), a last line without its end, or arrays that take too much memory, as
            where one long line pads many short ones. JSON lines and npz likewise; an npz has each label
            once, and the best come first by their scores.
        OSError: the file cannot be read.
        ValueError: no such format.

    Example:
        >>> import tempfile
        >>> from xmcjax.models import write_predictions
        >>> path = tempfile.mkdtemp() + "/top2.npz"
        >>> write_predictions(path, np.array([[1, 0]]), np.float32([[0.5, 0.25]]))
        >>> labels, scores = read_predictions(path)
        >>> labels.tolist(), scores.tolist()
        ([[1, 0]], [[0.5, 0.25]])
    """
    return _format(path, format).read(path, max_memory)
