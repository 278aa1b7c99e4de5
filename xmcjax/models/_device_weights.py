"""The weights of a model on a device: sent once where they fit and cannot change, else block by block."""

from __future__ import annotations

import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from xmcjax import _device_memory, _platform, _sparse
from xmcjax.models._arrays import ArrayModel
from xmcjax.models._base import WeightSource
from xmcjax.models._block_scores import (
    PIECE,
    Block,
    DenseBlock,
    DensePart,
    FeatureBlock,
    StoredBlock,
    by_feature,
)
from xmcjax.models._device_rows import filled, filled_length
from xmcjax.models._linear import LinearModel

# Bytes for the weights [d, B] and the scores [rows, B] of a block on a device, and for its sparse weights.
_BLOCK_BYTES, BYTES_OF_GPU = 64 << 20, 1 << 30
_PART_OF_FREE = 8
# Of dense weights. On a GPU XLA finds the k best of fewer than PIECE scores by sorting them all, which moves
# them twice as often.
_MAX_DENSE_LABELS = PIECE
_LANES = 16
# Rows whose scores for a block of sparse weights fit into the bytes of a block.
_ROWS = 2048
# Sparse weights are there in both orders, those of the next block too.
_FORMS = 4
# Of a block, filled up: places, which have 32 bits, go up to twice as many, or beyond by a feature or label.
_MOST_WEIGHTS = 1 << 30
# Weights of a block beside those of as many labels with a mean number of weights.
_MOST_OF_MEAN = 1.25
# The part of the free memory that weights may keep; and their bytes where a device does not tell.
_PART_HELD, _HELD_BYTES = 2, 1 << 30


@dataclasses.dataclass
class Sent:
    """A block of labels on the device, and what the host knows of it.

    Attributes:
        first: number of the first label.
        labels: how many it has, without those that it is filled up with.
        block: its weights.
        counts: weights of each feature, int64 [d], of the first block of sparse weights.
        columns: the same weights by feature, once they were asked for.
    """

    first: int
    labels: int
    block: StoredBlock | DenseBlock
    counts: np.ndarray | None = None
    columns: FeatureBlock | None = None

    def by_feature(self) -> Iterator[tuple[int, Block]]:
        """(first label, block) of all labels."""
        assert isinstance(self.block, StoredBlock)
        # threads that come here at the same time make the same
        self.columns = self.columns or by_feature(self.block)
        yield self.first, self.columns

    def parts(self, width: int, entries: int) -> Iterator[tuple[int, Block]]:
        """(first label, block) of so many labels each, which have at most so many sparse weights."""
        if isinstance(self.block, DenseBlock):
            yield self.first, self.block
            return
        for start in range(0, self.labels, width):
            yield self.first + start, DensePart(self.block, np.int32(start), width, entries)


class DeviceWeights:
    """The blocks of a model, which are sent when they are first asked for.

    Attributes:
        dtype: of the scores.
        spans: (first, one past the last) label of each block.
        width: labels of a block, filled up.
        starts: where the weights of each label begin, int64 [labels + 1], where they are sent as they are
            stored; None where they are dense.

    Args:
        coef: all sparse weights, where they are in memory.
    """

    def __init__(
        self,
        dtype: np.dtype,
        spans: list[tuple[int, int]],
        width: int,
        starts: np.ndarray | None = None,
        coef: Any = None,
    ):
        self.dtype, self.spans, self.width, self.starts = dtype, spans, width, starts
        self._coef = coef
        self._lock = threading.Lock()
        # by first label, with None for a block that has no trained one
        self._kept: dict[int, Sent | None] | None = None

    def keep(self) -> None:
        """Lets blocks stay on the device once they are sent."""
        self._kept = {}

    @property
    def stay(self) -> bool:
        """Whether all blocks are on the device already."""
        return self._kept is not None and len(self._kept) == len(self.spans)

    def blocks(self, model: WeightSource) -> Iterator[Sent]:
        """Every block with a trained label of the model, begun to be sent when it is asked for.

        The model is no part of the weights, which are kept for as long as it exists.
        """
        begun = False
        for first, last in self.spans:
            sent = self._block(model, first, last, counted=not begun)
            if sent is not None:
                begun = True
                yield sent

    def _block(self, model: WeightSource, first: int, last: int, counted: bool) -> Sent | None:
        """Sent now, or kept before; None where no label of it was trained."""
        if self._kept is None:
            return _sent(model, self, self._coef, first, last, counted)
        with self._lock:
            if first not in self._kept:
                self._kept[first] = _sent(model, self, self._coef, first, last, counted)
                if len(self._kept) == len(self.spans):
                    self._coef = None
            return self._kept[first]

    @property
    def n_weights(self) -> int:
        """That are stored, of sparse weights."""
        return 0 if self.starts is None else int(self.starts[-1])

    @functools.cached_property
    def length(self) -> int:
        """Of the arrays of a block of sparse weights, filled up."""
        return filled_length(self.most_of(self.width))

    def most_of(self, width: int) -> int:
        """The most sparse weights of so many labels of a block."""
        if self.starts is None:
            return 0
        low, most = self.spans[0][0], 0
        for first, last in self.spans:
            starts, end = self.starts[first - low : last - low : width], self.starts[last - low]
            most = max(most, int(np.diff(starts, append=end).max()))
        return most


