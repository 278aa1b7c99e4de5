"""What a result stands on: a hash of the study and of the parts of the library that it measures."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from experiments.papers.catalogue import MEASURES

ROOT = Path(__file__).resolve().parent.parent.parent
_SUFFIXES = (".py", ".cc", ".h", ".def")


@functools.cache
def sources(study: str) -> str | None:
    """Of a study of :data:`MEASURES`, without comments, docstrings and layout; None of another module."""
    if study not in MEASURES:
        return None
    digest = hashlib.sha256()
    for path in _files(study):
        text = path.read_text()
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update((_python(text) if path.suffix == ".py" else _cpp(text)).encode())
    return digest.hexdigest()[:16]


def _files(study: str) -> Iterator[Path]:
    own = ROOT.joinpath(*study.split("."))
    for place in (own, *(ROOT / "xmcjax" / part for part in MEASURES[study])):
        if place.is_dir():
            yield from sorted(path for path in place.rglob("*") if path.suffix in _SUFFIXES)
        else:
            yield place if place.suffix else place.with_suffix(".py")


def _python(text: str) -> str:
    without = re.sub(r'^[ \t]*[rf]?"""[\s\S]*?"""', "", text, flags=re.MULTILINE)
    return " ".join(re.sub(r"^[ \t]*#[^\n]*|[ \t]+#[ :][^\n]*$", "", without, flags=re.MULTILINE).split())


def _cpp(text: str) -> str:
    return " ".join(re.sub(r"//[^\n]*", "", text).split())
