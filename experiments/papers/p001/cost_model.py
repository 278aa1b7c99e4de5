"""What Weston-Watkins takes on 2 to 64 processes: a cost model beside figure 2 of Alber et al. 2017.

    python -m experiments.papers.p001.cost_model [--small|--full] [--out results]

Ten epochs without shrinking, C = 1. A process of p takes

    a / p + b · bytes(p)  processor seconds,   bytes(p) = epochs · (2p − 1) · 2 · 8 · (non-zero weights) / 2p,

which is what it computes, and what it packs, sends and unpacks: in each of 2p − 1 rounds two of the 2p
bundles of classes, 8 bytes for each weight that is not zero. a comes from one process, b from two, and four
check the model. Processor seconds do not depend on what else the machine does, and four processes may share
two cores. The wire takes bytes(p) / bandwidth beside that, 10 Gbit/s as in the paper. Writes
p001_cost_model.json, .md and .png.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from experiments import _report
from experiments._cells import Cells

NAME = "p001_cost_model"
EPOCHS = 10
PREDICTED = (1, 2, 4, 8, 16, 32, 64)

_PROGRAM = """
import json, sys, time
import jax
options = json.loads(sys.argv[1])
if options["count"] > 1:
    jax.distributed.initialize(
        options["address"], num_processes=options["count"], process_id=options["place"]
    )
import numpy as np
from jax.sharding import Mesh
from experiments import _multiclass
from xmcjax.solvers import multiclass_dual
parts = _multiclass.load(options["set"])
mesh = Mesh(np.array(jax.devices()), ("processes",))
def seconds(epochs):
    begin = time.process_time()
    how = dict(formulation="ww", C=1.0, tol=1e-12, max_epochs=epochs, shrinking=False)
    solution = multiclass_dual.run_over_mesh(parts.X, parts.y, mesh, **how)
    return time.process_time() - begin, int(np.count_nonzero(solution.W))
seconds(1)  # what is sent is compiled
few, _ = seconds(1)
many, weights = seconds(1 + options["epochs"])
print(json.dumps({"seconds": many - few, "weights": weights}))
"""


@dataclasses.dataclass(frozen=True)
class Options:
    """A cost model of processes.

    Attributes:
        data: of experiments._multiclass.SETS.
        processes: 1, 2 and those that check the model.
        bandwidth: of the wire between two processes, bytes per second.
        out: folder of the results.
        small: scikit-learn's digits.
        full: naics2017.
    """

    data: str = "clinc150"
    processes: tuple[int, ...] = (1, 2, 4)
    bandwidth: float = 1.25e9
    out: Path = Path("results")
    small: bool = False
    full: bool = False

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            return dataclasses.replace(self, data="naics2017")
        return dataclasses.replace(self, data="digits", processes=(1, 2)) if self.small else self


def measured(data: str, count: int) -> dict:
    """Processor seconds of ten epochs, of the slowest process, and the weights that are not zero."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = {"address": address, "count": count, "set": data, "epochs": EPOCHS}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(options | {"place": place})],
            stdout=subprocess.PIPE,
            text=True,
            cwd=_report.ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"},
        )
        for place in range(count)
    ]
    answers = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError(f"{count} processes: one of them failed")
    found = [json.loads(answer.splitlines()[-1]) for answer in answers]
    return {key: max(one[key] for one in found) for key in found[0]}


def sent(weights: int, count: int) -> float:
    """Bytes that a process sends in ten epochs."""
    return EPOCHS * (2 * count - 1) * 2 * 8 * weights / (2 * count) if count > 1 else 0.0


def model(points: dict[int, dict]) -> tuple[float, float]:
    """a and b, from one process and from two."""
    a = points[1]["seconds"]
    return a, max(0.0, (points[2]["seconds"] - a / 2) / sent(points[2]["weights"], 2))


def run(options: Options) -> dict:
    """What was measured, and what the model says."""
    cells = Cells(options, NAME, listed=("processes", "bandwidth"))
    points = {
        count: cells.get(lambda c=count: measured(options.data, c), count=count)
        for count in options.processes
    }
    a, b = model(points)
    weights = points[1]["weights"]
    rows = []
    for count in PREDICTED:
        bytes_sent = sent(weights, count)
        seconds, wire = a / count + b * bytes_sent, bytes_sent / options.bandwidth
        found = points[count]["seconds"] if count in points else None
        row = {"count": count, "bytes": bytes_sent, "seconds": seconds, "wire": wire, "measured": found}
        rows.append(row | {"speed_up": a / (seconds + wire)})
    return {"made": cells.made(), "data": options.data, "a": a, "b": b, "weights": weights, "rows": rows}


def markdown(result: dict) -> str:
    """Predicted and measured, by the number of processes."""
    table = [
        (
            row["count"],
            f"{row['bytes'] / 1e6:.1f}",
            f"{row['seconds']:.3f}",
            "–" if row["measured"] is None else f"{row['measured']:.3f}",
            f"{row['wire']:.4f}",
            f"{row['speed_up']:.2f}",
        )
        for row in result["rows"]
    ]
    header = (
        "processes",
        "MB sent by each",
        "processor s, model",
        "measured",
        "s on the wire",
        "speed-up, model",
    )
    checks = [row for row in result["rows"] if row["measured"] is not None and row["count"] > 2]
    said = "".join(
        f" With {row['count']} processes the model is {row['seconds'] / row['measured']:.2f} times what was "
        "measured."
        for row in checks
    )
    return (
        f"{result['data']}, {EPOCHS} epochs of Weston-Watkins: a = {result['a']:.3g} s, "
        f"b = {1e9 * result['b']:.3g} ns per byte, {result['weights']:,} weights that are not zero. One "
        f"process and two fix the model.{said}\n\n" + _report.markdown_table(header, table)
    )


def draw(result: dict, axes) -> None:
    """The speed-up of the model, and of what was measured."""
    rows = result["rows"]
    axes.loglog([r["count"] for r in rows], [r["speed_up"] for r in rows], "-", label="model")
    found = [r for r in rows if r["measured"] is not None]
    axes.loglog(
        [r["count"] for r in found],
        [result["a"] / r["measured"] for r in found],
        "o",
        label="processor seconds, measured",
    )
    axes.loglog([1, 64], [1, 64], ":", color="grey", label="linear, as in the paper")
    axes.set(xlabel="processes", ylabel="speed-up")
    axes.legend()


def main() -> None:
    """Reads the options, runs, writes the results."""
    _report.main(NAME, Options, __doc__, run, markdown, {NAME: draw})


if __name__ == "__main__":
    main()
