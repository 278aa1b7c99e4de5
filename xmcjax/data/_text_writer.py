"""Rows as text: what the XMC and the svmlight writer share."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from xmcjax._file_kinds import NEVER_WRITTEN
from xmcjax.data._atomic import atomic_write

_BLOCK_ROWS = 4096
_BLOCK_LINES = 1024


def row_lines(heads: Iterable[str], X: sp.csr_matrix, first: int) -> Iterator[str]:
    """``head index:value index:value ...`` for each row of canonical X, column 0 written as ``first``."""
    for head, features in zip(heads, _pairs(X, first), strict=True):
        # A row without labels keeps the blank in front, which marks it as such.
        yield f"{head} {features}\n" if features else f"{head}\n"


def matrix_lines(X: sp.csr_matrix, first: int) -> Iterator[str]:
    """``index:value index:value ...`` for each row of canonical X, column 0 written as ``first``."""
    for features in _pairs(X, first):
        yield f"{features}\n"


def label_lists(Y: sp.csr_matrix, first: int) -> Iterator[str]:
    """``label,label,...`` for each row of canonical Y, label 0 written as ``first``."""

    def words(begin: int, stop: int) -> Iterator[str]:
        return map(str, (Y.indices[begin:stop] + np.int64(first)).tolist())

    for row in _row_words(Y.indptr, words):
        yield ",".join(row)


def _pairs(X: sp.csr_matrix, first: int) -> Iterator[str]:
    # Nine digits restore any float32, also through the double that a reader rounds from; the
    # shortest text that restores a float32 directly may give its neighbour. Doubles are rounded once only.
    form = "%d:%.9g" if X.dtype == np.float32 else "%d:%r"

    def words(begin: int, stop: int) -> list[str]:
        indices = (X.indices[begin:stop] + np.int64(first)).tolist()
        return [form % pair for pair in zip(indices, X.data[begin:stop].tolist(), strict=True)]

    for row in _row_words(X.indptr, words):
        yield " ".join(row)


def _row_words(indptr: np.ndarray, words: Callable[[int, int], Iterable[str]]) -> Iterator[list[str]]:
    """The words of each row; they are made for blocks of rows, to bound the memory they take."""
    for start in range(0, indptr.size - 1, _BLOCK_ROWS):
        bounds = indptr[start : start + _BLOCK_ROWS + 1].tolist()
        block = list(words(bounds[0], bounds[-1]))
        for begin, stop in itertools.pairwise(bounds):
            yield block[begin - bounds[0] : stop - bounds[0]]


def write_text(path: str | os.PathLike[str], lines: Iterable[str]) -> None:
    """Writes lines to a plain, .gz or .xz file; equal lines give equal bytes.

    Raises:
        ValueError: the name promises another compression.
        OSError: the file cannot be written.
    """
    suffix = Path(path).suffix
    if suffix.lower() in NEVER_WRITTEN:
        raise ValueError(f"{path}: expected a name of plain text, .gz or .xz to write, got {suffix}")
    with atomic_write(path) as raw:
        match Path(path).suffix:
            case ".gz":
                import gzip

                # No name and no time in the header: the bytes depend on the content only.
                with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
                    _write(file, lines)
            case ".xz":
                import lzma

                with lzma.open(raw, "wb") as file:
                    _write(file, lines)
            case _:
                _write(raw, lines)


class _Writer(Protocol):
    def write(self, data: bytes, /) -> object: ...


def _write(file: _Writer, lines: Iterable[str]) -> None:
    block: list[str] = []
    for line in lines:
        block.append(line)
        if len(block) == _BLOCK_LINES:
            file.write("".join(block).encode("ascii"))
            block.clear()
    file.write("".join(block).encode("ascii"))
