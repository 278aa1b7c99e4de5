"""Solvers of all classes together over two processes of this machine beside one, by the clock.

    python -m experiments.bench.processes [--small|--full] [--data naics2017] [--out results]

Each process runs on one processor and one thread; two of them are joined by ``jax.distributed`` on loopback.
Weston-Watkins trains to a duality gap of 1e-3 at C = 1, once for each of some orders of the rows, after a
training that does not count. LC and L-BFGS are iterations of :mod:`experiments.papers.p002.scaling`. One
process and two take turns; times are medians of the turns. Writes processes.json and processes.md.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time

import numpy as np

from experiments import _joined, _multiclass, _report
from experiments.bench._worker import ONE_THREAD, usable_processors
from experiments.papers.p002 import scaling

COUNTS = (1, 2)
METHODS = {"lc": "LC", "lbfgs": "L-BFGS"}


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(data="digits", orders=1, classes=200, turns=1), full=dict(turns=7)):
    """Two processes beside one.

    Attributes:
        data: of Weston-Watkins, of experiments._multiclass.SETS.
        orders: of its rows.
        classes: of LC and L-BFGS.
        turns: of one process and two.
        small: scikit-learn's digits and 200 classes, one order and one turn.
        full: seven turns.
    """

    data: str = "naics2017"
    orders: int = 4
    classes: int = 10_000
    turns: int = 3


def answer(request: dict) -> dict:
    """Seconds of Weston-Watkins in this process, for each order."""
    import jax
    from jax.sharding import Mesh

    from xmcjax.solvers import multiclass_dual

    _joined.join(request)
    parts, mesh = _multiclass.load(request["data"]), Mesh(np.array(jax.devices()), ("processes",))
    seconds, gaps = [], []
    for order in (0, *range(request["orders"])):
        begin = time.perf_counter()
        solution = multiclass_dual.run_over_mesh(parts.X, parts.y, mesh, formulation="ww", seed=order)
        seconds.append(time.perf_counter() - begin)
        gaps.append(solution.gap)
    return {"seconds": seconds[1:], "gap": max(gaps)}


def weston_watkins(options: Options, count: int) -> dict:
    """Seconds of the slower process for each order, and the largest gap."""
    command = [sys.executable, "-m", "experiments.bench.processes", "--answer"]
    request = {"data": options.data, "orders": options.orders}
    found = _joined.answers(command, request, count, ONE_THREAD, usable_processors()[:count])
    slowest = np.max([one["seconds"] for one in found], axis=0).tolist()
    return {"seconds": slowest, "gap": max(one["gap"] for one in found)}


def run(options: Options) -> dict:
    """One process and two by turns."""
    sizes = scaling.Options(small=options.small).chosen()
    svm: dict[int, list[dict]] = {count: [] for count in COUNTS}
    iterations: dict[str, dict[int, list[float]]] = {name: {k: [] for k in COUNTS} for name in METHODS}
    for _ in range(options.turns):
        for count in COUNTS:
            svm[count].append(weston_watkins(options, count))
            for name in METHODS:
                point = scaling.point(sizes, options.classes, count, name, usable_processors()[:count])
                iterations[name][count].append(point["clock"])
    of_orders = {count: np.median([one["seconds"] for one in svm[count]], axis=0) for count in COUNTS}
    rows = [
        _row(f"Weston-Watkins, {options.data}, order {order}", of_orders[1][order], of_orders[2][order])
        for order in range(options.orders)
    ]
    rows += [
        _row(
            f"{METHODS[name]}, {options.classes:,} classes, an iteration", *(np.median(of[k]) for k in COUNTS)
        )
        for name, of in iterations.items()
    ]
    return {
        "turns": options.turns,
        "rows": rows,
        "gap": max(one["gap"] for runs in svm.values() for one in runs),
        "seconds": {"ww": svm, **iterations},
    }


def _row(work: str, one: float, two: float) -> dict:
    return {"work": work, "one": float(one), "two": float(two), "ratio": float(one / two)}


def markdown(result: dict) -> str:
    """A row for each work."""
    rows = [(r["work"], f"{r['one']:.3f}", f"{r['two']:.3f}", f"{r['ratio']:.2f}") for r in result["rows"]]
    table = _report.markdown_table(("work", "one process, s", "two, s", "ratio"), rows)
    return f"Seconds by the clock, medians of {result['turns']} turns.\n\n{table}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--answer"]:
        print(json.dumps(answer(json.loads(sys.argv[2]))))
    else:
        _report.main("processes", Options, __doc__, run, markdown)
