"""The rows to predict on a device: cut into blocks of one shape, so that every step is compiled once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse, linops, native
from xmcjax._sizes import filled_length
from xmcjax.models._block_scores import RowsInTurns, SparseRows

# A block of rows has fewer entries than this, because their places are int32.
_MOST_ENTRIES = 1 << 31


def filled(values: np.ndarray, length: int, dtype) -> np.ndarray:
    """Values in that dtype, padded with zeros to that length; the same array where nothing changes."""
    if len(values) == length:
        return values.astype(dtype, copy=False)
    longer = np.zeros(length, dtype)
    longer[: len(values)] = values
    return longer


def spans(n: int, height: int) -> list[tuple[int, int]]:
    """(first, one past the last) row of each block of at most `height` rows."""
    return [(start, min(start + height, n)) for start in range(0, n, height)]


def operators(X, rows: list[tuple[int, int]], dtype, threads: int) -> Iterator:
    """An operator for each block of rows, all of one shape."""
    if not rows:
        return
    height = rows[0][1] - rows[0][0]
    if sp.issparse(X) and native.cuda_available():
        linops.check_room(X.shape, dtype, X.nnz)
        blocks = [X[start:stop].astype(dtype, copy=False) for start, stop in rows]
        yield from linops.scored_rows(blocks, height)
        return
    if len(rows) == 1:
        yield linops.make(X, dtype, threads=threads)
        return
    if not sp.issparse(X):
        for start, stop in rows:
            yield linops.make(
                np.pad(X[start:stop], ((0, height - (stop - start)), (0, 0))), dtype, threads=threads
            )
        return
    width = max(int(X.indptr[stop] - X.indptr[start]) for start, stop in rows)
    for start, stop in rows:
        span = slice(X.indptr[start], X.indptr[stop])
        filler = width - (span.stop - span.start)
        # One extra row holds zeros in column 0, as many as make every block store equally many entries.
        indptr = np.full(height + 2, width, np.int64)
        indptr[: stop - start + 1] = X.indptr[start : stop + 1] - X.indptr[start]
        indptr[stop - start + 1 : height + 1] = span.stop - span.start
        indices = np.pad(X.indices[span], (0, filler))
        data = np.pad(X.data[span], (0, filler)).astype(dtype, copy=False)
        block = _sparse.csr(sp.csr_array((data, indices, indptr), shape=(height + 1, X.shape[1])))
        # The zeros are duplicates on purpose: summing them would give every block a shape of its own.
        block.has_canonical_format = True
        yield linops.make(block, dtype, threads=threads)


def of_pairs(X, rows: list[tuple[int, int]], dtype, window: int) -> list[SparseRows] | list[RowsInTurns]:
    """Checked CSR in the form for adding pairs with weights, block of rows by block, all of one shape.

    Args:
        X: the matrix.
        rows: (first, one past the last) row of each block.
        dtype: of the scores.
        window: how many pairs are added at once where the CUDA kernels are absent.

    Raises:
        ValueError: a block has too many entries.
    """
    if not rows:
        return []
    linops.check_room(X.shape, np.dtype(dtype), X.nnz)
    height, lengths = rows[0][1] - rows[0][0], np.diff(X.indptr)
    most = max(int(X.indptr[stop] - X.indptr[start]) for start, stop in rows)
    entries = filled_length(most)
    if entries + height >= _MOST_ENTRIES:
        less = f"rows of less than {_MOST_ENTRIES} entries together"
        raise ValueError(f"row_block: expected {less}, found {most} in {height} rows")
    if native.cuda_available():
        return [_sparse_rows(X, span, height, entries, dtype) for span in rows]
    turns = filled_length(int(lengths.max(initial=0)) + 1)
    entries += height
    blocks = (_block_in_turns(X, span, height, turns, entries, dtype) for span in rows)
    return [RowsInTurns(**arrays, n_rows=height, window=window) for arrays in blocks]


def _sparse_rows(X, span: tuple[int, int], height: int, entries: int, dtype) -> SparseRows:
    low, high = (int(X.indptr[place]) for place in span)
    value, feature = filled(X.data[low:high], entries, dtype), filled(X.indices[low:high], entries, np.int32)
    indptr = np.full(height + 1, high - low, np.int32)
    indptr[: span[1] - span[0] + 1] = X.indptr[span[0] : span[1] + 1] - low
    return SparseRows(*jax.device_put((value, feature, indptr)))


def _block_in_turns(X, span: tuple[int, int], height: int, turns: int, entries: int, dtype) -> dict:
    """The arrays of one block of :class:`RowsInTurns`, on the device."""
    start, stop = span
    low, high, count = X.indptr[start], X.indptr[stop], np.diff(X.indptr[start : stop + 1])
    turn = np.arange(high - low) - np.repeat(X.indptr[start:stop] - low, count)
    order = np.argsort(turn, kind="stable")
    starts = np.searchsorted(turn[order], np.arange(turns)).astype(np.int32)
    given = {
        "value": X.data[low:high],
        "feature": X.indices[low:high],
        "row": np.repeat(np.arange(stop - start), count),
    }
    arrays: dict[str, Any] = {
        name: filled(values[order], entries, dtype if name == "value" else np.int32)
        for name, values in given.items()
    }
    return jax.device_put(arrays | {"starts": starts, "turns": np.int32(count.max(initial=0))})
