"""The pages of the API: one for each public module, with all its public names.

Docstrings are plain text with roles. What they write for readers of the source, such as |w| or ``coef_``,
means something else in reStructuredText, and is escaped.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import xmcjax

# Literal text and roles stay as they are.
_KEPT = re.compile(r"(``.*?``|:[\w:]+:`[^`]*`|`[^`]*`_?)")
_FIELD = re.compile(r"^(\s*:\w+ [^:]*:|\s*\.\. .*|\s*>>> .*)")
# Roles whose target has no page here: names of other packages, and private ones.
_ELSEWHERE = re.compile(
    r":\w+:`~?((?:numpy|scipy|jax|sklearn|optax|dask)\.[\w.]*|[\w.]*\b_\w[\w.]*|[\w.]*\._\w[\w.]*)`"
)
# Roles of the documentation of scikit-learn, from which estimators have some methods.
_FOREIGN = re.compile(r":(?:ref|term):`([^`<]*?)\s*(?:<[^>`]*>)?`")


# Modules of one solver each, which stand beside packages of others.
_SOLVERS = ("xmcjax.solvers.instance_dual", "xmcjax.solvers.newton_cg", "xmcjax.solvers.topk_sdca")


def public_modules() -> list[str]:
    """Names of the packages, and of the modules that are solvers; not the command line, nor native code."""
    found = ["xmcjax"]
    for one in pkgutil.walk_packages(xmcjax.__path__, "xmcjax."):
        parts = one.name.split(".")
        if any(part.startswith("_") for part in parts) or parts[1] in ("cli", "native"):
            continue
        if one.ispkg or one.name in _SOLVERS:
            found.append(one.name)
    return found


def names_of(module: ModuleType) -> list[str]:
    """What a module has for its users: ``__all__``, or what it defines, or imports under its own name."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
    names: list[str] = []
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom):
            names += [alias.name for alias in node.names if alias.asname == alias.name]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    public = [name for name in dict.fromkeys(names) if not name.startswith("_")]
    return [name for name in public if not inspect.ismodule(getattr(module, name))]


def documented(module: ModuleType) -> dict[str, Any]:
    """The functions and classes among the public names, each of which has a docstring and an example."""
    values = {name: getattr(module, name) for name in names_of(module)}
    return {name: value for name, value in values.items() if _is_code(value)}


def _is_code(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__")


def escaped(line: str) -> str:
    """A line of a docstring in which bars and final underscores are only that."""
    line = _ELSEWHERE.sub(r"``\1``", _FOREIGN.sub(r"\1", line))
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
    from sphinx.pycode import ModuleAnalyzer

    lines = [f".. py:data:: {name}.{public}", ""]
    for key, comment in ModuleAnalyzer.for_module(name).find_attr_docs().items():
        if key == ("", public):
            lines += [f"   {escaped(line)}" for line in comment]
    return lines


def page_of(name: str, written: dict[int, str]) -> str:
    """A page in reStructuredText; of what another page has already there is a link."""
    module = importlib.import_module(name)
    lines = [name, "=" * len(name), "", f".. automodule:: {name}", "   :no-members:", ""]
    for public in names_of(module):
        value = getattr(module, public)
        if not _is_code(value):
            lines += [*_data(name, public), ""]
            continue
        kind = "class" if inspect.isclass(value) else "function"
        if id(value) in written:
            role = "class" if kind == "class" else "func"
            lines += [f"``{public}`` is :{role}:`{written[id(value)]}`.", ""]
            continue
        written[id(value)] = f"{name}.{public}"
        lines.append(f".. auto{kind}:: {name}.{public}")
        if kind == "class":
            lines.append("   :members:")
        lines.append("")
    return "\n".join(lines)


def write_pages(folder: Path) -> None:
    """Writes the pages and their index; a page that has not changed keeps its time."""
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[int, str] = {}
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
