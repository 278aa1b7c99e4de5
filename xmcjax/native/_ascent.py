"""Coordinate ascent of all classes together, in one process or in one of several places with some rows."""

from __future__ import annotations

import numpy as np

from xmcjax.native._aligned import ALIGNMENT
from xmcjax.native._dual_point import Assessment, DualPoint


def shared_panel(dtype: np.dtype) -> int:
    """How many neighbouring classes form a panel: a place moves the weights of all of a panel, or of none.

    A panel fills the widest vector of any processor.
    """
    return ALIGNMENT // dtype.itemsize


def shared_room(d: int, m: int, dtype: np.dtype) -> int:
    """The length of the shared memory, in numbers, for weights of d features and m classes."""
    width = shared_panel(dtype)
    return -(-m // width) * width * d


class Ascent(DualPoint):
    """Coordinate ascent."""

    _method = 0

    def assess(self, tolerance: float) -> Assessment:
        """Passes over all variables; shrunk variables that `tolerance` would change come back."""
        return self._assessed("assess", tolerance=tolerance)

    def sweep(self, tolerance: float, shrink: bool = True) -> tuple[float, float]:
        """One pass over the variables that are not shrunk.

        Returns:
            The largest violation that the pass met, and the share of the instances that it visited.
        """
        return self._swept("sweep", tolerance=tolerance, shrink=shrink)

    # --- Weston-Watkins and Crammer-Singer over several places, each with some of the rows

    def row_part(self, number: int, parts: int, tolerance: float, caution: float = 1.0) -> float:
        """Part `number` of `parts` of a sweep, without a change of the weights; the largest violation it met.

        Args:
            number, parts: after the last part, :meth:`settle` is to be called.
            tolerance: as in :meth:`sweep`.
            caution: factor by which the squared lengths of the rows are multiplied for the steps.
        """
        violation = np.zeros(())
        fields = dict(number=number, parts=parts, tolerance=tolerance, caution=caution)
        self._call("row_part", violation=violation, **fields)
        return float(violation)

    def settle(self, shrink: bool) -> float:
        """After all parts of a sweep: shrinks variables unchanged in three sweeps; the share that stays."""
        share = np.zeros(())
        self._call("settle", shrink=shrink, share=share)
        return float(share)

    def moves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and classes of the dual variables that the last part changed, and the changes."""
        count = self._count("count_moves")
        row, label = np.zeros(count, np.int32), np.zeros(count, np.int32)
        change = np.zeros(count, self.dtype)
        self._call("get_moves", row=row, label=label, change=change)
        return row, label, change

    def follow(self, row: np.ndarray, label: np.ndarray, change: np.ndarray) -> None:
        """Applies moves to the weights of the classes of this place; every place must follow all moves."""
        self._call("follow_moves", row=row, label=label, change=change)

    def row_sweep(self, **fields) -> None:
        """A sweep together with other places; fields as of ``multiclass_row_sweep`` in methods.def."""
        self._call("row_sweep", **fields)

    # --- Lee-Lin-Wahba over several processes, each with some classes

    @property
    def parts(self) -> int:
        """The number of parts of a sweep; the mean of the weights is brought up to date after each part."""
        return self._count("parts")

    def part(self, number: int, tolerance: float, shrink: bool) -> tuple[float, float]:
        """A part of a sweep, without a change of the mean of the weights; returns as :meth:`sweep`."""
        return self._swept("part", number=number, tolerance=tolerance, shrink=shrink)

    @property
    def mean_change(self) -> np.ndarray:
        """The change of the mean of the weights by this process, [d]."""
        change = np.zeros(self._d, self.dtype)
        self._call("mean_change", change=change)
        return change

    def move_mean(self, change: np.ndarray) -> None:
        """Adds the sum of the changes of all processes to the mean."""
        self._call("move_mean", change=np.ascontiguousarray(change, self.dtype))


class CentredAscent(Ascent):
    """Coordinate ascent of Lee-Lin-Wahba, which updates all dual variables of an instance at once."""

    _method = 2
