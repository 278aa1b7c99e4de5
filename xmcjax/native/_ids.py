"""Names that the C++ kernels know by a number: ``ids.def`` defines the numbers for C++ and for Python."""

from __future__ import annotations

import re
from pathlib import Path

_FILE = Path(__file__).with_name("interface") / "ids.def"


def _lists() -> dict[str, dict[str, int]]:
    lists: dict[str, dict[str, int]] = {}
    for kind, name in re.findall(r"^XMCJAX_(\w+)\((\w+), \w+\)", _FILE.read_text("utf-8"), re.MULTILINE):
        names = lists.setdefault(kind.lower(), {})
        names[name] = len(names)
    return lists


#: The number of each name, by kind: "loss", "penalty", "formulation", "set", "features".
LISTS = _lists()


def number(kind: str, name: str) -> int:
    """The number of a loss, penalty, formulation, set or kind of features in the C++ kernels.

    Raises:
        ImportError: the list of that kind lacks the name.
    """
    if name not in LISTS[kind]:
        known = ", ".join(LISTS[kind])
        raise ImportError(f"{_FILE.name}: expected a line for the {kind} {name!r}, found {known}")
    return LISTS[kind][name]


def text() -> str:
    """All lists as a text, in the form in which the library returns the lists it was built with."""
    return "".join(f"{kind} {name}\n" for kind, names in LISTS.items() for name in names)
