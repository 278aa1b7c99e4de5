"""The axes that a picture is drawn on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
