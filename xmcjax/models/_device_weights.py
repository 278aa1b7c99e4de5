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

# Bytes of a block, each for its weights (dense [d, B], or sparse) and for its scores [rows, B]: at least
# _BLOCK_BYTES; on a GPU 1/_PART_OF_FREE of the free memory, at most BYTES_OF_GPU.
_BLOCK_BYTES, BYTES_OF_GPU = 64 << 20, 1 << 30
_PART_OF_FREE = 8
# The most labels of a block of dense weights. On a GPU XLA finds the k best of fewer than PIECE scores by
# sorting them all, which moves them twice as often.
_MAX_DENSE_LABELS = PIECE
_LANES = 16
# A block of sparse weights has so few labels that the scores of this many rows fit into the bytes of a block.
_ROWS = 2048
# Copies of sparse weights on a device: by label and by feature, of the present block and of the next.
_FORMS = 4
# A block has fewer weights (with padding), features and labels than this, because int32 places go up to twice
# the number of weights, or to the weights plus the features or labels.
_MOST_WEIGHTS = 1 << 30
# The most weights of a block, as a multiple of the weights that its number of labels has on average.
_MOST_OF_MEAN = 1.25
# Weights may keep 1/_PART_HELD of the free memory, or _HELD_BYTES where a device does not report it.
_PART_HELD, _HELD_BYTES = 2, 1 << 30


@dataclasses.dataclass
class Sent:
    """A block of labels on the device, and what the host knows of it.

    Attributes:
        first: number of the first label.
        labels: how many it has, without padding.
        block: its weights.
        counts: of the first block of sparse weights, how many weights each feature has, int64 [d]; else None.
        columns: the weights of `block` by feature, once they were asked for.
    """

    first: int
    labels: int
    block: StoredBlock | DenseBlock
    counts: np.ndarray | None = None
    columns: FeatureBlock | None = None

    def by_feature(self) -> Iterator[tuple[int, Block]]:
        """(first label, block) of all labels."""
        assert isinstance(self.block, StoredBlock)
        # threads that arrive here at the same time make equal blocks
        self.columns = self.columns or by_feature(self.block)
        yield self.first, self.columns

    def parts(self, width: int, entries: int) -> Iterator[tuple[int, Block]]:
        """(first label, block) of `width` labels each, which have at most `entries` sparse weights."""
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
        width: labels of a block, with padding.
        starts: where the weights of each label begin, int64 [labels + 1], if sparse weights are sent as they
            are stored; None if the weights are dense.

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
        # the blocks by their first label, None for a block without a trained label
        self._kept: dict[int, Sent | None] | None = None

    def keep(self) -> None:
        """Lets blocks stay on the device once they are sent."""
        self._kept = {}

    @property
    def stay(self) -> bool:
        """Whether all blocks are on the device already."""
        return self._kept is not None and len(self._kept) == len(self.spans)

    def blocks(self, model: WeightSource) -> Iterator[Sent]:
        """Every block with a trained label of the model. Sending a block begins when it is asked for.

        This object must not refer to the model: weights are kept for as long as their model exists.
        """
        begun = False
        for first, last in self.spans:
            sent = self._block(model, first, last, counted=not begun)
            if sent is not None:
                begun = True
                yield sent

    def _block(self, model: WeightSource, first: int, last: int, counted: bool) -> Sent | None:
        """A block that is sent now, or was kept before; None where none of its labels was trained."""
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
        """The number of stored sparse weights; 0 where the weights are dense."""
        return 0 if self.starts is None else int(self.starts[-1])

    @functools.cached_property
    def length(self) -> int:
        """The length of the arrays of a block of sparse weights, with padding."""
        return filled_length(self.most_of(self.width))

    def most_of(self, width: int) -> int:
        """The most sparse weights that `width` consecutive labels of a block have."""
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
        """The weights of the model made before for the same key, or else made now, and kept if they fit."""
        with self._lock:
            known, weights = self._of_models.get(model, (None, None))
            if known == key:
                return weights
            self._of_models.pop(model, None)
            del weights  # frees their memory
            made = make()
            if _fits(made, model.n_features, key):
                made.keep()
                self._of_models[model] = key, made
            return made


_held = _Held()


