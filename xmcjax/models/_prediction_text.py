"""Predictions as text: ``label:score`` pairs, best first, separated by blanks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from xmcjax.data import DataFormatError
from xmcjax.models._prediction_checks import MAX_LABEL
from xmcjax.models._prediction_lines import Form

_TOKEN = re.compile(rb"\S+")
_PAIR = re.compile(rb"(\d{1,10}):([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")


class Text(Form):
    """``3:0.5 1:-1.0``"""

    def line(self, pairs: Iterable[tuple[int, str]]) -> str:
        return " ".join([f"{label}:{score}" for label, score in pairs]) + "\n"

    def pairs(self, path, number: int, line: bytes) -> Iterator[tuple[int, float]]:
        for token in _TOKEN.finditer(line):
            pair = _PAIR.fullmatch(token.group())
            if pair is None or int(pair[1]) > MAX_LABEL:
                raise _pair_error(path, number, token)
            yield int(pair[1]), float(pair[2])

    def column(self, line: bytes, place: int) -> int:
        return next(itertools.islice(_TOKEN.finditer(line), place, None)).start() + 1


def _pair_error(path, number: int, token: re.Match[bytes]) -> DataFormatError:
    text = token.group().decode("utf-8", "backslashreplace")
    return DataFormatError(
        path,
        number,
        token.start() + 1,
        f"label:score (a label from 0 to {MAX_LABEL}, a finite score)",
        repr(text[:40]),
    )
