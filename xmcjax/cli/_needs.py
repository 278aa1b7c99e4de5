"""The memory that training takes and the memory that is there, for ``plan`` and the start of ``train``."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax._memory import size
from xmcjax._used_columns import used_columns
from xmcjax.lanes import ON_A_CPU, Shape, lanes_of_use, training_bytes


def shape_of(X, Y) -> Shape:
    """The sizes of data."""
    return Shape(X.shape[0], X.shape[1], X.nnz if sp.issparse(X) else X.size, Y.nnz, Y.shape[1])


def as_trained(X, shape: Shape) -> Shape:
    """The sizes that training works with: it drops the columns without an entry where there are many."""
    return shape._replace(features=used_columns(X).count)


def memory_of(
    options: Any, shape: Shape, threads: int, weights: float = 0.0, *, lanes: int | None = None
) -> int:
    """About how many bytes one process takes.

    Args:
        options: flags of ``train`` or ``plan``.
        shape: of the data.
        threads: of the process.
        weights: how many the model stores, where that is known.
        lanes: of a block; None to follow the flags.
    """
    return training_bytes(
        shape,
        threads=threads,
        lanes=lanes or lanes_of_use(options.block_size or ON_A_CPU, shape.labels),
        itemsize=np.dtype(options.dtype).itemsize,
        weights=weights,
        shard_size=options.shard_size,
    )


def check_least(options: Any, shape: Shape, here: int | None) -> None:
    """Raises ValueError if one thread with one lane needs more than `here` bytes beside the data."""
    beside = memory_of(options, shape._replace(entries=0, positives=0), 1, lanes=1)
    empty = memory_of(options, Shape(0, 0, 0, 0, 0), 1, lanes=1)
    check_sizes(beside - empty, shape.rows, shape.features, shape.labels, here)


def check_weights(X, y, n_labels: int, itemsize: int, dense: bool, here: int | None) -> None:
    """As :func:`check_least`, for classes that are trained together.

    Args:
        X: features, [n, d].
        y: classes, [n], or a label matrix.
        n_labels: of the model, including labels that no row has.
        itemsize: bytes per number.
        dense: whether there is a weight for each feature and class.
        here: bytes that may be used, where that is known.
    """
    classes = y.shape[1] if sp.issparse(y) else len(np.unique(y))
    weights = classes * X.shape[1] * itemsize if dense else 0
    labels, none = (
        training_bytes(
            Shape(0, 0, 0, 0, count), threads=1, lanes=1, itemsize=itemsize, weights=0.0, shard_size=1
        )
        for count in (n_labels, 0)
    )
    check_sizes(weights + labels - none, X.shape[0], X.shape[1], n_labels, here)


def check_sizes(beside: int, rows: int, features: int, labels: int, here: int | None) -> None:
    """Raises ValueError where a run takes `beside` bytes beside the data, and fewer bytes are there.

    The bytes are an estimate, so that a run may succeed with a little less. But where a header states
    thousands of millions of features or labels, the run would take all memory, and the system would kill it,
    or another process, without a message.
    """
    if here is not None and beside > here:
        raise ValueError(
            f"expected sizes that fit into {size(here)} of memory: {rows:,} rows, {features:,} features and "
            f"{labels:,} labels take {size(beside)} beside the data"
        )


def remedy(options: Any, shape: Shape, threads: int, weights: float, here: int) -> str:
    """The setting with which a run that does not fit into `here` bytes would fit."""

    def fits(threads: int, lanes: int | None = None) -> bool:
        return memory_of(options, shape, threads, weights, lanes=lanes) <= here

    fewer = next((t for t in range(threads - 1, 0, -1) if fits(t)), None)
    if fewer is not None:
        return f"--n-jobs {fewer} would"
    lanes = next((b for b in (16, 8, 4, 2, 1) if fits(1, b)), None)
    if lanes is not None:
        return f"--n-jobs 1 --block-size {lanes} would"
    least = memory_of(options, shape, 1, weights, lanes=1)
    return f"--n-jobs 1 --block-size 1 would still need {size(least)}: it takes a larger machine"
