"""What counts in a joint problem: rows of weight above 0, and classes that have such a row.

The others are no part of it. A class without such a row keeps its place: its weights are 0 and its intercept
is −inf, by which prediction knows that it is never predicted.
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
        n, classes: of all.
        rows: numbers of those of weight above 0, ascending, [n']; None for all.
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
        """Those of these rows; None where all are 1."""
        weight = self.of_rows(weight)
        return None if weight is None or np.all(weight == 1) else weight

    def columns(self, matrix: Any) -> Any:
        """The columns of the classes that count, of a sparse matrix [n, K]."""
        return matrix[:, self.places] if self.empty else matrix

    def every(self, array: np.ndarray, without: float = 0.0) -> np.ndarray:
        """Of all classes, [K, …], what is known of those that count; the others have the number `without`."""
        if not self.empty:
            return array
        all_of_them = np.full((self.classes, *array.shape[1:]), without, array.dtype)
        all_of_them[self.places] = array
        return all_of_them

    def every_row(self, array: np.ndarray) -> np.ndarray:
        """Of all rows, [n, …], what is known of those that count; 0 for the others."""
        if self.rows is None:
            return array
        all_of_them = np.zeros((self.n, *array.shape[1:]), array.dtype)
        all_of_them[self.rows] = array
        return all_of_them

    def start(self, alpha: sp.csr_array | None) -> sp.csr_array | None:
        """Of dual variables [n, K] those that count."""
        return None if alpha is None else self.columns(self.of_rows(alpha))

    def dual(self, alpha: sp.csr_array) -> sp.csr_array:
        """Dual variables of what counts as those of all rows and classes, [n, K]."""
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
