"""Weights dropped as far as the objective of their label rises by no more than a given part.

dismecpp's ``--sparsify``: the cutoff is found label by label, from what it costs, where ``clip`` is one
number for all.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax.losses import MarginLoss
from xmcjax.penalties import Penalty

# Weights that the search looks at first; it doubles them until the objective is low enough.
FEW = 32
# The search ends when it knows the number of weights up to this part.
RESOLUTION = 64


class Sparsifier:
    """Finds how few of the largest weights keep f(w) ≤ (1 + rise) f.

    From the largest weight down: margins of the weights kept so far are carried along, so that a
    label costs about twice the entries of the columns that it keeps, and no product with X.

    Args:
        X: features, CSR or dense [n, d].
        loss: φ.
        penalty: R.
        weight: C s of the rows, [1] or [n].
        l2_bias: of the bias, 1, or 0 where it is not regularised.
        rise: the part.
    """

    def __init__(
        self, X: Any, loss: MarginLoss, penalty: Penalty, weight: np.ndarray, l2_bias: float, rise: float
    ):
        self._columns = sp.csc_array(X) if sp.issparse(X) else X
        self._loss, self._penalty, self._weight = loss, penalty, weight
        self._l2_bias, self._rise = l2_bias, rise

    def kept(
        self, w: np.ndarray, bias: float, value: float, positives: np.ndarray, positive=1.0, negative=1.0
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
        y = np.full(n, -1, w.dtype)
        y[positives] = 1
        c = np.broadcast_to(self._weight, n) * np.where(y > 0, positive, negative)
        # R of the k largest weights
        of_weights = np.asarray(self._penalty.value(jnp.asarray(w[order])), np.float64)
        regularisers = np.concatenate([[0.0], np.cumsum(of_weights)])
        regularisers += self._l2_bias * float(self._penalty.value(jnp.asarray(bias, w.dtype)))
        bound = (1 + self._rise) * value

        def margins(z, first, last):  # with the weights from the first to the last added
            more = order[first:last]
            return z + self._columns[:, more] @ w[more].astype(np.float64)

        def enough(z, count):
            losses = np.asarray(_losses(self._loss, jnp.asarray(z, w.dtype), y), np.float64)
            return c @ losses + regularisers[count] <= bound

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


@functools.partial(jax.jit, static_argnames=("loss",))
def _losses(loss: MarginLoss, z, y):
    return loss.score_value(z, y)
