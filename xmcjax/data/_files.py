"""Whole lines from plain, .gz and .xz files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

from xmcjax.data._atomic import named
from xmcjax.data._errors import DataFormatError
from xmcjax.data._unpack import Unpacked, gzip_file, xz_file

# Bytes read at a time: enough that the cost of a call does not matter, few enough for the cache.
CHUNK = 1 << 20
# A longer line is refused: without a bound, a single file without line ends would fill the memory.
MAX_LINE = 1 << 28
# How compressed files begin, which no text does; for each kind its name, and the suffix under which it would
# be unpacked (None if it never is). A file with such a beginning and another suffix is refused.
_COMPRESSED = {
    rb"BZh[1-9]1AY": ("a bzip2 file", None),
    rb"\x28\xb5\x2f\xfd": ("a Zstandard file", None),
    rb"PK\x03\x04": ("a zip file", None),
    rb"\x1f\x8b": ("a gzip file", ".gz"),
    rb"\xfd7zXZ\x00": ("an xz file", ".xz"),
}


class Chunk(NamedTuple):
    """Whole lines of a file.

    Attributes:
        data: the lines; only the last of a file may lack its ``\\n``.
        position: bytes of the file, as it is on disk, that were read up to the end of this chunk.
        unpacked: bytes of the unpacked content up to the end of this chunk.
    """

    data: bytes
    position: int
    unpacked: int


class LongLineError(Exception):
    """A line is longer than it may be; internal, as ``CorruptFileError``.

    Attributes:
        longest: the most bytes that a line may have.
    """

    def __init__(self, longest: int):
        super().__init__(longest)
        self.longest = longest


def open_binary(path: Path, memory: int) -> BinaryIO | Unpacked:
    """Opens for reading; the suffix (.gz, .xz) says how the file is compressed.

    Args:
        path: the file.
        memory: bytes that unpacking may take.

    Raises:
        DataFormatError: the file is compressed in a way that its suffix does not say.
    """
    file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
    match path.suffix:
        case ".gz":
            return gzip_file(file)
        case ".xz":
            return xz_file(file, memory)
        case _:
            begin = file.peek(8)
            for magic, (found, suffix) in _COMPRESSED.items():
                if re.match(magic, begin):
                    streamed = not stat.S_ISREG(os.fstat(file.fileno()).st_mode)
                    file.close()
                    expected = "plain text, or a file of .gz or .xz"
                    if streamed or path.parts[:2] == ("/", "dev"):
                        expected = "plain text from a stream, whose name tells no other kind"
                        found += ": unpack it before, or give the name of the file"
                    elif suffix:
                        found += f" whose name does not end in {suffix}"
                    raise DataFormatError(path, None, None, expected, found)
            return file


def line_chunks(path: Path, memory: int, longest: int) -> Generator[Chunk]:
    """A file in chunks that end where a line ends.

    A second thread reads (and unpacks) the next chunk while the caller works on this one.

    Args:
        path: the file.
        memory: bytes that unpacking may take.
        longest: bytes that a line may have, if they are fewer than 256 MiB.

    Raises:
        OSError: the file cannot be opened or read.
        CorruptFileError: it cannot be unpacked.
        LongLineError: a line is too long.
    """
    with open_binary(path, memory) as file, ThreadPoolExecutor(1, "xmcjax-read") as reader:
        ahead = reader.submit(_read, file, path, CHUNK)
        pieces: list[bytes] = []
        position = unpacked = 0
        while (read := ahead.result())[0]:
            data, position = read
            unpacked += len(data)
            position = unpacked if position is None else position
            ahead = reader.submit(_read, file, path, CHUNK)
            cut = data.rfind(b"\n") + 1
            if cut == 0:
                pieces.append(data)
                if len(pieces) * CHUNK > min(longest, MAX_LINE):
                    raise LongLineError(min(longest, MAX_LINE))
                continue
            whole = b"".join((*pieces, data[:cut])) if pieces or cut < len(data) else data
            yield Chunk(whole, position, unpacked)
            pieces = [data[cut:]] if cut < len(data) else []
        if pieces:
            yield Chunk(b"".join(pieces), position, unpacked)


def _read(file: BinaryIO | Unpacked, path: Path, size: int) -> tuple[bytes, int | None]:
    """The next bytes, and how many bytes of the packed file were read so far; None if that is not known."""
    try:
        return file.read(size), file.tell() if isinstance(file, Unpacked) else None
    except OSError as error:
        raise named(error, path) from error
