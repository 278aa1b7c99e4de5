"""The numbers that the native kernels give to entries of the tables, read from their headers."""

from __future__ import annotations

import re
from pathlib import Path

HEADERS = Path(__file__).resolve().parent.parent / "xmcjax" / "native"


def enum(name: str) -> dict[str, int]:
    """The names of an enumeration without their k, and their numbers.

    Raises:
        AssertionError: no header, or several, have such an enumeration.
    """
    text = "\n".join(path.read_text() for path in sorted(HEADERS.glob("*.h")))
    found = re.findall(rf"enum {name} : int32_t {{(.*?)}};", text, re.DOTALL)
    assert len(found) == 1, f"expected one enumeration {name}, found {len(found)}"
    return {entry: int(number) for entry, number in re.findall(r"k(\w+) = (-?\d+)", found[0])}
