"""What every experiment writes: a JSON file with the machine and the versions, and a Markdown table."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

from xmcjax import __version__
from xmcjax._cores import usable_cores
from xmcjax.data import atomic_write

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "optax")


def environment() -> dict:
    """Date, processor and versions, to be kept beside every figure."""
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
        options_of: a dataclass with ``out`` and with ``chosen()``, the options with their sizes.
        description: of the help.
        run: ``(options)`` -> the result.
        markdown: ``(result)`` -> its tables.
        figures: by name, ``(result, axes)``.
    """
    import tyro

    options = tyro.cli(options_of, description=description).chosen()
    result = run(options)
    text = markdown(result)
    write(options.out, name, result, text)
    for file, draw in (figures or {}).items():
        if not figure(options.out, file, functools.partial(draw, result)):
            break  # nor can the others be drawn
    print("\n" + text + f"\nwritten to {options.out}")


def kept(path: Path, asked: dict, work: Callable[[], dict]) -> dict:
    """``{**asked, **work()}``, stored in the JSON file; taken from there where the same was asked for."""
    done = json.loads(path.read_text()) if path.exists() else {}
    if {key: done.get(key) for key in asked} != asked:
        done = {**asked, **work()}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(done))
    return done


def write_text(path: Path, text: str) -> None:
    """The whole file or none."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write(out: Path, name: str, result: dict, markdown: str) -> None:
    """``out/name.json`` and ``out/name.md``, each whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    result = {"environment": environment(), **result}
    texts = {"json": json.dumps(result, indent=1, ensure_ascii=False) + "\n", "md": markdown}
    for ending, text in texts.items():
        write_text(out / f"{name}.{ending}", text)


def figure(out: Path, name: str, draw: Callable) -> bool:
    """``out/name.png`` of what draw(axes) draws; without matplotlib a line that says so, and False."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print(f'no figures such as {name}.png: matplotlib is not installed (pip install ".[plots]")')
        return False
    canvas = FigureCanvasAgg(Figure(figsize=(8, 5), layout="constrained"))
    draw(canvas.figure.subplots())
    out.mkdir(parents=True, exist_ok=True)
    canvas.print_png(out / f"{name}.png")
    return True
