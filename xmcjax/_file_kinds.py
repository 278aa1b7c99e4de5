"""What a file is, in words for messages."""

from __future__ import annotations

import stat

#: Suffixes of compressed files that are written by nothing here, in lower case.
NEVER_WRITTEN = (".bz2", ".zst", ".zip", ".7z")
_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(mode: int) -> str:
    """What a file with this ``st_mode`` is; "a FIFO" is a pipe of any kind."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")
