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
