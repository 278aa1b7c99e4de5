"""Steps for all rows at once in plain JAX beside the native dual ascent, and lanes beside runs in turn.

    python -m experiments.bench.admm [--small] [--out results]

Dense features, float32, no bias, to a relative duality gap of 1e-3 that is certified in float64. A time is
the processor time of training after a first call, which compiles, by turns; a ratio is the median over the
repetitions of each turn's. The native ones, `multiclass_dual.run` and `topk_sdca.solve`, are what
MulticlassSVC and TopKSVC take on a CPU. Lanes are a grid of C between the two ends that are given. Writes
admm.json and admm.md.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments import _multiclass, _report

K = 5


@dataclasses.dataclass(frozen=True)
class Options(_report.Trial, small=dict(sets=("digits",), repeats=1)):
    """Steps for all rows at once beside dual ascent.

    Attributes:
        sets: of experiments._multiclass.SETS.
        losses: formulations of xmcjax.solvers.admm, the top-k ones with k = 5.
        C: of the losses.
        grid: the ends of the grid of the lanes.
        lanes: values of C in the grid.
        repeats: of every timed run.
        small: scikit-learn's digits, one repetition.
    """

    sets: tuple[str, ...] = ("usps", "letter")
    losses: tuple[str, ...] = ("cs", "topk_beta")
    C: tuple[float, ...] = (1.0,)
    grid: tuple[float, float] = (0.1, 1.0)
    lanes: int = 8
    repeats: int = 3


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds, and the result."""
    begin = time.process_time()
    found = work()
    return time.process_time() - begin, found


def of_loss(loss: str) -> int:
    """The k of a loss."""
    return K if loss.startswith("topk") else 1


def native(X, y, loss: str, C: float) -> float:
    """The gap that the dual ascent of the host ends with."""
    from xmcjax.solvers import multiclass_dual, topk_sdca

    if loss.startswith("topk"):
        return topk_sdca.solve(X, y, K, C, variant=loss.removeprefix("topk_"), max_epochs=10_000).gap
    return multiclass_dual.run(X, y, formulation=loss, C=C, max_epochs=10_000).gap


def one_set(name: str, options: Options) -> list[dict]:
    """Rows of a set."""
    from xmcjax import linops
    from xmcjax.solvers import admm

    parts = _multiclass.load(name)
    X, y = np.ascontiguousarray(parts.X, np.float32), parts.y
    op, hp, rows = linops.make(X), admm.HParams(), []

    def solved(loss: str, C):
        problem = admm.problem(op, y, formulation=loss, C=C, k=of_loss(loss))
        return admm.run(problem, hp, admm.init(problem))

    for loss in options.losses:
        for C in options.C:
            first, _ = timed(lambda loss=loss, C=C: solved(loss, C))
            turns = []
            for _ in range(options.repeats):
                ours, state = timed(lambda loss=loss, C=C: solved(loss, C))
                host, gap = timed(lambda loss=loss, C=C: native(X, y, loss, C))
                turns.append((ours, host))
            row = dict(set=name, loss=loss, C=C, first=first, turns=turns, host_gap=gap)
            rows.append(row | dict(steps=int(state.steps[0]), gap=float(state.gap[0])))
    grid, loss = np.geomspace(*options.grid, options.lanes), options.losses[-1]
    solved(loss, grid)  # compiles
    turns = []
    for _ in range(options.repeats):
        together, lanes = timed(lambda: solved(loss, grid))
        apart, states = timed(lambda: [solved(loss, C) for C in grid])
        turns.append((together, apart))
    assert np.max(np.asarray(lanes.gap)) <= hp.tol
    steps = [int(state.steps[0]) for state in states]
    return [*rows, dict(set=name, loss=loss, lanes=options.lanes, turns=turns, steps=steps)]


def run(options: Options) -> dict:
    """All rows."""
    rows = [row for name in options.sets for row in one_set(name, options)]
    for row in rows:
        row["ratio"] = float(np.median([a / b for a, b in row["turns"]]))
    return {"options": dataclasses.asdict(options) | {"out": None}, "rows": rows}


def markdown(result: dict) -> str:
    """Two tables."""
    alone = [row for row in result["rows"] if "lanes" not in row]
    header = ["set", "loss", "C", "steps", "time / native", "first call s"]
    table = [
        [r["set"], r["loss"], f"{r['C']:g}", r["steps"], f"{r['ratio']:.1f}", f"{r['first']:.1f}"]
        for r in alone
    ]
    text = _report.markdown_table(header, table) + "\n"
    table = [
        [r["set"], r["loss"], r["lanes"], f"{min(r['steps'])}–{max(r['steps'])}", f"{r['ratio']:.2f}"]
        for r in result["rows"]
        if "lanes" in r
    ]
    header = ["set", "loss", "values of C", "steps of each", "lanes / one after another"]
    return text + "\n" + _report.markdown_table(header, table) + "\n"


if __name__ == "__main__":
    _report.main("admm", Options, __doc__, run, markdown)
