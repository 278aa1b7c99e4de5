"""Pairs of a row and a label, one per line: what the XMC repository calls filter_labels."""

from __future__ import annotations

import array
import os
import re
from pathlib import Path

import numpy as np

from xmcjax._arguments import whole_number
from xmcjax.data._errors import DataFormatError
from xmcjax.data._memory import MemoryBound

_PAIR = re.compile(rb"[ \t]*(\d{1,10})[ \t]+(\d{1,10})[ \t]*\r?\n?")
# _LONGEST: the most bytes of a line. _COST: the bytes of memory that a pair takes while it is read.
_LONGEST, _COST = 256, 40


def load_pairs(
    path: str | os.PathLike[str], *, n_rows: int, n_labels: int, max_memory: int | None = None
) -> np.ndarray:
    """Reads pairs "row label", both counted from 0.

    Args:
        path: plain text, a pair per line; empty lines are left out.
        n_rows, n_labels: of the data that the pairs are about.
        max_memory: bytes; None allows 20 times the file's size and 64 MB.

    Returns:
        int64 [m, 2], in the order of the file.

    Raises:
        DataFormatError: another line, a row or label out of range, or too much memory.
        TypeError, ValueError: n_rows or n_labels is no valid number.
        OSError: the file cannot be read.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "filter.txt"
        >>> length = path.write_text("0 2\\n")
        >>> load_pairs(path, n_rows=1, n_labels=3).tolist()
        [[0, 2]]
    """
    n_rows, n_labels = whole_number("n_rows", n_rows, 0), whole_number("n_labels", n_labels, 0)
    path, bound = Path(path), MemoryBound(path, max_memory)
    numbers = array.array("q")
    position = 0
    with open(path, "rb") as file:
        for line, text in enumerate(iter(lambda: file.readline(_LONGEST), b""), start=1):
            position += len(text)
            whole = len(text) < _LONGEST or text.endswith(b"\n")
            found = _PAIR.fullmatch(text) if whole else None
            if found is None:
                if text.strip() or not whole:
                    shown = repr(text[:40])[1:]
                    raise DataFormatError(path, line, 1, "a pair of numbers, row and label", shown)
                continue
            pair = int(found[1]), int(found[2])
            limits = zip(pair, (n_rows, n_labels), ("rows", "labels"), strict=True)
            for group, (number, size, what) in enumerate(limits, start=1):
                if number >= size:
                    expected = f"{what} from 0 to {size - 1}"
                    raise DataFormatError(path, line, found.start(group) + 1, expected, str(number))
            numbers.extend(pair)
            bound.seen(position)
            bound.check(_COST * len(numbers) // 2, f"{len(numbers) // 2} pairs", line)
    return np.array(numbers, np.int64).reshape(-1, 2)
