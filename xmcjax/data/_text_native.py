"""The C++ reader of text rows (native/text/text_reader.cc) behind the ``Parser`` interface."""

from __future__ import annotations

import ctypes
import functools
import weakref

import numpy as np

from xmcjax.data._text_format import MAX_ROWS, Fault, Kind, RowFormat, TextRows
from xmcjax.native import load_library, warn_of_twins

_MEMORY = 9


@functools.cache
def library() -> ctypes.CDLL | None:
    """The native library with the reader's signatures declared; None, with a warning, where there is none."""
    native = load_library()
    if native is None:
        warn_of_twins()
        return None
    pointer, int32, int64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    numbers = ctypes.POINTER(int64)
    native.xmcjax_text_new.argtypes = [int32, int32, int64, int64, int64, int64, int64, int64, int32]
    native.xmcjax_text_new.restype = pointer
    native.xmcjax_text_feed.argtypes = [pointer, ctypes.c_char_p, int64, int64, numbers]
    native.xmcjax_text_feed.restype = int32
    native.xmcjax_text_counts.argtypes = [pointer, numbers]
    native.xmcjax_text_counts.restype = None
    native.xmcjax_text_take.argtypes = [pointer, int32, ctypes.POINTER(pointer)]
    native.xmcjax_text_take.restype = int64
    native.xmcjax_text_free.argtypes = [pointer]
    native.xmcjax_text_free.restype = None
    native.xmcjax_text_delete.argtypes = [pointer]
    native.xmcjax_text_delete.restype = None
    return native


class NativeParser:
    """Feeds chunks to the C++ reader, which keeps the rows, and takes its arrays without a copy."""

    def __init__(self, native: ctypes.CDLL, row_format: RowFormat, lines: int = 0):
        self._native = native
        self._dtype = row_format.dtype
        self._where = (ctypes.c_int64 * 2)(0, lines)
        self._handle = native.xmcjax_text_new(
            row_format.head,
            row_format.comments,
            row_format.first_feature,
            row_format.feature_bound(),
            row_format.first_label,
            row_format.label_bound(),
            MAX_ROWS if row_format.n_rows is None else row_format.n_rows,
            lines,
            row_format.dtype == np.float64,
        )
        if not self._handle:
            raise MemoryError("no memory for the text reader")
        self._close = weakref.finalize(self, native.xmcjax_text_delete, self._handle)

    @property
    def lines(self) -> int:
        return self._where[1]

    def feed(self, buffer: bytes, start: int = 0) -> Fault | None:
        code = self._native.xmcjax_text_feed(self._handle, buffer, start, len(buffer), self._where)
        if code == 0:
            return None
        if code == _MEMORY:
            raise MemoryError(f"no memory left for the rows read so far ({self.lines} lines)")
        return Fault(Kind(code), self._where[0], self._where[1])

    def finish(self) -> TextRows:
        counts = (ctypes.c_int64 * 3)()
        self._native.xmcjax_text_counts(self._handle, counts)
        dtypes = (np.int64, np.int32, self._dtype, np.int64, np.int32, np.int64)
        arrays = [self._take(which, np.dtype(dtype)) for which, dtype in enumerate(dtypes)]
        self._close()
        return TextRows(*counts, *arrays)

    def _take(self, which: int, dtype: np.dtype) -> np.ndarray:
        block = ctypes.c_void_p()
        size = self._native.xmcjax_text_take(self._handle, which, ctypes.byref(block))
        if size == 0:
            self._native.xmcjax_text_free(block)
            return np.empty(0, dtype)
        memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(block.value)
        # The array holds `memory` as its base: the block lives as long as any view of it.
        release = weakref.finalize(memory, self._native.xmcjax_text_free, block)
        # At interpreter exit other finalizers may still read the array; the system frees it.
        release.atexit = False
        return np.frombuffer(memory, dtype)
