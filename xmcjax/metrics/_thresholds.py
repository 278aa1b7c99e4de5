"""The threshold of each label that has the best F1 on held-out rows.

Z. C. Lipton, C. Elkan and B. Naryanaswamy, "Optimal thresholding of classifiers to maximize F1 measure",
2014.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax.metrics._labels import as_label_matrix, check_numbers, stored_once

# Most scores whose thresholds are found at a time.
_BLOCK = 1 << 18


def f1_thresholds(Y_true, predictions) -> np.ndarray:
    """The least score with which each label is predicted, so that its F1 on these rows is largest.

    A row is predicted to have a label where its score is at least the threshold, and F1 is
    2 TP / (2 TP + FP + FN). Of equal F1 the largest threshold is taken, which predicts the fewest rows. It
    lies in the middle between the last score that is above it and the next one below, or at the last score
    where there is none below. A label that no row has, or of which no row that has it has a score, has the
    threshold +∞: it is never predicted, and its F1 is 0 with any threshold.

    Args:
        Y_true: 0/1 labels of the held-out rows, [n, L], sparse or dense.
        predictions: scores [n, L]; −∞ is none, and of sparse ones only stored entries are predictions.

    Returns:
        float64 [L].

    Raises:
        TypeError: no matrices of numbers.
        ValueError: shapes that differ, no rows, scores that are NaN or stored twice, labels other than 0
            and 1.

    Example:
        >>> Y = [[1, 0], [1, 0], [0, 0], [1, 0]]
        >>> f1_thresholds(Y, np.array([[0.9, 1.0], [0.5, 1.0], [0.3, 1.0], [-2.0, 1.0]])).tolist()
        [-2.0, inf]
    """
    Y, scores = _pairs(Y_true, predictions)
    n_labels = Y.shape[1]
    # the stored scores label by label, as their places among those row by row
    places = sp.csr_array((np.arange(scores.nnz), scores.indices, scores.indptr), shape=scores.shape).tocsc()
    begin, true = places.indptr.astype(np.int64), _true(Y, scores)
    counts = np.bincount(Y.indices, minlength=n_labels)
    found = np.full(n_labels, np.inf)
    # labels that may have a threshold, some at a time, so that the arrays stay small
    possible = np.flatnonzero((counts > 0) & (begin[1:] > begin[:-1]))
    sizes = begin[possible + 1] - begin[possible]
    for labels, of in _blocks(possible, sizes):
        at = places.data[np.repeat(begin[labels] - np.cumsum(of) + of, of) + np.arange(of.sum())]
        found[labels] = _best(scores.data[at], true[at], of, counts[labels])
    return found


def above_thresholds(predictions, thresholds) -> sp.csr_array:
    """The labels of each row whose score is at least the threshold of the label.

    Args:
        predictions: scores [n, L]; of sparse ones only stored entries are predictions.
        thresholds: of each label, [L]; +∞ for labels that are never predicted.

    Returns:
        A 0/1 label matrix, CSR [n, L].

    Raises:
        TypeError: no numbers.
        ValueError: scores or thresholds that are NaN; another number of thresholds; a score stored twice.

    Example:
        >>> above_thresholds(np.array([[0.9, 1.0], [0.1, 0.2]]), [0.5, 0.2]).toarray().tolist()
        [[1, 1], [0, 1]]
    """
    scores = _stored(_sparse.matrix(predictions, "predictions"))
    limits = _sparse.numbers(thresholds, "thresholds")
    if limits.shape != (scores.shape[1],):
        raise ValueError(f"thresholds: expected {scores.shape[1]} numbers, one a label, found {limits.shape}")
    if np.isnan(limits).any():
        raise ValueError(f"thresholds: expected numbers, found nan for label {np.isnan(limits).argmax()}")
    kept = scores.data >= limits[scores.indices]
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))[kept]
    entries = np.ones(len(rows), np.int64), (rows, scores.indices[kept])
    return sp.csr_array(entries, shape=scores.shape)


def _blocks(labels: np.ndarray, sizes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Labels some at a time with the numbers of their scores, at most _BLOCK in all or one label."""
    last = np.cumsum(sizes)
    first, before = 0, 0
    while first < len(labels):
        end = max(first + 1, int(np.searchsorted(last, before + _BLOCK, side="right")))
        yield labels[first:end], sizes[first:end]
        first, before = end, int(last[end - 1])


