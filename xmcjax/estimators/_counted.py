"""What counts in a joint problem: rows of weight above 0, and classes that have such a row.

Other rows and classes are no part of the problem. A class without such a row keeps its place: its weights are
0 and its intercept is −inf, by which prediction knows that it is never predicted.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse as sp

# What decision_function gives for a class that is never predicted: metrics want finite scores.
LOWEST = -1e30


@dataclasses.dataclass(frozen=True)
class Counted:
    """Rows and classes that count, of n and K.

    Attributes:
        n, classes: how many rows and classes there are in all.
        rows: numbers of the rows of weight above 0, ascending, [n']; None for all.
        places: numbers of the classes that have such a row, ascending, [K'].
    """

    n: int
    classes: int
    rows: np.ndarray | None
    places: np.ndarray

    @property
    def empty(self) -> int:
        """Classes without a row that counts."""
        return self.classes - len(self.places)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and classes that count: of the dual variables of the problem."""
        return (self.n if self.rows is None else len(self.rows)), len(self.places)

    def of_rows(self, array: Any) -> Any:
        """The rows that count of an array [n, …] or a matrix, or of None."""
        return array if array is None or self.rows is None else array[self.rows]

    def numbers(self, numbers: np.ndarray) -> np.ndarray:
        """The numbers of the classes of these rows among those that count."""
        numbers = self.of_rows(numbers)
        return np.searchsorted(self.places, numbers) if self.empty else numbers

    def weights(self, weight: np.ndarray | None) -> np.ndarray | None:
        """The weights of the rows that count; None where all are 1."""
        weight = self.of_rows(weight)
        return None if weight is None or np.all(weight == 1) else weight

    def columns(self, matrix: Any) -> Any:
        """The columns of the classes that count, of a sparse matrix [n, K]."""
        return matrix[:, self.places] if self.empty else matrix

    def every(self, array: np.ndarray, without: float = 0.0) -> np.ndarray:
        """An array over the classes that count, filled up to all, [K, …], with the number `without`."""
        if not self.empty:
            return array
        all_of_them = np.full((self.classes, *array.shape[1:]), without, array.dtype)
        all_of_them[self.places] = array
        return all_of_them

    def every_row(self, array: np.ndarray) -> np.ndarray:
        """An array over the rows that count, filled up to all, [n, …], with 0."""
        if self.rows is None:
            return array
        all_of_them = np.zeros((self.n, *array.shape[1:]), array.dtype)
        all_of_them[self.rows] = array
        return all_of_them

    def start(self, alpha: sp.csr_array | None) -> sp.csr_array | None:
        """Those dual variables of [n, K] that count."""
        return None if alpha is None else self.columns(self.of_rows(alpha))

    def dual(self, alpha: sp.csr_array) -> sp.csr_array:
        """Dual variables of the rows and classes that count, filled up to all, [n, K]."""
        counts = np.diff(alpha.indptr)
        if self.rows is not None:
            counts = np.zeros(self.n, np.int64)
            counts[self.rows] = np.diff(alpha.indptr)
        indices = self.places[alpha.indices] if self.empty else alpha.indices
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return sp.csr_array((alpha.data, indices, indptr), shape=(self.n, self.classes))


def counted_classes(classes: int, numbers: np.ndarray, weight: np.ndarray | None) -> Counted:
    """What counts where each row has a class.

    Args:
        classes: K.
        numbers: of the class of each row, [n].
        weight: of the rows, with that of their classes, ≥ 0, [n]; None for ones.
    """
    rows = _rows(weight)
    there = np.bincount(numbers if rows is None else numbers[rows], minlength=classes) > 0
    return Counted(len(numbers), classes, rows, np.flatnonzero(there))


def counted_labels(Y: sp.csr_array, weight: np.ndarray | None) -> Counted:
    """What counts of a label matrix, CSR [n, L], of which a stored value that is not 0 is a label."""
    rows = _rows(weight)
    some = Y if rows is None else Y[rows]
    there = np.bincount(some.indices[some.data != 0], minlength=Y.shape[1]) > 0
    return Counted(Y.shape[0], Y.shape[1], rows, np.flatnonzero(there))


def _rows(weight: np.ndarray | None) -> np.ndarray | None:
    return None if weight is None or np.all(weight > 0) else np.flatnonzero(weight)
