"""Speed of all-in-one SVMs against threads and processes, and training time against C.

    python -m experiments.papers.p001.figures_2_3 [--small|--full] [--out results]

Figures 2 and 3 of Alber et al. 2017, on naics2017. Speed: Weston-Watkins with C = 1 and
Lee-Lin-Wahba with C = 10 (with 1 two epochs end at its optimum), ten epochs without shrinking, by the number
of threads of one process and of processes joined by jax.distributed on this machine, relative to one thread
and to one process (Lee-Lin-Wahba over processes is another method than in one); wall-clock medians of
repetitions that go round by turns, of ten epochs with the passes over everything between them. Beside them
stands the processor time, of all processes and of the busiest one, which other work on the machine changes
little: what it says of processes is without messages. Training time: processor seconds of a first call, means
of runs in as many orders, beside LIBLINEAR's one against the rest (hinge) and Crammer-Singer to a largest
projected gradient of 0.01. Writes p001_figures_2_3.json, .md and, where matplotlib is installed, two .png.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
import time
import warnings

import numpy as np

from experiments import _joined, _multiclass, _report
from experiments._cells import Cells

EPOCHS = 10
FORMULATIONS = {"ww": "Weston-Watkins", "llw": "Lee-Lin-Wahba"}
C = {"ww": 1.0, "llw": 10.0}

# The program of one of several processes: it prints seconds of ten epochs over a mesh and its processor time.
_PROGRAM = """
import json, sys, time
import jax
from experiments import _joined
options = json.loads(sys.argv[1])
_joined.join(options)
import numpy as np
from jax.sharding import Mesh
from experiments import _multiclass
from xmcjax.solvers import multiclass_dual
parts = _multiclass.load(options["set"])
mesh = Mesh(np.array(jax.devices()), ("processes",))
how = dict(formulation=options["formulation"], C=options["C"], tol=1e-12, max_epochs=options["epochs"])
seconds = []
for _ in range(2):  # the first compiles what is sent
    begin = time.perf_counter(), time.process_time()
    multiclass_dual.run_over_mesh(parts.X, parts.y, mesh, shrinking=False, **how)
    seconds.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
