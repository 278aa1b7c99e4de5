"""The site: ``python -m docs.build`` makes it and checks it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

import xmcjax  # noqa: E402 – after its place is known
from docs import mathml  # noqa: E402
from docs.api import escape, write_pages  # noqa: E402
from experiments.notebooks import _links  # noqa: E402
from experiments.notebooks._convert import NAMES  # noqa: E402

project = "xmcjax"
author = copyright = "the authors of xmcjax"
repository = _links.repository()
release = version = xmcjax.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
html_theme = "furo"
html_title = f"xmcjax {release}"
if repository:  # a link to the source of each page
    html_theme_options = {
        "source_repository": f"{repository}/",
        "source_branch": _links.BRANCH,
        "source_directory": "docs/",
    }
html_math_renderer = "mathml"  # by docutils while the site is built: a page asks no other server for anything
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
exclude_patterns = ["jupyter_execute", "_site", "**.ipynb_checkpoints"]

# Notebooks are executed before, each in its own process with a time limit, by experiments.notebooks.
nb_execution_mode = "off"
# Widgets would fetch these from another server; no page has one.
nb_ipywidgets_js: dict = {}
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings tell shapes and units, which types do not
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

nitpicky = True
nitpick_ignore_regex = [
    # Names of other packages, whose inventories are on other servers.
    (
        "py:.*",
        r"(numpy|scipy|jax|sklearn|optax|collections|typing|pathlib|distributed|os)\..*",
    ),
    ("py:.*", r"(Path|Array|ArrayLike|Any|Callable|Mapping|Sequence|Iterator|Iterable)"),
    # Bases and fields that have no page of their own.
    ("py:.*", r".*\b_\w.*"),
    # What napoleon takes for a type: the text before a colon in the description of a field.
    ("py:class", r"(?s).*[^\w.].*"),
    ("py:class", r"(a|all|base|format|int8|int32|positive_weight|processor|what|with|B|C|L|Rows)"),
    # Errors that processes of a mesh raise, named in "Raises".
    ("py:exc", r"(PeerError|Disagreement|with .*)"),
]
# Fields such as W and n are those of several classes, and their names no links.
suppress_warnings = ["ref.python"]

write_pages(DOCS / "reference" / "api")


# Pages of the repository that stand beside docs/, and where the site has them.
OUTSIDE = {
    "SECURITY.md": "/reference/security.md",
    "CONTRIBUTING.md": "/develop/contributing.md",
    "CHANGELOG.md": "/reference/changelog.md",
    "README.md": "/index.md",
}


def to_site(app, docname, source):
    """Links from a page of docs/ to those beside it; an index without notebooks that are not there."""
    if docname == "index" and not (DOCS / "notebooks").is_dir():
        source[0] = re.sub(r"```{toctree}\n:caption: Notebooks\n.*?```\n", "", source[0], flags=re.DOTALL)
    source[0] = re.sub(
        r"\]\((?:\.\./)+(\w+\.md)([#)])", lambda m: f"]({OUTSIDE.get(m[1], m[0][2:-1])}{m[2]}", source[0]
    )


def with_links(app, docname, source):
    """The page of a notebook says below its title where to open it, and has the files that it is made of."""
    folder, _, name = docname.partition("/")
    if folder == "notebooks" and name in NAMES:
        page = json.loads(source[0])
        line = _links.line_on_page(name, repository)
        page["cells"].insert(1, {"cell_type": "markdown", "id": "links", "metadata": {}, "source": line})
        source[0] = json.dumps(page)


# Where a long name may go on in the next line: after a dot, a slash, an underscore, before a capital, and
# after the hyphens of a flag but the first two.
_BREAKS = re.compile(r"(?<=[\w\])][._/=])(?=[\w*])|(?<=[a-z0-9])(?=[A-Z])|(?<=\w-)(?=\w)")
_LONG = 16  # letters; a shorter name stays whole
_TABLE = re.compile(r'<table class="docutils.*?</table>', re.DOTALL)
_CODE = re.compile(r'(<code class="[^"]*literal[^"]*">)(.*?)(</code>)', re.DOTALL)
_WORD = re.compile(r'<span class="pre">([^<]*)</span>')


def in_pieces(app, pagename, templatename, context, doctree):
    """Names in tables are broken where a reader expects it, so that the other columns stay in sight."""

    def pieces(word: re.Match) -> str:
        names = _BREAKS.split(word[1]) if len(word[1]) > _LONG else [word[1]]
        return "<wbr>".join(f'<span class="pre">{name}</span>' for name in names)

    def table(found: re.Match) -> str:
        return _CODE.sub(lambda code: code[1] + _WORD.sub(pieces, code[2]) + code[3], found[0])

    if "body" in context:
        context["body"] = _TABLE.sub(table, context["body"])


def setup(app):
    """Docstrings are changed after napoleon has made reStructuredText of their sections."""
    app.connect("source-read", to_site)
    app.connect("source-read", with_links)
    app.connect("html-page-context", in_pieces)
    app.connect("autodoc-process-docstring", escape, priority=800)
    mathml.setup(app)
