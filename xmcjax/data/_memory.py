"""How much memory a reader may take: bounded by the size of the file, unless the caller says otherwise."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from xmcjax._arguments import number
from xmcjax.data._errors import DataFormatError

FACTOR = 20
FREE = 64_000_000


class MemoryBound:
    """The memory that reading one file may take.

    Args:
        path: the file.
        max_memory: bytes; None allows 20 times the file's size on disk and 64 MB.

    Raises:
        ValueError: ``max_memory`` is not positive.
        OSError: there is no such file.

    Example:
        >>> import tempfile
        >>> file = tempfile.NamedTemporaryFile()
        >>> MemoryBound(file.name, 10**6).limit
        1000000
    """

    def __init__(self, path: str | os.PathLike[str], max_memory: int | None = None):
        if max_memory is not None and not number("max_memory", max_memory) > 0:
            raise ValueError(f"max_memory must be above 0 bytes, got {max_memory}")
        self.path = Path(path)
        self._max_memory = max_memory
        found = os.stat(path)
        self._stream = not stat.S_ISREG(found.st_mode)
        self.size = 0 if self._stream else found.st_size

    def seen(self, position: int) -> None:
        """Notes how many bytes were read, which is all that is known of the size of a pipe."""
        if self._stream:
            self.size = position

    @property
    def limit(self) -> int:
        """Bytes that reading may take."""
        return FACTOR * self.size + FREE if self._max_memory is None else self._max_memory

    def check(self, needed: int, what: str, line: int | None = None) -> None:
        """Checks that reading may take this many bytes.

        Raises:
            DataFormatError: it may not; ``what`` says what the bytes are for.
        """
        if needed > self.limit:
            raise self.refusal(needed, what, line)

    def refusal(self, needed: int, what: str, line: int | None = None) -> DataFormatError:
        """The error that says that reading needs too much memory."""
        why = f"{FACTOR} times the file and 64 MB" if self._max_memory is None else "max_memory"
        most = f"at most {_megabytes(self.limit)} of memory ({why}; --max-memory allows more)"
        found = f"about {_megabytes(needed)} for {what}"
        return DataFormatError(self.path, line, None, f"data that take {most}", found)


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.0f} MB"