def device_weights(model: WeightSource, dtype: np.dtype, label_block: int | None, rows: int) -> DeviceWeights:
    """The weights of a model, whose sparse ones stay on the device where they fit.

    Dense arrays, and the weights of a user's own class of models, may change between two calls: each call
    sends them anew.

    Args:
        model: any.
        dtype: of the scores.
        label_block: labels of a block; None chooses by memory.
        rows: how many are predicted at a time, where the weights are dense.
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
    """How many weights a model stores; None if they are dense or take fewer bytes as an array."""
    if isinstance(model, LinearModel):
        n_weights = model.n_weights
    elif isinstance(model, ArrayModel) and sp.issparse(model.coef()):
        n_weights = int(model.coef().nnz)
    else:
        return None
    dense = dtype.itemsize * model.n_features * labels
    return n_weights if (dtype.itemsize + 4) * n_weights < dense else None


def _fits(weights: DeviceWeights, n_features: int, key: tuple) -> bool:
    """Whether the weights may stay on the device, in both orders, all blocks padded to one length."""
    device, dtype, _ = key
    free = _device_memory.free_memory(device)
    most = _HELD_BYTES if free is None else free // _PART_HELD
    bounds_and_biases = 4 * (weights.width + 1) + 4 * (n_features + 1) + 2 * dtype.itemsize * weights.width
    return len(weights.spans) * (2 * (dtype.itemsize + 4) * weights.length + bounds_and_biases) <= most


def _planned(model: WeightSource, width: int, dtype: np.dtype, sparse: bool) -> DeviceWeights:
    """Blocks of at most `width` labels, of which nothing is sent yet.

    Raises:
        ValueError: a block has too many weights.
    """
    coef = starts = None
    if sparse:
        assert isinstance(model, (LinearModel, ArrayModel))
        if isinstance(model, LinearModel):
            starts = model.weight_starts()
        else:
            # duplicates are summed, because on the device a label has each feature at most once
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
    """(first, one past the last) label of each block: `width` labels, or fewer where they have many weights.

    All blocks are padded to the length of the longest one. It is not much longer than a mean block, or than
    the longest label, so that all blocks together take at most a few times what is stored, in any order of
    the labels.
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
    """A block of labels, whose sending is begun; None where none of the labels was trained.

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
    # a slice of full length, which runs past the block's end or begins before it, spares the host a copy
    begin = max(0, min(low, stored.nnz - length))
    indptr = np.full(width + 1, high - begin, np.int32)
    indptr[: len(bounds)] = bounds - begin
    value = filled(stored.data[begin : begin + length], length, dtype)
    feature = filled(stored.indices[begin : begin + length], length, np.int32)
    arrays = jax.device_put((value, feature, indptr, _bias(bias, trained, width, dtype)))
    return Sent(first, last - first, StoredBlock(*arrays, n_features=model.n_features), counts)


def _stored(model: WeightSource, coef: Any, first: int, last: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """(CSR with the weights of these and maybe other labels, where those of each label begin in it, biases).

    Args:
        model: one with sparse weights.
        coef: all weights, where they are in memory.
        first, last: labels.
    """
    assert isinstance(model, (LinearModel, ArrayModel))
    bias = model.intercept_of(first, last)
    if coef is not None:
        return coef, coef.indptr[first : last + 1], bias
    coef = model.weights(first, last)
    return coef, coef.indptr, bias


def _bias(bias: np.ndarray, trained: np.ndarray, width: int, dtype: np.dtype) -> np.ndarray:
    """Biases padded to `width`; −inf for labels that are never predicted and for the padding."""
    known = np.full(width, -np.inf, dtype)
    known[: len(bias)] = np.where(trained, bias, -np.inf)
    return known


def dense_labels(n_features: int, rows: int, itemsize: int) -> int:
    """How many labels a block of dense weights has on a device, for that many features and rows."""
    lanes = block_bytes() // (itemsize * max(n_features, rows))
    return min(max(lanes // _LANES * _LANES, _LANES), _MAX_DENSE_LABELS)


def sparse_labels(labels: int, n_weights: int, itemsize: int, block: int | None = None) -> int:
    """How many labels a block of sparse weights has: blocks are few, of one size, and of whole pieces.

    Args:
        labels, n_weights: of the model.
        itemsize: bytes per number.
        block: bytes of a block; None for those of the default device.
    """
    block = block_bytes() if block is None else block
    of_a_label = max(itemsize * _ROWS, _FORMS * (itemsize + 4) * n_weights // max(1, labels))
    most = max(block // of_a_label // PIECE * PIECE, PIECE)
    blocks = -(-labels // most)
    even = -(-labels // max(1, blocks))
    unit = PIECE if even > PIECE else _LANES
    return max(1, -(-even // unit)) * unit


def block_bytes() -> int:
    """Bytes for the weights, and as many for the scores, of a block on the default device."""
    if _platform.default_platform() != "gpu":
        return _BLOCK_BYTES
    free = _device_memory.free_memory()
    most = BYTES_OF_GPU if free is None else min(BYTES_OF_GPU, free // _PART_OF_FREE)
    return max(_BLOCK_BYTES, most)
