"""Archives of arrays (npz), of which nothing is trusted: sizes are checked before memory is asked for."""

from __future__ import annotations

import contextlib
import math
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from xmcjax._file_kinds import kind_of
from xmcjax.data._errors import DataFormatError
from xmcjax.data._files import CHUNK
from xmcjax.data._memory import MemoryBound

# What one byte of a deflated member can unpack to, at most.
_MAX_RATIO = 1032


def check_seekable(path: Path, why: str) -> None:
    """Whether a file can be read from any place.

    Args:
        path: the file.
        why: it must be, such as "npz is read from its end".

    Raises:
        DataFormatError: it is a FIFO or the like.
        OSError: there is no such file.
    """
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # of a directory the system says what it is
        raise DataFormatError(path, None, None, f"a regular file, because {why}", kind_of(mode))


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], max_memory: int | None, copies: int) -> Iterator[Archive]:
    """The arrays of an npz file.

    Args:
        path: the file.
        max_memory: bytes that reading may take; None allows 20 times the file's size on disk and 64 MB.
        copies: what a byte of a member takes until it is checked and part of a matrix, at most.

    Raises:
        DataFormatError: the file is no regular file, no npz, or damaged; also from within the block.
        OSError: the file cannot be read.
    """
    path = Path(path)
    bound = MemoryBound(path, max_memory)
    check_seekable(path, "npz is read from its end")
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield Archive(archive, bound, copies)
        except DataFormatError:
            raise
        # All that zipfile is known to raise on a damaged archive: ValueError for names that are no
        # text, RuntimeError for a member marked as encrypted.
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            ValueError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            # zipfile quotes damaged names, which may have thousands of bytes
            why = str(error) if len(str(error)) < 200 else f"{str(error)[:200]}…"
            raise DataFormatError(
                path, None, None, "a complete npz file", f"a damaged one ({why})"
            ) from error


class Archive:
    """The members of an open npz file, checked; made by :func:`opened`.

    Attributes:
        names: of the members, without their suffix.
    """

    def __init__(self, archive: zipfile.ZipFile, bound: MemoryBound, copies: int):
        self._archive = archive
        self._bound = bound
        self._copies = copies
        self._size = bound.size
        self._held = 0  # bytes of the members that were read
        self.names = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}

    def member(self, name: str, kinds: str, ndim: int = 1) -> np.ndarray:
        """An array of one of the wanted kinds of dtype, and number of axes.

        Raises:
            DataFormatError: there is no such member, or it is another one.
        """
        if name not in self.names:
            raise self.error(f"a member {name!r}", "none")
        info = self._archive.getinfo(f"{name}.npy")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self.error(f"member {name!r} stored or deflated", f"method {info.compress_type}")
        if not 0 <= info.header_offset < self._size:
            raise self.error(f"member {name!r} inside the file", f"at byte {info.header_offset}")
        with self._archive.open(info) as member:
            try:
                shape, fortran_order, dtype = array_header(member)
            except (ValueError, KeyError) as error:
                raise self.error(f"an array as member {name!r}", f"a damaged one ({error})") from error
            if dtype.kind not in kinds or len(shape) != ndim or fortran_order or dtype.byteorder == ">":
                kind = " or ".join(map(repr, kinds))
                raise self.error(f"{ndim} axes and dtype kind {kind} in {name}", f"{list(shape)} of {dtype}")
            size = math.prod(shape) * dtype.itemsize
            # A small file must not make the program ask for a large block of memory.
            attainable = min(info.file_size, _MAX_RATIO * min(info.compress_size, self._size) + CHUNK)
            if size != info.file_size - member.tell() or size > attainable:
                raise self.error(f"{size} bytes in {name}", str(info.file_size - member.tell()))
            self._held += size
            self._bound.check(self._copies * self._held, f"members that unpack to {self._held:,} bytes")
            block = bytearray(size)
            _fill(member, block)
            return np.frombuffer(block, dtype).reshape(shape)

    def check_memory(self, needed: int, what: str) -> None:
        """Raises DataFormatError where so many bytes are more than reading may take."""
        self._bound.check(needed, what)

    def error(self, expected: str, found: str) -> DataFormatError:
        """What is wrong with the file."""
        return DataFormatError(self._bound.path, None, None, expected, found)


def array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, Fortran order and dtype of an array in the npy format, whose numbers follow.

    Raises:
        ValueError, KeyError: no such header.
    """
    version = np.lib.format.read_magic(file)
    header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
        # 2.0 but for names of fields in UTF-8; arrays of fields are refused
        (3, 0): np.lib.format.read_array_header_2_0,
    }[version](file)
    return header


def _fill(member: IO[bytes], block: bytearray) -> None:
    view = memoryview(block)
    begin = 0
    while data := member.read(min(CHUNK, len(view) - begin) or 1):
        view[begin : begin + len(data)] = data
        begin += len(data)
    if begin < len(view):
        raise EOFError("the archive ends early")
