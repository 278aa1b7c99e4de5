"""Figures of experiments, which are drawn and looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments import _report


def assert_drawn(path: Path, draw: Callable) -> None:
    """That draw(axes) puts data into every panel of a PNG file at this place, and names the axes."""
    figures = []

    def drawing(axes):
        figures.append(axes.figure)
        draw(axes)

    assert _report.figure(path.parent, path.stem, drawing)
    panels = figures[0].axes
    assert all(axes.has_data() for axes in panels), f"a panel of {path.stem} is empty"
    for name in ("xlabel", "ylabel"):
        assert any(getattr(axes, f"get_{name}")() for axes in panels), f"{path.stem} does not name its axes"
    assert path.read_bytes().startswith(b"\x89PNG")
