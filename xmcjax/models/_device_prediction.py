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
# Scores of a block whose places have 32 bits.
_MOST_SCORES = 1 << 30
# Bytes for a pair of an entry and a weight beside the weight: the score is read and written, 32 at a time.
_BYTES_OF_SCORE = 64
# What could be moved while a GPU begins and ends the kernels of a turn: 50 µs at 4 TB/s.
_BYTES_OF_TURN = 200_000_000
# Times that dense weights are written or read: zeros, the weights, the product.
_DENSE_PASSES = 3
_LEAST_WINDOW, _MOST_WINDOW = 1 << 12, 1 << 20


class Work(NamedTuple):
    """What a prediction of sparse rows with sparse weights consists of.

    Attributes:
        n_rows, n_features, n_labels: of the rows and weights.
        entries: of the rows.
        turns: entries of the longest row, one of each row being added at a time; 0 by the kernels in CUDA.
        pairs: of an entry of a row with a weight of the same feature, about.
        blocks: of rows and of labels, where pairs are added, their numbers multiplied.
        passes: blocks of rows where weights are made dense.
        itemsize: bytes of a number.
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
        """Pairs to be added at once: about those of a turn, as a power of two."""
        of_turn = int(self.pairs / max(1, self.blocks * self.turns))
        return min(max(1 << of_turn.bit_length(), _LEAST_WINDOW), _MOST_WINDOW)

    @property
    def bytes_by_pairs(self) -> float:
        """That are moved where pairs are added, without what both ways do with the scores."""
        turns = self.blocks * self.turns + self.pairs / self.window if self.turns else 0
        return self.pairs * (self.itemsize + 4 + _BYTES_OF_SCORE) + turns * _BYTES_OF_TURN

    @property
    def bytes_dense(self) -> float:
        """The same where weights are made dense, and each entry of a row reads those of its feature."""
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
        pairs: whether pairs are added, of sparse rows and sparse weights; None where :func:`by_pairs`.
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
        # One block is computed while the next one is read and sent, or is begun where it is there already.
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
    """(first row, first label, scores) of every block of both."""
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
        """The blocks of labels, (first label, block), of each that is sent."""
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
    """What is known of it beforehand: the weights of the first block stand for all."""
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
