"""Arrays of numbers in MAT files of the versions 5 to 7.2, of which nothing is trusted.

The MathWorks: MAT-File Format, chapter 1. scipy's reader is not used, because a damaged file makes it look up
types beyond its tables, which kills the process.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from xmcjax.data import DataFormatError, MemoryBound

# Codes of the format: _NUMBERS has the dtype of each type of elements with numbers, the next line types by
# name, _NUMERIC the classes of arrays of numbers, and _COMPLEX the flag of complex arrays.
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_NUMERIC = range(6, 16)
_COMPLEX = 0x800
# _HEADER: bytes of the header. _ORDERS: the byte order for each value of its last bytes, version and order.
_HEADER = 128
_ORDERS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}


def mat_arrays(path: Path, names: tuple[str, ...]) -> list[np.ndarray]:
    """Arrays of real numbers, of these names.

    Raises:
        DataFormatError: the file is no MAT file or damaged, lacks an array, or has it in another form.
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    order = _ORDERS.get(data[_HEADER - 4 : _HEADER])
    expected = "a MAT file of a version from 5 to 7.2"
    if order is None:
        raise DataFormatError(path, None, None, expected, "another file")
    found: dict[str, np.ndarray] = {}
    try:
        for kind, content in _elements(memoryview(data)[_HEADER:], order):
            if kind == _COMPRESSED:
                kind, content = next(_elements(_unpacked(path, content), order), (0, content))
            if kind == _MATRIX:
                parts = _elements(content, order)
                flags, shape, name = _head(parts, order)
                if name in names:
                    found[name] = _array(parts, flags, shape, order)
    except _DamagedError as error:
        raise DataFormatError(path, None, None, expected, f"a damaged one ({error})") from error
    if missing := [name for name in names if name not in found]:
        raise DataFormatError(path, None, None, f"an array {missing[0]}", "none")
    return [found[name] for name in names]


class _DamagedError(Exception):
    """What is wrong; internal."""


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """(type, content) of the elements that stand one behind the other."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise _DamagedError(f"{len(data) - at} bytes at its end")
        kind, size = struct.unpack_from(f"{order}II", data, at)
        begin = at + 8
        if kind >> 16:  # a short element: size and type share four bytes, and the content has the next four
            kind, size, begin = kind & 0xFFFF, kind >> 16, at + 4
            if size > 4:
                raise _DamagedError(f"a short element of {size} bytes")
        if size > len(data) - begin:
            raise _DamagedError(f"{size} bytes where {len(data) - begin} are left")
        yield kind, data[begin : begin + size]
        at = begin + size if kind == _COMPRESSED else begin + size + -(begin + size) % 8


def _unpacked(path: Path, packed: memoryview) -> memoryview:
    most = MemoryBound(path).limit
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, most)
    except zlib.error as error:
        raise _DamagedError(error) from error
    if not unpacker.eof:
        raise _DamagedError(f"an element cut short, or of more than {most} bytes")
    return memoryview(data)


def _head(parts: Iterator[tuple[int, memoryview]], order: str) -> tuple[int, tuple[int, ...], str]:
    """Flags, shape and name of an array."""
    head = [next(parts, (0, memoryview(b""))) for _ in range(3)]
    (_, flags), (_, shape), (_, name) = head
    if [kind for kind, _ in head] != [_UINT32, _INT32, _INT8] or len(flags) != 8 or len(shape) % 4:
        raise _DamagedError("an array without flags, shape and name")
    sizes = struct.unpack(f"{order}{len(shape) // 4}i", shape)
    return struct.unpack(f"{order}II", flags)[0], sizes, bytes(name).decode("ascii", "backslashreplace")


def _array(
    parts: Iterator[tuple[int, memoryview]], flags: int, shape: tuple[int, ...], order: str
) -> np.ndarray:
    """An array of real numbers, stored column by column, maybe in a smaller type than the array has."""
    kind, content = next(parts, (0, memoryview(b"")))
    if flags & 0xFF not in _NUMERIC or flags & _COMPLEX or kind not in _NUMBERS:
        raise _DamagedError("an array that is none of real numbers")
    dtype = np.dtype(order + _NUMBERS[kind])
    if len(shape) != 2:
        raise _DamagedError(f"an array of {len(shape)} dimensions")
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        raise _DamagedError(f"{len(content)} bytes of {dtype} for an array {list(shape)}")
    return np.frombuffer(content, dtype).reshape(shape, order="F")
