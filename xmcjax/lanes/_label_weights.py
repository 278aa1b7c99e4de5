"""Weights of the losses by label: for missing labels, or for labels that matter more.

H. Jain, Y. Prabhu, M. Varma, "Extreme multi-label loss functions for recommendation, tagging, ranking
& other missing label applications", 2016; M. Qaraei, E. Schultheis, P. Gupta, R. Babbar, "Convex surrogates
for unbiased loss functions in extreme classification with missing labels", 2021.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import name_of, number
from xmcjax.metrics import inverse_propensities, propensity_preset


@dataclasses.dataclass(frozen=True)
class LabelWeights:
    """Row i weighs a_l in the problem of label l where it has the label, and b_l where it has not.

    Attributes:
        positive: a > 0, float64 [L].
        negative: b > 0, float64 [L].

    Example:
        >>> import numpy as np
        >>> LabelWeights(np.array([2.0]), np.array([1.0])).positive.tolist()
        [2.0]
    """

    positive: np.ndarray
    negative: np.ndarray

    def __post_init__(self):
        for name in ("positive", "negative"):
            weights = _sparse.numbers(getattr(self, name), name)
            object.__setattr__(self, name, weights)
            if weights.ndim != 1 or weights.shape != self.positive.shape:
                raise ValueError(
                    f"expected as many {name} weights as labels, one each, got shape {weights.shape}"
                )
            wrong = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
            if wrong.size:
                found = f"{weights[wrong[0]]} for label {wrong[0]}"
                raise ValueError(f"expected finite {name} weights above zero, found {found}")

    def times(self, other: LabelWeights | None) -> LabelWeights:
        """Both together; None counts as ones."""
        if other is None:
            return self
        return LabelWeights(self.positive * other.positive, self.negative * other.negative)


def _propensity(inverse: np.ndarray) -> LabelWeights:
    # a = 2/p − 1, b = 1
    return LabelWeights(2 * inverse - 1, np.ones(len(inverse)))


def _propensity_down(inverse: np.ndarray) -> LabelWeights:
    # a = 1, b = p / (2 − p)
    return LabelWeights(np.ones(len(inverse)), 1 / (2 * inverse - 1))


#: From inverse propensities 1/p [L] to weights: "propensity" weighs positives up by 2/p − 1,
#: "propensity_down" negatives down by p/(2 − p). The two have the same ratio.
WEIGHTINGS: dict[str, Callable[[np.ndarray], LabelWeights]] = {
    "propensity": _propensity,
    "propensity_down": _propensity_down,
}


@dataclasses.dataclass(frozen=True)
class Weighting:
    """An entry of ``WEIGHTINGS`` with the constants of the propensities.

    Attributes:
        name: of the entry.
        a, b: of :func:`xmcjax.metrics.inverse_propensities`.

    Example:
        >>> import numpy as np
        >>> import scipy.sparse as sp
        >>> weights = Weighting("propensity", 0.55, 1.5).weights(sp.csr_array(np.tri(4)))
        >>> weights.negative.tolist()
        [1.0, 1.0, 1.0, 1.0]
    """

    name: str
    a: float
    b: float

    def __post_init__(self):
        name_of("weighting", self.name, WEIGHTINGS)
        number("a", self.a)
        number("b", self.b)

    @classmethod
    def of_preset(cls, name: str, preset: str) -> Weighting:
        """With the constants of a data set or family, see :func:`xmcjax.metrics.propensity_preset`."""
        return cls(name, *propensity_preset(preset))

    def weights(self, Y) -> LabelWeights:
        """The weights of the labels of a training set, [n, L].

        Raises:
            ValueError: fewer than 3 rows, constants that are not positive.
        """
        if Y.shape[0] < 3:
            raise ValueError(f"weighting: propensities need at least 3 rows, found {Y.shape[0]}")
        return WEIGHTINGS[self.name](inverse_propensities(Y, self.a, self.b))
