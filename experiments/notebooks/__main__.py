"""Executes the notebooks and publishes them with their outputs.

    python -m experiments.notebooks [--name ...] [--out docs/notebooks] [--limit 300] [--sync]

Each runs in a process of its own, a kernel that ends with it, in an empty folder and with a time limit. The
cell that installs the package is left out. With --sync nothing is executed: the .ipynb beside each script is
written anew, and README.md's list of them, with links to Colab where pyproject.toml has the address.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from pathlib import Path

from xmcjax.data import atomic_write

from experiments.notebooks import _links
from experiments.notebooks._convert import FOLDER, NAMES, introduction, notebook, text

ROOT = Path(__file__).resolve().parent.parent.parent
# Packages that the cells of a notebook need beyond xmcjax; if one is missing, the notebook is left out.
NEEDS = {"topk_in_a_network": ("flax", "equinox")}


@dataclasses.dataclass(frozen=True)
class Options:
    """Executes the notebooks and publishes them with their outputs.

    Attributes:
        name: of notebooks; empty for all.
        out: folder of the executed notebooks and their index.
        limit: most seconds of a notebook.
        sync: write the .ipynb without outputs beside the scripts and README.md's list, and execute nothing.
    """

    name: tuple[str, ...] = ()
    out: Path = ROOT / "docs" / "notebooks"
    limit: float = 300.0
    sync: bool = False


class Failed(Exception):
    """A notebook that does not run; the text says which, and where."""


def execute(name: str, limit: float, folder: Path = FOLDER) -> str:
    """The notebook with outputs, as JSON.

    Raises:
        Failed: a cell raised, the kernel died, or the time was up.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    made, end = notebook(name, folder), time.monotonic() + limit
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with tempfile.TemporaryDirectory() as place:
        client = NotebookClient(
            made,
            kernel_name="python3",
            timeout_func=lambda cell: max(1, int(end - time.monotonic())),
            resources={"metadata": {"path": place}},
            record_timing=False,
        )
        try:
            client.execute(env=environment)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            limited = isinstance(error, CellTimeoutError)
            reason = f"expected an end within {limit:g} s, found none" if limited else str(error)
            raise Failed(f"{name}: {reason}") from error
    return nbformat.writes(made)


def missing(name: str) -> list[str]:
    """Packages of NEEDS that are not installed."""
    import importlib.util

    return [package for package in NEEDS.get(name, ()) if importlib.util.find_spec(package) is None]


def index(names: list[str]) -> str:
    """A page with the titles and first paragraphs of the notebooks."""
    titles = [(name, *introduction(name)) for name in names]
    items = [f"- [{title}]({name}.ipynb): {paragraph}" for name, title, paragraph in titles]
    return "\n".join(["# Notebooks\n", *items, ""])


def write(path: Path, content: str) -> None:
    """Writes a file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(content.encode())


def run(options: Options) -> list[str]:
    """Executes or writes the notebooks. Returns a sentence for each notebook that failed."""
    names = options.name or NAMES
    for name in names:
        if name not in NAMES:
            raise SystemExit(f"--name: expected notebooks of {', '.join(NAMES)}, got {name}")
    failed, published = [], []
    for name in names:
        if options.sync:
            write(FOLDER / f"{name}.ipynb", text(name))
            continue
        if absent := missing(name):
            print(f"{name} is left out: {' and '.join(absent)} not installed", flush=True)
            continue
        begin = time.monotonic()
        try:
            write(options.out / f"{name}.ipynb", execute(name, options.limit))
        except Failed as error:
            failed.append(str(error))
            continue
        published.append(name)
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    if published and not options.name:
        write(options.out / "index.md", index(published))
    if options.sync:
        readme = ROOT / "README.md"
        write(readme, _links.with_list(readme.read_text(), _links.repository()))
    return failed


def main() -> None:
    """Reads the options, runs, and exits with 1 where a notebook failed."""
    import tyro

    failed = run(tyro.cli(Options, description=__doc__))
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
