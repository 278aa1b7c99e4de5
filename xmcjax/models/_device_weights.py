"""The weights of a model on a device: sent once where they fit and cannot change, else block by block."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Iterator
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
from xmcjax.models._predict import trained_blocks

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
# The part of the free memory that weights may keep; and their bytes where a device does not tell.
_PART_HELD, _HELD_BYTES = 2, 1 << 30


@dataclasses.dataclass
class Sent:
    """A block of labels on the device, and what the host knows of it.

    Attributes:
        first: number of the first label.
        block: its weights.
        indptr: where those of a label begin, on the host; None where they are dense.
        counts: weights of each feature, int64 [d], of the first block of sparse weights.
        columns: the same weights by feature, once they were asked for.
    """

    first: int
    block: StoredBlock | DenseBlock
    indptr: np.ndarray | None = None
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
        for start in range(0, self.block.bias.shape[0], width):
            yield self.first + start, DensePart(self.block, np.int32(start), width, entries)

    def most_of(self, width: int) -> int:
        """The most entries of a part of so many labels."""
        if self.indptr is None:
            return 0
        return int(np.diff(self.indptr[::width], append=self.indptr[-1]).max(initial=0))


@dataclasses.dataclass
class DeviceWeights:
    """The blocks of a model.

    Attributes:
        width: labels of a block.
        sparse: whether they are sent as they are stored.
        n_weights: that are stored, if so.
        blocks: sent when they are asked for, or kept on the device.
    """

    width: int
    sparse: bool
    n_weights: int
    blocks: Iterator[Sent] | list[Sent]


class _Held:
    """What the device keeps of models, for as long as these exist."""

    def __init__(self):
        self._lock = threading.Lock()
        self._of_models: Any = weakref.WeakKeyDictionary()

    def get(self, model: LinearModel | ArrayModel, key: tuple, made: DeviceWeights) -> DeviceWeights:
        """Those of the model that were made for the same key, or those given, kept where they fit."""
        with self._lock:
            known, weights = self._of_models.get(model, (None, None))
            if known == key:
                return weights
            self._of_models.pop(model, None)
            del weights  # whose memory is free now
            if not _fits(made, key):
                return made
            made = dataclasses.replace(made, blocks=list(made.blocks))
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
        return DeviceWeights(width, False, 0, _sent(model, width, dtype, sparse=False))
    width = label_block or sparse_labels(last - first, n_weights, dtype.itemsize)
    width = min(width, last - first) if label_block else width
    made = DeviceWeights(width, True, n_weights, _sent(model, width, dtype, sparse=True))
    assert isinstance(model, (LinearModel, ArrayModel))
    return _held.get(model, (_device_memory.used_device(), dtype, label_block), made)


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


def _fits(weights: DeviceWeights, key: tuple) -> bool:
    """Whether the weights may stay on the device, in both orders."""
    device, dtype, _ = key
    free = _device_memory.free_memory(device)
    most = _HELD_BYTES if free is None else free // _PART_HELD
    return 2 * (dtype.itemsize + 4) * weights.n_weights <= most


def _sent(model: WeightSource, width: int, dtype: np.dtype, sparse: bool) -> Iterator[Sent]:
    """Every block with a trained label, begun to be sent when it is asked for."""
    length = 0
    # summed up, because a label has a feature once on the device
    coef = _sparse.canonical_csr(model.coef()) if sparse and isinstance(model, ArrayModel) else None
    for first, last, trained in trained_blocks(model, width):
        if not sparse:
            W, bias = model.dense_block(first, last)
            W = np.pad(W.astype(dtype, copy=False), ((0, 0), (0, width - (last - first))))
            yield Sent(first, DenseBlock(*jax.device_put((W, _bias(bias, trained, width, dtype)))))
            continue
        stored, bounds, bias = _stored(model, coef, first, last)
        low, high = int(bounds[0]), int(bounds[-1])
        counts = None if length else np.bincount(stored.indices[low:high], minlength=model.n_features)
        length = max(length, filled_length(high - low))
        if max(length, model.n_features, width) >= _MOST_WEIGHTS:
            less = f"less than {_MOST_WEIGHTS} weights in a block"
            raise ValueError(f"label_block: expected {less}, found {high - low}")
        # what is sent goes on behind the block, or begins before it, so that the host copies nothing
        begin = max(0, min(low, stored.nnz - length))
        indptr = np.full(width + 1, high - begin, np.int32)
        indptr[: len(bounds)] = bounds - begin
        value = filled(stored.data[begin : begin + length], length, dtype)
        feature = filled(stored.indices[begin : begin + length], length, np.int32)
        arrays = jax.device_put((value, feature, indptr, _bias(bias, trained, width, dtype)))
        yield Sent(first, StoredBlock(*arrays, n_features=model.n_features), indptr, counts)


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
