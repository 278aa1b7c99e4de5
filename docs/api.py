"""The pages of the API: one for each public module, with all its public names.

Docstrings are plain text with roles. What they write for readers of the source, such as |w| or ``coef_``,
means something else in reStructuredText, and is escaped.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.pycode import ModuleAnalyzer

import xmcjax

# Literal text and roles stay as they are.
_KEPT = re.compile(r"(``.*?``|:[\w:]+:`[^`]*`|`[^`]*`_?)")
_FIELD = re.compile(r"^(\s*:\w+ [^:]*:|\s*\.\. .*|\s*>>> .*)")
# Roles of the documentation of scikit-learn, from which estimators have some methods.
_FOREIGN = re.compile(r":(?:ref|term):`([^`<]*?)\s*(?:<[^>`]*>)?`")


def public_modules() -> list[str]:
    """Names of the packages and modules without an underscore; not the command line, nor native code."""
    found = ["xmcjax"]
    for one in pkgutil.walk_packages(xmcjax.__path__, "xmcjax."):
        parts = one.name.split(".")
        if any(part.startswith("_") for part in parts) or parts[1] in ("cli", "native"):
            continue
        found.append(one.name)
    return [name for name in found if names_of(importlib.import_module(name))]


def names_of(module: ModuleType) -> list[str]:
    """What a module has for its users."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    return [name for name in names if not inspect.ismodule(getattr(module, name))]


def escaped(line: str) -> str:
    """A line of a docstring in which bars and final underscores are only that."""
    line = _FOREIGN.sub(r"\1", line)
    field = _FIELD.match(line)
    head = field[0] if field else ""
    if head.lstrip().startswith(("..", ">>>")):
        return line
    parts = _KEPT.split(line[len(head) :])
    for k in range(0, len(parts), 2):
        parts[k] = re.sub(r"(\|)|(?<=\w)(_)(?!\w)|(?<![\\*])(\*)(?=[\w*])", r"\\\g<0>", parts[k])
    return head + "".join(parts)


def escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Sphinx's hook for docstrings."""
    lines[:] = [escaped(line) for line in lines]


def _data(name: str, public: str) -> list[str]:
    """A table or a number, with the comment that stands above it in the source."""
    lines = [f".. py:data:: {name}.{public}", ""]
    for key, comment in ModuleAnalyzer.for_module(name).find_attr_docs().items():
        if key == ("", public):
            lines += [f"   {escaped(line)}" for line in comment]
    return lines


def page_of(name: str, written: set[int]) -> str:
    """A page in reStructuredText; what another page has already is not indexed again."""
    module = importlib.import_module(name)
    lines = [name, "=" * len(name), "", f".. automodule:: {name}", "   :no-members:", ""]
    for public in names_of(module):
        value = getattr(module, public)
        if not (inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__")):
            lines += [*_data(name, public), ""]
            continue
        kind = "class" if inspect.isclass(value) else "function"
        lines.append(f".. auto{kind}:: {name}.{public}")
        if id(value) in written:
            lines.append("   :no-index:")
        written.add(id(value))
        if kind == "class":
            lines.append("   :members:")
        lines.append("")
    return "\n".join(lines)


def write_pages(folder: Path) -> None:
    """Writes the pages and their index; a page that has not changed keeps its time."""
    folder.mkdir(parents=True, exist_ok=True)
    written: set[int] = set()
    modules = public_modules()
    pages = {f"{name}.rst": page_of(name, written) for name in modules}
    toctree = ["API", "===", "", "Every public name, by module.", "", ".. toctree::", "   :maxdepth: 1", ""]
    pages["index.rst"] = "\n".join([*toctree, *(f"   {name}" for name in modules), ""])
    for old in folder.glob("*.rst"):
        if old.name not in pages:
            old.unlink()
    for file, text in pages.items():
        path = folder / file
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