class _Held:
    """What the device keeps of models, for as long as these exist."""

    def __init__(self):
        self._lock = threading.Lock()
        self._of_models: Any = weakref.WeakKeyDictionary()

    def get(
        self, model: LinearModel | ArrayModel, key: tuple, make: Callable[[], DeviceWeights]
    ) -> DeviceWeights:
        """Those of the model that were made for the same key, or those planned now, kept where they fit."""
        with self._lock:
            known, weights = self._of_models.get(model, (None, None))
            if known == key:
                return weights
            self._of_models.pop(model, None)
            del weights  # whose memory is free now
            made = make()
            if _fits(made, model.n_features, key):
                made.keep()
                self._of_models[model] = key, made
            return made


_held = _Held()


def device_weights(model: WeightSource, dtype: np.dtype, label_block: int | None, rows: int) -> DeviceWeights:
    """The weights of a model, whose sparse ones stay on the device where they fit.

    Those of a model of one's own, and dense arrays, may change between two calls and are sent in each.

    Args:
        model: any.
        dtype: of the scores.
        label_block: labels of a block; None chooses by memory.
        rows: that are predicted at a time, where the weights are dense.
    """
    first, last = model.label_range
    n_weights = _sparse_weights(model, last - first, dtype)
    if n_weights is None:
        width = label_block or dense_labels(model.n_features, rows, dtype.itemsize)
        width = max(1, min(width, last - first))
        return _planned(model, width, dtype, sparse=False)
    width = label_block or sparse_labels(last - first, n_weights, dtype.itemsize)
    width = min(width, last - first) if label_block else width
    assert isinstance(model, (LinearModel, ArrayModel))
    key = _device_memory.used_device(), dtype, label_block
    return _held.get(model, key, lambda: _planned(model, width, dtype, sparse=True))


def _sparse_weights(model: WeightSource, labels: int, dtype: np.dtype) -> int | None:
    """Stored weights of a model; None where it has no sparse ones or they are fewer bytes as an array."""
    if isinstance(model, LinearModel):
        n_weights = model.n_weights
    elif isinstance(model, ArrayModel) and sp.issparse(model.coef()):
        n_weights = int(model.coef().nnz)
    else:
        return None
    dense = dtype.itemsize * model.n_features * labels
    return n_weights if (dtype.itemsize + 4) * n_weights < dense else None


def _fits(weights: DeviceWeights, n_features: int, key: tuple) -> bool:
    """Whether the weights may stay on the device, in both orders, all blocks filled up to one length."""
    device, dtype, _ = key
    free = _device_memory.free_memory(device)
    most = _HELD_BYTES if free is None else free // _PART_HELD
    bounds_and_biases = 4 * (weights.width + 1) + 4 * (n_features + 1) + 2 * dtype.itemsize * weights.width
    return len(weights.spans) * (2 * (dtype.itemsize + 4) * weights.length + bounds_and_biases) <= most


def _planned(model: WeightSource, width: int, dtype: np.dtype, sparse: bool) -> DeviceWeights:
    """Blocks of at most so many labels, of which nothing is sent yet.

    Raises:
        ValueError: a block has too many weights.
    """
    coef = starts = None
    if sparse:
        assert isinstance(model, (LinearModel, ArrayModel))
        if isinstance(model, LinearModel):
            starts = model.weight_starts()
        else:
            # summed up, because a label has a feature once on the device
            coef = _sparse.canonical_csr(model.coef())
            starts = coef.indptr.astype(np.int64)
    spans = _spans(*model.label_range, width, starts)
    weights = DeviceWeights(dtype, spans, width, starts, coef)
    if sparse and max(weights.length, model.n_features, width) >= _MOST_WEIGHTS:
        less = f"less than {_MOST_WEIGHTS} weights in a block"
        found = f"{weights.most_of(width)}, of {width} labels and {model.n_features} features"
        raise ValueError(f"label_block: expected {less}, found {found}")
    return weights


