"""Whether numbers are those of a dtype: beyond its range they would turn into 0 or infinity."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

# Numbers of an array whose squares stay in a cache.
_NUMBERS_AT_ONCE = 1 << 17


def check_range(what: str, values, dtype) -> None:
    """Raises ValueError, `what` and the limits, where a value is not a positive normal number of `dtype`."""
    values, low, high = np.asarray(values), np.finfo(dtype).tiny, np.finfo(dtype).max
    outside = values[~((values >= low) & (values <= high))]
    if outside.size:
        raise ValueError(
            f"{what} from {low:.3g} to {high:.3g}, the range of {np.dtype(dtype)}, got {outside.flat[0]}"
        )


def check_squared_norms(values) -> None:
    """Raises ValueError, which names the first row, where ‖x_i‖² [n] is not finite."""
    values = np.asarray(values)
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        what = f"rows whose squared norm is a finite {values.dtype}"
        raise ValueError(f"expected {what}, which that of row {wrong[0]} is not")


def largest(X) -> float:
    """The largest |x| of features [n, d], CSR or an array; no copy of them is made. 0 where there is none."""
    values = X.data if sp.issparse(X) else X
    return max(abs(float(values.max(initial=0))), abs(float(values.min(initial=0))))


def squared_norms(X, dtype=None) -> np.ndarray:
    """‖x_i‖², [n], of the rows of a CSR matrix or an array, in the dtype given or its own.

    Some rows are squared at once, so that no copy of X is made.
    """
    dtype = X.dtype if dtype is None else np.dtype(dtype)
    if sp.issparse(X):  # scipy's power and multiply would sort the entries
        found, rows = np.zeros(X.shape[0], dtype), max(X.shape[0] * _NUMBERS_AT_ONCE // max(X.nnz, 1), 1)
        for first in range(0, len(found), rows):
            offsets = X.indptr[first : first + rows + 1]
            squares = np.square(X.data[offsets[0] : offsets[-1]], dtype=dtype, casting="unsafe")
            filled = np.diff(offsets) > 0
            if filled.any():  # a sum ends where the next row with entries begins
                begins = offsets[:-1][filled] - offsets[0]
                found[first : first + rows][filled] = np.add.reduceat(squares, begins)
        return found
    found, rows = np.empty(len(X), dtype), max(_NUMBERS_AT_ONCE // max(X.shape[1], 1), 1)
    for first in range(0, len(X), rows):
        A = X[first : first + rows].astype(dtype, copy=False)
        np.einsum("ij,ij->i", A, A, out=found[first : first + rows])
    return found


def largest_norm(X) -> float:
    """The largest ‖x_i‖ of features [n, d], CSR or an array, in float64; 0 where there is none."""
    return float(np.sqrt(squared_norms(X, np.float64).max(initial=0.0)))


def check_norms(X, dtype) -> None:
    """Raises ValueError, which names the first row, where ‖x_i‖² is not finite in `dtype`.

    Args:
        X: finite features [n, d], CSR or an array.
        dtype: float32 or float64, which training works with.
    """
    size = largest(X)
    if size * size * X.shape[1] <= float(np.finfo(dtype).max):
        return
    with np.errstate(over="ignore"):  # an overflow is what is looked for
        check_squared_norms(squared_norms(X, dtype))
