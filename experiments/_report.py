"""What every experiment writes: a JSON file and a Markdown table, both with what made them."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib.metadata
import json
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from experiments import _data
from xmcjax import __version__
from xmcjax._cores import usable_cores
from xmcjax.data import atomic_write

ROOT = Path(__file__).resolve().parent.parent
# Exit statuses of an experiment: NO_DATA without a folder of data sets, NO_SET if the folder lacks a set.
# Wrong options give 2.
NO_DATA, NO_SET = 3, 4
PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "optax")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """What the options of every experiment have; a subclass names the sizes that --small stands for.

    Attributes:
        out: folder of the results.
        small: the sizes of a trial.
    """

    sizes: ClassVar[dict[str, dict[str, Any]]]
    out: Path = Path("results")
    small: bool = False

    def __init_subclass__(cls, **sizes: dict[str, Any]):
        cls.sizes = sizes

    def chosen(self) -> Self:
        """The options, with the sizes that --small stands for if it is given."""
        return dataclasses.replace(self, **self.sizes.get("small", {})) if self.small else self


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sized(Trial):
    """Options that have --full too, with its sizes where a subclass names any.

    Attributes:
        full: larger sizes.
    """

    full: bool = False

    def chosen(self) -> Self:
        """With the sizes that --small or --full stand for."""
        if self.full and "full" in self.sizes:
            return dataclasses.replace(self, **self.sizes["full"])
        return super().chosen()


@functools.cache
def commit(tree: Path = ROOT) -> str:
    """The commit of a source tree, with a word if the tree was changed since; "unknown" without git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tree), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = " with changes" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def made(name: str = "") -> dict:
    """Command, commit, date, machine and versions of this process, to be kept beside every figure.

    Args:
        name: of the experiment; for a study of a paper the hash of the measured sources is added.
    """
    from experiments.papers._sources import sources, study_of

    command = shlex.join(["python", *sys.orig_argv[1:]])
    measured = sources(study_of(name))
    more = {} if measured is None else {"sources": measured}
    return {"command": command, "commit": commit(), **more, **environment()}


def environment() -> dict:
    """Date, machine and versions."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = models[0].split(":", 1)[1].strip() if models else processor
    versions = {"xmcjax": __version__}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "date": datetime.date.today().isoformat(),
        "processor": processor,
        "cores": usable_cores(),
        "python": platform.python_version(),
        "versions": versions,
    }


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; floats with three significant digits."""

    def text(cell: object) -> str:
        return f"{cell:.3g}" if isinstance(cell, float) else str(cell)

    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(text(cell) for cell in line) + " |\n" for line in lines)


def main(
    name: str,
    options_of: type,
    description: str | None,
    run: Callable,
    markdown: Callable,
    figures: dict[str, Callable] | None = None,
) -> None:
    """The command line of an experiment: reads the options, runs, writes the results.

    Args:
        name: of the files.
        options_of: a dataclass, a subclass of :class:`Trial`.
        description: for --help.
        run: function ``(options)`` -> the result.
        markdown: function ``(result)`` -> its tables.
        figures: functions ``(result, axes)`` that draw, by name.

    Exits with a sentence and status 3 if there is no folder of data sets, or 4 if the folder lacks a set.
    """
    import tyro

    options = tyro.cli(options_of, description=description).chosen()
    try:
        result = run(options)
    except FileNotFoundError as error:
        sentence = error if error.filename is None else f"{error.filename}: expected a file, found none"
        print(f"{name}: {sentence}", file=sys.stderr)
        sys.exit(NO_DATA if isinstance(error, _data.NoDataError) else NO_SET)
    text = write(options.out, name, result, markdown(result))
    for file, draw in (figures or {}).items():
        if not figure(options.out, file, functools.partial(draw, result)):
            break  # without matplotlib the other figures cannot be drawn either
    print("\n" + text + f"\nwritten to {options.out}")


def write_text(path: Path, text: str) -> None:
    """Writes a text file completely or not at all."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write(out: Path, name: str, result: dict, markdown: str) -> str:
    """Writes ``out/name.json`` and ``out/name.md``, each completely or not at all.

    Args:
        out: folder.
        name: of the files.
        result: if it comes from cells, its entry "made" is :meth:`experiments._cells.Cells.made`; otherwise
            this process has made it.
        markdown: its tables.

    Returns:
        The content of the Markdown file: the tables, and what made them.
    """
    out.mkdir(parents=True, exist_ok=True)
    result = {"made": [made(name)], **result}
    text = markdown.rstrip("\n") + "\n\n" + origin(result["made"])
    texts = {"json": as_json(result), "md": text}
    for ending, content in texts.items():
        write_text(out / f"{name}.{ending}", content)
    return text


def as_json(result: dict) -> str:
    """JSON with short lines, so that Git can compare it, but a list or object of numbers on a single line."""
    text = json.dumps(result, indent=1, ensure_ascii=False)
    # a string of JSON contains no line feed
    numbers = re.compile(r'\[\n[^\[\]{}"]*\]|\{\n(?: *"[^"\n]*": [^\[{"\n]*\n)+ *\}')
    return (
        numbers.sub(lambda found: found[0][0] + " ".join(found[0][1:-1].split()) + found[0][-1], text) + "\n"
    )


def origin(makers: Sequence[dict]) -> str:
    """What made a result, with a line per maker; if several commits made it, the first line says so."""
    lines = []
    for one in makers:
        versions = ", ".join(f"{package} {version}" for package, version in one["versions"].items())
        count = f"{one['cells']} cells: " if "cells" in one and len(makers) > 1 else ""
        lines.append(
            f"{count}`{one['command']}`, commit {one['commit']}, {one['date']}; {one['processor']}, "
            f"{one['cores']} cores, Python {one['python']}, {versions}"
        )
    if len(lines) == 1:
        return f"Made by {lines[0]}.\n"
    commits = {one["commit"] for one in makers}
    mixed = f"Made at {len(commits)} commits" if len(commits) > 1 else "Made by several runs"
    return f"{mixed}:\n\n" + "".join(f"- {line}\n" for line in lines)


def figure(out: Path, name: str, draw: Callable) -> bool:
    """Writes ``out/name.png`` with what draw(axes) draws; without matplotlib prints so and returns False."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from PIL import Image
    except ImportError:
        print(f'no figures such as {name}.png: matplotlib is not installed (pip install ".[plots]")')
        return False
    canvas = FigureCanvasAgg(Figure(figsize=(8, 5), dpi=75, layout="constrained"))
    draw(canvas.figure.subplots())
    out.mkdir(parents=True, exist_ok=True)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    # with a palette, which holds all colours of a drawing, the file takes a quarter of the bytes
    image.quantize(64, dither=Image.Dither.NONE).save(out / f"{name}.png", optimize=True)
    return True
