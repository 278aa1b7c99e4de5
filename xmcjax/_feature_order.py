"""Weights of features that stand in another order, as the transform ``frequency`` puts them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse


def places_of(before: np.ndarray | None, after: np.ndarray | None) -> np.ndarray | None:
    """Where each feature of one order stands in another, [d]; None where all keep their places.

    Args:
        before, after: the raw feature of each feature, [d]; None for the order of the raw ones.

    Example:
        >>> places_of(np.array([2, 0, 1]), np.array([0, 1, 2])).tolist()
        [2, 0, 1]
    """
    if after is None:
        return before
    places = np.argsort(after)  # places of the raw features
    if before is not None:
        places = places[before]
    return None if np.array_equal(places, np.arange(len(places))) else places


def moved(weights: Any, places: np.ndarray | None) -> Any:
    """Weights [m, d], trusted CSR or an array, each at the place of its feature.

    Args:
        weights: of features in one order.
        places: of :func:`places_of`.

    Example:
        >>> moved(np.array([[5.0, 6.0, 7.0]]), np.array([2, 0, 1])).tolist()
        [[6.0, 7.0, 5.0]]
    """
    if places is None:
        return weights
    if not sp.issparse(weights):
        return weights[:, np.argsort(places)]
    indices = places[weights.indices].astype(weights.indices.dtype, copy=False)
    parts = weights.data.copy(), indices, weights.indptr  # which are sorted in place
    found = _sparse.trusted_csr(type(weights), parts, weights.shape)
    found.sort_indices()
    return found
