"""Reads a file of text rows: chunks from the file, rows from a parser, one sentence for a fault."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import name_of
from xmcjax.data._errors import DataFormatError
from xmcjax.data._files import CHUNK, Chunk, LongLineError, line_chunks
from xmcjax.data._memory import MemoryBound
from xmcjax.data._text_format import (
    Fault,
    Kind,
    Parser,
    RowFormat,
    TextRows,
    describe,
    found,
    item_at,
    strip_line_end,
)
from xmcjax.data._text_native import NativeParser, library
from xmcjax.data._text_python import PythonParser
from xmcjax.data._unpack import CorruptFileError

# The most bytes of memory that a byte of text takes while its line is read: for copies of the line, and for
# its items while they are sorted.
_LINE_COST = 20
# Bytes that reading takes beside the rows, where lines are short.
_BUFFERS = 12 << 20
# Bytes that unpacking `xz -9` takes: its dictionary, the largest of the presets, and the decoder's state.
_DICTIONARY = 66 << 20


def value_dtype(dtype: np.typing.DTypeLike) -> np.dtype:
    """The dtype of a feature matrix.

    Raises:
        TypeError: it is neither float32 nor float64.
    """
    try:
        checked = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"dtype: expected float32 or float64, got {dtype!r}") from None
    if checked not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype must be float32 or float64, got {checked}")
    return checked


class RowReader:
    """One pass over a file of text rows.

    Args:
        path: plain text, .gz or .xz.
        parser: "native", "python", or None for the native one where it was built.
        max_memory: bytes that reading may take; None allows 20 times the file's size on disk and 64 MB.
    """

    def __init__(
        self, path: str | os.PathLike[str], parser: str | None = None, max_memory: int | None = None
    ):
        self.path = Path(path)
        self._parser = None if parser is None else name_of("parser", parser, ("native", "python"))
        self._bound = MemoryBound(path, max_memory)
        self._longest = self._bound.limit // _LINE_COST

    def error(self, line: int, column: int, expected: str, found: str) -> DataFormatError:
        return DataFormatError(self.path, line, column, expected, found)

    @contextlib.contextmanager
    def chunks(self) -> Generator[Generator[Chunk]]:
        """The file's chunks; the reading thread is stopped however the block ends."""
        memory = max(self._bound.limit, _DICTIONARY)
        with contextlib.closing(line_chunks(self.path, memory, self._longest)) as chunks:
            yield chunks

    def next_chunk(self, chunks: Generator[Chunk], lines: int) -> Chunk | None:
        """The next chunk, which begins after `lines` lines; None at the end of the file.

        Raises:
            DataFormatError: the file is damaged, or a line is too long.
        """
        try:
            return next(chunks, None)
        except LongLineError as error:
            if error.longest == self._longest:
                needed = _LINE_COST * (self._longest + CHUNK)
                raise self._bound.refusal(needed, "the first part of a line", lines + 1) from error
            raise self.error(lines + 1, 1, "lines of text", "a line of more than 256 MiB") from error
        except CorruptFileError as error:
            kind = {".gz": "gzip", ".xz": "xz"}[self.path.suffix]
            raise self.error(lines + 1, 1, f"a complete {kind} file", str(error)) from error

    def pieces(
        self,
        chunks: Generator[Chunk],
        row_format: RowFormat,
        head: Chunk | None = None,
        start: int = 0,
        lines: int = 0,
        piece: int | None = None,
        unlabelled: bool = False,
    ) -> Iterator[TextRows]:
        """Parses ``head.data[start:]``, then the chunks; ``lines`` of the file came before them.

        Args:
            unlabelled: whether rows begin with their first feature, without a blank before it.
            piece: bytes after which rows are handed out; the last piece may have none. None hands out all
                rows together.

        Raises:
            DataFormatError: at the first fault, or where all rows together take too much memory.
        """
        parser = self._make(row_format, lines)
        done = held = 0
        chunk = head if head is not None else self.next_chunk(chunks, lines)
        while chunk is not None:
            data = chunk.data
            if unlabelled:
                data, start = _with_blanks(data[start:] if start else data), 0
            fault = parser.feed(data, start)
            if fault is not None:
                raise self._fault(data, fault, row_format, shift=int(unlabelled))
            start = 0
            lines = parser.lines
            held += row_format.memory(chunk.data)
            if piece is None:
                self._check_memory(held, chunk, lines)
            elif held >= piece:
                rows = parser.finish()
                done += rows.n_rows
                yield rows
                del rows
                held = 0
                left = None if row_format.n_rows is None else row_format.n_rows - done
                parser = self._make(dataclasses.replace(row_format, n_rows=left), lines)
            chunk = self.next_chunk(chunks, lines)
        rows = parser.finish()
        done += rows.n_rows
        if row_format.n_rows is not None and done < row_format.n_rows:
            expected = describe(Kind.ROWS, row_format)
            raise self.error(lines + 1, 1, expected, f"the end of the file after {done}")
        yield rows

    def _check_memory(self, held: int, chunk: Chunk, lines: int) -> None:
        self._bound.seen(chunk.position)
        needed = held + _BUFFERS + _LINE_COST * max(len(chunk.data) - CHUNK, 0)
        if self.path.suffix == ".xz":
            needed += min(chunk.unpacked, _DICTIONARY)
        if needed > self._bound.limit:
            # Extrapolated: the rest of the file is taken to be like the part that was read.
            whole = int(needed * max(self._bound.size / max(chunk.position, 1), 1))
            self._bound.check(whole, f"the rows (judged by the first {lines:,} lines)")

    def _make(self, row_format: RowFormat, lines: int) -> Parser:
        native = None if self._parser == "python" else library()
        if native is not None:
            return NativeParser(native, row_format, lines)
        if self._parser == "native":
            raise ImportError("the native library was not built")
        return PythonParser(row_format, lines)

    def _fault(self, buffer: bytes, fault: Fault, row_format: RowFormat, shift: int) -> DataFormatError:
        begin = buffer.rfind(b"\n", 0, fault.offset) + 1
        newline = buffer.find(b"\n", fault.offset)
        line = strip_line_end(buffer[begin:] if newline < 0 else buffer[begin : newline + 1])
        column = fault.offset - begin
        place = max(column + 1 - shift, 1)
        expected = describe(fault.kind, row_format, item_at(fault.kind, line, column))
        return self.error(fault.lines + 1, place, expected, found(fault.kind, line, column))


def _with_blanks(lines: bytes) -> bytes:
    """Lines with a blank before each."""
    blanks = b" " + lines.replace(b"\n", b"\n ") if lines else lines
    return blanks[:-1] if lines.endswith(b"\n") else blanks


def feature_matrix(rows: TextRows, n_features: int) -> sp.csr_matrix:
    """The values as a matrix [n_rows, n_features]."""
    return rising_csr(rows.values, rows.indices, rows.indptr, (rows.n_rows, n_features))


def label_matrix(rows: TextRows, n_labels: int, dtype: np.dtype) -> sp.csr_matrix:
    """The label lists as a matrix of ones [n_rows, n_labels]."""
    ones = np.ones(rows.label_indices.size, dtype)
    return rising_csr(ones, rows.label_indices, rows.label_indptr, (rows.n_rows, n_labels))


def rising_csr(
    values: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> sp.csr_matrix:
    """The matrix of arrays whose indices rise in every row."""
    # scipy wants one type for both index arrays: int32, until the offsets no longer fit.
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    matrix = sp.csr_matrix((values, indices, indptr), shape=shape, copy=False)
    matrix.has_canonical_format = True
    return matrix
