"""Estimates of the memory that a training run takes, before it begins."""

from __future__ import annotations

from typing import NamedTuple

# Bytes of the process before it has any data: Python, JAX and the kernels.
_PROCESS = 195 << 20
# Copies of X in CSR, with what reading it leaves behind, of Y, and of a shard that is being written.
# _OF_LABEL: bytes of a label beside its weights.
_OF_X, _OF_Y, _OF_SHARD, _OF_LABEL = 6.0, 3.0, 3.0, 56
# Bytes of a thread, and arrays of [n, B] and of [d, B] that a Newton step of its B lanes touches.
_THREAD, _OF_ROWS, _OF_COLUMNS = 6 << 20, 12, 5
# Bytes of a column index.
_INDEX = 4


class Shape(NamedTuple):
    """The sizes of a training set.

    Example:
        >>> Shape(rows=1000, features=500, entries=20_000, positives=3000, labels=200).labels
        200
    """

    rows: int
    features: int
    entries: int  #: of X that are not zero
    positives: int  #: entries of Y
    labels: int


def model_bytes(weights: float, itemsize: int) -> int:
    """Bytes of the shards that hold so many weights.

    Example:
        >>> model_bytes(1000, itemsize=4)
        8000
    """
    return int(weights * (itemsize + _INDEX))


def training_bytes(
    shape: Shape, *, threads: int, lanes: int, itemsize: int, weights: float, shard_size: int
) -> int:
    """Bytes that one process takes at most to train all labels of a sparse set on the CPU, about.

    The constants were measured; ``python -m experiments.bench.plan`` compares them with what runs take.

    Args:
        shape: of the data.
        threads: of the process.
        lanes: of a block, one per thread.
        itemsize: bytes of a number.
        weights: that the model stores, of all labels.
        shard_size: labels per shard, whose weights wait to be written.

    Example:
        >>> from xmcjax.lanes import Shape
        >>> shape = Shape(rows=1000, features=500, entries=20_000, positives=3000, labels=200)
        >>> sizes = dict(lanes=32, itemsize=4, weights=1e5, shard_size=100)
        >>> training_bytes(shape, threads=2, **sizes) > training_bytes(shape, threads=1, **sizes)
        True
    """
    n, d = shape.rows, shape.features
    data = (_OF_X * shape.entries + _OF_Y * shape.positives) * (itemsize + _INDEX) + _OF_LABEL * shape.labels
    block = lanes * itemsize * (_OF_ROWS * n + _OF_COLUMNS * d)
    shard = _OF_SHARD * model_bytes(weights, itemsize) * min(1.0, shard_size / max(shape.labels, 1))
    return int(_PROCESS + data + threads * (_THREAD + block) + shard)
