"""The one error of the readers: where the file is wrong, what was expected, what was found."""

from __future__ import annotations

import os


class DataFormatError(ValueError):
    """A file does not follow its format.

    ``str`` gives one sentence, ``PATH:LINE:COLUMN: expected …, found …``; a binary format has
    neither line nor column. What the operating system refuses (no such file, a directory, no
    permission, a full disk) stays an ``OSError``.

    Attributes:
        path: the file.
        line: line number, counted from 1, or None.
        column: the byte in the line where the wrong item starts, counted from 1, or None.
        expected: what the format asks for at this place.
        found: what is there instead, at most 300 characters of it.

    Example:
        >>> str(DataFormatError("train.txt", 3, 7, "a number", "'x'"))
        "train.txt:3:7: expected a number, found 'x'"
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        line: int | None,
        column: int | None,
        expected: str,
        found: str,
    ):
        # Some libraries quote all that they cannot read, even thousands of bytes.
        found = found if len(found) <= 300 else f"{found[:299]}…"
        # All arguments go to the base class, so that the error survives a pickle between processes.
        super().__init__(os.fspath(path), line, column, expected, found)
        self.path = os.fspath(path)
        self.line = line
        self.column = column
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        place = [self.path, *(str(number) for number in (self.line, self.column) if number is not None)]
        return f"{':'.join(place)}: expected {self.expected}, found {self.found}"
