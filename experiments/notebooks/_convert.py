"""Converts a script in cells to a notebook without outputs, with the same bytes each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
# In the order in which they are read.
NAMES = (
    "extreme_classification",
    "why_the_start_matters",
    "multiclass_svms",
    "topk_in_a_network",
    "thousand_class_multinomial",
    "kernels_on_a_tree",
    "your_own_parts",
    "on_a_gpu",
)


def notebook(name: str, folder: Path = FOLDER) -> Any:
    """The notebook of a script; ids of cells are their places, and only the script's metadata are kept."""
    import jupytext

    made = jupytext.reads((folder / f"{name}.py").read_text(), fmt="py:percent")
    made.metadata.pop("jupytext", None)
    for place, cell in enumerate(made.cells):
        cell["id"] = f"cell-{place}"
    return made


def text(name: str, folder: Path = FOLDER) -> str:
    """The file NAME.ipynb that belongs to a script."""
    import nbformat

    stored = json.loads(nbformat.writes(notebook(name, folder)))
    return json.dumps(stored, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def introduction(name: str, folder: Path = FOLDER) -> tuple[str, str]:
    """Title and first paragraph."""
    title, paragraph = notebook(name, folder).cells[0].source.split("\n\n")[:2]
    return title.removeprefix("# "), " ".join(paragraph.splitlines())