def _best(z: np.ndarray, true: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The thresholds of some labels.

    Args:
        z: their scores, label after label.
        true: whether the rows of these have the label.
        sizes: scores of each label, at least one.
        counts: rows that have it, with and without a score.
    """
    end = np.cumsum(sizes)
    begin = end - sizes
    label = np.repeat(np.arange(len(sizes)), sizes)
    if (sizes == sizes[0]).all():
        order = (np.argsort(-z.reshape(len(sizes), -1), axis=1) + begin[:, None]).ravel()
    else:
        order = np.lexsort((-z, label))
    z, hits = z[order], np.cumsum(true[order])
    hits -= np.repeat(np.where(begin > 0, hits[begin - 1], 0), sizes)
    place = np.arange(len(z))
    f1 = 2 * hits / (place - begin[label] + 1 + counts[label])
    cut = np.append(z[1:] < z[:-1], True)  # equal scores are predicted together
    cut[end - 1] = True
    f1[~cut] = -1
    most = np.maximum.reduceat(f1, begin)
    last = np.minimum.reduceat(np.where(f1 == most[label], place, len(z)), begin)  # the first of equal ones
    least, following = z[last], z[np.minimum(last + 1, end - 1)]
    middle = least / 2 + following / 2
    limit = np.where((following < middle) & (middle <= least), middle, least)
    return np.where(most > 0, limit, np.inf)


def _stored(scores) -> sp.csr_array:
    """Scores as CSR with an entry for each that is a prediction."""
    if not sp.issparse(scores):
        if scores.ndim != 2:
            raise ValueError(
                f"predictions: expected scores [n, L], found {scores.dtype} {list(scores.shape)}"
            )
        n, n_labels = scores.shape
        indices = np.tile(np.arange(n_labels), n)
        scores = sp.csr_array(
            (scores.ravel(), indices, n_labels * np.arange(n + 1)),
            shape=(n, n_labels),
        )
    else:
        scores = stored_once(scores)
    if scores.dtype.kind not in "iuf":
        raise ValueError(f"predictions: expected scores [n, L], found {scores.dtype} {list(scores.shape)}")
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)  # so that −z reverses the order
    check_numbers(scores)
    kept = scores.data != -np.inf
    if kept.all():
        return scores
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))[kept]
    return sp.csr_array((scores.data[kept], (rows, scores.indices[kept])), shape=scores.shape)


def _pairs(Y_true, predictions) -> tuple[sp.csr_array, sp.csr_array]:
    Y, scores = as_label_matrix(Y_true, "Y_true"), _stored(_sparse.matrix(predictions, "predictions"))
    if Y.shape != scores.shape:
        raise ValueError(f"predictions: expected shape {Y.shape} as Y_true, found {scores.shape}")
    if not Y.shape[0]:
        raise ValueError("Y_true: expected at least one row, found none")
    return Y, scores


def _true(Y: sp.csr_array, scores: sp.csr_array) -> np.ndarray:
    """Whether the row of each stored score has its label."""
    n, n_labels = Y.shape
    keys = np.repeat(np.arange(n), np.diff(scores.indptr)) * n_labels + scores.indices
    wanted = np.repeat(np.arange(n), np.diff(Y.indptr)) * n_labels + Y.indices
    place = np.searchsorted(keys, wanted)
    there = place < len(keys)
    there[there] = keys[place[there]] == wanted[there]
    true = np.zeros(len(keys), bool)
    true[place[there]] = True
    return true
