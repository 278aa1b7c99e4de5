"""Features that a model is to predict for."""

from __future__ import annotations

import numpy as np

from xmcjax import _sparse
from xmcjax._finite import place_not_finite


def checked_rows(X, n_features: int, dtype=None):
    """X as checked CSR or an array, [n, d]; CSR has the features of a row in ascending order, each once.

    Args:
        X: features, sparse or dense.
        n_features: d, of the model.
        dtype: of the result; None keeps that of X.

    Raises:
        TypeError: X is no matrix of real numbers.
        ValueError: X of another width, not two-dimensional, malformed, or not finite in that dtype.

    Example:
        >>> checked_rows([[1, 2]], 2, "float32").dtype
        dtype('float32')
    """
    X = _sparse.matrix(X)
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"X: expected {n_features} features as in the model, found shape {X.shape}")
    given = X
    if dtype is not None and X.dtype != dtype:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            X = X.astype(dtype)
    X = _sparse.canonical_csr(X) if _sparse.is_sparse(X) else X
    place = place_not_finite(X)
    if place is not None:
        row, column, value = place
        if np.isfinite(given[row, column]):
            raise ValueError(
                f"X: expected features in the range of {np.dtype(dtype)}, as the model has them, found "
                f"{given[row, column]} in row {row}, column {column}"
            )
        raise ValueError(f"X: expected finite features, found {value} in row {row}, column {column}")
    return X
