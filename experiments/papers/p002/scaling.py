"""Seconds and memory of an iteration of LC against the number of classes, and against processes.

    python -m experiments.papers.p002.scaling [--small|--full] [--out results]

Random sparse rows, of which each says something about its class; most classes are rare or empty where there
are more of them than rows. Every point is a run of its own, of which the first iteration, which is
compiled, does not count. Over several processes, with LC and with L-BFGS, the classes are split and the
processes joined by ``jax.distributed`` on loopback: each has its share of W, and sums over rows are all
they send. Times are processor seconds of a process, the most of them, and seconds of the clock. Points are
kept in p002_scaling.cells.json, so that an experiment goes on where one was stopped. Writes
p002_scaling.json, .md and .png.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from experiments import _joined, _report
from experiments._cells import Cells
from experiments.bench import _worker

NAME = "p002_scaling"
INFORMATIVE = 3  # how many entries of a row depend on its class


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Time of an iteration.

    Attributes:
        classes: numbers of classes.
        processes: that share `shared` classes.
        shared: classes of those runs.
        rows: n.
        features: d.
        entries: of a row.
        lam: λ.
        iterations: that are timed.
        small: 100 to 1,000 classes, one and two processes.
        full: 1,000 to 100,000 classes, one to four processes.
    """

    classes: tuple[int, ...] = (1_000, 3_162, 10_000)
    processes: tuple[int, ...] = (1, 2)
    shared: int = 10_000
    rows: int = 4_000
    features: int = 500
    entries: int = 10
    lam: float = 0.1
    iterations: int = 3

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            classes = (1_000, 3_162, 10_000, 31_623, 100_000)
            return dataclasses.replace(self, classes=classes, processes=(1, 2, 4))
        if self.small:
            return dataclasses.replace(self, classes=(100, 1_000), shared=200, rows=300, iterations=2)
        return self


def rows_and_classes(options: Options, classes: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """X, rows of norm 1, and y."""
    rng = np.random.default_rng(0)
    n, d = options.rows, options.features
    y = rng.integers(0, classes, n)
    own = rng.integers(0, d, (classes, INFORMATIVE))
    columns = np.c_[own[y], rng.integers(0, d, (n, options.entries - INFORMATIVE))]
    values = rng.uniform(0.5, 1.5, columns.shape)
    offsets = np.arange(0, columns.size + 1, columns.shape[1])
    X = sp.csr_matrix((values.ravel(), columns.ravel(), offsets), (n, d))
    X.sum_duplicates()
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)))
    return sp.csr_matrix(X.multiply(1 / norms)).astype(np.float32), y.astype(np.int32)


def answer(options: Options, classes: int, method: str, request: dict) -> dict:
    """Seconds of an iteration, and memory, of this process, which the request joins with others."""
    import jax
    from jax.sharding import Mesh

    from xmcjax import linops
    from xmcjax.solvers import multinomial

    _joined.join(request)
    X, y = rows_and_classes(options, classes)
    _worker.forget_peak()
    before = _worker.memory_mb("VmRSS")
    problem = multinomial.multinomial_problem(linops.make(X), y, options.lam, classes=classes)
    marks, norms = [], []

    def observe(state, record):
        marks.append((time.process_time(), time.perf_counter()))
        norms.append(record.gradient_norm)

    mesh = Mesh(np.array(jax.devices()), ("classes",)) if request["count"] > 1 else None
    hp = multinomial.HParams(0.0, options.iterations + 1)
    solution = multinomial.run(problem, method, hp, mesh=mesh, observe=observe)
    processor, clock = np.diff(np.array(marks), axis=0)[1:].mean(axis=0)
    peak = _worker.memory_mb() - before
    share = sum(part.data.nbytes for part in solution.W.addressable_shards)
    return {
        "processor": float(processor),
        "clock": float(clock),
        "value": solution.value,
        "peak_mb": peak,
        "weights_mb": share / 2**20,
    }


def point(options: Options, classes: int, count: int, method: str, processors: Sequence[int] = ()) -> dict:
    """A run in `count` processes: the most seconds and the most memory of any of them.

    The k-th process runs on the k-th processor, if processors are given.
    """
    numbers = {key: value for key, value in dataclasses.asdict(options).items() if key != "out"}
    command = [sys.executable, "-m", "experiments.papers.p002.scaling", "--answer"]
    request = {"options": numbers, "run": [classes, method]}
    environment = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    found = _joined.answers(command, request, count, environment, processors)
    return {key: max(one[key] for one in found) for key in found[0]}


def run(options: Options) -> dict:
    """Points by classes, and by processes."""
    cells = Cells(options, NAME, listed=("classes", "processes", "shared"))

    def at(classes: int, count: int, method: str = "lc") -> dict:
        asked = {"classes": classes, "processes": count}
        named = asked if method == "lc" else asked | {"method": method}
        return named | cells.get(lambda: point(options, classes, count, method), **named)

    result = {
        "rows": options.rows,
        "features": options.features,
        "entries": options.entries,
        "lam": options.lam,
        "by_classes": [at(classes, 1) for classes in options.classes],
        "by_processes": [at(options.shared, count) for count in options.processes],
        "lbfgs_by_processes": [at(options.shared, count, "lbfgs") for count in options.processes],
    }
    return result | {"made": cells.made()}


def markdown(result: dict) -> str:
    """Three tables."""

    def table(points: list[dict]) -> str:
        rows = [
            (
                p["classes"],
                p["processes"],
                f"{p['processor']:.2f}",
                f"{p['clock']:.2f}",
                f"{1e3 * p['processor'] * p['processes'] / p['classes']:.3f}",
                f"{p['weights_mb']:.0f}",
                f"{p['peak_mb']:.0f}",
                f"{p['value']:.7g}",
            )
            for p in points
        ]
        header = (
            "classes",
            "processes",
            "processor s",
            "clock s",
            "processor ms per class",
            "W, MB",
            "peak, MB",
        )
        return _report.markdown_table((*header, "G"), rows)

    text = (
        f"An iteration of LC, and in the last table of L-BFGS, {result['rows']} rows of {result['entries']} "
        f"entries, {result['features']} features, λ = {result['lam']:g}, float32; seconds, W and peak memory "
        "beyond X of a process\n\n"
    )
    names = ("by_classes", "by_processes", "lbfgs_by_processes")
    return text + "\n".join(table(result[name]) for name in names)


def draw(result: dict, axes) -> None:
    """Seconds an iteration against classes."""
    points = result["by_classes"]
    axes.loglog([p["classes"] for p in points], [p["processor"] for p in points], "o-", label="one process")
    axes.set_xlabel("classes")
    axes.set_ylabel("processor seconds an outer iteration")
    axes.legend()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--answer"]:
        request = json.loads(sys.argv[2])
        classes, method = request["run"]
        print(json.dumps(answer(Options(**request["options"]), classes, method, request)))
    else:
        _report.main(NAME, Options, __doc__, run, markdown, {NAME: draw})
