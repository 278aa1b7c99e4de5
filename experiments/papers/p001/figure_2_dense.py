"""Speed of all-in-one SVMs over processes where rows are short and where they are dense.

    python -m experiments.papers.p001.figure_2_dense [--small|--full] [--out results]

Figure 2 of Alber et al. 2017 on two problems of a thousand classes: naics2017, with five entries
a row, and made_dense, 10,000 rows of 400 random features around the means of their classes. Measured as in
:mod:`.figures_2_3`: ten epochs without shrinking by the number of processes, repetitions by turns, medians of
the clock and of the processor time of the busiest process. Each set is kept in
p001_figure_2_dense.cells.json when it is done. Writes p001_figure_2_dense.json, .md and, where matplotlib is
installed, .png.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np

from experiments import _multiclass, _report
from experiments._cells import Cells
from experiments.papers.p001 import figures_2_3


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(sets=("made_few",), processes=(1, 2), repeats=1)):
    """Speed over processes.

    Attributes:
        sets: of experiments._multiclass.SETS.
        processes: joined on this machine.
        repeats: of every timed run.
        small: short texts of a hundred classes that are made, two processes, one repetition.
        full: as without it.
    """

    sets: tuple[str, ...] = ("naics2017", "made_dense")
    processes: tuple[int, ...] = (1, 2, 4)
    repeats: int = 3


def measured(name: str, options: Options) -> dict:
    """Sizes of a set, and its rows of :func:`figures_2_3.speed`."""
    parts = _multiclass.load(name)
    n, d = parts.X.shape
    entries = float(d if isinstance(parts.X, np.ndarray) else parts.X.nnz / n)
    how = figures_2_3.Options(
        data=name, threads=(), processes=options.processes, repeats=options.repeats, out=options.out
    )
    return {
        "instances": n,
        "classes": int(parts.y.max()) + 1,
        "entries": entries,
        "rows": figures_2_3.speed(parts, how),
    }


def run(options: Options) -> dict:
    """The rows by set; each set is a single cell, because its runs go round by turns."""
    cells = Cells(options, "p001_figure_2_dense", listed=("sets",))
    found = [
        {"set": name, **cells.get(functools.partial(measured, name, options), set=name)}
        for name in options.sets
    ]
    return {"made": cells.made(), "repeats": options.repeats, "sets": found}


def markdown(result: dict) -> str:
    """A row for each set, method and number of processes."""
    cores = min(one["cores"] for one in result["made"])
    table = [
        (
            f"{one['set']}, {one['entries']:.1f} entries a row",
            figures_2_3.FORMULATIONS[row["formulation"]],
            row["count"],
            f"{row['median']:.2f}",
            "–" if drawn_beside_work(one["rows"], row, cores) else f"{row['speed_up']:.2f}",
            f"{row['busiest']:.2f}",
            f"{figures_2_3.drawn_work(one['rows'], row):.2f}",
            f"{row['together']:.2f}",
        )
        for one in result["sets"]
        for row in one["rows"]
    ]
    header = ("set", "", "processes", "seconds", "speed-up by the clock", "processor s of the busiest")
    header += ("speed-up by it", "processor s of all")
    text = f"Ten epochs without shrinking, C = 1 (Lee-Lin-Wahba: 10), medians of {result['repeats']}:\n\n"
    text += _report.markdown_table(header, table)
    if "–" in text:
        text += (
            "\nWhere a run, or that of one process, had less than 0.8 of the processors that it could use, "
            "the clock says nothing about a speed-up.\n"
        )
    return text


def drawn_beside_work(rows: list[dict], row: dict, cores: int) -> bool:
    """Whether this run or that of the fewest processes had less than 0.8 of the processors it could use."""
    could = min(row["count"], cores) * row["median"]
    return figures_2_3.drawn_beside_work(rows, row) or row["together"] < 0.8 * could


def draw(result: dict, axes) -> None:
    """Speed-up by processor time, a line for each set and method."""
    for one, style in zip(result["sets"], itertools.cycle(("^--", "o-")), strict=False):
        for formulation, title in figures_2_3.FORMULATIONS.items():
            rows = [row for row in one["rows"] if row["formulation"] == formulation]
            work = [figures_2_3.drawn_work(one["rows"], row) for row in rows]
            axes.plot([row["count"] for row in rows], work, style, label=f"{title}, {one['set']}")
    counts = sorted({row["count"] for one in result["sets"] for row in one["rows"]})
    axes.plot(counts, counts, ":", color="grey")
    axes.set(
        xlabel="processes", ylabel="speed-up, by the processor time of the busiest process", xticks=counts
    )
    axes.legend()


if __name__ == "__main__":
    _report.main("p001_figure_2_dense", Options, __doc__, run, markdown, {"p001_figure_2_dense": draw})