print(json.dumps(dict(zip(("clock", "processor"), seconds[1]))))
"""


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(data="digits", processes=(), log_C=(-1, 0), repeats=1),
    full=dict(data="naics2017", processes=(1, 2, 4), runs=10),
):
    """Speed of all-in-one SVMs.

    Attributes:
        data: of experiments._multiclass.SETS.
        threads: of one process.
        processes: joined on this machine.
        log_C: of the training times.
        runs: orders of every training time.
        repeats: of every timed run of the speed.
        small: scikit-learn's digits, one repetition, two C.
        full: naics2017, three repetitions, ten orders.
    """

    data: str = "clinc150"
    threads: tuple[int, ...] = (1, 2)
    processes: tuple[int, ...] = (1, 2)
    log_C: tuple[int, ...] = (-3, -2, -1, 0, 1)
    runs: int = 1
    repeats: int = 3


def on_threads(parts: _multiclass.Parts, formulation: str, threads: int) -> tuple[float, list[float]]:
    """Seconds of ten epochs, and processor seconds of the process."""
    from xmcjax.solvers import multiclass_dual

    begin = time.perf_counter(), time.process_time()
    multiclass_dual.run(
        parts.X,
        parts.y,
        formulation=formulation,
        C=C[formulation],
        tol=1e-12,
        max_epochs=EPOCHS,
        shrinking=False,
        threads=threads,
    )
    return time.perf_counter() - begin[0], [time.process_time() - begin[1]]


def on_processes(data: str, formulation: str, count: int) -> tuple[float, list[float]]:
    """Seconds of ten epochs over a mesh, of the slowest process, and processor seconds of each process."""
    request = {"set": data, "formulation": formulation, "C": C[formulation], "epochs": EPOCHS}
    environment = {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    found = _joined.answers([sys.executable, "-c", _PROGRAM], request, count, environment)
    return max(one["clock"] for one in found), [one["processor"] for one in found]


def speed(parts: _multiclass.Parts, options: Options) -> list[dict]:
    """Seconds by formulation, kind and number of workers."""
    places = [("threads", count) for count in options.threads]
    places += [("processes", count) for count in options.processes]
    rows = [
        {"formulation": formulation, "kind": kind, "count": count, "seconds": [], "processor": []}
        for formulation in FORMULATIONS
        for kind, count in places
    ]
    for _ in range(options.repeats):
        for row in rows:
            if row["kind"] == "threads":
                seconds, processor = on_threads(parts, row["formulation"], row["count"])
            else:
                seconds, processor = on_processes(options.data, row["formulation"], row["count"])
            row["seconds"].append(seconds)
            row["processor"].append(processor)
    for row in rows:
        row["median"] = float(np.median(row["seconds"]))
        row["together"] = float(np.median([sum(one) for one in row["processor"]]))
        row["busiest"] = float(np.median([max(one) for one in row["processor"]]))
    for row in rows:
        alike = [r for r in rows if (r["formulation"], r["kind"]) == (row["formulation"], row["kind"])]
        fewest = min(alike, key=lambda r: r["count"])
        row["speed_up"] = fewest["median"] / row["median"]
    return rows


def training(parts: _multiclass.Parts, formulation: str, C: float, order: int) -> dict:
    """Processor seconds of ours, or of LIBLINEAR's, in an order of the instances."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    from xmcjax.solvers import multiclass_dual

    if not formulation.startswith("liblinear"):
        begin = time.process_time()
        solution = multiclass_dual.run(parts.X, parts.y, formulation=formulation, C=C, seed=order)
        return {"seconds": time.process_time() - begin, "converged": solution.status.name == "CONVERGED"}
    options = dict(C=C, tol=0.01, fit_intercept=False, max_iter=10_000, random_state=order)
    how = dict(multi_class="crammer_singer") if formulation.endswith("cs") else dict(loss="hinge")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        begin = time.process_time()
        LinearSVC(**options, **how).fit(parts.X, parts.y)
        return {"seconds": time.process_time() - begin, "converged": not caught}


TRAINED = {"ww": "WW", "cs": "CS", "liblinear ovr": "LIBLINEAR OVR", "liblinear cs": "LIBLINEAR CS"}


def run(options: Options) -> dict:
    """Both figures; a training time and the speed are kept, so that a run goes on where it was stopped."""
    parts = _multiclass.load(options.data)
    cells = Cells(options, "p001_figures_2_3", listed=("threads", "processes", "log_C", "runs", "repeats"))
    times = []
    for order, log_C, formulation in itertools.product(range(options.runs), options.log_C, TRAINED):
        work = functools.partial(training, parts, formulation, 10.0**log_C, order)
        asked = {"formulation": formulation, "log_C": log_C, "order": order}
        times.append(asked | cells.get(work, **asked))
    # the speed is a single cell, because its runs go round by turns
    rounds = {name: getattr(options, name) for name in ("threads", "processes", "repeats")}
    found = cells.get(lambda: {"rows": speed(parts, options)}, what="speed", **rounds)
    return {
        "made": cells.made(),
        "options": dataclasses.asdict(options) | {"out": None},
        "training": times,
        "speed": found["rows"],
    }


