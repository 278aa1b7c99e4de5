"""Runs of experiments, whose results and pages are stored and whose figures are drawn and looked at."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from experiments import _report


def written(folder: Path, name: str, result: dict, text: str) -> tuple[dict, str]:
    """The result and the page as they are read again."""
    _report.write(folder, name, result, text)
    return json.loads((folder / f"{name}.json").read_text()), (folder / f"{name}.md").read_text()


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
