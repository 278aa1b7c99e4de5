"""Errors of a classifier that may refuse to answer (Seeger, 2006, figures 3 and 4)."""

from __future__ import annotations

import numpy as np

from xmcjax import _sparse
from xmcjax.metrics._labels import of_one_kind


def reject_curve(y_true, y_pred, confidence) -> np.ndarray:
    """Errors made on the kept rows over the number of all rows, as rows are added by falling confidence.

    Rows of equal confidence have no order among them: each adds the mean of their errors.

    Args:
        y_true: classes, [n].
        y_pred: classes, [n].
        confidence: [n], such as the probability of the predicted class.

    Returns:
        [n]: at place k − 1 the errors of the k most confident rows over n; the last is the error of all.

    Raises:
        TypeError: texts among the classes of one and numbers among those of the other, or classes of
            several kinds.
        ValueError: shapes that differ, no rows, or a class or a confidence that is nan.

    References:
        Seeger, 2006, section 8.1, note 11.

    Example:
        >>> reject_curve([0, 1, 1], [0, 1, 0], confidence=[0.9, 0.8, 0.4]).round(2).tolist()
        [0.0, 0.0, 0.33]
    """
    y_true, y_pred = _sparse.array(y_true, "y_true"), _sparse.array(y_pred, "y_pred")
    confidence = _sparse.numbers(confidence, "confidence")
    if (
        not y_true.ndim == y_pred.ndim == confidence.ndim == 1
        or not len(y_true) == len(y_pred) == len(confidence) > 0
    ):
        shapes = ", ".join(str(a.shape) for a in (y_true, y_pred, confidence))
        raise ValueError(f"expected classes, predictions and confidences [n], found shapes {shapes}")
    y_true, y_pred = of_one_kind(y_true, y_pred)
    if np.isnan(confidence).any():
        raise ValueError("confidence: expected numbers, found nan")
    wrong = (y_true != y_pred).astype(np.float64)
    _, group, count = np.unique(-confidence, return_inverse=True, return_counts=True)
    mean = np.bincount(group, wrong) / count
    return np.cumsum(np.repeat(mean, count)) / len(wrong)
