"""A page of HTML that needs no other file: texts, tables, and pictures that are part of it."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 0 1rem 3rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; }
.wide, .pictures { margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.2rem 0.9rem 0.2rem 0; }
th, td { border-bottom: 1px solid #8884; vertical-align: top; }
td.number, th.number { text-align: right; }
img { max-width: 100%; height: auto; background: white; }
.pictures { display: grid; gap: 1rem; }
.pictures { grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); }
figure { margin: 0; } figcaption { font-size: 0.9rem; }
@media (max-width: 40rem) { td:last-child:not(.number) { overflow-wrap: anywhere; } }
"""


class Page:
    """Collects the parts of a page.

    Args:
        title: of the page.
    """

    def __init__(self, title: str):
        self._title = title
        self._parts: list[str] = []
        self._pictures: list[str] = []

    def heading(self, text: str) -> None:
        """Begins a section."""
        self._show_pictures()
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        """A paragraph."""
        self._show_pictures()
        self._parts.append(f"<p>{html.escape(text)}</p>")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A table; numbers are aligned at the right, and all numbers of a column have equally many decimals.

        They are as many as give the largest number of the column three significant digits.
        """
        self._show_pictures()
        columns = [[row[k] for row in rows] for k in range(len(header))]
        numeric = [all(isinstance(cell, int | float) for cell in column) for column in columns]
        decimals = [_decimals(column) for column in columns]
        head = "".join(_cell("th", name, number) for name, number in zip(header, numeric, strict=True))
        lines = ["".join(map(partial(_cell, "td"), row, numeric, decimals)) for row in rows]
        body = "".join(f"<tr>{line}</tr>\n" for line in lines)
        self._parts.append(f'<div class="wide"><table><tr>{head}</tr>\n{body}</table></div>')

    def picture(self, caption: str, draw: Callable[[Any], Any]) -> None:
        """A picture that ``draw(axes)`` draws; consecutive pictures stand side by side."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        canvas, content = FigureCanvasAgg(Figure(figsize=(6, 4), layout="constrained")), io.BytesIO()
        draw(canvas.figure.subplots())
        canvas.print_png(content)
        image = base64.b64encode(content.getvalue()).decode()
        text = html.escape(caption)
        self._pictures.append(
            f'<figure><img alt="{text}" src="data:image/png;base64,{image}">'
            f"<figcaption>{text}</figcaption></figure>"
        )

    def html(self) -> str:
        """The page."""
        self._show_pictures()
        title = html.escape(self._title)
        parts = "\n".join(self._parts)
        return (
            f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n{parts}\n</body>\n</html>\n"
        )

    def _show_pictures(self) -> None:
        if self._pictures:
            self._parts.append('<div class="pictures">' + "\n".join(self._pictures) + "</div>")
        self._pictures = []


def _decimals(column: Sequence[Any]) -> int:
    largest = max((abs(x) for x in column if isinstance(x, float) and math.isfinite(x)), default=0.0)
    return max(0, 2 - math.floor(math.log10(largest))) if largest else 0


def _cell(kind: str, content: Any, number: bool, decimals: int = 0) -> str:
    if isinstance(content, float):
        content = f"{content:,.{decimals}f}" if decimals <= 6 else f"{content:.3g}"
    elif isinstance(content, int):
        content = f"{content:,}"
    return f"<{kind}{' class=number' if number else ''}>{html.escape(str(content))}</{kind}>"
