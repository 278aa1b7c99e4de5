"""The density of a model: how many of its weights clipping has left."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse


def density(weights) -> float:
    """The fraction of weights that are not zero; biases are stored separately and do not count.

    Args:
        weights: a weight matrix of any orientation, sparse or dense, or a model with a
            ``density()`` of its own, such as `xmcjax.models.LinearModel`.

    Returns:
        A fraction between 0 and 1 (0 for a matrix without elements).

    Raises:
        TypeError: weights that are no real numbers.
        ValueError: a malformed matrix, or weights that are not finite.

    Example:
        >>> density([[0.0, 1.0], [0.0, 0.0]])
        0.25
    """
    if hasattr(weights, "density") and not sp.issparse(weights):
        return float(weights.density())
    if _sparse.is_sparse(weights):
        # stored zeros are no weights
        weights = _sparse.canonical_csr(weights, "weights", zeros=False)
        nonzero, size = weights.nnz, weights.shape[0] * weights.shape[1]
    else:
        weights = _sparse.matrix(weights, "weights")
        nonzero, size = np.count_nonzero(weights), weights.size
    if not np.isfinite(weights.data if sp.issparse(weights) else weights).all():
        raise ValueError("weights: expected finite numbers, found NaN or infinity")
    return float(nonzero / size) if size else 0.0
