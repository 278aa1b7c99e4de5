"""What is refused before a matrix of features reaches a solver."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse


def check_features(X) -> None:
    """Raises ValueError naming the first value of X that is not finite, or what is malformed in X."""
    X = _sparse.matrix(X)
    values = X.data if sp.issparse(X) else X
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


def check_operator(op) -> None:
    """Raises TypeError where features are not an operator, such as a matrix that no one has checked."""
    if not hasattr(op, "matmat"):
        raise TypeError(f"expected features of xmcjax.linops.make, got {type(op).__name__}")


def canonical_csr(X):
    """A matrix of scipy.sparse, of any kind, as checked CSR whose rows have each column once, in order.

    Raises:
        TypeError, ValueError: as :func:`xmcjax._sparse.csr`; more rows or columns than 32 bits number.
    """
    X = _sparse.canonical_csr(X)  # the squares of duplicates are not the square of their sum
    for many, what in zip(X.shape, ("rows", "columns"), strict=True):
        if many > np.iinfo(np.int32).max:
            raise ValueError(f"expected at most 2^31-1 {what}, got {many}")
    return X
