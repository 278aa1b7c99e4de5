"""What prediction needs of a model: blocks of dense weights, however they are stored."""

from __future__ import annotations

import numbers
from typing import Protocol

import numpy as np

from xmcjax import _sparse

# The status of a label that the directory does not hold (yet). In `xmcjax.solvers.Status` −1 means a lane
# that has not taken a step.
NOT_STORED = -1
# Members of `xmcjax.solvers.Status`, repeated here so that reading a model does not import the solvers.
NONFINITE = 4
NO_POSITIVES = 5
# The statuses that a stored label may have; −1 occurs in a part of a model that was loaded and saved again.
# A new member of `xmcjax.solvers.Status` needs a new version of the format.
STATUSES = range(-1, 7)


class WeightSource(Protocol):
    """Linear weights that can be read in blocks of labels.

    Attributes:
        n_labels: L.
        n_features: d, without the bias.
        dtype: float32 or float64.
        label_range: (first, one past the last) label that there are weights for.

    Example:
        >>> import numpy as np
        >>> from xmcjax.models import ArrayModel
        >>> model = ArrayModel(np.float32([[1, 0], [0, 1]]))
        >>> model.n_labels, model.n_features
        (2, 2)
    """

    n_labels: int
    n_features: int
    dtype: np.dtype
    label_range: tuple[int, int]

    def dense_block(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights [d, last − first], one label per column, and biases [last − first]."""
        ...

    def trained(self, first: int, last: int) -> np.ndarray:
        """bool [last − first]: labels that have a score; the others are never predicted."""
        ...


def check_labels(first: int, last: int, n_labels: int) -> tuple[int, int]:
    """first and last as ints; IndexError unless 0 ≤ first ≤ last ≤ n_labels, TypeError of other numbers."""
    if not all(isinstance(label, numbers.Integral) for label in (first, last)):
        raise TypeError(f"expected labels as whole numbers, found {first!r} and {last!r}")
    first, last = int(first), int(last)
    if not 0 <= first <= last <= n_labels:
        raise IndexError(f"expected labels 0 <= first <= last <= {n_labels}, found {first}, {last}")
    return first, last


def is_trained(status: np.ndarray) -> np.ndarray:
    """Which statuses belong to labels with a score: those for which weights were kept. If the other labels
    scored 0, they would rank above most trained labels, whose scores are mostly negative.

    Example:
        >>> from xmcjax.solvers import Status
        >>> is_trained(np.array([Status.CONVERGED, Status.NO_POSITIVES])).tolist()
        [True, False]
    """
    return ~np.isin(_sparse.array(status, "status"), (NONFINITE, NO_POSITIVES, NOT_STORED))
