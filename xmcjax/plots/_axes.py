"""The axes that a picture is drawn on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


#: Numbers beyond it are left out as those that are not finite are: the ticks of an axis overflow.
LARGEST = 1e100


def given_or_new(ax: Axes | None) -> Axes:
    """Those that are given, or new ones.

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
    """Numbers of labels or rows on a logarithmic axis, written out."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = axis.get_view_interval()
    subs = (1, 2, 5) if high < 1e3 * max(low, 1) else (1,)  # where there is room for them
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.set_minor_formatter(NullFormatter())
