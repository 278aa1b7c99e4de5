"""Predictions as JSON lines: an object per row, ``{"labels": [3, 1], "scores": [0.5, -1.0]}``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from xmcjax.data import DataFormatError
from xmcjax.models._prediction_checks import MAX_LABEL
from xmcjax.models._prediction_lines import Form

# Only this form of JSON is read, so that the length of a line bounds the memory that reading takes.
_OBJECT = re.compile(
    rb'[ \t]*\{[ \t]*"labels"[ \t]*:[ \t]*\[([^][]*)\][ \t]*,'
    rb'[ \t]*"scores"[ \t]*:[ \t]*\[([^][]*)\][ \t]*\}[ \t]*\r?\n'
)
_FORM = '{"labels": [...], "scores": [...]}'
_ITEM = re.compile(rb"(?:^|,)([^,]*)")
_LABEL = re.compile(rb"[ \t]*(0|[1-9][0-9]{0,9})[ \t]*")
_SCORE = re.compile(rb"[ \t]*(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)[ \t]*")


class JsonLines(Form):
    """``{"labels": [3, 1], "scores": [0.5, -1.0]}``"""

    def line(self, pairs: Iterable[tuple[int, str]]) -> str:
        pairs = list(pairs)
        labels = ", ".join([str(label) for label, _ in pairs])
        scores = ", ".join([score for _, score in pairs])
        return f'{{"labels": [{labels}], "scores": [{scores}]}}\n'

    def pairs(self, path, number: int, line: bytes) -> Iterator[tuple[int, float]]:
        found = _OBJECT.fullmatch(line)
        if found is None:
            raise DataFormatError(path, number, None, f"an object {_FORM}", _quoted(line))
        counts = [group.count(b",") + 1 if group.strip() else 0 for group in found.groups()]
        if counts[0] != counts[1]:
            expected = f"as many scores as labels, {counts[0]}"
            raise DataFormatError(path, number, found.start(2) + 1, expected, str(counts[1]))
        if counts[0] == 0:
            return
        labels, scores = (_ITEM.finditer(group) for group in found.groups())
        for label, score in zip(labels, scores, strict=True):
            whole, real = _LABEL.fullmatch(label[1]), _SCORE.fullmatch(score[1])
            if whole is None or int(whole[1]) > MAX_LABEL:
                column = found.start(1) + label.start(1) + 1
                raise DataFormatError(
                    path, number, column, f"a label from 0 to {MAX_LABEL}", _quoted(label[1])
                )
            if real is None:
                column = found.start(2) + score.start(1) + 1
                raise DataFormatError(path, number, column, "a finite score", _quoted(score[1]))
            yield int(whole[1]), float(real[1])

    def column(self, line: bytes, place: int) -> int | None:
        found = _OBJECT.fullmatch(line)
        if found is None:
            return None
        item = next(itertools.islice(_ITEM.finditer(found[1]), place, None))
        return found.start(1) + item.start(1) + 1


def _quoted(text: bytes) -> str:
    return repr(text[:200].strip().decode("utf-8", "backslashreplace")[:40])
