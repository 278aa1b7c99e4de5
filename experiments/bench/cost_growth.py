"""How time and memory of one-vs-all training grow with rows, features, labels, non-zeros and threads.

    python -m experiments.bench.cost_growth [--small|--full] [--out results]

Power-law sets around one size, of which one number at a time is varied; every run is a process of its own
that keeps no weights. The labels that are trained are a seeded sample of four times the largest number, so
that they have as many positives whatever their number. Time is that of the processor, for threads that of
the clock, compilation included; memory is what the peak of the resident memory grows by during training.
An exponent is the slope of the logarithm against that of the varied number, by least squares. Runs are
kept in cost_growth.cells.json. Writes cost_growth.json, .md and .png.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
from pathlib import Path

import numpy as np

from experiments import _data, _one_vs_all, _report
from experiments._cells import Cells
from experiments.bench import _worker

NAME = "cost_growth"
AXES = ("rows", "features", "labels", "nonzeros", "threads")


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Growth of time and memory.

    Attributes:
        rows, features, labels, nonzeros: of the run in the middle; non-zeros are of a row.
        factors: by which each is multiplied, alone.
        threads: as many as there are cores at most.
        inits: starting weights.
        repeats: of every run.
        small: 4,000 rows and features, 100 labels; halves and doubles.
        full: five repetitions.
    """

    rows: int = 20_000
    features: int = 20_000
    labels: int = 500
    nonzeros: int = 40
    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    threads: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    inits: tuple[str, ...] = ("mean_separating", "zero")
    repeats: int = 1

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            return dataclasses.replace(self, repeats=max(self.repeats, 5))
        if self.small:
            return dataclasses.replace(self, rows=4_000, features=4_000, labels=100, factors=(0.5, 1.0, 2.0))
        return self


def run(options: Options) -> dict:
    """By start and axis: the numbers, times, memories and exponents."""
    processors = _worker.usable_processors()
    cores = len(processors) or os.cpu_count() or 1
    middle = {name: getattr(options, name) for name in ("rows", "features", "labels", "nonzeros")}
    cells = Cells(options, NAME, listed=(*middle, "factors", "inits", "threads", "repeats"))
    curves: dict = {init: {axis: [] for axis in AXES} for init in options.inits}
    for axis in AXES:
        if axis == "threads":
            numbers = [threads for threads in options.threads if threads <= cores]
        else:
            numbers = [max(1, round(factor * middle[axis])) for factor in options.factors]
        for number in numbers:
            size = middle | {"threads": 1, axis: number}
            measured = _measured(cells, size, options, processors)
            for init, found in measured.items():
                seconds = found["wall_seconds" if axis == "threads" else "cpu_seconds"]
                curves[init][axis].append({"number": number, "seconds": seconds, **found})
    result: dict = {"middle": middle, "repeats": options.repeats, "curves": curves, "exponents": {}}
    for init, by_axis in curves.items():
        result["exponents"][init] = {
            axis: {
                "seconds": _exponent(points, "seconds"),
                "seconds_at_the_end": _exponent(points[-2:], "seconds"),
                "memory_mb": _exponent(points, "memory_mb"),
            }
            for axis, points in by_axis.items()
        }
    result["made"] = cells.made()
    return result


def _measured(cells: Cells, size: dict, options: Options, processors: list[int]) -> dict:
    """By start: medians over the repetitions, which go round by turns."""
    drawn = round(4 * options.labels * max(options.factors))
    each = [
        {"init": init, **size, "drawn": drawn, "run": repeat}
        for repeat in range(options.repeats)
        for init in options.inits
    ]
    with tempfile.TemporaryDirectory() as folder:
        if not all(cells.has(**asked) for asked in each):
            _one_vs_all.store(Path(folder), _set(size, drawn))
        runs: dict[str, list[dict]] = {init: [] for init in options.inits}
        for asked in each:
            init = asked["init"]
            request = {"init": init, "threads": size["threads"], "sample": size["labels"]}
            chosen = processors[: size["threads"]]
            work = functools.partial(_worker.ask, "xmcjax", Path(folder), chosen, **request)
            runs[init].append(cells.get(work, **asked))
    return {
        init: {
            "cpu_seconds": float(np.median([one["cpu_seconds"] for one in done])),
            "wall_seconds": float(np.median([one["seconds"] for one in done])),
            "memory_mb": float(np.median([one["memory_mb"] for one in done])),
            "newton_steps": done[0]["newton_steps"],
            "active": done[0]["active"],
        }
        for init, done in runs.items()
    }


def _set(size: dict, labels: int) -> _data.Split:
    from xmcjax.data import fit_transforms, make_power_law

    X, Y = make_power_law(
        size["rows"], size["features"], labels, nonzeros_per_row=size["nonzeros"], labels_per_row=4, seed=0
    )
    X = fit_transforms("log,idf,unit", X).apply(X)
    return _data.Split(X, Y, X[:0], Y[:0])


def _exponent(points: list[dict], of: str) -> float | None:
    """The slope of log(of) against log(number); None for a single point or a measure of 0."""
    numbers, values = (np.array([point[name] for point in points], float) for name in ("number", of))
    if len(points) < 2 or (values <= 0).any():
        return None
    return float(np.polyfit(np.log(numbers), np.log(values), 1)[0])


def markdown(result: dict) -> str:
    """Times and memories of every point, and the exponents."""
    middle = ", ".join(f"{number:,} {name}" for name, number in result["middle"].items())
    rows, exponents = [], []
    for init, by_axis in result["curves"].items():
        for axis, points in by_axis.items():
            for point in points:
                cells = (f"{point['number']:,}", f"{point['seconds']:.2f}", f"{point['memory_mb']:.0f}")
                rows.append(
                    (init, axis, *cells, f"{point['newton_steps']:.2f}", f"{100 * point['active']:.2f}")
                )
            found = result["exponents"][init][axis]
            cells = ["–" if value is None else f"{value:.2f}" for value in found.values()]
            exponents.append((init, axis, *cells))
    return (
        f"Around {middle} (non-zeros of a row), one thread; median of {result['repeats']}. Exponents:\n\n"
        + _report.markdown_table(("start", "grows", "of time", "of time, last two", "of memory"), exponents)
        + "\n"
        + _report.markdown_table(
            ("start", "varied", "number", "seconds", "memory, MB", "Newton steps", "active rows, %"), rows
        )
    )


def draw(result: dict, axes) -> None:
    """Time above memory, a column for each number that was varied."""
    figure = axes.figure
    axes.remove()
    curves = next(iter(result["curves"].values()))
    varied = [axis for axis in AXES if len(curves[axis]) > 1]
    figure.set_size_inches(3 * len(varied), 5.5)
    grid = figure.subplots(2, len(varied), squeeze=False)
    for row, (of, label) in zip(grid, (("seconds", "seconds"), ("memory_mb", "memory, MB")), strict=True):
        for place, axis in zip(row, varied, strict=True):
            for init, by_axis in result["curves"].items():
                points = [point for point in by_axis[axis] if point[of] > 0]
                exponent = result["exponents"][init][axis][of]
                name = init if exponent is None else f"{init}: {exponent:.2f}"
                place.loglog([p["number"] for p in points], [p[of] for p in points], marker=".", label=name)
            place.set_xlabel(axis)
            place.tick_params(axis="x", which="minor", labelbottom=False)
            if of == "memory_mb":
                place.set_yscale("linear")
                place.set_ylim(bottom=0)
            place.legend(fontsize="x-small")
        row[0].set_ylabel(label)


if __name__ == "__main__":
    _report.main(NAME, Options, __doc__, run, markdown, {NAME: draw})
