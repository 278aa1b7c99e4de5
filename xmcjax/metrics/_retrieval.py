"""What a ranking finds: recall and coverage at k, F1 of the k best, and both by how frequent labels are.

Arguments, ties and errors are those of :mod:`xmcjax.metrics` at k; see :func:`xmcjax.metrics.precision_at_k`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import whole_number
from xmcjax.metrics._labels import Truth, as_truth, hits, top_k

# Most counters per entry with which labels are counted by their own numbers; beyond that they are sorted.
_APART = 8


def recall_at_k(Y_true, predictions, k: int) -> float:
    """Recall at k: the fraction of a row's true labels that are among the k best.

    .. math:: R@k = \\frac1n \\sum_i \\frac{\\sum_{l \\in \\mathrm{top}_k(i)} y_{il}}{|Y_i|}

    Returns:
        A fraction between 0 and 1; rows without labels count as 0.

    Example:
        >>> recall_at_k([[1, 0, 1], [0, 1, 0]], [[0], [1]], k=1)
        0.75
    """
    k = whole_number("k", k, 1)
    truth = as_truth(Y_true)
    found = hits(truth, top_k(predictions, truth, k)).sum(axis=1)
    return float(np.mean(found / np.maximum(truth.counts, 1)))


def coverage_at_k(Y_true, predictions, k: int) -> float:
    """Coverage at k: the fraction of the labels that occur which are found in a row at least once.

    Returns:
        A fraction between 0 and 1; 0 where no label occurs.

    Example:
        >>> coverage_at_k([[1, 0, 1], [0, 1, 0]], [[0], [0]], k=1)
        0.3333333333333333
    """
    hit, _, true = _by_label(Y_true, predictions, k)
    return float(np.count_nonzero(hit) / max(1, np.count_nonzero(true)))


def micro_f1_at_k(Y_true, predictions, k: int) -> float:
    """F1 over all (row, label) pairs together, where the k best labels of a row are the predicted ones.

    Returns:
        2 TP / (predicted + true), between 0 and 1; 0 where there is neither.

    Example:
        >>> micro_f1_at_k([[1, 0], [0, 1]], [[0], [0]], k=1)
        0.5
    """
    hit, predicted, true = map(len, _pairs(Y_true, predictions, k))
    return 2 * hit / max(1, predicted + true)


def macro_f1_at_k(Y_true, predictions, k: int) -> float:
    """The mean of the F1 of the labels, where the k best labels of a row are the predicted ones.

    Returns:
        A fraction between 0 and 1. Labels that neither occur nor are predicted are left out of the mean.

    Example:
        >>> macro_f1_at_k([[1, 0], [0, 1]], [[0], [1]], k=1)
        1.0
    """
    hit, predicted, true = _by_label(Y_true, predictions, k)
    return float(np.mean(2 * hit / (predicted + true))) if len(hit) else 0.0


class FrequencyBins(NamedTuple):
    """Metrics of labels in bins of their frequency, each [number of bins].

    Attributes:
        labels: how many labels there are in the bin.
        positives: how often they are true.
        precision: their part of P@k: these sum to P@k.
        recall: the fraction of these positives that are among the k best of their row; 0 without any.

    Example:
        >>> from xmcjax.metrics import by_frequency
        >>> found = by_frequency([[1, 0], [0, 1]], [[0], [0]], 1, frequencies=[9, 1], edges=[5])
        >>> found.labels.tolist(), found.precision.tolist()
        ([1, 1], [0.0, 0.5])
    """

    labels: np.ndarray
    positives: np.ndarray
    precision: np.ndarray
    recall: np.ndarray


def by_frequency(Y_true, predictions, k: int, *, frequencies, edges) -> FrequencyBins:
    """What is found of rare and of frequent labels.

    Args:
        Y_true, predictions, k: as in :func:`xmcjax.metrics.precision_at_k`.
        frequencies: how often each label occurs in the training data, [L].
        edges: ascending numbers e_1 < … < e_m: bin 0 has the labels with frequencies below e_1, bin i those
            from e_i to below e_{i+1}, bin m those from e_m on.

    Raises:
        TypeError, ValueError: as there; frequencies that are not one per label or are negative, or edges that
            do not ascend.

    Example:
        >>> Y, best = np.array([[1, 0, 1], [0, 1, 0]]), np.array([[0], [1]])
        >>> by_frequency(Y, best, 1, frequencies=[9, 2, 1], edges=[5]).recall.tolist()
        [0.5, 1.0]
    """
    k = whole_number("k", k, 1)
    truth = as_truth(Y_true)
    top = top_k(predictions, truth, k)
    frequencies, edges = _sparse.numbers(frequencies, "frequencies"), _sparse.numbers(edges, "edges")
    least = _n_labels(truth, top)
    known = truth.n_labels is not None  # in lists of label numbers, the last labels may not occur
    if frequencies.ndim != 1 or len(frequencies) < least or (known and len(frequencies) > least):
        raise ValueError(
            f"frequencies: expected one number per label, {least}{'' if known else ' or more'}, found shape "
            f"{list(frequencies.shape)}"
        )
    if not (np.isfinite(frequencies) & (frequencies >= 0)).all():
        raise ValueError("frequencies: expected finite numbers from 0, found others")
    if edges.ndim != 1 or not np.isfinite(edges).all() or not (edges[1:] > edges[:-1]).all():
        raise ValueError("edges: expected ascending numbers, found others")
    bin_of = np.searchsorted(edges, frequencies, side="right")
    size = len(edges) + 1
    hit = np.bincount(bin_of[top[hits(truth, top)]], minlength=size)
    positives = np.bincount(bin_of[truth.labels], minlength=size)
    return FrequencyBins(
        np.bincount(bin_of, minlength=size),
        positives,
        hit / (k * truth.n_rows),
        hit / np.maximum(positives, 1),
    )


def _n_labels(truth: Truth, top: np.ndarray) -> int:
    least = int(max(truth.labels.max(initial=-1), top.max(initial=-1))) + 1
    return least if truth.n_labels is None else max(least, truth.n_labels)


def _pairs(Y_true, predictions, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The labels of all hits, of all predictions and of all true (row, label) pairs."""
    k = whole_number("k", k, 1)
    truth = as_truth(Y_true)
    top = top_k(predictions, truth, k)
    return top[hits(truth, top)], top[top >= 0], truth.labels


def _by_label(Y_true, predictions, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(hits, rows where it is predicted, rows where it is true) of each label that is true or predicted."""
    pairs = _pairs(Y_true, predictions, k)
    size = max(int(labels.max(initial=-1)) for labels in pairs) + 1
    if size > _APART * sum(map(len, pairs)):
        # class numbers may be few and far apart, as hashes are: they are numbered anew
        known = np.unique(np.concatenate(pairs))
        pairs, size = tuple(np.searchsorted(known, labels) for labels in pairs), len(known)
    hit, predicted, true = (np.bincount(labels, minlength=size) for labels in pairs)
    some = predicted + true > 0
    return hit[some], predicted[some], true[some]
