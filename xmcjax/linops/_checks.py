"""What is refused before a matrix of features reaches a solver."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def check_features(X) -> None:
    """Raises ValueError naming the first value of X that is not finite."""
    values = X.data if sp.issparse(X) else np.asarray(X)
    # one number says it for all: NaN and infinities survive a sum, whose overflow does not matter
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return
    finite = np.isfinite(values)
    if finite.all():
        return
    at = int(np.flatnonzero(~finite.ravel())[0])
    if sp.issparse(X):
        row = int(np.searchsorted(X.indptr, at, side="right")) - 1
        column, value = int(X.indices[at]), X.data[at]
    else:
        row, column = (int(i) for i in np.unravel_index(at, values.shape))
        value = values[row, column]
    found = "NaN" if np.isnan(value) else value
    raise ValueError(f"expected finite features, found {found} in row {row}, column {column} of X")


def checked_csr(X):
    """A scipy.sparse matrix as CSR, its indices looked at.

    scipy takes any, until it is asked; its own functions and the kernels would follow them out of the
    arrays.

    Raises:
        ValueError: indices beyond the matrix, or rows that end before they begin.
    """
    X = X.tocsr()
    X.check_format(full_check=True)
    return X


def canonical_csr(X):
    """A scipy.sparse matrix as CSR whose rows have each column once, in order.

    Raises:
        ValueError: indices beyond the matrix, or more rows or columns than 32 bits number.
    """
    X = checked_csr(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()  # their squares are not the square of their sum
    for many, what in zip(X.shape, ("rows", "columns"), strict=True):
        if many > np.iinfo(np.int32).max:
            raise ValueError(f"expected at most 2^31-1 {what}, got {many}")
    return X
