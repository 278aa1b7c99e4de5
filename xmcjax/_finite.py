"""Where a matrix has a number that it may not have."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def place_not_finite(X) -> tuple[int, int, Any] | None:
    """Row, column and value of the first number that is NaN or infinite; None where there is none.

    Args:
        X: checked CSR, or an array [n, d].
    """
    values = X.data if sp.issparse(X) else X
    if values.dtype.kind in "biu":
        return None
    # one number says it for all: NaN and infinities survive a sum, whose overflow does not matter
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return None
    return first_place(X, ~np.isfinite(values))


def first_place(X, wrong: np.ndarray) -> tuple[int, int, Any] | None:
    """Row, column and value of the first number that is marked; None where none is.

    Args:
        X: checked CSR, or an array [n, d].
        wrong: marks of the numbers that are stored, bool.
    """
    if not wrong.any():
        return None
    at = int(np.argmax(wrong))
    if sp.issparse(X):
        return int(np.searchsorted(X.indptr, at, side="right")) - 1, int(X.indices[at]), X.data[at]
    row, column = divmod(at, X.shape[1])
    return row, column, X[row, column]
