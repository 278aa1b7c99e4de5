"""Micro- and macro-averaged F1 of class vectors and label matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax.metrics._labels import as_label_matrix, of_one_kind

# Most counters per row with which classes that are whole numbers are counted without a sort.
_SPREAD = 4


def _is_matrix(y) -> bool:
    return _sparse.is_sparse(y) or y.ndim == 2


def _given(y_true, y_pred) -> tuple[Any, Any]:
    """Two label matrices, or two class vectors of one length and one dtype; at least one row."""
    y_true, y_pred = (
        y if _sparse.is_sparse(y) else _sparse.array(y, name)
        for y, name in ((y_true, "y_true"), (y_pred, "y_pred"))
    )
    if _is_matrix(y_true) != _is_matrix(y_pred):
        raise ValueError("expected two class vectors or two label matrices, found one of each")
    if _is_matrix(y_true):
        T, P = as_label_matrix(y_true, "y_true"), as_label_matrix(y_pred, "y_pred")
        if T.shape != P.shape:
            raise ValueError(f"y_pred: expected shape {T.shape} as y_true, found {P.shape}")
        if T.shape[0] == 0:
            raise ValueError("y_true: expected at least one row, found none")
        return T, P
    if y_true.ndim != 1 or y_true.shape != y_pred.shape:
        raise ValueError(
            f"expected two class vectors of one length, found shapes {y_true.shape}, {y_pred.shape}"
        )
    if len(y_true) == 0:
        raise ValueError("y_true: expected at least one row, found none")
    true, predicted = of_one_kind(y_true, y_pred)
    return true, predicted


def _counts(true, predicted) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each class or label: true positives, rows where it is true, rows where it is predicted.

    Classes that do not occur may be among them.
    """
    if sp.issparse(true):
        both = true.multiply(predicted).tocsr()
        both.eliminate_zeros()
        both, true, predicted, size = both.indices, true.indices, predicted.indices, true.shape[1]
    else:
        true, predicted, size = _places(true, predicted)
        both = true[true == predicted]
    both, true, predicted = (np.bincount(places, minlength=size) for places in (both, true, predicted))
    return both, true, predicted


def _places(true: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Class vectors of one dtype as whole numbers from 0 in the order of the classes, and their number."""
    if true.dtype.kind in "iub":
        least = int(min(true.min(), predicted.min()))
        size = int(max(true.max(), predicted.max())) + 1 - min(least, 0)
        if size <= _SPREAD * len(true):
            true, predicted = (y.astype(np.int64, copy=False) for y in (true, predicted))
            return (true, predicted, size) if least >= 0 else (true - least, predicted - least, size)
    # numbers or strings with gaps: by their place among those that occur
    classes, places = np.unique(np.concatenate([true, predicted]), return_inverse=True)
    return places[: len(true)], places[len(true) :], len(classes)


def micro_f1(y_true, y_pred) -> float:
    """F1 over all (row, label) pairs together: 2 TP / (2 TP + FP + FN).

    For class vectors, which have one class per row, this is the accuracy.

    Args:
        y_true: class vector [n] of numbers or strings, or 0/1 label matrix [n, L].
        y_pred: predictions of the same form.

    Returns:
        A fraction between 0 and 1; 0 where nothing is true and nothing predicted.

    Raises:
        TypeError: texts in one vector and numbers in the other, or classes of several kinds.
        ValueError: forms or shapes differ, there are no rows, or a class is nan.

    Example:
        >>> micro_f1([[1, 0], [1, 1]], [[1, 0], [0, 1]])
        0.8
    """
    true, predicted = _given(y_true, y_pred)
    if not sp.issparse(true) and true.dtype != object:  # an order of objects may be refused
        return float(np.count_nonzero(true == predicted) / len(true))
    both, true, predicted = _counts(true, predicted)
    total = true.sum() + predicted.sum()
    return float(2 * both.sum() / total) if total else 0.0


def macro_f1(y_true, y_pred) -> float:
    """F1 of each label, 2 TP / (2 TP + FP + FN), averaged over the labels with equal weight.

    The mean runs over all L columns of label matrices, and over the classes that occur in either
    vector; a label that is neither true nor predicted anywhere counts as 0. Both are scikit-learn's
    ``f1_score(average="macro", zero_division=0)``. Arguments and errors as in `micro_f1`.

    Returns:
        A fraction between 0 and 1.

    Example:
        >>> macro_f1([[1, 0], [1, 1]], [[1, 0], [1, 1]])
        1.0
    """
    true, predicted = _given(y_true, y_pred)
    vectors = not sp.issparse(true)
    both, true, predicted = _counts(true, predicted)
    total = true + predicted
    if vectors:
        both, total = both[total > 0], total[total > 0]
    f1 = np.divide(2.0 * both, total, out=np.zeros(len(total)), where=total > 0)
    return float(f1.mean()) if len(f1) else 0.0
