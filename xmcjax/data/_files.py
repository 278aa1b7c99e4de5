"""Files in and out: whole lines from plain, .gz and .xz files; writes that happen fully or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sys
import zlib
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, BinaryIO

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
        raise _named(error, path) from error


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside ``path`` that takes its place when the block ends well.

    The order is write, fsync, rename, fsync of the folder: after a crash there is the old file
    or the new one. When the block raises, the temporary file is removed and ``path`` untouched.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not path.parent.exists():
        raise FileNotFoundError(f"{path.parent}: expected a folder for {path.name}, found none")
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(scratch, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()
        if isinstance(error, OSError):
            raise _named(error, path) from error
        raise
    _sync_folder(path.parent)


def _named(error: OSError, path: Path) -> OSError:
    """The same error with the user's file in it: a full disk is reported without any name."""
    if error.errno is None:
        return error
    return OSError(error.errno, os.strerror(error.errno), str(path))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
