"""Prediction on a device: which way scores are made there, and in which blocks."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from xmcjax import native
from xmcjax._fork import check_threads_of_jax
from xmcjax.models import _device_rows
from xmcjax.models._base import WeightSource
from xmcjax.models._block_scores import Block, block_scores, merge_topk
from xmcjax.models._device_weights import DeviceWeights, block_bytes, dense_labels, device_weights

_DEFAULT_ROW_BLOCK = 1 << 16
# The most scores of a block, rows times labels: their places must fit into int32.
_MOST_SCORES = 1 << 30
# Bytes moved per pair of an entry and a weight, beside the weight: its score is read and written, in
# accesses of 32 bytes.
_BYTES_OF_SCORE = 64
# Bytes that a GPU could move while it starts and ends the kernels of a turn: 50 µs at 4 TB/s.
_BYTES_OF_TURN = 200_000_000
# How often each dense weight is written or read: as a zero, as the weight, and in the product.
_DENSE_PASSES = 3
_LEAST_WINDOW, _MOST_WINDOW = 1 << 12, 1 << 20


class Work(NamedTuple):
    """What a prediction of sparse rows with sparse weights consists of.

    Attributes:
        n_rows, n_features, n_labels: of the rows and weights.
        entries: non-zeros of the rows.
        turns: entries of the longest row, because a turn adds one entry per row; 0 with the CUDA kernels.
        pairs: about how many pairs of an entry of a row and a weight of the same feature there are.
        blocks: where pairs are added, the number of blocks of rows times that of blocks of labels.
        passes: where weights are made dense, the number of blocks of rows.
        itemsize: bytes per number.
    """

    n_rows: int
    n_features: int
    n_labels: int
    entries: int
    turns: int
    pairs: float
    blocks: int
    passes: int
    itemsize: int

    @property
    def window(self) -> int:
        """How many pairs are added at once: about as many as a turn has, as a power of two."""
        of_turn = int(self.pairs / max(1, self.blocks * self.turns))
        return min(max(1 << of_turn.bit_length(), _LEAST_WINDOW), _MOST_WINDOW)

    @property
    def bytes_by_pairs(self) -> float:
        """Bytes that are moved where pairs are added, beside what both ways do with the finished scores."""
        turns = self.blocks * self.turns + self.pairs / self.window if self.turns else 0
        return self.pairs * (self.itemsize + 4 + _BYTES_OF_SCORE) + turns * _BYTES_OF_TURN

    @property
    def bytes_dense(self) -> float:
        """Bytes that are moved where weights are made dense; each entry reads the weights of its feature."""
        made = self.passes * _DENSE_PASSES * self.n_features
        return float(self.n_labels) * self.itemsize * (made + self.entries)


def topk(
    model: WeightSource,
    X,
    k: int,
    dtype,
    label_block: int | None,
    row_block: int | None,
    threads: int,
    *,
    pairs: bool | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`xmcjax.models.predict_topk`, of checked arguments.

    Args:
        pairs: whether pairs of sparse rows and sparse weights are added; None lets :func:`by_pairs` decide.
    """
    check_threads_of_jax()
    plan = _Plan(model, X, dtype, label_block, row_block, threads, pairs)
    # numpy makes this array, because jnp.full would compile a program per shape.
    best = [
        jax.device_put((np.full((n, k), -np.inf, plan.dtype), np.full((n, k), -1, np.int32)))
        for n in plan.heights
    ]
    before: collections.deque = collections.deque()
    for blocks in plan.blocks():
        # One block is computed while the next is read and sent, or is started if it is on the device already.
        before.append(best)
        if len(before) > plan.stay:
            jax.block_until_ready(before.popleft())
        for first, block in blocks:
            best = [
                merge_topk(rows, block, np.int32(first), scores, labels, k=k)
                for rows, (scores, labels) in zip(plan.rows, best, strict=True)
            ]
    top_labels, top_scores = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), plan.dtype)
    for (start, stop), (scores, labels) in zip(plan.spans, best, strict=True):
        top_labels[start:stop] = np.asarray(labels)[: stop - start]
        top_scores[start:stop] = np.asarray(scores)[: stop - start]
    return top_labels, top_scores


