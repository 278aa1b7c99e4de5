"""Label matrices and weights of rows that come from outside."""

from __future__ import annotations

from typing import Any

import numpy as np

from xmcjax import _sparse
from xmcjax._finite import place_not_finite


def label_matrix(Y) -> Any:
    """Y as checked CSR or an array, [n, L], of finite numbers."""
    Y = _sparse.matrix(Y, "Y")
    if Y.ndim != 2:
        raise ValueError(f"Y: expected a label matrix [n, L], got {Y.ndim} dimension(s)")
    place = place_not_finite(Y)
    if place is not None:
        row, label, value = place
        raise ValueError(f"Y: expected finite entries, found {value} in row {row}, label {label}")
    return Y


def row_weights(weight, n: int) -> np.ndarray:
    """Weights of rows, float64 [n]: ValueError where they are not finite or below 0, or of another shape."""
    weight = _sparse.numbers(weight, "weight")
    if weight.shape != (n,):
        raise ValueError(f"weight: expected [{n}], one for each row, got {list(weight.shape)}")
    if not (np.isfinite(weight) & (weight >= 0)).all():
        raise ValueError("weight: expected finite numbers of at least 0, found others")
    return weight
