"""Coordinate ascent of all classes together, in one process or with the matches of one of several."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xmcjax.native._aligned import ALIGNMENT
from xmcjax.native._dual_point import Assessment, DualPoint


def shared_panel(dtype: np.dtype) -> int:
    """Classes of which several objects have the weights together, or none of them.

    As many as fill the widest vector of any processor.
    """
    return ALIGNMENT // dtype.itemsize


def shared_room(d: int, m: int, dtype: np.dtype) -> int:
    """Numbers that weights of d features and m classes need in memory that several objects share."""
    width = shared_panel(dtype)
    return -(-m // width) * width * d


class Match(NamedTuple):
    """Two bundles of classes, first and last + 1 of each."""

    a: tuple[int, int]
    b: tuple[int, int]
    inner: bool  #: whether each plays against itself as well

    @property
    def numbers(self) -> np.ndarray:
        return np.array([*self.a, *self.b, self.inner], np.int64)


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

    # --- Weston-Watkins over several processes, each with the dual variables of the matches that it hosts

    def begin_epoch(self, violation: float) -> None:
        """Before the matches of an epoch; `violation` of all that was last examined."""
        self._call("begin_epoch", violation=violation)

    def examine(self, match: Match, tolerance: float) -> Assessment:
        """What the variables of a match add to objectives and violation; finds which matter."""
        return self._assessed("examine", match=match.numbers, tolerance=tolerance)

    def play(self, match: Match, tolerance: float, shrink: bool = True) -> float:
        """Visits the instances of a match that have variables in it; the largest violation that it met."""
        violation = np.zeros(())
        self._call("play", match=match.numbers, shrink=shrink, tolerance=tolerance, violation=violation)
        return float(violation)

    def settle(self, shrink: bool) -> float:
        """After the matches of an epoch: leaves out what did not change three times; the share that stays."""
        share = np.zeros(())
        self._call("settle", shrink=shrink, share=share)
        return float(share)

    def moves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and classes of the dual variables that the last match changed, and by what."""
        count = self._count("count_moves")
        row, label = np.zeros(count, np.int32), np.zeros(count, np.int32)
        change = np.zeros(count, self._dtype)
        self._call("get_moves", row=row, label=label, change=change)
        return row, label, change

    def follow(self, row: np.ndarray, label: np.ndarray, change: np.ndarray) -> None:
        """Makes the moves of another process, which has the dual variables, in the weights."""
        self._call("follow_moves", row=row, label=label, change=change)

    def set_weights(self, W: np.ndarray) -> None:
        """Takes other weights than those of the dual variables, [d, m]."""
        self._call("set_weights", W=np.ascontiguousarray(W, self._dtype))

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
        change = np.zeros(self._d, self._dtype)
        self._call("mean_change", change=change)
        return change

    def move_mean(self, change: np.ndarray) -> None:
        """Adds the sum of what all processes have to add."""
        self._call("move_mean", change=np.ascontiguousarray(change, self._dtype))


class CentredAscent(Ascent):
    """Coordinate ascent of Lee-Lin-Wahba over instances, each with all its dual variables at once."""

    _method = 2
