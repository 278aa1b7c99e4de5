"""Reads a file of text rows: chunks from the file, rows from a parser, one sentence for a fault."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xmcjax.data._errors import DataFormatError
from xmcjax.data._files import CorruptFileError, line_chunks
from xmcjax.data._text_format import Fault, Parser, RowFormat, TextRows, describe, found, strip_line_end
from xmcjax.data._text_native import NativeParser, library
from xmcjax.data._text_python import PythonParser

PARSERS = ("native", "python")


def value_dtype(dtype: np.typing.DTypeLike) -> np.dtype:
    """The dtype of a feature matrix.

    Raises:
        TypeError: it is neither float32 nor float64.
    """
    checked = np.dtype(dtype)
    if checked not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype must be float32 or float64, got {checked}")
    return checked


class RowReader:
    """One pass over a file of text rows.

    Args:
        path: plain text, .gz or .xz.
        parser: "native", "python", or None for the native one where it was built.
    """

    def __init__(self, path: str | os.PathLike[str], parser: str | None = None):
        self.path = Path(path)
        self._parser = parser

    def error(self, line: int, column: int, expected: str, found: str) -> DataFormatError:
        return DataFormatError(self.path, line, column, expected, found)

    @contextlib.contextmanager
    def chunks(self) -> Generator[Generator[bytes]]:
        """The file's chunks, and its reading thread ended however the block ends."""
        with contextlib.closing(line_chunks(self.path)) as chunks:
            yield chunks

    def rows(
        self,
        chunks: Generator[bytes],
        row_format: RowFormat,
        head: bytes = b"",
        start: int = 0,
        lines: int = 0,
    ) -> TextRows:
        """Parses ``head[start:]``, then the chunks; ``lines`` of the file came before them.

        Raises:
            DataFormatError: at the first fault.
        """
        parser = self._make(row_format, lines)
        fault = parser.feed(head, start)
        if fault is not None:
            raise self._fault(head, fault, row_format)
        while True:
            try:
                chunk = next(chunks, None)
            except CorruptFileError as error:
                raise self.corrupt(parser.lines, error) from error
            if chunk is None:
                return parser.finish()
            fault = parser.feed(chunk)
            if fault is not None:
                raise self._fault(chunk, fault, row_format)

    def corrupt(self, lines: int, error: CorruptFileError) -> DataFormatError:
        """Damage met after so many whole lines."""
        kind = {".gz": "a complete gzip file", ".xz": "a complete xz file"}.get(
            self.path.suffix, "lines of text"
        )
        return self.error(lines + 1, 1, kind, str(error))

    def _make(self, row_format: RowFormat, lines: int) -> Parser:
        native = None if self._parser == "python" else library()
        if native is not None:
            return NativeParser(native, row_format, lines)
        if self._parser == "native":
            raise ImportError("the native library was not built")
        return PythonParser(row_format, lines)

    def _fault(self, buffer: bytes, fault: Fault, row_format: RowFormat) -> DataFormatError:
        begin = buffer.rfind(b"\n", 0, fault.offset) + 1
        newline = buffer.find(b"\n", fault.offset)
        line = strip_line_end(buffer[begin:] if newline < 0 else buffer[begin : newline + 1])
        column = fault.offset - begin
        return self.error(
            fault.lines + 1, column + 1, describe(fault.kind, row_format), found(fault.kind, line, column)
        )


def feature_matrix(rows: TextRows, n_features: int) -> sp.csr_matrix:
    """The values as a matrix [n_rows, n_features]."""
    return _csr(rows.values, rows.indices, rows.indptr, (rows.n_rows, n_features))


def label_matrix(rows: TextRows, n_labels: int, dtype: np.dtype) -> sp.csr_matrix:
    """The label lists as a matrix of ones [n_rows, n_labels]."""
    ones = np.ones(rows.label_indices.size, dtype)
    return _csr(ones, rows.label_indices, rows.label_indptr, (rows.n_rows, n_labels))


def _csr(
    values: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> sp.csr_matrix:
    # scipy wants one type for both index arrays: int32, until the offsets no longer fit.
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    matrix = sp.csr_matrix((values, indices, indptr), shape=shape, copy=False)
    matrix.has_canonical_format = True  # the parsers sort every row and refuse duplicates
    return matrix
