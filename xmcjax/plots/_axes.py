"""The axes that a picture is drawn on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


#: Numbers beyond this are left out, like those that are not finite, because the ticks of an axis overflow.
LARGEST = 1e100


def given_or_new(ax: Axes | None) -> Axes:
    """The given axes, or new ones.

    Raises:
        ImportError: matplotlib is missing.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('pictures need matplotlib: pip install "xmcjax[plots]"') from error
    return pyplot.subplots(layout="constrained")[1]


def counts_on(axis: Axis) -> None:
    """Makes an axis logarithmic and writes its numbers of labels or rows out in full."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = axis.get_view_interval()
    subs = (1, 2, 5) if high < 1e3 * max(low, 1) else (1,)  # more ticks where there is room
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.set_minor_formatter(NullFormatter())