def _spans(first: int, last: int, width: int, starts: np.ndarray | None) -> list[tuple[int, int]]:
    """(first, one past the last) label of each block, so many or less where they have many weights.

    All blocks are filled up to the longest one. This is not much longer than the mean, or than the longest
    label, so that all of them take at most a few times what is stored, whatever the order of the labels.
    """
    spans, most = [], 0
    if starts is not None:
        of_a_label = int(np.diff(starts).max(initial=0))
        most = int(_MOST_OF_MEAN * width * starts[-1] / max(1, last - first))
        most = min(filled_length(max(most, of_a_label)), _MOST_WEIGHTS // 2)
    begin = first
    while begin < last:
        end = min(begin + width, last)
        if starts is not None and starts[end - first] - starts[begin - first] > most:
            end = first + int(np.searchsorted(starts, starts[begin - first] + most, side="right")) - 1
            end = max(end, begin + 1)
        spans.append((begin, end))
        begin = end
    return spans


def _sent(
    model: WeightSource, weights: DeviceWeights, coef: Any, first: int, last: int, counted: bool
) -> Sent | None:
    """A block of labels, begun to be sent; None where none of them was trained.

    Args:
        model: whose labels they are.
        weights: all blocks.
        coef: all sparse weights, where they are in memory.
        first, last: labels.
        counted: whether sparse weights of each feature are counted.
    """
    trained = model.trained(first, last)
    if not trained.any():
        return None
    width, dtype = weights.width, weights.dtype
    if weights.starts is None:
        W, bias = model.dense_block(first, last)
        W = np.pad(W.astype(dtype, copy=False), ((0, 0), (0, width - (last - first))))
        arrays = jax.device_put((W, _bias(bias, trained, width, dtype)))
        return Sent(first, last - first, DenseBlock(*arrays))
    stored, bounds, bias = _stored(model, coef, first, last)
    low, high, length = int(bounds[0]), int(bounds[-1]), weights.length
    counts = np.bincount(stored.indices[low:high], minlength=model.n_features) if counted else None
    # what is sent goes on behind the block, or begins before it, so that the host copies nothing
    begin = max(0, min(low, stored.nnz - length))
    indptr = np.full(width + 1, high - begin, np.int32)
    indptr[: len(bounds)] = bounds - begin
    value = filled(stored.data[begin : begin + length], length, dtype)
    feature = filled(stored.indices[begin : begin + length], length, np.int32)
    arrays = jax.device_put((value, feature, indptr, _bias(bias, trained, width, dtype)))
    return Sent(first, last - first, StoredBlock(*arrays, n_features=model.n_features), counts)


def _stored(model: WeightSource, coef: Any, first: int, last: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """(CSR that has weights of these labels and may have more, where those of each begin in it, biases).

    Args:
        model: whose weights are sparse.
        coef: all of them, where they are in memory.
        first, last: labels.
    """
    assert isinstance(model, (LinearModel, ArrayModel))
    bias = model.intercept_of(first, last)
    if coef is not None:
        return coef, coef.indptr[first : last + 1], bias
    coef = model.weights(first, last)
    return coef, coef.indptr, bias


def _bias(bias: np.ndarray, trained: np.ndarray, width: int, dtype: np.dtype) -> np.ndarray:
    """−inf for labels that are never predicted, and behind the last one."""
    known = np.full(width, -np.inf, dtype)
    known[: len(bias)] = np.where(trained, bias, -np.inf)
    return known


def dense_labels(n_features: int, rows: int, itemsize: int) -> int:
    """Labels whose dense weights a device has at a time, for so many features and rows."""
    lanes = block_bytes() // (itemsize * max(n_features, rows))
    return min(max(lanes // _LANES * _LANES, _LANES), _MAX_DENSE_LABELS)


def sparse_labels(labels: int, n_weights: int, itemsize: int, block: int | None = None) -> int:
    """Labels of a block of sparse weights: a few blocks of one size, of whole pieces.

    Args:
        labels, n_weights: of the model.
        itemsize: bytes of a number.
        block: bytes for its scores; None for those of the default device.
    """
    block = block_bytes() if block is None else block
    of_a_label = max(itemsize * _ROWS, _FORMS * (itemsize + 4) * n_weights // max(1, labels))
    most = max(block // of_a_label // PIECE * PIECE, PIECE)
    blocks = -(-labels // most)
    even = -(-labels // max(1, blocks))
    unit = PIECE if even > PIECE else _LANES
    return max(1, -(-even // unit)) * unit


def block_bytes() -> int:
    """For the weights, and for the scores, of a block on the default device."""
    if _platform.default_platform() != "gpu":
        return _BLOCK_BYTES
    free = _device_memory.free_memory()
    most = BYTES_OF_GPU if free is None else min(BYTES_OF_GPU, free // _PART_OF_FREE)
    return max(_BLOCK_BYTES, most)
