"""Pictures of the weights of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xmcjax import _sparse
from xmcjax.plots._axes import counts_on, given_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# How many labels' weights are read at a time.
_BLOCK = 4096


def model_density(model, *, ax: Axes | None = None) -> Axes:
    """The number of non-zero weights of each label, the labels with the most first.

    Args:
        model: an estimator that has ``coef_``, a :class:`xmcjax.models.LinearModel`, or weights [L, d],
            sparse or dense.
        ax: axes of matplotlib; None for new ones.

    Raises:
        TypeError, ValueError: neither a model nor a matrix.
        ImportError: matplotlib is missing.

    Example:
        >>> model_density([[0.0, 1.0], [2.0, 1.0]]).get_ylabel()
        'weights that are not zero'
    """
    counts = np.sort(_nonzeros(model))[::-1]
    ax = given_or_new(ax)
    ax.plot(np.arange(1, len(counts) + 1), np.maximum(counts, 0.5))
    ax.set(xscale="log", yscale="log", xlabel="label, by its number of weights")
    counts_on(ax.xaxis)
    counts_on(ax.yaxis)
    ax.set_ylabel("weights that are not zero")
    return ax


def _nonzeros(model) -> np.ndarray:
    """The number of non-zero weights of each label, [L]."""
    if hasattr(model, "label_range"):
        first, last = model.label_range
        blocks = [model.weights(k, min(k + _BLOCK, last)) for k in range(first, last, _BLOCK)]
        return np.concatenate([np.zeros(0, np.int64), *(np.diff(block.indptr) for block in blocks)])
    coef = _sparse.matrix(getattr(model, "coef_", model), "model")
    return np.asarray((coef != 0).sum(axis=1)).ravel()
