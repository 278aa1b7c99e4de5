"""How much memory a process may use, and how bytes are written for people."""

from __future__ import annotations

import re
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
# Limits of control groups, of their second version and of the first; containers see their own.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def usable_memory() -> int | None:
    """Bytes that are free or can be freed, within the limit of the container; None where nothing says so."""
    found = [int(text) for path in _LIMITS if (text := _text(path).strip()).isdecimal()]
    available = re.search(r"^MemAvailable:\s+(\d+) kB", _text(_MEMINFO), re.MULTILINE)
    if available:
        found.append(int(available[1]) * 1024)
    return min(found, default=None)


def size(count: float) -> str:
    """Bytes, for people.

    Example:
        >>> [size(count) for count in (0, 1, 2000, 3e6, 2**32)]
        ['0 bytes', '1 byte', '2 KiB', '3 MiB', '4.00 GiB']
    """
    if count >= 2**30:
        return f"{count / 2**30:.2f} GiB"
    if count >= 2**20:
        return f"{count / 2**20:.0f} MiB"
    if count >= 2**10:
        return f"{count / 2**10:.0f} KiB"
    return "1 byte" if round(count) == 1 else f"{count:.0f} bytes"


def _text(path: Path) -> str:
    """The text of a file; an empty one where there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""
