"""Results of single runs ("cells"), kept in a file, so that a stopped experiment continues where it was.

The key of a cell is everything that was asked for. All options of the experiment are part of it
automatically, so that a new option cannot be forgotten. Only options that list cells, such as the sets or the
methods, are named by the experiment, which then states their values for each cell. With its result a cell
keeps what made it: command, commit, date, machine, versions, and in the study of a paper a hash of the
sources that it measures. A cell whose hash differs from the present one is not used.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from experiments import _report
from experiments.papers._sources import sources, study_of

# Options of every experiment that are no part of a key: the folder of the results, and names for sizes.
NO_PART = ("out", "small", "full")
# The most characters of a new result that are printed.
MOST_PRINTED = 1000


class Cells:
    """The cells of an experiment, in ``NAME.cells.json``, which is written after each.

    Args:
        options: of the experiment, a dataclass with the folder ``out``.
        name: of the experiment.
        listed: names of the options that list cells; `asked` has their values for each cell.

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
        """The stored result of this cell, or else that of `work`, which is then stored.

        Args:
            work: function that gives the result, which JSON can hold.
            without: names of options that do not change this result.
            asked: values that distinguish the cell from others with the same options.
        """
        key = self._key(without, asked)
        if key not in self._cells:
            self.put(work(), without, **asked)
        self._used.add(key)
        return self._cells[key]["found"]

    def put(self, found: dict, without: Sequence[str] = (), /, **asked) -> None:
        """Stores a result; the arguments are those of :meth:`get`."""
        key = self._key(without, asked)
        # in the form in which it will be read again
        cell = {"asked": json.loads(key), "made": _report.made(self._name), "found": found}
        # cells that another process has stored meanwhile are kept
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
        """(asked, result) of every stored cell that has these options and these values."""
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
        """The cells that were made by the present sources."""
        return {key: cell for key, cell in cells.items() if cell["made"].get("sources") == self._sources}

    def _stored(self) -> dict[str, dict]:
        """The cells in the file, by their keys."""
        if not self.path.exists():
            return {}
        cells = json.loads(self.path.read_text())
        if not isinstance(cells, list):
            raise ValueError(
                f"{self.path}: expected a list of cells with what was asked for, found the form of an "
                "earlier version; take another folder"
            )
        return {json.dumps(cell["asked"], sort_keys=True): cell for cell in cells}
