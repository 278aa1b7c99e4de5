"""What Weston-Watkins takes on 2 to 64 processes: a cost model beside figure 2 of Alber et al. 2017.

    python -m experiments.papers.p001.cost_model [--small|--full] [--out results]

Ten epochs without shrinking, C = 1. A process of p takes

    a / p + b · (bytes of all changes) + c · messages  processor seconds,

which is what it computes for its rows, the changes of the dual variables of all processes, which it makes in
its weights, and what a message takes besides, one in each part of a sweep. a comes from one process, b, the
bytes and the messages from two, c from messages of 4 kB that are sent and nothing else. Four check the model,
with what their messages take, which is more where they share two cores. The wire takes
(p − 1) / p · (bytes of all changes) / bandwidth beside that, 10 Gbit/s as in the paper. Writes
p001_cost_model.json, .md and .png.
"""

from __future__ import annotations

import dataclasses
import sys

from experiments import _joined, _report
from experiments._cells import Cells

NAME = "p001_cost_model"
EPOCHS = 10
PREDICTED = (1, 2, 4, 8, 16, 32, 64)

_PROGRAM = """
import json, sys, time
import jax
from experiments import _joined
options = json.loads(sys.argv[1])
_joined.join(options)
import logging
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from experiments import _multiclass
from xmcjax.solvers import multiclass_dual
parts = _multiclass.load(options["set"])
mesh = Mesh(np.array(jax.devices()), ("processes",))
log, said = logging.getLogger("xmcjax.solvers.multiclass_dual"), []
log.setLevel(logging.INFO)
log.addHandler(type("Kept", (logging.Handler,), dict(emit=lambda self, record: said.append(record.args)))())
def spent(epochs):
    begin = time.process_time()
    how = dict(formulation="ww", C=1.0, tol=1e-12, max_epochs=epochs, shrinking=False)
    how["share_weights"] = False  # as processes of different machines
    multiclass_dual.run_over_mesh(parts.X, parts.y, mesh, **how)
    return time.process_time() - begin, *said[-1][3:5]
split, axis = PartitionSpec("processes"), "processes"
tell = jax.jit(jax.shard_map(
    lambda a: jax.lax.all_gather(a[0], axis)[None], mesh=mesh, in_specs=split, out_specs=split))
def message():
    text = np.zeros((1, 4096), np.uint8)
    whole = jax.make_array_from_process_local_data(
        NamedSharding(mesh, split), text, (options["count"], 4096))
    return np.asarray(tell(whole).addressable_shards[0].data)
message()
begin = time.process_time()
for _ in range(200):
    message()
each = (time.process_time() - begin) / 200
spent(1)  # what is sent is compiled
few, many = spent(1), spent(1 + options["epochs"])
seconds, sent, messages = (b - a for a, b in zip(few, many, strict=True))
print(json.dumps({"seconds": seconds, "bytes": sent, "messages": messages, "message": each}))
"""


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(data="made_few", processes=(1, 2)), full=dict(data="naics2017")):
    """A cost model of processes.

    Attributes:
        data: of experiments._multiclass.SETS.
        processes: 1, 2 and those that check the model.
        bandwidth: of the wire between two processes, bytes per second.
        small: short texts of a hundred classes that are made.
        full: naics2017.
    """

    data: str = "clinc150"
    processes: tuple[int, ...] = (1, 2, 4)
    bandwidth: float = 1.25e9


def measured(data: str, count: int) -> dict:
    """Of ten epochs processor seconds, bytes and messages, of the process with most; seconds of a message."""
    command, request = [sys.executable, "-c", _PROGRAM], {"set": data, "epochs": EPOCHS}
    found = _joined.answers(command, request, count, {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"})
    return {key: max(one[key] for one in found) for key in found[0]}


def model(points: dict[int, dict]) -> tuple[float, float, float]:
    """a, b and c, from one process and from two."""
    a, two = points[1]["seconds"], points[2]
    c = two["message"]
    rest = two["seconds"] - a / 2 - c * two["messages"]
    return a, max(0.0, rest / (2 * two["bytes"])), c


def run(options: Options) -> dict:
    """What was measured, and what the model says."""
    cells = Cells(options, NAME, listed=("processes", "bandwidth"))
    points = {
        count: cells.get(lambda c=count: measured(options.data, c), count=count)
        for count in options.processes
    }
    a, b, c = model(points)
    rows, all_bytes, messages = [], 2 * points[2]["bytes"], points[2]["messages"]
    for count in PREDICTED:
        heard = (count - 1) / count * all_bytes
        seconds, wire = a / count, heard / options.bandwidth
        if count > 1:
            seconds += b * all_bytes + c * messages
        here = points.get(count)
        row = {"count": count, "bytes": heard, "seconds": seconds, "wire": wire}
        row["measured"] = here and here["seconds"]
        if here and count > 2:
            row["message"] = here["message"]
            row["checked"] = a / count + b * all_bytes + here["message"] * here["messages"]
        rows.append(row | {"speed_up": a / (seconds + wire)})
    return {"made": cells.made(), "data": options.data, "a": a, "b": b, "c": c, "rows": rows}


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
        "MB told to each",
        "processor s, model",
        "measured",
        "s on the wire",
        "speed-up, model",
    )
    checks = [row for row in result["rows"] if "checked" in row]
    said = "".join(
        f" With {row['count']} processes, whose messages take {1e3 * row['message']:.3g} ms on the cores "
        f"here, the model is {row['checked'] / row['measured']:.2f} times what was measured."
        for row in checks
    )
    return (
        f"{result['data']}, {EPOCHS} epochs of Weston-Watkins: a = {result['a']:.3g} s, "
        f"b = {1e9 * result['b']:.3g} ns per byte, c = {1e3 * result['c']:.3g} ms per message. One process "
        f"and two fix the model.{said}\n\n" + _report.markdown_table(header, table)
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


if __name__ == "__main__":
    _report.main(NAME, Options, __doc__, run, markdown, {NAME: draw})
