"""Features that a model is to predict for."""

from __future__ import annotations

from xmcjax import _sparse
from xmcjax._finite import place_not_finite


def checked_rows(X, n_features: int):
    """X as checked CSR or an array, [n, d].

    Args:
        X: features, sparse or dense.
        n_features: d, of the model.

    Raises:
        TypeError: X is no matrix of real numbers.
        ValueError: X of another width, not two-dimensional, malformed or not finite.
    """
    X = _sparse.matrix(X)
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"X: expected {n_features} features as in the model, found shape {X.shape}")
    place = place_not_finite(X)
    if place is not None:
        row, column, value = place
        raise ValueError(f"X: expected finite features, found {value} in row {row}, column {column}")
    return X
