"""Which part of C the lanes of a block have: the way of a label to a large C.

Where C is large and rows are nearly separable, a few Newton steps let most of them leave the loss. What is
left of the Hessian is little more than the penalty's, so that the next direction runs into rows that had no
loss, and is cut to a hundredth of its length; so are those that follow. The minimum with a third of C has
about the active rows of the one with C, and most steps from there are whole. So a lane whose steps are short
begins again, at its weights, with a small part of C, and goes on from the minimum of each part with a larger
one.
"""

from __future__ import annotations

import math

from xmcjax.solvers import Status, newton_cg

# Steps are short where the product of the last three multiples of their directions is less than this; with a
# penalty other than ½ ‖w‖², where a step costs many sweeps, where it is less than the second.
_SHORT, _SHORT_PENALISED, _TOGETHER = 1e-4, 1e-2, 3
# From one part to the next, at most; and the part of the steps of a lane that it may make with less than C.
_FACTOR, _STEPS = 3.0, 0.75


class Parts:
    """Of the lanes of a block.

    Args:
        first: the smallest.
        most: Newton steps of a lane.
        size: lanes.
        penalised: whether the penalty is another than ½ ‖w‖².
    """

    def __init__(self, first: float, most: int, size: int, *, penalised: bool = False):
        number = max(1, math.ceil(-math.log(first) / math.log(_FACTOR)))
        #: one after the other
        self.parts = [first ** (1 - k / number) for k in range(number)] + [1.0]
        self._short = _SHORT_PENALISED if penalised else _SHORT
        self._most = int(_STEPS * most)
        self._taken = [0] * size  # how many of them a lane has had
        self._last = [(1.0,) * _TOGETHER] * size  # multiples of directions

    def start(self, lane: int) -> None:
        """A label has come into a lane, with the whole of C."""
        self._taken[lane], self._last[lane] = 0, (1.0,) * _TOGETHER

    def next(self, lane: int, status: int, steps: int, multiplier: float) -> float | None:
        """The part of C with which a lane begins again after a step; None where it does not.

        Args:
            status, steps, multiplier: of the lane, after the step.
        """
        taken = self._taken[lane]
        moving, late = bool(newton_cg.moving(status)), steps >= self._most
        if taken == 0:
            self._last[lane] = (*self._last[lane][1:], multiplier)
            if not moving or late or math.prod(self._last[lane]) >= self._short:
                return None
        elif taken == len(self.parts) or status == Status.NONFINITE or (moving and not late):
            return None
        self._taken[lane] = taken = len(self.parts) if late else taken + 1
        return self.parts[taken - 1]
