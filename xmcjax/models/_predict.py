"""Prediction in blocks of labels and rows: the n x L scores never exist as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import number, thread_count, whole_number
from xmcjax._finite import place_not_finite
from xmcjax._fork import check_threads_of_jax
from xmcjax.models._base import WeightSource

if TYPE_CHECKING:
    import jax

# Bytes for the weights [d, B] and the scores [rows, B] of a block.
_BLOCK_BYTES = 64 << 20
# The widest block chosen. On a CPU wider blocks do not fit into the caches: at d = 21,000 a label takes
# three times as long in blocks of 512 as in blocks of 64.
_MAX_LABEL_BLOCK = {"cpu": 64}
_MAX_LABEL_BLOCK_ELSEWHERE = 1024
_DEFAULT_ROW_BLOCK = 1 << 16
# Blocks of labels are multiples of the lanes that a SIMD register pass of the native kernels takes.
_LANES = 16


def predict_topk(
    model: WeightSource,
    X,
    k: int,
    label_block: int | None = None,
    row_block: int | None = None,
    *,
    threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """The k best labels of each row, z = x·w + b, best first.

    Scores are computed block by block, so that memory is that of X, of one block of weights and of the
    result; a model on disk is read once, in label order. Equal scores rank by the lower label.
    Labels without positives, and those that a partial model lacks, are never predicted: where
    fewer than k labels remain, the slots left over hold label −1 and score −inf.

    Args:
        model: a `LinearModel` or `ArrayModel`.
        X: features [n, d] after the model's transforms, sparse or dense.
        k: how many labels per row, at least 1.
        label_block: labels at a time; None chooses by memory, at most 64 on a CPU.
        row_block: rows at a time; None is 65,536.
        threads: of the native products; None takes one per core. The result does not depend on it.

    Returns:
        ``(labels, scores)``, int32 [n, k] and float [n, k]: float32, or float64 where both X and
        the model are and JAX is set to use it.

    Raises:
        ValueError: X of another width, not two-dimensional, malformed or not finite; k or a block below 1.
        TypeError: X is no matrix of real numbers.
        RuntimeError: in a process that was forked from one in which JAX had computed.
        ModelFormatError: a damaged shard.

    Example:
        >>> from xmcjax.models import ArrayModel
        >>> model = ArrayModel(np.float32([[1, 0], [0, 1], [1, 1]]), np.float32([0, 0.5, -1]))
        >>> labels, scores = predict_topk(model, np.float32([[1, 0], [0, 2]]), 2)
        >>> labels.tolist()
        [[0, 1], [1, 2]]
    """
    import jax

    from xmcjax.models._block_scores import merge_topk

    check_threads_of_jax()
    k = whole_number("k", k, 1)
    blocks = _Blocks(model, X, label_block, row_block, thread_count(threads))
    n = blocks.n_rows
    # numpy makes this array, because jnp.full would compile a program per shape.
    best = [
        jax.device_put(
            (np.full((op.shape[0], k), -np.inf, blocks.dtype), np.full((op.shape[0], k), -1, np.int32))
        )
        for op in blocks.operators
    ]
    for first, W, b in blocks.labels():
        # One block is computed while the next one is read from the disk; no more are in flight.
        jax.block_until_ready(best)
        best = [
            merge_topk(op, W, b, np.int32(first), scores, labels, k=k)
            for op, (scores, labels) in zip(blocks.operators, best, strict=True)
        ]
    top_labels, top_scores = np.empty((n, k), np.int32), np.empty((n, k), blocks.dtype)
    for (start, stop), (scores, labels) in zip(blocks.rows, best, strict=True):
        top_labels[start:stop] = np.asarray(labels)[: stop - start]
        top_scores[start:stop] = np.asarray(scores)[: stop - start]
    return top_labels, top_scores


def scores_above(
    model: WeightSource,
    X,
    threshold: float = 0.0,
    label_block: int | None = None,
    row_block: int | None = None,
    *,
    threads: int = 1,
) -> sp.csr_array:
    """All scores larger than a threshold, as a sparse matrix: the positive predictions of one-vs-all.

    For `xmcjax.metrics.label_precision_recall`. Memory is that of the result, of X and of a block.

    Args:
        model, X, label_block, row_block, threads: as in `predict_topk`.
        threshold: scores must be larger, 0 by default; at least 0, because an absent entry of a
            sparse matrix reads as 0.

    Returns:
        CSR [n, L] of the scores above the threshold.

    Raises:
        ValueError: as in `predict_topk`; a negative threshold.
    """
    from xmcjax.models._block_scores import block_scores

    check_threads_of_jax()
    if not number("threshold", threshold) >= 0:
        raise ValueError(f"threshold: expected at least 0, found {threshold}")
    blocks = _Blocks(model, X, label_block, row_block, thread_count(threads))
    rows, labels, values = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, blocks.dtype)]
    for first, W, b in blocks.labels():
        for (start, stop), op in zip(blocks.rows, blocks.operators, strict=True):
            scores = np.asarray(block_scores(op, W, b))[: stop - start]
            row, column = np.nonzero(scores > threshold)
            rows.append(start + row)
            labels.append(first + column)
            values.append(scores[row, column])
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(labels)))
    return sp.csr_array(entries, shape=(blocks.n_rows, model.n_labels))


class _Blocks:
    """X cut into operators of one shape, and the labels cut into blocks of one shape.

    The last block of rows, and the last block of labels, are filled up; so are the stored entries
    of sparse rows. Every step then has the same shapes and is compiled once.
    """

    def __init__(self, model: WeightSource, X, label_block: int | None, row_block: int | None, threads: int):
        import jax

        for name, block in (("label_block", label_block), ("row_block", row_block)):
            if block is not None:
                whole_number(name, block, 1)
        X = _sparse.matrix(X)
        if X.ndim != 2 or X.shape[1] != model.n_features:
            raise ValueError(
                f"X: expected {model.n_features} features as in the model, found shape {X.shape}"
            )
        place = place_not_finite(X)
        if place is not None:
            row, column, value = place
            raise ValueError(f"X: expected finite features, found {value} in row {row}, column {column}")
        self.model = model
        self.n_rows = X.shape[0]
        self.dtype = jax.dtypes.canonicalize_dtype(
            np.float64 if X.dtype == np.float64 and model.dtype == np.float64 else np.float32
        )
        row_block = min(int(row_block or _DEFAULT_ROW_BLOCK), max(1, self.n_rows))
        first, last = model.label_range
        if label_block is None:
            lanes = _BLOCK_BYTES // (self.dtype.itemsize * max(model.n_features, row_block))
            most = _MAX_LABEL_BLOCK.get(jax.default_backend(), _MAX_LABEL_BLOCK_ELSEWHERE)
            label_block = min(max(lanes // _LANES * _LANES, _LANES), most)
        self.label_block = min(int(label_block), last - first)
        self.rows = [(s, min(s + row_block, self.n_rows)) for s in range(0, self.n_rows, row_block)]
        self.operators = list(_operators(X, self.rows, self.dtype, threads))

    def labels(self) -> Iterator[tuple[int, jax.Array, jax.Array]]:
        """(first label, weights [d, B], biases [B]) of each block that has a trained label."""
        import jax.numpy as jnp

        lowest, end = self.model.label_range
        for first in range(lowest, end, self.label_block):
            last = min(first + self.label_block, end)
            trained = self.model.trained(first, last)
            if not trained.any():
                continue
            W, b = self.model.dense_block(first, last)
            padding = self.label_block - (last - first)
            W = np.pad(W.astype(self.dtype, copy=False), ((0, 0), (0, padding)))
            b = np.where(trained, b, -np.inf).astype(self.dtype)
            yield first, jnp.asarray(W), jnp.asarray(np.pad(b, (0, padding), constant_values=-np.inf))


def _operators(X, rows: list[tuple[int, int]], dtype, threads: int):
    """An operator for each block of rows, all of one shape."""
    from xmcjax import linops

    if len(rows) <= 1:
        for _ in rows:
            yield linops.make(X, dtype, threads=threads)
        return
    height = rows[0][1] - rows[0][0]
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
        # One more row than needed takes zeros in column 0, so that each block stores as many entries.
        indptr = np.full(height + 2, width, np.int64)
        indptr[: stop - start + 1] = X.indptr[start : stop + 1] - X.indptr[start]
        indptr[stop - start + 1 : height + 1] = span.stop - span.start
        indices = np.pad(X.indices[span], (0, filler))
        data = np.pad(X.data[span], (0, filler)).astype(dtype, copy=False)
        block = _sparse.csr(sp.csr_array((data, indices, indptr), shape=(height + 1, X.shape[1])))
        # The zeros share one place on purpose: summing them would give every block a shape of its own.
        block.has_canonical_format = True
        yield linops.make(block, dtype, threads=threads)
