"""Label matrices as targets of estimators that rank the labels of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax.estimators._inputs import checked_targets, checked_truth


def are_labels(y: Any) -> bool:
    """Whether y, as it was checked, is a label matrix rather than a class vector."""
    return sp.issparse(y) or (np.ndim(y) == 2 and np.shape(y)[1] > 1)


class BestLabelScore:
    """``score`` of a classifier that takes class vectors and label matrices."""

    #: whether it takes label matrices
    _takes_labels = True

    def score(self: Any, X, y, sample_weight=None) -> float:
        """The share of rows that are predicted right; with a label matrix, that have the label predicted.

        Args:
            X: finite features [n, d], sparse or dense.
            y: classes [n]; or, as in ``fit``, a label matrix [n, L], sparse or dense.
            sample_weight: weights of the rows, [n]; None for equal ones.

        Raises:
            TypeError, ValueError: as for :meth:`predict`; y of another length or kind, of another number of
                labels, or of others than 0 and 1; of a label matrix weights that ``fit`` does not take.
        """
        from xmcjax.lanes import check_sample_weight

        if self._takes_labels:
            y = checked_targets(y)
        if not (self._takes_labels and are_labels(y)):
            return super().score(X, y, sample_weight)  # type: ignore[misc]  # of the classifier
        Y = sp.csr_array(checked_truth(y, len(self.classes_)))
        best = np.searchsorted(self.classes_, self.predict_topk(X, 1)[0][:, 0])
        if Y.shape != (len(best), len(self.classes_)):
            wanted = [len(best), len(self.classes_)]
            raise ValueError(f"y: expected a label matrix {wanted}, found shape {list(Y.shape)}")
        hits = np.asarray(Y[np.arange(len(best)), best]).ravel() != 0
        weight = None if sample_weight is None else check_sample_weight(sample_weight, len(best))
        return float(np.average(hits, weights=weight))


def one_label_a_row(
    X: Any, Y: sp.csr_array, sample_weight: np.ndarray | None
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Repeats each row for each of its labels, with an equal share of its weight, for the softmax:

        (1/|Y|) Σ_{j ∈ Y} (log Σ_k e^{z_k} − z_j)

    is the multi-label cross-entropy of a row (Lapin, Hein, Schiele 2018, LR^ML). Rows without labels, whose
    loss is 0, are left out.

    Args:
        X: features [n, d], CSR or an array.
        Y: labels [n, L]; a stored value that is not 0 is a label.
        sample_weight: s ≥ 0, [n]; None for ones.

    Returns:
        The rows of X, the label of each, and their weights.

    Raises:
        ValueError: fewer than two labels have a row of weight above 0.
    """
    Y = _sparse.canonical_csr(Y, "y", zeros=False)
    counts = np.diff(Y.indptr)
    rows = np.repeat(np.arange(Y.shape[0]), counts)
    weight = 1.0 / counts[rows]
    if sample_weight is not None:
        weight = weight * sample_weight[rows]
    present = len(np.unique(Y.indices[weight > 0]))
    if present < 2:
        raise ValueError(f"y: expected rows of at least two labels, found {present} with a row that counts")
    return X[rows], Y.indices.astype(np.int64), weight
