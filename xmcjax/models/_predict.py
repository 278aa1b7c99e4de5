"""Prediction in blocks of labels: neither all scores nor all weights of a stored model exist at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import number, thread_count, whole_number
from xmcjax._used_columns import UsedColumns, used_columns
from xmcjax.models._arrays import ArrayModel
from xmcjax.models._base import WeightSource
from xmcjax.models._linear import LinearModel
from xmcjax.models._rows import checked_rows
from xmcjax.models._weights import Weights, parts, weights_of

# The most weights of a block of labels on the host.
_WEIGHTS = 1 << 24


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

    Labels are taken in blocks, so that memory holds X, one block of weights and the result; a model on disk
    is read once, in label order. Of equal scores the lower label ranks first. Labels without positives, and
    labels that a partial model lacks, are never predicted: where fewer than k labels remain, the slots left
    over hold label −1 and score −inf.

    On a CPU nothing is compiled, and JAX is not needed. If JAX has another default device, scores are
    computed there. The sparse weights of a model stay on that device for the next call as long as the model
    exists, if they take at most half of the free memory. On a CPU :class:`Predictor` keeps the weights.

    Args:
        model: a `LinearModel` or `ArrayModel`.
        X: features [n, d] after the model's transforms, sparse or dense.
        k: how many labels per row, at least 1.
        label_block: labels at a time; None chooses by memory.
        row_block: rows at a time on a device; None is 65,536, or fewer where memory is short.
        threads: of the native products; None takes one per core. The result does not depend on it.

    Returns:
        ``(labels, scores)``, int32 [n, k] and float [n, k]: float64 where both X and the model are
        float64 and, on a device, JAX is set to use it; else float32.

    Raises:
        ValueError: X of another width, not two-dimensional, malformed or not finite; k or a block below 1;
            on a device, a block of rows of 2³¹ entries.
        TypeError: X is no matrix of real numbers.
        RuntimeError: on a device, in a process that was forked from one in which JAX had computed.
        ModelFormatError: a damaged shard.

    Example:
        >>> from xmcjax.models import ArrayModel
        >>> model = ArrayModel(np.float32([[1, 0], [0, 1], [1, 1]]), np.float32([0, 0.5, -1]))
        >>> labels, scores = predict_topk(model, np.float32([[1, 0], [0, 2]]), 2)
        >>> labels.tolist()
        [[0, 1], [1, 2]]
    """
    k = whole_number("k", k, 1)
    _check_blocks(label_block, row_block)
    threads, X = thread_count(threads), _sparse.matrix(X)
    dtype = _dtype(model, X)
    X = checked_rows(X, model.n_features, dtype)
    if _on_a_device():
        from xmcjax.models import _device_prediction

        return _device_prediction.topk(model, X, k, dtype, label_block, row_block, threads)
    labels, scores = np.full((X.shape[0], k), -1, np.int32), np.full((X.shape[0], k), -np.inf, dtype)
    for first, weights in _on_the_host(model, label_block, X, dtype):
        weights.best(X, scores, labels, first, threads=threads)
    return labels, scores


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

    `xmcjax.metrics.label_precision_recall` takes them. Memory holds the result, X and a block of labels.

    Args:
        model, X, label_block, row_block, threads: as in `predict_topk`.
        threshold: scores must be larger, 0 by default; at least 0, because an absent entry of a
            sparse matrix reads as 0.

    Returns:
        CSR [n, L] of the scores above the threshold.

    Raises:
        ValueError: as in `predict_topk`; a negative threshold.

    Example:
        >>> from xmcjax.models import ArrayModel
        >>> model = ArrayModel(np.float32([[1, 0], [0, 1]]))
        >>> scores_above(model, np.float32([[2, -1]])).toarray().tolist()
        [[2.0, 0.0]]
    """
    if not number("threshold", threshold) >= 0:
        raise ValueError(f"threshold: expected at least 0, found {threshold}")
    _check_blocks(label_block, row_block)
    threads, X = thread_count(threads), _sparse.matrix(X)
    dtype = _dtype(model, X)
    X = checked_rows(X, model.n_features, dtype)
    if _on_a_device():
        from xmcjax.models import _device_prediction

        pieces = _device_prediction.scores(model, X, dtype, label_block, row_block, threads)
    else:
        pieces = _scores_on_the_host(model, X, label_block, threads, dtype)
    rows, labels, values = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, dtype)]
    for start, first, scores in pieces:
        # np.nonzero of a matrix takes several times as long as np.flatnonzero
        places = np.flatnonzero(scores > threshold)
        row, column = np.divmod(places, scores.shape[1])
        rows.append(start + row)
        labels.append(first + column)
        values.append(scores.ravel()[places])
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(labels)))
    return sp.csr_array(entries, shape=(X.shape[0], model.n_labels))


def decision_function(model: WeightSource, X, *, threads: int = 1) -> np.ndarray:
    """All scores z = x·w + b, [n, L], computed on the host; −inf for labels that are never predicted.

    Args:
        model: a `LinearModel` or `ArrayModel`.
        X: features [n, d] after the model's transforms, sparse or dense.
        threads: of the native products; None takes one per core. The result does not depend on it.

    Returns:
        float64 where X or the weights are float64, else float32.

    Raises:
        ValueError, TypeError, ModelFormatError: as :func:`predict_topk`.

    Example:
        >>> from xmcjax.models import ArrayModel
        >>> decision_function(ArrayModel(np.float32([[1, 0], [0, 1]])), np.float32([[1, 3]])).tolist()
        [[1.0, 3.0]]
    """
    threads, X = thread_count(threads), _sparse.matrix(X)
    dtype = np.result_type(X.dtype, model.dtype, np.float32)
    X = checked_rows(X, model.n_features, dtype)
    scores = np.full((X.shape[0], model.n_labels), -np.inf, dtype)
    for rows, first, found in _scores_on_the_host(model, X, None, threads, dtype):
        if found.shape == scores.shape:
            return found
        scores[rows : rows + len(found), first : first + found.shape[1]] = found
    return scores


def _check_blocks(label_block: int | None, row_block: int | None) -> None:
    for name, block in (("label_block", label_block), ("row_block", row_block)):
        if block is not None:
            whole_number(name, block, 1)


def _dtype(model: WeightSource, X) -> np.dtype:
    return np.dtype(np.float64 if X.dtype == np.float64 and model.dtype == np.float64 else np.float32)


def _on_a_device() -> bool:
    """Whether JAX is there and computes elsewhere than on the CPU."""
    if not hasattr(sys.modules.get("jax"), "default_backend"):
        return False
    from xmcjax._platform import default_platform

    return default_platform() != "cpu"


def _on_the_host(
    model: WeightSource, label_block: int | None, X, dtype: np.dtype
) -> Iterator[tuple[int, Weights]]:
    """(first label, weights) of each block of labels with one that was trained."""
    # dense rows have all features, so that one pass over the weights by label serves dozens of dense rows
    rows = X.shape[0] if sp.issparse(X) else 1
    lowest, end = model.label_range
    columns: UsedColumns | None = None
    size = label_block
    if size is None:
        of_a_label = model.n_features
        if isinstance(model, LinearModel):
            of_a_label = model.n_weights // max(1, end - lowest)
        elif isinstance(model, ArrayModel) and sp.issparse(model.coef()):
            of_a_label = model.coef().nnz // max(1, end - lowest)
        size = max(1, _WEIGHTS // max(1, of_a_label))
    for first in range(lowest, end, size):
        last = min(first + size, end)
        trained = model.trained(first, last)
        if not trained.any():
            continue
        coef, bias = _weights(model, first, last)
        bias = np.where(trained, bias, -np.inf).astype(dtype)
        # sparse rows need dense weights in another order; only the columns that these rows use are reordered
        if columns is None and not sp.issparse(coef) and coef.shape[0] > 1:
            columns = used_columns(X)
        yield first, weights_of(coef.astype(dtype, copy=False), bias, rows, columns)


def _weights(model: WeightSource, first: int, last: int) -> tuple[Any, np.ndarray]:
    """Weights [last − first, d], as CSR where the model stores them sparse, and biases."""
    if isinstance(model, (LinearModel, ArrayModel)):
        return model.weights(first, last), model.intercept_of(first, last)
    W, bias = model.dense_block(first, last)
    return W.T, bias


def _scores_on_the_host(
    model: WeightSource, X, label_block: int | None, threads: int, dtype: np.dtype
) -> Iterator[tuple[int, int, np.ndarray]]:
    """(first row, first label, scores) of every pair of a block of labels and a block of rows."""
    for first, weights in _on_the_host(model, label_block, X, dtype):
        for part in parts(X.shape[0], len(weights.bias)):
            yield part.start, first, weights.scores(weights.part(X, part), threads=threads)
