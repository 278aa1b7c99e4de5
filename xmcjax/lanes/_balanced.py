"""Weights by which the rows with a label and those without it count as much as each other."""

from __future__ import annotations

import numpy as np

from xmcjax._labels import label_matrix
from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._training_data import check_sample_weight, label_columns


def balanced_weights(Y, sample_weight: np.ndarray | None = None) -> LabelWeights:
    """a_l = n / 2 n_l and b_l = n / 2 (n − n_l), where n_l of the n rows have the label l.

    Rows are counted with their sample weights; a_l and b_l are 1 for a label that no row or every row has.

    Args:
        Y: labels, scipy.sparse or an array [n, L]; every stored non-zero is a label.
        sample_weight: s ≥ 0, [n]; None for ones.

    Raises:
        TypeError, ValueError: Y is no matrix of numbers; weights of another shape, negative or not finite.

    Example:
        >>> balanced_weights(np.array([[1, 1], [1, 0], [1, 0], [1, 0]])).positive.tolist()
        [1.0, 2.0]
    """
    Y = label_columns(label_matrix(Y))
    s = np.ones(Y.shape[0]) if sample_weight is None else check_sample_weight(sample_weight, Y.shape[0])
    label = np.repeat(np.arange(Y.shape[1]), np.diff(Y.indptr))
    having, total = np.bincount(label, s[Y.indices], minlength=Y.shape[1]), float(s.sum())
    both = (having > 0) & (having < total)
    positive, negative = np.ones(Y.shape[1]), np.ones(Y.shape[1])
    positive[both] = total / (2 * having[both])
    negative[both] = total / (2 * (total - having[both]))
    return LabelWeights(positive, negative)
