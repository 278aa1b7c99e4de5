"""Line search for a slope of about 0 of a convex function, by slopes and curvatures at a few lengths."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_MOST_TRIALS = 80
# Trials after which an interval is halved that has not become half as long in the last two of them.
_PATIENCE = 8
# The root of a cubic is found by _HALVINGS bisections, and moved inside by the part EDGE of its interval.
_HALVINGS, EDGE = 20, 0.02
# A function that falls only at lengths below this one falls by rounding alone.
_LEAST = float(np.finfo(np.float32).eps) ** 2


class OnALine(NamedTuple):
    """A convex function at a length."""

    t: float
    slope: float
    curvature: float


def between(low: OnALine, high: OnALine) -> float:
    """The length where the slope is about 0; it is below 0 at `low`, and above 0 at `high` if that is finite.

    Between both the slope is taken to be the cubic with their slopes and curvatures. Where `high` is infinite
    the slope is a line, and the length at most doubles.
    """
    if not np.isfinite(high.t):
        further = low.t - low.slope / low.curvature if low.curvature > 0 else np.inf
        return min(max(further, low.t), 2 * low.t) if further > low.t else 2 * low.t
    h = high.t - low.t
    rise = high.slope - low.slope
    # s(u) = a + b u + c u² + e u³ for t = low + h u
    a, b = low.slope, h * low.curvature
    e = b + h * high.curvature - 2 * rise
    c = rise - b - e
    under, over = 0.0, 1.0
    for _ in range(_HALVINGS):
        u = (under + over) / 2
        under, over = (u, over) if a + u * (b + u * (c + u * e)) < 0 else (under, u)
    return low.t + h * min(max(u, EDGE), 1 - EDGE)


class Search:
    """Lengths to try, the first of which is 1, in an interval in which the slope changes its sign.

    A slope that leaps, as a few rows of large features make it, is small nowhere: the last length is then the
    lower end of the interval.

    Args:
        slope: at 0, below 0.

    Attributes:
        t: the next length; None where no other is worth a trial.
    """

    def __init__(self, slope: float):
        self.t: float | None = 1.0
        self._low, self._high = OnALine(0.0, slope, -slope), OnALine(np.inf, np.inf, 0.0)
        self._widths: list[float] = []

    @property
    def is_last(self) -> bool:
        """Whether no length comes after `t`."""
        return len(self._widths) == _MOST_TRIALS - 1

    def go_on(self, here: OnALine) -> None:
        """Takes what was found at `t`, which was not good enough."""
        if here.slope < 0:
            self._low = here
        else:
            self._high = here
        low, high, widths = self._low, self._high, self._widths
        widths.append(high.t - low.t)
        t = between(low, high)
        if len(widths) > _PATIENCE and widths[-1] > widths[-3] / 2:
            t = (low.t + high.t) / 2
        if self.is_last:
            t = low.t
        ended = len(widths) == _MOST_TRIALS or t == 0 or high.t < _LEAST
        self.t = None if ended else t
