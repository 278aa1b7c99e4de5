"""Unpacks .gz and .xz as a stream and skips nothing.

Both formats may hold several parts (members of gzip, streams of xz), one behind the other. Python's own
reader of .xz stops silently where a part is followed by anything but a valid part. Here everything that is
neither a part nor padding is an error, and the content before a damaged place is returned first.
"""

from __future__ import annotations

import abc
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

# Bytes of the packed file read at a time: few, so that `tell` fits the content that was returned.
_PACKED = 1 << 13
# Tells zlib to expect gzip's header and trailer; zlib then compares checksum and length.
_GZIP = 16 + zlib.MAX_WBITS


class CorruptFileError(Exception):
    """A compressed file cannot be unpacked; the text says what is wrong with it.

    Internal: the readers turn it into a DataFormatError that names the line.
    """


class _Part(abc.ABC):
    """One member or stream, behind an object of zlib or lzma."""

    _inner: Any

    @abc.abstractmethod
    def unpack(self, packed: bytes, most: int) -> bytes:
        """The next bytes of the content, ``most`` at most.

        Raises:
            CorruptFileError: the part is damaged.
        """

    @property
    @abc.abstractmethod
    def wants_more(self) -> bool:
        """Whether all packed bytes that were given are used up."""

    @property
    def ended(self) -> bool:
        """Whether the part is complete, its checksums compared."""
        return self._inner.eof

    @property
    def rest(self) -> bytes:
        """Packed bytes behind the part."""
        return self._inner.unused_data


class _GzipPart(_Part):
    def __init__(self):
        self._inner = zlib.decompressobj(_GZIP)

    def unpack(self, packed: bytes, most: int) -> bytes:
        try:
            return self._inner.decompress(self._inner.unconsumed_tail + packed, most)
        except zlib.error as error:
            raise CorruptFileError(f"a damaged one ({error})") from error

    @property
    def wants_more(self) -> bool:
        return not self._inner.unconsumed_tail


class _XzPart(_Part):
    def __init__(self, memory: int):
        import lzma

        self._error = lzma.LZMAError
        self._memory = memory
        self._inner = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=memory)

    def unpack(self, packed: bytes, most: int) -> bytes:
        try:
            return self._inner.decompress(packed, most)
        except self._error as error:
            if str(error) == "Memory usage limit exceeded":
                needs = f"more than {self._memory / 1e6:,.0f} MB to be unpacked (--max-memory allows more)"
                raise CorruptFileError(f"one that needs {needs}") from error
            raise CorruptFileError(f"a damaged one ({error})") from error

    @property
    def wants_more(self) -> bool:
        return self._inner.needs_input


class Unpacked:
    """A packed file as a stream of its content.

    Args:
        file: the packed bytes; closed with this object.
        new_part: makes the unpacker of a part.
        padding: behind a part a multiple of this many zero bytes may stand.
    """

    def __init__(self, file: BinaryIO, new_part: Callable[[], _Part], padding: int):
        self._file = file
        self._new_part = new_part
        self._padding = padding
        self._part: _Part | None = None
        self._packed = b""  # read from the file, not unpacked yet
        self._zeros = 0  # bytes of padding since the last part
        self._parts = 0
        self._position = 0

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def tell(self) -> int:
        """Bytes of the packed file that were read."""
        return self._position

    def _more(self) -> bytes:
        """The packed bytes at hand, or the next ones of the file."""
        packed, self._packed = self._packed, b""
        if not packed:
            packed = self._file.read(_PACKED)
            self._position += len(packed)
        return packed

    def read(self, size: int) -> bytes:
        """The next bytes, ``size`` at most; empty only at the end.

        Raises:
            CorruptFileError: the next bytes of the file are no complete part.
            OSError: the file cannot be read.
        """
        while True:
            if self._part is None and not self._begin():
                return b""
            assert self._part is not None
            data = self._next(self._part, size)
            if self._part.ended:
                self._packed = self._part.rest + self._packed
                self._part = None
                self._parts += 1
            if data:
                return data

    def _next(self, part: _Part, size: int) -> bytes:
        packed = b""
        if part.wants_more:
            packed = self._more()
            if not packed:
                raise CorruptFileError("a file that is cut short")
        return part.unpack(packed, size)

    def _begin(self) -> bool:
        """Skips padding and begins a part; False at the end of the file."""
        while True:
            packed = self._more()
            self._packed = packed.lstrip(b"\0") if self._parts else packed
            self._zeros += len(packed) - len(self._packed)
            if self._packed or not packed:
                break
        if self._zeros % self._padding:
            raise CorruptFileError(f"a damaged one ({self._zeros} zero bytes behind part {self._parts})")
        self._zeros = 0
        if self._packed:
            self._part = self._new_part()
        return bool(self._packed)


def gzip_file(file: BinaryIO) -> Unpacked:
    """The content of a gzip file (RFC 1952); zero bytes may stand behind a member, as on tapes."""
    return Unpacked(file, _GzipPart, padding=1)


def xz_file(file: BinaryIO, memory: int) -> Unpacked:
    """The content of an .xz file, whose padding is a multiple of four bytes.

    Args:
        file: the packed bytes.
        memory: bytes that the unpacker may take; most of them are its dictionary.
    """
    return Unpacked(file, lambda: _XzPart(memory), padding=4)
