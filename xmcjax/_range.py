"""Whether numbers are those of a dtype: beyond its range they would turn into 0 or infinity."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


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


def squared_norms(X) -> np.ndarray:
    """‖x_i‖², [n], of the rows of a CSR matrix or an array, in its dtype."""
    if sp.issparse(X):  # scipy's power and multiply would sort the entries
        return np.asarray(sp.csr_array((X.data * X.data, X.indices, X.indptr), shape=X.shape).sum(axis=1))
    return (X * X).sum(axis=1)


def check_norms(X, dtype) -> None:
    """Raises ValueError, which names the first row, where ‖x_i‖² is not finite in `dtype`.

    Args:
        X: finite features [n, d], CSR or an array.
        dtype: float32 or float64, which training works with.
    """
    size = largest(X)
    if size * size * X.shape[1] <= float(np.finfo(dtype).max):
        return
    with np.errstate(over="ignore"):  # which is what is looked for
        check_squared_norms(squared_norms(X.astype(dtype)))
