"""Micro- and macro-averaged F1 of class vectors and label matrices."""

from __future__ import annotations

import numpy as np

from xmcjax import _sparse
from xmcjax.metrics._labels import as_label_matrix, of_one_kind


def _is_matrix(y) -> bool:
    return _sparse.is_sparse(y) or y.ndim == 2


def _counts(y_true, y_pred) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each class or label: true positives, rows where it is true, rows where it is predicted."""
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
        both = T.multiply(P).tocsr()
        both.eliminate_zeros()
        size = T.shape[1]
        return (
            np.bincount(both.indices, minlength=size),
            np.bincount(T.indices, minlength=size),
            np.bincount(P.indices, minlength=size),
        )
    if y_true.ndim != 1 or y_true.shape != y_pred.shape:
        raise ValueError(
            f"expected two class vectors of one length, found shapes {y_true.shape}, {y_pred.shape}"
        )
    if len(y_true) == 0:
        raise ValueError("y_true: expected at least one row, found none")
    # Classes may be numbers or strings, with gaps: count by their place among those that occur.
    classes, places = np.unique(np.concatenate(of_one_kind(y_true, y_pred)), return_inverse=True)
    true, predicted = places[: len(y_true)], places[len(y_true) :]
    size = len(classes)
    return (
        np.bincount(true[true == predicted], minlength=size),
        np.bincount(true, minlength=size),
        np.bincount(predicted, minlength=size),
    )


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
    both, true, predicted = _counts(y_true, y_pred)
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
    both, true, predicted = _counts(y_true, y_pred)
    total = true + predicted
    f1 = np.divide(2.0 * both, total, out=np.zeros(len(total)), where=total > 0)
    return float(f1.mean()) if len(f1) else 0.0
