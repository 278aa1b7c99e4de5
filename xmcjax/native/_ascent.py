"""Coordinate ascent of all classes together, in one process or with the rows of one of several places."""

from __future__ import annotations

import numpy as np

from xmcjax.native._aligned import ALIGNMENT
from xmcjax.native._dual_point import Assessment, DualPoint


def shared_panel(dtype: np.dtype) -> int:
    """Neighbouring classes of which one place moves the weights: all of so many, or none of them.

    As many as fill the widest vector of any processor.
    """
    return ALIGNMENT // dtype.itemsize


def shared_room(d: int, m: int, dtype: np.dtype) -> int:
    """Numbers that weights of d features and m classes need in memory that several objects share."""
    width = shared_panel(dtype)
    return -(-m // width) * width * d


class Ascent(DualPoint):
    """Coordinate ascent."""

    _method = 0

    def assess(self, tolerance: float) -> Assessment:
        """Passes over everything; shrunk variables that `tolerance` would change come back."""
        return self._assessed("assess", tolerance=tolerance)

    def sweep(self, tolerance: float, shrink: bool = True) -> tuple[float, float]:
        """One pass over what is not shrunk.

        Returns:
            The largest violation that it met, and the share of the instances that it visited.
        """
        return self._swept("sweep", tolerance=tolerance, shrink=shrink)

    # --- Weston-Watkins and Crammer-Singer over several places, each with some of the rows

    def row_part(self, number: int, parts: int, tolerance: float, caution: float = 1.0) -> float:
        """Part `number` of `parts` of a sweep, which leaves the weights alone; the largest violation it met.

        Args:
            number, parts: the last one is followed by :meth:`settle`.
            tolerance: of :meth:`sweep`.
            caution: steps are those of rows whose squared lengths are so many times as large.
        """
        violation = np.zeros(())
        fields = dict(number=number, parts=parts, tolerance=tolerance, caution=caution)
        self._call("row_part", violation=violation, **fields)
        return float(violation)

    def settle(self, shrink: bool) -> float:
        """After the parts of a sweep: leaves out what did not change three times; the share that stays."""
        share = np.zeros(())
        self._call("settle", shrink=shrink, share=share)
        return float(share)

    def moves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and classes of the dual variables that the last part changed, and by what."""
        count = self._count("count_moves")
        row, label = np.zeros(count, np.int32), np.zeros(count, np.int32)
        change = np.zeros(count, self.dtype)
        self._call("get_moves", row=row, label=label, change=change)
        return row, label, change

    def follow(self, row: np.ndarray, label: np.ndarray, change: np.ndarray) -> None:
        """Makes moves in the weights of the classes that this place moves; every place follows all moves."""
        self._call("follow_moves", row=row, label=label, change=change)

    def row_sweep(self, **fields) -> None:
        """A sweep with other places, of ``multiclass_row_sweep`` in methods.def."""
        self._call("row_sweep", **fields)

    # --- Lee-Lin-Wahba over several processes, each with some classes

    @property
    def parts(self) -> int:
        """Of a sweep, after each of which the mean is brought up to date."""
        return self._count("parts")

    def part(self, number: int, tolerance: float, shrink: bool) -> tuple[float, float]:
        """A part of a sweep, which leaves the mean of the weights alone; returns as :meth:`sweep`."""
        return self._swept("part", number=number, tolerance=tolerance, shrink=shrink)

    @property
    def mean_change(self) -> np.ndarray:
        """What this process has to add to the mean of the weights, [d]."""
        change = np.zeros(self._d, self.dtype)
        self._call("mean_change", change=change)
        return change

    def move_mean(self, change: np.ndarray) -> None:
        """Adds the sum of what all processes have to add."""
        self._call("move_mean", change=np.ascontiguousarray(change, self.dtype))


class CentredAscent(Ascent):
    """Coordinate ascent of Lee-Lin-Wahba over instances, each with all its dual variables at once."""

    _method = 2
