"""``-`` in place of a file for standard input and output, and streams that must be read from any place."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from xmcjax.cli._outputs import Nowhere
from xmcjax.data import DataFormatError, MemoryBound

#: Flags whose file is written.
OUTPUTS = ("--out", "--out-labels")
_HYPHEN, _INPUT, _OUTPUT = "-", "/dev/stdin", "/dev/stdout"
# Formats whose readers seek in a file.
_SEEKING = ("npz", "npy", "parquet", "arrow")
_CHUNK = 1 << 20
# How many symbolic links in a row a system follows.
_MOST_LINKS = 40


def with_streams(arguments: Sequence[str], files: Sequence[str]) -> list[str]:
    """The arguments of a command; ``-`` in place of a file becomes the name of standard input or output.

    A file named ``-`` is given as ``./-``.

    Args:
        arguments: of the command; if a flag is given twice, the last one counts.
        files: the flags that take a file.

    Raises:
        ValueError: two files that are read, or two that are written, are the same stream; standard input or,
            under whatever name it is asked for, standard output is closed.
    """
    resolved, uses, lost = list(arguments), {}, {}
    for place, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        following = arguments[place + 1] if place + 1 < len(arguments) else ""
        value = value if equals else following
        if flag not in files or not value:
            continue
        stream = _OUTPUT if flag in OUTPUTS else _INPUT
        if stream == _OUTPUT and isinstance(sys.stdout, Nowhere):
            lost[flag] = value == _HYPHEN or _leads_to_output(value)
        uses[flag] = stream if value == _HYPHEN else None
        if value == _HYPHEN and equals:
            resolved[place] = f"{flag}={stream}"
        elif value == _HYPHEN:
            resolved[place + 1] = stream
    for flag, closed in lost.items():
        if closed:
            raise ValueError(f"{flag}: expected standard output to be open, found it closed")
    for stream, what in ((_INPUT, "standard input, which is read"), (_OUTPUT, "standard output, written")):
        flags = [flag for flag, used in uses.items() if used == stream]
        if len(flags) > 1:
            raise ValueError(f"-: expected one file to be {what} once, got {' and '.join(flags)}")
        if flags and stream == _INPUT and sys.stdin is None:
            raise ValueError(f"{flags[0]}: expected standard input to be open, found it closed")
    return resolved


def _leads_to_output(path: str) -> bool:
    """Whether a name is that of file descriptor 1, such as /dev/stdout, or a link to such a name.

    The file there does not tell: if standard output was closed, its descriptor leads to /dev/null by now.
    """
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder or os.curdir)
        if (folder, name) == (os.path.realpath("/dev/fd"), "1"):
            return True
        path = os.path.join(folder, name)
        if not os.path.islink(path):
            return False
        path = os.path.join(folder, os.readlink(path))
    return False  # the links lead in a circle; opening the file reports that


@contextlib.contextmanager
def seekable(path: Path, max_memory: int | None, format: str | None = None) -> Iterator[Path]:
    """A path at which the content of a file can be read any number of times, and from any byte.

    It is the file itself, or for a stream a copy in the folder for temporary files. The copy has no name
    there and vanishes with the command. Errors about the copy name the stream.

    Args:
        path: a file, or a stream: standard input from a pipe, a FIFO.
        max_memory: bytes that reading may take, which bound the copy too; None for no bound.
        format: of the content; a format that is read from the first byte to the last needs no copy. None
            makes a copy.

    Raises:
        DataFormatError: a stream of more than ``max_memory`` bytes.
        OSError: it cannot be read or copied.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        yield path
        return
    if format not in (None, *_SEEKING) and not stat.S_ISSOCK(mode):  # whose names open nothing
        yield path
        return
    with tempfile.TemporaryFile(prefix="xmcjax-") as copy:
        bound = MemoryBound(path, max_memory)
        with open(os.dup(0) if str(path) == _INPUT else path, "rb") as stream:
            while data := stream.read(_CHUNK):
                _write(copy, data)
                bound.seen(copy.tell())
                bound.check(copy.tell(), "a copy of the stream")
        copy.flush()
        copy.seek(0)
        place = f"/dev/fd/{copy.fileno()}"
        try:
            yield Path(place)
        except DataFormatError as error:
            if error.path != place:
                raise
            raise DataFormatError(path, error.line, error.column, error.expected, error.found) from error


def _write(copy: Any, data: bytes) -> None:
    try:
        copy.write(data)
        copy.flush()
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), tempfile.gettempdir()) from error


def read_seekable(
    read: Callable[..., Any], path: Path, format: str, *, max_memory: int | None, **options: Any
) -> Any:
    """The result of a reader of ``xmcjax.data`` for a file or a stream.

    Args:
        read: the reader, called with ``(path, format, max_memory=…, **options)``.
        path, format, max_memory, options: arguments of the reader.
    """
    with seekable(path, max_memory, format) as place:
        return read(place, format, max_memory=max_memory, **options)