def scores(
    model: WeightSource, X, dtype, label_block: int | None, row_block: int | None, threads: int
) -> Iterator[tuple[int, int, np.ndarray]]:
    """(first row, first label, scores) of every pair of a block of labels and a block of rows."""
    check_threads_of_jax()
    plan = _Plan(model, X, dtype, label_block, row_block, threads)
    for blocks in plan.blocks():
        for first, block in blocks:
            for (start, stop), rows in zip(plan.spans, plan.rows, strict=True):
                yield start, first, np.asarray(block_scores(rows, block))[: stop - start]


class _Plan:
    """X cut into blocks of rows of one shape, and the labels into blocks that are sent.

    Every step has the same shapes and is compiled once.
    """

    def __init__(self, model: WeightSource, X, dtype, label_block, row_block, threads: int, pairs=None):
        self.dtype = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
        n, itemsize = X.shape[0], self.dtype.itemsize
        row_block = None if row_block is None else min(int(row_block), max(1, n))
        height = row_block or min(_DEFAULT_ROW_BLOCK, max(1, n))
        label_block = None if label_block is None else int(label_block)
        weights = device_weights(model, self.dtype, label_block, height)
        self.stay = weights.stay
        blocks = weights.blocks(model)
        first = next(blocks, None)
        self._blocks = itertools.chain([] if first is None else [first], blocks)
        self._width = min(weights.width, label_block or dense_labels(model.n_features, height, itemsize))
        self._entries = _device_rows.filled_length(weights.most_of(self._width))
        self._pairs = False
        work = None
        if sp.issparse(X) and first is not None and first.counts is not None:
            of_pairs = row_block or min(height, max(1, block_bytes() // (itemsize * weights.width)))
            of_pairs = min(of_pairs, max(1, _MOST_SCORES // weights.width))
            work = _work(X, model, weights, first.counts, (of_pairs, height), itemsize)
            self._pairs = by_pairs(work) if pairs is None else pairs
        if work is not None and self._pairs:
            self.spans = _device_rows.spans(n, of_pairs)
            self.rows = _device_rows.of_pairs(X, self.spans, self.dtype, work.window)
            self.heights = [of_pairs] * len(self.spans)
        else:
            self.spans = _device_rows.spans(n, height)
            self.rows = list(_device_rows.operators(X, self.spans, self.dtype, threads))
            self.heights = [rows.shape[0] for rows in self.rows]

    def blocks(self) -> Iterator[Iterator[tuple[int, Block]]]:
        """For each block that is sent, the blocks (first label, block) that it is used in."""
        for sent in self._blocks:
            yield sent.by_feature() if self._pairs else sent.parts(self._width, self._entries)


def by_pairs(work: Work) -> bool:
    """Whether the pairs of entries and weights are added, which moves fewer bytes than dense weights."""
    return work.bytes_by_pairs < work.bytes_dense


def _work(
    X,
    model: WeightSource,
    weights: DeviceWeights,
    counts: np.ndarray,
    heights: tuple[int, int],
    itemsize: int,
) -> Work:
    """The estimated work: the pairs are extrapolated from the weights of the first block."""
    low, high = model.label_range
    n = X.shape[0]
    of_rows = np.bincount(X.indices, minlength=X.shape[1])
    pairs = float(of_rows @ counts) * weights.n_weights / max(1, int(counts.sum()))
    of_pairs, height = heights
    return Work(
        n_rows=n,
        n_features=X.shape[1],
        n_labels=high - low,
        entries=int(X.nnz),
        turns=0 if native.cuda_available() else int(np.diff(X.indptr).max(initial=0)),
        pairs=pairs,
        blocks=len(weights.spans) * -(-n // of_pairs),
        passes=-(-n // height),
        itemsize=itemsize,
    )
