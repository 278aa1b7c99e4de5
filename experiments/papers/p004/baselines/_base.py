"""What every method of the comparison offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

TOL = 1e-3  # relative duality gap of the convex methods

# C from 1e-5 to 1e3 (Lapin, Hein and Schiele, 2015, section 6.2)
GRID = tuple(10.0**p for p in range(-5, 4))


class Fitted(NamedTuple):
    """A trained method.

    Attributes:
        scores: function of features [rows, d] that gives scores [rows, m] of the classes, larger is better.
        gap: (primal − dual) / primal at the end; NaN for a method without a dual.
        start: what :meth:`Method.fit` can start from at the next C.
    """

    scores: Callable[[Any], np.ndarray]
    gap: float
    start: Any


class Method(Protocol):
    """One row of the tables."""

    @property
    def grid(self) -> tuple[float, ...]:
        """The C to try, ascending; if the best C is at an end, the grid is extended by its own ratio."""
        ...

    def fit(self, X, y, C: float, start: Any = None) -> Fitted:
        """Trains on features X [n, d], dense or CSR, and classes y of 0 … m−1, all of which occur."""
        ...


def linear(W: np.ndarray, bias: np.ndarray | None = None) -> Callable[[Any], np.ndarray]:
    """Scores X W + bias of weights [d, m] and biases [m]."""

    def scores(X):
        Z = np.asarray(X @ W)
        return Z if bias is None else Z + bias

    return scores


def one_hot(y, dtype) -> np.ndarray:
    """[n, m] of zeros and ones."""
    y = np.asarray(y)
    return (y[:, None] == np.arange(y.max() + 1)).astype(dtype)
