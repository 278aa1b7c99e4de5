"""The tables of options in docs/reference/cli.md are made of the flags.

``python -m tests.support.cli_reference docs/reference/cli.md`` writes them anew.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
import typing
from pathlib import Path
from typing import Any

from tests.support.internals import CLI_MODULES, option_tables
from xmcjax.cli.main import COMMANDS

# The options that several estimators and commands have, and the flag of an option.
SHARED, flag_of = option_tables.SHARED, option_tables.flag_of
_HEAD = ["| option | default | meaning |", "|---|---|---|"]
# The section of the options that several commands have.
SHARED_SECTION = "Data files"


def sections() -> dict[str, type]:
    """The dataclass of flags that each section of the page is about."""
    found: dict[str, type] = {
        name: importlib.import_module(f"xmcjax.cli.{name}").Options for name in COMMANDS
    }
    for system, module in CLI_MODULES.items():
        if module != "train":
            found[f"train --system {system}"] = importlib.import_module(f"xmcjax.cli.{module}").Options
    found = {name: options for name, options in found.items() if dataclasses.fields(options)}
    hints = [hint for hint in typing.get_type_hints(found["train"]).values() if isinstance(hint, type)]
    return found | {SHARED_SECTION: next(hint for hint in hints if dataclasses.is_dataclass(hint))}


def rows(options: type) -> list[str]:
    """A table of the flags of a dataclass; those of a dataclass within it are left out."""
    hints, texts = typing.get_type_hints(options, include_extras=True), _texts(options)
    lines = list(_HEAD)
    for field in dataclasses.fields(options):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            continue
        given = [found.help for found in getattr(hint, "__metadata__", ()) if getattr(found, "help", None)]
        text = (given or [texts.get(field.name, "")])[-1].removesuffix(".") + "."
        names = _names(hint)
        if names:
            text += f" One of {', '.join(f'`{name}`' for name in names)}."
        text = re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", text).replace("|", "\\|")
        flag = flag_of(field.name, field.default)
        lines.append(f"| `{flag}` | {_default(field.default)} | {text} |")
    return lines


def page(text: str) -> str:
    """The page with the tables of its sections made anew.

    Raises:
        ValueError: a section is missing, or has no table of options.
    """
    for name, options in sections().items():
        begin = re.search(rf"^## {re.escape(name)}$", text, re.MULTILINE)
        table = re.compile(r"^\| option \| default \|.*(?:\n\|.*)*", re.MULTILINE)
        found = begin and table.search(text, begin.end())
        if not begin or not found or "\n## " in text[begin.end() : found.start()]:
            raise ValueError(f"expected a section {name} with a table of options, found none")
        text = text[: found.start()] + "\n".join(rows(options)) + text[found.end() :]
    return text


def _texts(options: type) -> dict[str, str]:
    """What the docstrings of a dataclass and of its bases say about each field."""
    texts: dict[str, str] = {}
    for kind in reversed(options.__mro__[:-1]):
        _, _, section = (inspect.cleandoc(kind.__doc__ or "")).partition("Attributes:\n")
        entries = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", section, re.MULTILINE)
        texts |= {name: " ".join(text.split()) for name, text in entries}
    return texts


def _names(hint: Any) -> tuple:
    """The texts that a flag takes, where it takes some only."""
    if typing.get_origin(hint) is typing.Annotated:
        return _names(typing.get_args(hint)[0])
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()


def _default(value: Any) -> str:
    if value is dataclasses.MISSING:
        return "required"
    if value is None or isinstance(value, bool) or value == "":
        return ""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"`{value}`" if isinstance(value, str) else f"{value:g}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text()))
