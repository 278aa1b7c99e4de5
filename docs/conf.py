"""The site: ``python -m docs.build`` makes it, with the notebooks executed and the pages of the API."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

import xmcjax  # noqa: E402 – after its place is known
from docs.api import escape, write_pages  # noqa: E402

project = "xmcjax"
author = "the authors of xmcjax"
release = version = xmcjax.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
]
html_theme = "furo"
html_title = f"xmcjax {release}"
html_static_path: list[str] = []
exclude_patterns = ["_site", "**.ipynb_checkpoints"]

# Notebooks are executed before, each in its own process with a time limit, by experiments.notebooks.
nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings tell shapes and units, which types do not
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

# Fields such as W and n are those of several classes, and their names no links.
suppress_warnings = ["ref.python"]

write_pages(DOCS / "reference" / "api")


def setup(app):
    """After napoleon has made reStructuredText of the sections."""
    app.connect("autodoc-process-docstring", escape, priority=800)
