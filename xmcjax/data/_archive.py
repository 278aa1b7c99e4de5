"""Archives of arrays (npz), of which nothing is trusted: sizes are checked before memory is asked for."""

from __future__ import annotations

import ast
import contextlib
import math
import os
import re
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

# The most bytes that one byte of a deflated member can unpack to.
_MAX_RATIO = 1032
# _LENGTHS: how many bytes state the length of an npy header, by the version of the npy format.
# _LONGEST_HEADER: the most bytes of a header. _DESCR: dtypes of numbers and texts, without fields.
_LENGTHS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_LONGEST_HEADER = 10_000
_DESCR = re.compile(r"[<>|=]?[?biufcmMSUVO][0-9]{0,4}")


def check_seekable(path: Path, why: str) -> None:
    """Checks that a file can be read from any place.

    Args:
        path: the file.
        why: the reason, for the error, such as "npz is read from its end".

    Raises:
        DataFormatError: it is a FIFO or the like.
        OSError: there is no such file.

    Example:
        >>> import tempfile
        >>> file = tempfile.NamedTemporaryFile()
        >>> check_seekable(Path(file.name), "npz is read from its end")
    """
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # for a directory the system's own error is clear
        raise DataFormatError(path, None, None, f"a regular file, because {why}", kind_of(mode))


@contextlib.contextmanager
def open_npz(
    path: str | os.PathLike[str], max_memory: int | None = None, copies: int = 1
) -> Iterator[Archive]:
    """The arrays of an npz file.

    Args:
        path: the file.
        max_memory: bytes that reading may take; None allows 20 times the file's size on disk and 64 MB.
        copies: bytes of memory per byte of a member: 1 for the member, and 1 for each copy of its size that
            the caller makes. Other memory of the caller is for :meth:`Archive.check_memory`.

    Raises:
        DataFormatError: the file is no regular file, no npz, or damaged; also from within the block.
        OSError: the file cannot be read.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.npz"
        >>> np.savez(path, X=np.eye(2), y=[3, 1])
        >>> with open_npz(path) as stored:
        ...     X, y = stored.member("X", "f", 2), stored.member("y", "iu")
        >>> X.shape, y.tolist()
        ((2, 2), [3, 1])
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
        # All errors that zipfile is known to raise for a damaged archive, among them ValueError for names
        # that are no text, and RuntimeError for a member marked as encrypted.
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
    """The members of an open npz file, checked; made by :func:`open_npz`.

    Attributes:
        names: the names of the members, without their suffix.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.npz"
        >>> np.savez(path, X=np.eye(2))
        >>> with open_npz(path) as stored:
        ...     type(stored).__name__, stored.names
        ('Archive', {'X'})
    """

    def __init__(self, archive: zipfile.ZipFile, bound: MemoryBound, copies: int):
        self._archive = archive
        self._bound = bound
        self._copies = copies
        self._size = bound.size
        self._held = 0  # bytes of the members that were read
        self.names = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}

    def member(self, name: str, kinds: str, ndim: int = 1) -> np.ndarray:
        """The array of a member; its dtype must be of one of `kinds`, and it must have `ndim` axes.

        Raises:
            DataFormatError: there is no such member, or it is no such array.
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
            except ValueError as error:
                raise self.error(f"an array as member {name!r}", f"a damaged one ({error})") from error
            if dtype.kind not in kinds or len(shape) != ndim or dtype.byteorder == ">":
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
            return np.frombuffer(block, dtype).reshape(shape, order="F" if fortran_order else "C")

    def check_memory(self, needed: int, what: str) -> None:
        """Raises DataFormatError if reading may not take this many bytes."""
        self._bound.check(needed, what)

    def error(self, expected: str, found: str) -> DataFormatError:
        """The error that says what is wrong with the file."""
        return DataFormatError(self._bound.path, None, None, expected, found)


def array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, Fortran order and dtype of an array in the npy format; the file then stands at its numbers.

    NumPy's own reader of headers is not used, because errors of Python's parser escape from it.

    Raises:
        ValueError: no such header.
    """
    version = np.lib.format.read_magic(file)
    if version not in _LENGTHS:
        raise ValueError(f"version {version[0]}.{version[1]}")
    raw = file.read(_LENGTHS[version])
    size = int.from_bytes(raw, "little")
    text = file.read(size) if size <= _LONGEST_HEADER else b""
    if len(raw) < _LENGTHS[version] or len(text) < size:
        raise ValueError(f"a header of {size} bytes")
    try:
        header = ast.literal_eval(text.decode("latin-1"))
        shape, order, descr = header["shape"], header["fortran_order"], header["descr"]
    except (ValueError, SyntaxError, TypeError, LookupError, MemoryError, RecursionError) as error:
        raise ValueError("a header that is none") from error
    whole = isinstance(shape, tuple) and all(type(n) is int and 0 <= n < 2**63 for n in shape)
    if not whole or not isinstance(order, bool) or len(header) != 3:
        raise ValueError("a header that is none")
    if not isinstance(descr, str) or not _DESCR.fullmatch(descr):
        raise ValueError(f"an array of {str(descr)[:40]!r}")
    try:
        return shape, order, np.dtype(descr)
    except TypeError as error:
        raise ValueError(f"an array of {descr!r}") from error


def _fill(member: IO[bytes], block: bytearray) -> None:
    view = memoryview(block)
    begin = 0
    while data := member.read(min(CHUNK, len(view) - begin) or 1):
        view[begin : begin + len(data)] = data
        begin += len(data)
    if begin < len(view):
        raise EOFError("the archive ends early")