def markdown(result: dict) -> str:
    """Both as tables."""
    rows = result["speed"]
    table = [
        [
            FORMULATIONS[r["formulation"]],
            f"{r['count']} {r['kind']}",
            f"{r['median']:.2f}",
            "–" if drawn_beside_work(rows, r) else f"{r['speed_up']:.2f}",
            f"{r['together']:.2f}",
            *(
                (f"{r['busiest']:.2f}", f"{drawn_work(rows, r):.2f}")
                if r["kind"] == "processes"
                else ("", "")
            ),
        ]
        for r in rows
    ]
    runs = len(rows[0]["seconds"]) if rows else 0
    text = f"Ten epochs without shrinking, C = 1 (Lee-Lin-Wahba: 10), medians of {runs}\n\n"
    header = ["", "on", "seconds", "speed-up by the clock", "processor s", "of the busiest process"]
    text += _report.markdown_table([*header, "speed-up by it"], table)
    if any(drawn_beside_work(rows, r) for r in rows):
        text += (
            "\nWhere one worker had less than 0.8 of a processor, the clock says nothing about a speed-up.\n"
        )
    orders = len({r["order"] for r in result["training"]})
    text += f"\nTraining, processor seconds, means ± deviations over {orders} orders (the paper: 10)\n\n"
    some_C = sorted({r["log_C"] for r in result["training"]})
    table = []
    for f, title in TRAINED.items():
        found = [of_training(result, f, c) for c in some_C]
        cells = [
            f"{np.mean(s):.2f}" + (f" ± {np.std(s, ddof=1):.2f}" if len(s) > 1 else "") + mark
            for s, mark in found
        ]
        table.append([title, *cells])
    text += _report.markdown_table(["log10 C", *some_C], table)
    return text + ("\n\\* not converged\n" if "*" in text else "")


def drawn_work(rows: list[dict], row: dict) -> float:
    """How many times less processor time the busiest process takes than with the fewest processes."""
    return drawn_fewest(rows, row)["busiest"] / row["busiest"]


def drawn_beside_work(rows: list[dict], row: dict) -> bool:
    """Whether the run to which this one is compared had less than 0.8 of a processor."""
    fewest = drawn_fewest(rows, row)
    return fewest["together"] < 0.8 * fewest["median"]


def drawn_fewest(rows: list[dict], row: dict) -> dict:
    """The run of as few workers as there are, of the same formulation and kind."""
    alike = [r for r in rows if (r["formulation"], r["kind"]) == (row["formulation"], row["kind"])]
    return min(alike, key=lambda r: r["count"])


def of_training(result: dict, formulation: str, log_C: float) -> tuple[list[float], str]:
    """Seconds by order, and a mark where one of them did not converge."""
    rows = [r for r in result["training"] if (r["formulation"], r["log_C"]) == (formulation, log_C)]
    return [r["seconds"] for r in rows], "" if all(r["converged"] for r in rows) else " *"


def draw_speed(result: dict, axes) -> None:
    """Figure 2."""
    for formulation, title in FORMULATIONS.items():
        for kind, style in (("threads", "o-"), ("processes", "s--")):
            rows = [r for r in result["speed"] if (r["formulation"], r["kind"]) == (formulation, kind)]
            if rows:
                counts, clock = [r["count"] for r in rows], [r["speed_up"] for r in rows]
            if rows and not drawn_beside_work(rows, rows[0]):
                axes.plot(counts, clock, style, label=f"{title}, {kind}")
            if rows and kind == "processes":
                work = [drawn_work(result["speed"], r) for r in rows]
                axes.plot(counts, work, "^-", label=f"{title}, by processor time of a process")
    most = max(r["count"] for r in result["speed"])
    axes.plot([1, most], [1, most], ":", color="grey")
    axes.set(xlabel="threads or processes", ylabel="speed-up")
    if axes.get_legend_handles_labels()[0]:  # beside other work there may be none
        axes.legend()


def draw_training(result: dict, axes) -> None:
    """Figure 3."""
    some_C = sorted({r["log_C"] for r in result["training"]})
    for formulation, title in TRAINED.items():
        means = [np.mean(of_training(result, formulation, c)[0]) for c in some_C]
        axes.plot([10.0**c for c in some_C], means, "o-", label=title)
    axes.set(xlabel="C", ylabel="processor seconds", xscale="log", yscale="log")
    axes.legend()


if __name__ == "__main__":
    figures = {"p001_figure_2": draw_speed, "p001_figure_3": draw_training}
    _report.main("p001_figures_2_3", Options, __doc__, run, markdown, figures)
