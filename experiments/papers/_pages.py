"""The pages of docs/papers: the map of all items, and our results paper by paper."""

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

from experiments import _report
from experiments.papers._sources import ROOT, result_name, sources
from experiments.papers.catalogue import ITEMS, Item
from experiments.papers.titles import PAPERS, STATUSES

#: The folder of the results that the pages show.
RESULTS = ROOT / "experiments" / "results"
# The hashes of `numbers_of` for which remarks were last read. A program cannot tell whether a sentence is
# true of a table, but it can tell when to read the sentence again.
_READ = ROOT / "experiments" / "papers" / "remarks_read.json"
_MADE_BY = "`python -m experiments.papers --pages`"


def pages() -> dict[str, str]:
    """The text of each page, by the name of its file."""
    texts = {"index.md": index()}
    for paper in PAPERS:
        studies = [study for study in _studies(paper) if result_of(study).exists()]
        if studies:
            texts[f"{paper}.md"] = _results(paper, studies)
    return texts


def result_of(study: str) -> Path:
    """The committed result of a study."""
    return RESULTS / f"{result_name(study)}.json"


def remarks_read() -> dict[str, str]:
    """For each paper, the hash of the results with which its remarks were last compared."""
    return json.loads(_READ.read_text())


def read_remarks(papers: tuple[str, ...]) -> None:
    """Notes that the remarks on these papers agree with their present results."""
    read = remarks_read() | {paper: numbers_of(paper) for paper in papers or PAPERS}
    _report.write_text(_READ, json.dumps(dict(sorted(read.items())), indent=1) + "\n")


def numbers_of(paper: str) -> str:
    """A hash of all results of a paper, without what made them."""
    digest = hashlib.sha256()
    for study in _studies(paper):
        if (path := result_of(study)).exists():
            result = {name: part for name, part in json.loads(path.read_text()).items() if name != "made"}
            digest.update(f"{study} {json.dumps(result, sort_keys=True)}".encode())
    return digest.hexdigest()[:16]


def _studies(paper: str) -> list[str]:
    return list(dict.fromkeys(item.study for item in ITEMS if item.paper == paper and item.study is not None))


def index() -> str:
    """The map of all items."""
    text = [
        "# The five papers",
        "",
        "Every table, figure and algorithm of the five papers that this library stands on, how far it is "
        f"reproduced here, and what makes it. The pages of this folder are made by {_MADE_BY}.",
        "",
        *(f"- **{status}**: {sense}" for status, sense in STATUSES.items()),
        "",
        "`--full` takes the sizes of the papers, where the data allow them, and less than six hours a paper "
        "on two cores. The hours below are worked out from times that results and notes record: no run has "
        "made all of a paper in one go. What a study of more than minutes has done is kept, and the same "
        "command goes on from there when it was stopped.",
    ]
    header = ("item", "shows", "status", "command", "made by", "remark")
    for number, paper in PAPERS.items():
        mine = [item for item in ITEMS if item.paper == number]
        more = any(result_of(study).exists() for study in _studies(number))
        ours = f"; results of today's code: [{number}.md]({number}.md)" if more else ""
        rows = [
            (item.name, item.shows, item.status, _command(item), _makers(item), item.remark) for item in mine
        ]
        text += [
            "",
            f"## {number}: {paper.title}",
            "",
            f"{paper.authors}, {paper.year}. Our numbers: [{Path(paper.page).name}](../{paper.page}){ours}.",
            "",
            f"    python -m experiments.papers {number}",
            "",
            f"With `--full` {paper.full}.",
            "",
            _report.markdown_table(header, rows).rstrip("\n"),
        ]
    return "\n".join(text) + "\n"


def _command(item: Item) -> str:
    """The command that makes only this item."""
    return "–" if item.study is None else f"`{item.command()}`"


def _makers(item: Item) -> str:
    """The study, with a link to its results, or the modules of the library."""
    if item.study is not None:
        there = f"({item.paper}.md#{item.study.replace('.', '')})"
        return f"[`{item.study}`]{there}" if result_of(item.study).exists() else f"`{item.study}`"
    names = [f"`xmcjax.{name}`" for name in item.code.split(", ") if name]
    return ", ".join(names) or "–"


def _results(paper: str, studies: list[str]) -> str:
    """The tables and pictures of the studies that were run for the page."""
    text = [
        f"# {paper}: {PAPERS[paper].title}",
        "",
        "Results of the studies of this paper, as they lie in experiments/results; the page is made by "
        f"{_MADE_BY}. [The map](index.md) says what the paper has and what is missing.",
    ]
    if PAPERS[paper].first:
        text[2:2] = [PAPERS[paper].first, ""]
    for study in studies:
        result = json.loads(result_of(study).read_text())
        text += ["", f"## {study}", "", _module(study).markdown(result).strip("\n")]
        for item in ITEMS:
            if item.study == study and item.output.endswith(".png") and (RESULTS / item.output).exists():
                text += ["", f"![{item.name}](../../experiments/results/{item.output})"]
        text += ["", _report.origin(result["made"]).rstrip("\n")]
        if any(one.get("sources") != sources(study) for one in result["made"]):
            text += ["", "**Older than the code that it measures.**"]
    return "\n".join(text) + "\n"


def _module(study: str) -> Any:
    package = (ROOT / Path(*study.split("."))).is_dir()
    return importlib.import_module(f"{study}.__main__" if package else study)
