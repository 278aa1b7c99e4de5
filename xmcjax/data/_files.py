"""Whole lines from plain, .gz and .xz files."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from xmcjax.data._atomic import named

# Bytes asked for at once: large enough that the calls do not count, small enough for the cache.
CHUNK = 1 << 20
# A line longer than this is no row: without the bound, one file without line ends fills the memory.
MAX_LINE = 1 << 28


class CorruptFileError(Exception):
    """A compressed file cannot be unpacked; the text says what is wrong with it.

    Internal: the readers turn it into a DataFormatError that names the line.
    """


def open_binary(path: Path) -> BinaryIO:
    """Opens for reading; the suffix (.gz, .xz) says how the file is compressed."""
    match path.suffix:
        case ".gz":
            import gzip

            return gzip.open(path, "rb")  # type: ignore[return-value]
        case ".xz":
            import lzma

            return lzma.open(path, "rb")  # type: ignore[return-value]
        case _:
            return open(path, "rb")


def line_chunks(path: Path) -> Generator[bytes]:
    """The bytes of a file in chunks that end where a line ends; only the last may lack its ``\\n``.

    A second thread reads (and unpacks) the next chunk while the caller works on this one.

    Raises:
        OSError: the file cannot be opened or read.
        CorruptFileError: it cannot be unpacked, or a line is longer than 256 MiB.
    """
    with open_binary(path) as file, ThreadPoolExecutor(1, "xmcjax-read") as reader:
        ahead = reader.submit(_read, file, path, CHUNK)
        pieces: list[bytes] = []
        while data := ahead.result():
            ahead = reader.submit(_read, file, path, CHUNK)
            cut = data.rfind(b"\n") + 1
            if cut == 0:
                pieces.append(data)
                if len(pieces) * CHUNK > MAX_LINE:
                    raise CorruptFileError("a line of more than 256 MiB")
                continue
            yield b"".join((*pieces, data[:cut])) if pieces or cut < len(data) else data
            pieces = [data[cut:]] if cut < len(data) else []
        if pieces:
            yield b"".join(pieces)


def _read(file: BinaryIO, path: Path, size: int) -> bytes:
    # The modules are there already where the file is a compressed one.
    gzip, lzma = sys.modules.get("gzip"), sys.modules.get("lzma")
    damaged = (zlib.error, *((gzip.BadGzipFile,) if gzip else ()), *((lzma.LZMAError,) if lzma else ()))
    try:
        return file.read(size)
    except EOFError as error:
        raise CorruptFileError("a file that is cut short") from error
    # BadGzipFile is an OSError by inheritance, but it is about the content: it comes first.
    except damaged as error:
        raise CorruptFileError(f"a damaged one ({error})") from error
    except OSError as error:
        raise named(error, path) from error
