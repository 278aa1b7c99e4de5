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
# What a study says about its result is no part of the hash: a page is written again without a new run.
_SHOWN = re.compile(r"^def (?:markdown|draw|main)\w*\([\s\S]*?(?=^\S(?<!\))|\Z)", re.MULTILINE)


def result_name(study: str) -> str:
    """Of the files of a study: p002_scaling of experiments.papers.p002.scaling."""
    return study.removeprefix("experiments.").removeprefix("papers.").replace(".", "_")


def study_of(name: str) -> str | None:
    """The study of :data:`MEASURES` whose files have this name; None where there is none."""
    return next((study for study in MEASURES if result_name(study) == name), None)


@functools.cache
def sources(study: str | None) -> str | None:
    """Of a study of :data:`MEASURES`, without comments, docstrings and layout; None of another module."""
    if study not in MEASURES:
        return None
    digest = hashlib.sha256()
    for path in _files(study):
        text = path.read_text()
        if path.suffix == ".py":
            own = path == ROOT.joinpath(*study.split(".")).with_suffix(".py")
            text = _python(_SHOWN.sub("", text) if own else text)
        else:
            text = _cpp(text)
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(text.encode())
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
    """Without comments and blanks, and the included files in one order: a formatter changes these."""
    lines = re.sub(r"//[^\n]*|\\$", "", text, flags=re.MULTILINE).splitlines()
    included = sorted(line for line in lines if line.startswith("#include"))
    code = (line for line in lines if not line.startswith("#include"))
    return "".join("".join(line.split()) for line in (*included, *code))
