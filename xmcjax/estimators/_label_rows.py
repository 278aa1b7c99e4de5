"""Rows with several labels as rows with one each, for the cross-entropy of the softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse


def one_label_a_row(
    X: Any, Y: sp.csr_array, sample_weight: np.ndarray | None
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Repeats each row for each of its labels, with an equal share of its weight:

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
