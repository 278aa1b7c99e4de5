"""Weights dropped as far as the objective of their label rises by no more than a given part.

This is dismecpp's ``--sparsify``: the cutoff is found for each label, by the rise that it costs, whereas
``clip`` is one number for all labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax.lanes._objective import Objective

# Number of weights that the search tries first; it doubles it until the objective is low enough.
FEW = 32
# The search ends when it knows the number of weights up to 1/RESOLUTION of it.
RESOLUTION = 64


class Sparsifier:
    """Finds how few of the largest weights keep f(w) ≤ (1 + rise) f.

    Weights are added from the largest down, and the margins of those kept so far are carried along, so that
    a label costs about twice the entries of the columns that it keeps, and no product with X.

    Args:
        X: features, CSR or dense [n, d].
        objective: f.
        rise: the largest rise of f, relative to f.
    """

    def __init__(self, X: Any, objective: Objective, rise: float):
        self._columns = sp.csc_array(X) if sp.issparse(X) else X
        self._objective, self._rise = objective, rise

    def kept(
        self,
        w: np.ndarray,
        bias: float,
        value: float,
        positives: np.ndarray,
        positive: float,
        negative: float,
    ) -> np.ndarray:
        """The features whose weights are kept, ascending.

        Args:
            w, bias: the solution, [d].
            value: f there.
            positives: rows with the label.
            positive, negative: weights of the rows with and without it.
        """
        nonzero = np.flatnonzero(w)
        order = nonzero[np.argsort(-np.abs(w[nonzero]), kind="stable")]
        n = self._columns.shape[0]
        y, c = self._objective.targets(positives, positive, negative, w.dtype)
        # R of the k largest weights
        regularisers = np.concatenate([[0.0], np.cumsum(self._objective.of_weights(w)[order])])
        regularisers += self._objective.of_bias(bias, w.dtype)
        bound = (1 + self._rise) * value

        def margins(z, first, last):  # with the weights from the first to the last added
            more = order[first:last]
            return z + self._columns[:, more] @ w[more].astype(np.float64)

        def enough(z, count):
            return self._objective.losses(z, y, c) + regularisers[count] <= bound

        lower, z = 0, np.full(n, float(bias))  # too few
        if enough(z, 0):
            return order[:0]
        upper = FEW
        while upper < len(order):
            longer = margins(z, lower, upper)
            if enough(longer, upper):
                break
            lower, z, upper = upper, longer, 2 * upper
        upper = min(upper, len(order))
        while upper - lower > max(1, upper // RESOLUTION):
            middle = (lower + upper) // 2
            longer = margins(z, lower, middle)
            if enough(longer, middle):
                upper = middle
            else:
                lower, z = middle, longer
        return np.sort(order[:upper])
