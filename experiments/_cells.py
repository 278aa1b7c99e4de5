"""Results of single runs, kept in a file: an experiment that was stopped goes on where it was.

A cell is found by everything that was asked for. Options of the experiment are part of it by themselves, so
that a new one cannot be forgotten; only those that list the cells, such as the sets or the methods, are named
by the experiment, which then says of each cell which of them it is. With its result a cell keeps what made
it: command, commit, date, machine, versions, and of the study of a paper a hash of what it measures. A cell
whose hash is another one than today's is not taken.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from experiments import _report
from experiments.papers._sources import sources, study_of

# Of every experiment: where results go, and what stands for other options.
NO_PART = ("out", "small", "full")
# Characters of a result that are printed when it is there.
MOST_PRINTED = 1000


class Cells:
    """The cells of an experiment, in ``NAME.cells.json``, which is written after each.

    Args:
        options: of the experiment, a dataclass with the folder ``out``.
        name: of the experiment.
        listed: names of the options that list cells; what they are for a cell stands in `asked`.

    Raises:
        ValueError: the file is none of cells.
    """

    def __init__(self, options: Any, name: str, listed: Sequence[str] = ()):
        fields = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
        unknown = set(listed) - fields.keys()
        if unknown:
            raise ValueError(f"expected names of options, got {', '.join(sorted(unknown))}")
        self._name, self.path = name, options.out / f"{name}.cells.json"
        self._common = {n: value for n, value in fields.items() if n not in (*NO_PART, *listed)}
        self._sources = sources(study_of(name))
        self._cells = self._fresh(self._stored())
        self._used: set[str] = set()

    def get(self, work: Callable[[], dict], without: Sequence[str] = (), /, **asked) -> dict:
        """What is stored of this cell, or what `work` gives, which is stored.

        Args:
            work: gives the result, which JSON can hold.
            without: names of options that do not change this result.
            asked: what tells the cell from others of the same options.
        """
        key = self._key(without, asked)
        if key not in self._cells:
            self.put(work(), without, **asked)
        self._used.add(key)
        return self._cells[key]["found"]

    def put(self, found: dict, without: Sequence[str] = (), /, **asked) -> None:
        """Stores a result; the arguments are those of :meth:`get`."""
        key = self._key(without, asked)
        # as it is when it is read again
        cell = {"asked": json.loads(key), "made": _report.made(self._name), "found": found}
        # what another process has stored meanwhile stays
        cells = {**self._stored(), **self._cells, key: json.loads(json.dumps(cell))}
        self._cells = self._fresh(cells)
        self._used.add(key)
        said = ", ".join(f"{name} {value}" for name, value in asked.items())
        print(said, json.dumps(found)[:MOST_PRINTED], flush=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _report.write_text(self.path, json.dumps(list(cells.values()), indent=1) + "\n")

    def has(self, without: Sequence[str] = (), /, **asked) -> bool:
        """Whether the cell is stored."""
        return self._key(without, asked) in self._cells

    def alike(self, **asked) -> Iterator[tuple[dict, dict]]:
        """What was asked for and the result, of every stored cell of these options that has these values."""
        wanted = json.loads(json.dumps({**self._common, **asked}))
        for key, cell in self._cells.items():
            if all(cell["asked"].get(name) == value for name, value in wanted.items()):
                self._used.add(key)
                yield cell["asked"], cell["found"]

    def made(self) -> list[dict]:
        """What made the cells that were used, each with the number of its ``cells``."""
        counts: dict[str, int] = {}
        for key in self._used:
            text = json.dumps(self._cells[key]["made"], sort_keys=True)
            counts[text] = counts.get(text, 0) + 1
        return [{**json.loads(text), "cells": count} for text, count in sorted(counts.items())]

    def _key(self, without: Sequence[str], asked: dict) -> str:
        common = {name: value for name, value in self._common.items() if name not in without}
        twice = common.keys() & asked.keys()
        if twice or not self._common.keys() >= set(without):
            raise ValueError(f"{', '.join(twice or without)}: asked for twice, or no option of the cells")
        return json.dumps({**common, **asked}, sort_keys=True)

    def _fresh(self, cells: dict[str, dict]) -> dict[str, dict]:
        """Those that were made by today's sources."""
        return {key: cell for key, cell in cells.items() if cell["made"].get("sources") == self._sources}

    def _stored(self) -> dict[str, dict]:
        """By their keys."""
        if not self.path.exists():
            return {}
        cells = json.loads(self.path.read_text())
        if not isinstance(cells, list):
            raise ValueError(
                f"{self.path}: expected a list of cells with what was asked for, found the form of an "
                "earlier version; take another folder"
            )
        return {json.dumps(cell["asked"], sort_keys=True): cell for cell in cells}
