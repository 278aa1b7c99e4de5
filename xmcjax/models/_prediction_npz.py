"""Predictions as a sparse matrix of scores [n, L], in the form of ``scipy.sparse.save_npz``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax.data import DataFormatError, MemoryBound, load_scipy_npz, save_scipy_npz
from xmcjax.models._prediction_checks import checked

# Bytes of memory while a file is read: per stored entry, and per place of the padded arrays.
_ENTRY, _PLACE = 40, 9


@contextlib.contextmanager
def writer(path, n_labels: int | None) -> Iterator[Callable[[Any, Any], None]]:
    """Gives ``write(labels, scores)`` for some rows at a time; the file is written if the block ends well."""
    lengths, places, values = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.float32)]

    def write(labels, scores) -> None:
        before = sum(map(len, lengths))
        labels, scores = checked(labels, scores, before)
        kept = labels >= 0
        if n_labels is not None and (labels >= n_labels).any():
            row, place = np.argwhere(labels >= n_labels)[0]
            raise ValueError(
                f"expected labels below {n_labels}, found {labels[row, place]} in row {before + row}"
            )
        lengths.append(kept.sum(axis=1))
        places.append(labels[kept].astype(np.int32))
        values.append(scores[kept])

    yield write
    indptr, indices = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]), np.concatenate(places)
    places.clear()
    width = int(indices.max(initial=-1)) + 1 if n_labels is None else n_labels
    # float32 unless all scores were written as float64
    wide = len(values) > 1 and all(part.dtype == np.float64 for part in values[1:])
    data = np.concatenate([part.astype(np.float64 if wide else np.float32, copy=False) for part in values])
    values.clear()
    matrix = sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, width))
    save_scipy_npz(path, matrix, zeros=True)


def read(path, max_memory: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores of a file, padded, best first; of equal scores the lower label comes first."""
    bound = MemoryBound(path, max_memory)
    # in the dtype of the file: scores that differ in float64 may be equal in float32
    found = load_scipy_npz(path, None, zeros=True, add_up=False, max_memory=max_memory)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        scores = found.data.astype(np.float32, copy=False)
    if not np.isfinite(scores).all():
        raise DataFormatError(path, None, None, "finite float32 numbers in data", "others")
    rows, lengths = found.shape[0], np.diff(found.indptr)
    width = int(lengths.max(initial=0))
    needed = _ENTRY * found.nnz + _PLACE * rows * width
    bound.check(needed, f"{rows:,} rows padded to the longest, of {width:,} predictions")
    row = np.repeat(np.arange(rows), lengths)
    # the sort is stable and labels rise within a row: of equal scores the lower label comes first
    order = np.lexsort((-found.data, row))
    top, best = np.full((rows, width), -1, np.int32), np.full((rows, width), -np.inf, np.float32)
    filled = np.arange(width) < lengths[:, None]
    top[filled], best[filled] = found.indices[order], scores[order]
    return top, best
