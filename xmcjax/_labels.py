"""Label matrices that come from outside."""

from __future__ import annotations

from typing import Any

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
