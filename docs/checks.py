"""What a page and a docstring say is looked up or run: links, examples, and whether there is a docstring."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
import re
import tempfile
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jax

import xmcjax
from docs.api import documented, public_modules
from xmcjax import native

ROOT = Path(__file__).resolve().parent.parent
# Those outside the site stand beside it in the repository.
OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
# Modules whose examples need a package of an extra, or the native kernels.
_NEEDS = {
    "distributed": [f"xmcjax.cluster._{name}" for name in ("clients", "mesh", "predict", "train")],
    "pyarrow": ["xmcjax.data._arrow", "xmcjax.data._arrow_writer"],
}
_OF_KERNELS = ("xmcjax.solvers.multiclass_dual._processes",)
_LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
_CODE = re.compile(r"^ *```.*?^ *```|^(?: {4,}.*\n)+|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every page in Markdown that somebody has written."""
    site = (ROOT / "docs").rglob("*.md")
    inside = sorted(p for p in site if not {"_site", "notebooks"} & set(p.relative_to(ROOT / "docs").parts))
    return [*(ROOT / name for name in OUTSIDE if (ROOT / name).exists()), *inside]


def undocumented() -> list[str]:
    """Public functions and classes without a docstring, and modules."""
    missing = []
    for name in public_modules():
        module = importlib.import_module(name)
        missing += [] if module.__doc__ else [name]
        missing += [f"{name}.{public}" for public, value in documented(module).items() if not value.__doc__]
    return missing


def without_example() -> list[str]:
    """Public functions and classes whose docstring has no example, each by its first name."""
    found: dict[int, str] = {}
    for name in public_modules():
        for public, value in documented(importlib.import_module(name)).items():
            if ">>> " not in (value.__doc__ or ""):
                found.setdefault(id(value), f"{name}.{public}")
    return sorted(found.values())


def modules_with_examples() -> list[str]:
    """Names of the modules, private ones too, in which some docstring has an example that can run here."""
    package = Path(xmcjax.__file__).parent
    paths = [path for path in package.rglob("*.py") if ">>> " in path.read_text()]
    names = [".".join(["xmcjax", *path.relative_to(package).with_suffix("").parts]) for path in paths]
    found = sorted(name.removesuffix(".__init__") for name in names)
    return [name for name in found if _runs_here(name)]


def _runs_here(module: str) -> bool:
    if module in _OF_KERNELS and not native.available():
        return False
    needs = [package for package, modules in _NEEDS.items() if module in modules]
    return all(importlib.util.find_spec(package) for package in needs)


def failing_examples(module: str) -> str:
    """What doctest says of the examples of a module; nothing where all print what they should.

    Raises:
        ValueError: the module has no example.
    """
    said = io.StringIO()
    with contextlib.redirect_stdout(said), as_users_have_it():
        result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    if not result.attempted:
        raise ValueError(f"expected examples in {module}, found none that doctest sees")
    return said.getvalue() if result.failed else ""


def failing_blocks(page: Path) -> list[str]:
    """Lines that the blocks ``python`` of a page print and the page does not show, but for the digits.

    The blocks run one after another, in a folder of their own. One that stands below
    ``<!-- needs PACKAGE -->`` runs where that package is installed.
    """
    text = page.read_text()
    shown, names, said = re.sub(r"\d", "#", text), {"__name__": "page"}, io.StringIO()
    folder = tempfile.TemporaryDirectory()
    with folder, contextlib.chdir(folder.name), contextlib.redirect_stdout(said), as_users_have_it():
        for block in blocks(text):
            exec(compile(block, page.name, "exec", dont_inherit=True), names)
    return [line for line in said.getvalue().splitlines() if re.sub(r"\d", "#", line) not in shown]


def blocks(text: str) -> list[str]:
    """The blocks of Python that can be run here."""
    return [block for needs, block in all_blocks(text) if not needs or importlib.util.find_spec(needs)]


def all_blocks(text: str) -> list[tuple[str, str]]:
    """(the package that it needs, or "", and its text) of every block of Python."""
    return re.findall(r"(?:<!-- needs (\w+) -->\n+)?```python\n(.*?)```", text, re.DOTALL)


@contextlib.contextmanager
def as_users_have_it() -> Iterator[None]:
    """JAX with the settings that it has without any."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def broken_links(page: Path) -> list[str]:
    """Links of a page in Markdown to files or headings that there are not, and addresses that are none."""
    wrong = []
    for target in _LINK.findall(_CODE.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            good = _is_address(target)
        elif not path:
            good = anchor in anchors(page)
        else:
            file = (page.parent / unquote(path)).resolve()
            good = file.exists() and (not anchor or file.suffix != ".md" or anchor in anchors(file))
        wrong += [] if good else [target]
    return wrong


def _is_address(target: str) -> bool:
    parts = urlsplit(target)
    return parts.scheme in ("http", "https") and bool(re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.netloc))


def anchors(page: Path) -> set[str]:
    """The names under which GitHub, and the site, know the headings of a page."""
    text, found = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL), set()
    for title in re.findall(r"^#+ +(.*)", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        kept = [c for c in plain if c in " -_" or unicodedata.category(c)[0] in "LN"]
        found.add("".join(kept).replace(" ", "-"))
    return found


class _Page(HTMLParser):
    """Names, links and fetched addresses of a page in HTML."""

    def __init__(self, text: str):
        super().__init__()
        self.names, self.links, self.fetched = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif given.get("src") or (tag == "link" and given.get("rel") in ("stylesheet", "preload")):
            self.fetched.append(given.get("src") or given["href"])


def broken_in_site(site: Path) -> list[str]:
    """ "PAGE: target" of links in built pages that lead nowhere, and of what they fetch from elsewhere."""
    read = {path: _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    wrong = []
    for path, page in read.items():
        for target in [*page.links, *page.fetched]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                good = target in page.links and (parts.scheme == "mailto" or _is_address(target))
                good |= parts.scheme == "data"
            else:
                file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                named = read.get(file)
                good = file.exists() and (not parts.fragment or not named or parts.fragment in named.names)
            wrong += [] if good else [f"{path.relative_to(site)}: {target}"]
    return wrong
