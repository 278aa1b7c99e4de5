"""Figures of Schultheis and Babbar, 2022, from traces: one row of panels per solver.

Figure 2 and 5 of the paper are sketches. Figure 1 has the objective by time beside that by step; figure 12
is of time, 13 of Newton steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments import _report

MAIN = ("zero", "ova_primal:loose", "bias:1", "mean_separating:-2")
BIASES = ("bias:0.9", "bias:1", "bias:2")
PRIMAL = ("ova_primal:loose", "ova_primal:strict")
TARGETS = ("mean_separating:-1", "mean_separating:-2", "mean_separating:-3")
STARTS = tuple(dict.fromkeys(MAIN + BIASES + PRIMAL + TARGETS))

NAMES = {
    "value": "objective of a label",
    "active": "active rows, share",
    "multiplier": "multiplier of the line search",
    "ms": "ms",
    "steps": "Newton steps",
    "initial": "objective at the start",
    "distance": "‖w − w₀‖",
}


class Panel(NamedTuple):
    """A panel that shows one quantity, with one line per start."""

    kind: str  #: of DRAWINGS
    quantity: str
    starts: tuple[str, ...]


FIGURES: dict[str, tuple[Panel, ...]] = {
    "1": (
        Panel("by_step", "value", MAIN),
        Panel("by_step", "value", BIASES),
        Panel("by_time", "value", MAIN),
    ),
    "3": (Panel("by_step", "multiplier", BIASES),),
    "4": (Panel("by_step", "active", BIASES), Panel("by_step", "ms", BIASES)),
    "6": (Panel("by_step", "active", MAIN),),
    "7": (Panel("by_positives", "steps", MAIN), Panel("by_positives", "ms", MAIN)),
    "8": (Panel("by_step", "ms", MAIN), Panel("by_step", "multiplier", MAIN)),
    "9": (Panel("histogram", "ms", PRIMAL), Panel("by_positives", "ms", PRIMAL)),
    "10": (Panel("histogram", "steps", PRIMAL), Panel("by_positives", "steps", PRIMAL)),
    "11": (Panel("by_step", "value", PRIMAL), Panel("by_step", "multiplier", PRIMAL)),
    "12": (Panel("histogram", "ms", BIASES), Panel("by_positives", "ms", BIASES)),
    "13": (Panel("histogram", "steps", BIASES), Panel("by_positives", "steps", BIASES)),
    "14": (Panel("by_positives", "initial", MAIN), Panel("by_positives", "distance", MAIN)),
    "15": (
        Panel("by_step", "ms", TARGETS),
        Panel("by_positives", "steps", TARGETS),
        Panel("by_step", "value", TARGETS),
        Panel("by_positives", "distance", TARGETS),
    ),
}


def _by_step(axes, run: dict, quantity: str, label: str) -> None:
    rows = run["by_step"]
    steps = [row["step"] for row in rows]
    mean = np.array([row[quantity]["mean"] for row in rows])
    axes.plot(steps, mean, label=label)
    if quantity == "multiplier":  # ± one standard deviation, as figure 3 of the paper
        spread = np.array([row[quantity]["sd"] for row in rows])
        axes.fill_between(steps, mean - spread, mean + spread, alpha=0.15)
    elif quantity == "value":
        low, high = ([row[quantity][end] for row in rows] for end in ("low", "high"))
        axes.fill_between(steps, low, high, alpha=0.15)
    else:  # twice the error of the mean, as figure 4
        error = [2 * row[quantity]["sd"] / np.sqrt(row["labels"]) for row in rows]
        axes.fill_between(steps, np.maximum(mean - error, mean / 10), mean + error, alpha=0.15)
    axes.set_xlabel("Newton step")
    axes.set_ylabel(NAMES[quantity] + (" of the step" if quantity == "ms" else ""))
    if quantity != "multiplier":
        axes.set_yscale("log")


def _by_time(axes, run: dict, quantity: str, label: str) -> None:
    axes.loglog(run["by_time"]["ms"], run["by_time"][quantity], label=label)
    axes.set_xlabel("ms of a label")
    axes.set_ylabel(f"mean {NAMES[quantity]}")


def _by_positives(axes, run: dict, quantity: str, label: str) -> None:
    rows = run["by_positives"]
    middle = [np.sqrt(row["low"] * row["high"]) for row in rows]
    mean, low, high = ([row[quantity][name] for row in rows] for name in ("mean", "low", "high"))
    axes.plot(middle, mean, marker=".", label=label)
    axes.fill_between(middle, low, high, alpha=0.15)
    axes.set_xscale("log")
    if quantity != "steps":
        axes.set_yscale("log")
    axes.set_xlabel("positives of the label")
    axes.set_ylabel(NAMES[quantity] + (" of a label" if quantity == "ms" else ""))


def _histogram(axes, run: dict, quantity: str, label: str) -> None:
    found = run["histograms"][quantity]
    if quantity == "steps":
        edges, counts = np.arange(len(found) + 1) - 0.5, found
    else:
        edges, counts = found["edges"], found["labels"]
        filled = np.flatnonzero(counts)
        edges, counts = edges[filled[0] : filled[-1] + 2], counts[filled[0] : filled[-1] + 1]
        axes.set_xscale("log")
    axes.stairs(counts, edges, label=label)
    axes.set_xlabel("Newton steps" if quantity == "steps" else "ms of a label")
    axes.set_ylabel("labels")


DRAWINGS: dict[str, Callable] = {
    "by_step": _by_step,
    "by_time": _by_time,
    "by_positives": _by_positives,
    "histogram": _histogram,
}


def draw(number: str, result: dict, axes) -> None:
    """A figure of the paper in place of `axes`: one row per solver, one column per panel."""
    figure = axes.figure
    axes.remove()
    panels, traces = FIGURES[number], result["traces"]
    figure.set_size_inches(4.2 * len(panels) + 0.5, 3.2 * len(traces) + 0.3)
    grid = figure.subplots(len(traces), len(panels), squeeze=False)
    for row, (solver, runs) in zip(grid, traces.items(), strict=True):
        for place, panel in zip(row, panels, strict=True):
            for start in panel.starts:
                DRAWINGS[panel.kind](place, runs[start], panel.quantity, start)
            place.set_title(f"{result['traced']}, {solver}", fontsize="small")
            place.legend(fontsize="x-small")


def drawings(name: str) -> dict[str, Callable]:
    """The functions ``(result, axes)`` that draw, by the name of the file."""
    return {f"{name}_figure_{number}": functools.partial(draw, number) for number in FIGURES}


def markdown(result: dict) -> str:
    """The numbers under the figures: by start, and by Newton step."""
    facts = result["sets"][result["traced"]]
    starts, steps = [], []
    for solver, runs in result["traces"].items():
        for start, run in runs.items():
            tail, head = (_means(run, few) for few in (True, False))
            cells = (run["steps"], run["ms"], run["initial"], run["distance"], *tail, *head)
            starts.append((solver, start, *cells))
            for row in run["by_step"][:8]:
                means = (row["value"]["mean"], 100 * row["active"]["mean"], row["multiplier"]["mean"])
                steps.append((solver, start, row["step"], row["labels"], *means, row["ms"]["mean"]))
    labels = next(iter(result["traces"]["xmcjax"].values()))["labels"]
    each = ("steps", "ms", "objective at the start", "distance")
    return (
        f"\n**Figures {', '.join(FIGURES)}.** {result['traced']}: {labels} of {facts['trained']} labels, "
        "16 in step as lanes of a block, squared hinge. Tail: at most 3 positives; head: more than 31.\n\n"
        + _report.markdown_table(
            (
                "solver",
                "start",
                *each,
                *(f"{name}, tail" for name in each),
                *(f"{name}, head" for name in each),
            ),
            starts,
        )
        + "\nBy Newton step, means over the labels that made it; step 0 takes the starting weights, after "
        "which xmcjax minimises over the bias. The multiplier is that of the direction.\n\n"
        + _report.markdown_table(
            ("solver", "start", "step", "labels", "objective", "active rows, %", "multiplier", "ms"), steps
        )
    )


def _means(run: dict, few: bool) -> list:
    """Means over the labels with few positives, or with many: steps, ms, initial objective, distance."""
    rows = [row for row in run["by_positives"] if (row["high"] <= 3 if few else row["low"] > 31)]
    labels = sum(row["labels"] for row in rows)
    if not labels:
        return [""] * 4
    names = ("steps", "ms", "initial", "distance")
    return [float(sum(row["labels"] * row[name]["mean"] for row in rows) / labels) for name in names]
