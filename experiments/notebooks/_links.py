"""Where the notebooks are opened: files of the repository, and Colab once the repository has an address.

The address is only in ``Repository`` of ``[project.urls]`` in pyproject.toml. While it is missing, no link to
Colab is made anywhere.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from experiments.notebooks._convert import FOLDER, NAMES, notebook

ROOT = FOLDER.parent.parent
BRANCH = "main"
# What README.md has between these lines is written by --sync.
BEGIN, END = "<!-- notebooks -->\n", "<!-- end of notebooks -->"


def repository(pyproject: Path = ROOT / "pyproject.toml") -> str:
    """The address of the repository without a slash at its end; "" where pyproject.toml has none.

    Raises:
        ValueError: the entry is no address.
    """
    urls = tomllib.loads(pyproject.read_text())["project"].get("urls", {})
    address = urls.get("Repository", "").rstrip("/").removesuffix(".git")
    if address and not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", address):
        raise ValueError(f"{pyproject.name}: expected in Repository https://HOST/OWNER/NAME, found {address}")
    return address


def in_colab(name: str, address: str) -> str:
    """The address at which Colab opens a notebook; "" for a repository that is not on GitHub."""
    owner = address.removeprefix("https://github.com/")
    if owner == address:
        return ""
    place = (FOLDER / f"{name}.ipynb").relative_to(ROOT)
    return f"https://colab.research.google.com/github/{owner}/blob/{BRANCH}/{place}"


def title(name: str) -> str:
    """The title of a notebook, from its first cell."""
    return notebook(name).cells[0].source.partition("\n")[0].removeprefix("# ")


def with_list(page: str, address: str) -> str:
    """README.md with its list of notebooks made anew, each with its link to Colab where there is one.

    Raises:
        ValueError: the page has no place for the list.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"expected {BEGIN.strip()} and {END} in README.md, found no such lines")
    lines = []
    for name in NAMES:
        file, colab = (FOLDER / f"{name}.ipynb").relative_to(ROOT), in_colab(name, address)
        lines.append(f"- [{title(name)}]({file})" + (f", [open in Colab]({colab})" if colab else "") + "\n")
    return before + begin + "".join(lines) + end + after


def line_on_page(name: str, address: str) -> str:
    """The line under the title of a notebook's page on the site, in MyST."""
    colab = in_colab(name, address)
    parts = [f"[Open in Colab]({colab})"] if colab else []
    file = f"/../{(FOLDER / name).relative_to(ROOT)}"
    parts += [f"{{download}}`Download the notebook <{file}.ipynb>`", f"{{download}}`the script <{file}.py>`"]
    return " · ".join(parts)
