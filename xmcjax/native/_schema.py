"""The native calls and their fields, as ``interface/calls.def`` declares them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).with_name("interface")
# The macros whose fields do not state a type, with that type; a CSR field is three arrays.
_TYPES = {
    **{"CSR": "real", "EACH": "real", "PLACES": "int32_t", "OPTION": "int64_t", "ID": "int64_t"},
    **dict.fromkeys(("IN", "NUMBER", "INOUT", "OUT")),
}
#: The kinds of arrays that a caller gives, beside CSR matrices.
ARRAYS = ("IN", "PLACES", "EACH", "INOUT")


class Field(NamedTuple):
    """A line of a call."""

    kind: str  #: the name of its macro
    name: str
    type: str  #: "real", or the type in C++
    sizes: tuple[str, ...]  #: of the array; for a CSR matrix, of its offsets


def _declarations(name: str) -> str:
    """The text of a file of declarations, with included files inserted."""
    text = (_FOLDER / name).read_text("utf-8")
    return re.sub(
        r'^#include "interface/(\w+\.def)"$', lambda m: _declarations(m[1]), text, flags=re.MULTILINE
    )


def _declared() -> tuple[dict[str, list[Field]], set[str]]:
    calls: dict[str, list[Field]] = {}
    methods = set()
    fields: list[Field] = []
    for kind, inside in re.findall(r"^XMCJAX_(\w+)\((.*)\)$", _declarations("calls.def"), re.MULTILINE):
        words = [word.strip() for word in inside.split(",")]
        if kind in ("CALL", "METHOD"):
            fields = calls.setdefault(words[0], [])
            if kind == "METHOD":
                methods.add(words[0])
        elif kind in _TYPES:
            type_ = _TYPES[kind] or words.pop(0)
            name = words.pop(0)
            if kind in ("PLACES", "ID"):  # drops the words that state their bounds
                del words[: 1 if kind == "PLACES" else 2]
            fields.append(Field(kind, name, type_, tuple(filter(None, words))))
    return calls, methods


#: CALLS: the fields of each call, in order. METHODS: the names of calls on a handle, which XLA does not make.
CALLS, METHODS = _declared()


def text() -> str:
    """All declarations, in the form in which the library returns those it was built with."""
    lines = []
    for name, fields in CALLS.items():
        lines.append(f"{'METHOD' if name in METHODS else 'CALL'} {name}")
        lines += [" ".join((f.kind, f.type, f.name, ", ".join(f.sizes))) for f in fields]
    return "\n".join(lines) + "\n"
