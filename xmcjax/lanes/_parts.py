"""Which part of C each lane of a block has: the path of a label to a large C.

Where C is large and rows are nearly separable, most rows leave the loss in a few Newton steps. The Hessian is
then little more than that of the penalty, so that the next direction makes rows active that had no loss, and
the line search cuts it, and those that follow, to a hundredth of its length. The minimum with a third of C
has about the same active rows as the minimum with C, and most steps from there are whole. So a lane whose
steps are short begins again, from its weights, with a small part of C, and goes on from the minimum of each
part with a larger one.
"""

from __future__ import annotations

import math

from xmcjax.solvers import Status, newton_cg

# Steps are short where the product of the last _TOGETHER multipliers of the line search is below _SHORT, or,
# with a penalty other than ½ ‖w‖², whose steps cost many sweeps, below _SHORT_PENALISED.
_SHORT, _SHORT_PENALISED, _TOGETHER = 1e-4, 1e-2, 3
# _FACTOR: largest ratio of a part to the one before. _STEPS: part of a lane's steps that it may make with
# less than C.
_FACTOR, _STEPS = 3.0, 0.75


class Parts:
    """The parts of C that the lanes of a block have.

    Args:
        first: the smallest part.
        most: the most Newton steps of a lane.
        size: lanes.
        penalised: whether the penalty is not ½ ‖w‖².
    """

    def __init__(self, first: float, most: int, size: int, *, penalised: bool = False):
        number = max(1, math.ceil(-math.log(first) / math.log(_FACTOR)))
        #: in ascending order, the last is 1
        self.parts = [first ** (1 - k / number) for k in range(number)] + [1.0]
        self._short = _SHORT_PENALISED if penalised else _SHORT
        self._most = int(_STEPS * most)
        self._taken = [0] * size  # how many parts each lane has had
        self._last = [(1.0,) * _TOGETHER] * size  # the last multipliers of each lane

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
