"""The tables and figures of the five papers, all of them or some.

    python -m experiments.papers [000 … 004] [--item figure-3] [--small|--full] [--keep] [--out results]
    python -m experiments.papers [000 … 004] --read

Runs the studies that make them, each once and in a process of its own, and says for each table and figure
where it is, or why there is none. What a study has done is kept in its NAME.cells.json, so that a run goes
on where it was stopped. --keep copies results and pictures to experiments/results and writes docs/papers
from what is there, which --pages does without a run. --list says what there is. Writes papers.json, and
NAME.json, .md and .png of each study. The remarks on a paper have numbers of its results: when these have
changed, read the remarks (titles.py, catalogue.py) against them, mend them, and say so by --read, which a
test asks for.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from experiments import _report
from experiments._rehearsal import rehearsal
from experiments.papers import _pages
from experiments.papers.catalogue import Item, items

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclasses.dataclass(frozen=True)
class Options:
    """Tables and figures of the papers.

    Attributes:
        papers: 000 to 004; all if none is given.
        item: name of a table or a figure, such as figure-3; all if not given.
        out: folder of the results.
        small: small data, less than ten minutes on two cores for all papers.
        full: the sizes of the papers, where the data allow them: hours.
        keep: put the results into experiments/results, and write docs/papers.
        list: say what there is, and run nothing.
        pages: write docs/papers, and run nothing.
        read: note that the remarks on the papers say what their results say, and run nothing.
    """

    papers: tyro.conf.Positional[tuple[str, ...]] = ()
    item: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    out: Path = Path("results")
    small: bool = False
    full: bool = False
    keep: bool = False
    list: bool = False
    pages: bool = False
    read: bool = False


def run(options: Options) -> dict:
    """Runs the studies of the items. Returns, by study, how it ended and its seconds."""
    chosen = items(options.papers, options.item)
    with tempfile.TemporaryDirectory() as programs:
        environment = rehearsal(os.environ, Path(programs)) if options.small else None
        ended = _ended(options, chosen, environment)
    return {"items": [dataclasses.asdict(item) for item in chosen], "studies": ended}


def _ended(options: Options, chosen: Sequence[Item], environment: dict[str, str] | None) -> dict[str, dict]:
    """Runs studies; by study, how it ended and its seconds."""
    ended = {}
    for study in dict.fromkeys(item.study for item in chosen if item.study is not None):
        flags = ["--small"] * options.small + ["--full"] * options.full
        command = [sys.executable, "-m", study, *flags, "--out", os.path.relpath(options.out.resolve(), ROOT)]
        print(f"{study}: {shlex.join(command[1:])}", flush=True)
        begin = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        ended[study] = {"status": done.returncode, "seconds": time.perf_counter() - begin}
    return ended


def keep(options: Options, result: dict) -> None:
    """Copies the results and pictures of the studies that ended well to experiments/results."""
    ended = {study for study, end in result["studies"].items() if end["status"] == 0}
    pictures = {item["output"] for item in result["items"] if item["study"] in ended}
    names = {_pages.result_of(study).name for study in ended} | pictures
    _pages.RESULTS.mkdir(exist_ok=True)
    for name in sorted(names):
        if not name.endswith(".md") and (options.out / name).exists():
            shutil.copyfile(options.out / name, _pages.RESULTS / name)


def write_pages() -> None:
    """Writes docs/papers from the list of items and the results."""
    for name, text in _pages.pages().items():
        _report.write_text(ROOT / "docs" / "papers" / name, text)


def markdown(result: dict, out: Path) -> str:
    """A row for each item: where it is, or why it is not there."""
    rows = []
    for values in result["items"]:
        item = Item(**values)
        ended = result["studies"].get(item.study)
        if ended is None:
            place = "–"
        elif ended["status"] == _report.NO_DATA:
            place = "its data are not here"
        elif ended["status"]:
            place = f"failed with status {ended['status']}"
        else:
            place = item.output if (out / item.output).exists() else f"{item.output} was not made"
        seconds = f"{ended['seconds']:.0f}" if ended else ""
        rows.append((item.paper, item.name, item.status, place, seconds, item.remark))
    return _report.markdown_table(("paper", "item", "status", "file", "s", ""), rows)


def main() -> None:
    """Reads the options, runs, writes the results.

    Exits with status 2 for an unknown item, and with 1 where a study failed.
    """
    options = tyro.cli(Options, description=__doc__)
    if options.pages:
        write_pages()
        return
    try:
        chosen = items(options.papers, options.item)
    except ValueError as error:
        print(f"python -m experiments.papers: error: {error}", file=sys.stderr)
        sys.exit(2)
    if options.read:
        _pages.read_remarks(tuple(sorted({item.paper for item in chosen})))
        return
    if options.list:
        for item in chosen:
            print(f"{item.paper}  {item.name:14} {item.status:12} {item.shows}: {item.study or 'no study'}")
        return
    result = run(options)
    if options.keep:
        keep(options, result)
        write_pages()
    text = _report.write(options.out, "papers", result, markdown(result, options.out))
    print("\n" + text)
    if any(ended["status"] not in (0, _report.NO_DATA) for ended in result["studies"].values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
