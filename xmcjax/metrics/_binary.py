"""Precision and recall of one-vs-all models as averages over the binary problems."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import number
from xmcjax.metrics._labels import as_label_matrix


class PrecisionRecall(NamedTuple):
    """Means over labels: ``precision`` and ``recall``, fractions of 1."""

    precision: float
    recall: float


def _mean_of_ratios(numerator: np.ndarray, denominator: np.ndarray, undefined: float | None) -> float:
    defined = denominator > 0
    ratios = np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=defined)
    if undefined is not None:
        return float(np.where(defined, ratios, undefined).mean())
    return float(ratios[defined].mean()) if defined.any() else 0.0


def label_precision_recall(
    Y_true, scores, threshold: float = 0.0, *, undefined: float | None = None
) -> PrecisionRecall:
    """Precision and recall of each label's binary problem, averaged over the labels.

    A label is predicted where its score exceeds the threshold. For label l, with the counts of
    true positives, false positives and false negatives over the rows,

    .. math:: prec_l = TP_l / (TP_l + FP_l), \\qquad rec_l = TP_l / (TP_l + FN_l).

    The first is undefined for a label that is never predicted, the second for one without a
    positive row. Such labels are left out of the mean concerned, unless ``undefined`` gives a
    value for them. (The paper below does not define this for its Table 4. The row of Amazon-670k,
    precision 82.0 at recall 17.6 with 1.2 positives per label in the test part, allows no other reading.)

    Args:
        Y_true: 0/1 label matrix [n, L], sparse or dense.
        scores: [n, L], dense or sparse; of sparse scores only the stored entries can be predicted.
            A 0/1 matrix of predicted labels serves too.
        threshold: a label is predicted where its score is larger, 0 by default (the decision
            boundary of one-vs-all).
        undefined: None (default) leaves undefined labels out; a number is used as their value.

    Returns:
        ``(precision, recall)``, each a fraction of 1; 0 where no label at all is defined.

    Raises:
        ValueError: shapes differ, nan scores, or a negative threshold with sparse scores (their
            absent entries have no score to compare).

    References:
        E. Schultheis, R. Babbar, Speeding-up one-versus-all training for extreme classification
        via mean-separating initialization, Machine Learning 2022, appendix, Table 4.

    Example:
        >>> Y, scores = [[1, 0], [1, 1], [0, 1]], np.array([[2.0, -1.0], [-1.0, 3.0], [-2.0, 1.0]])
        >>> label_precision_recall(np.array(Y), scores).recall
        0.75
    """
    Y = as_label_matrix(Y_true, "Y_true")
    scores, threshold = _sparse.matrix(scores, "scores"), number("threshold", threshold)
    if undefined is not None:
        undefined = number("undefined", undefined)
    if np.isnan(threshold):
        raise ValueError("threshold: expected a number, found nan")
    if sp.issparse(scores) and threshold < 0:
        raise ValueError(f"threshold: expected at least 0 with sparse scores, found {threshold}")
    if scores.shape != Y.shape:
        raise ValueError(f"scores: expected shape {Y.shape} as Y_true, found {scores.shape}")
    if np.isnan(scores.data if sp.issparse(scores) else scores).any():
        raise ValueError("scores: expected numbers, found nan")
    if sp.issparse(scores):
        predicted, both = _of_stored(scores, Y, threshold)
    else:
        above = scores > threshold
        predicted = np.count_nonzero(above, axis=0)
        rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        both = np.bincount(Y.indices[above[rows, Y.indices]], minlength=Y.shape[1])
    true = np.bincount(Y.indices, minlength=Y.shape[1])
    return PrecisionRecall(
        _mean_of_ratios(both, predicted, undefined), _mean_of_ratios(both, true, undefined)
    )


def _of_stored(scores, Y: sp.csr_array, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """The rows where each label is predicted, and those of them where it is true."""
    scores = _sparse.canonical_csr(scores, "scores")  # entries of one place added up
    above = scores.data > threshold
    indptr = np.concatenate([[0], np.cumsum(above)])[scores.indptr]
    predicted = sp.csr_array((above[above], scores.indices[above], indptr), shape=Y.shape)
    both = predicted.multiply(Y).tocsr()
    both.eliminate_zeros()
    of_predicted, of_both = (np.bincount(m.indices, minlength=Y.shape[1]) for m in (predicted, both))
    return of_predicted, of_both
