"""What a prediction of many labels moves on a GPU, by counted bytes, in each of the ways to make its scores.

    python -m experiments.bench.gpu_prediction [--small] [--labels 1000000] [--out results]

The rows and weights are those of the kit's stage `prediction`, and the pairs of an entry of a row and a
weight of the same feature are counted. Each way sends its weights over the bus once, and moves them, the
pairs and the scores in the memory of the device. Seconds are bytes over assumed rates (``BUS``, ``MEMORY``),
and ``TURN`` for each turn of plain JAX: nothing here is a measurement of a GPU. Writes gpu_prediction.json
and .md.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments import _report
from experiments.bench.gpu_kit.prediction import sparse
from xmcjax.models import _device_prediction, _device_weights

BUS, MEMORY = 50e9, 4e12  # bytes per second over the bus to an H200, and in its memory
TURN = 50e-6  # seconds in which the kernels of a turn begin and end
NUMBER, ENTRY = 4, 8  # bytes: float32; a weight with its feature
SCORES = 4  # how often the scores of a block are moved: zeros, read and written for the bias, the best
SORTED = 200  # bytes moved per weight to sort the weights of a block by feature


@dataclasses.dataclass(frozen=True)
class Options(_report.Trial, small=dict(labels=5_000)):
    """What a prediction moves.

    Attributes:
        labels: L.
        small: 5,000 labels.
    """

    labels: int = 1_000_000


def run(options: Options) -> dict:
    """Bytes and seconds of each way."""
    rows, features, of_row, of_label = 2_000, 50_000, 40, 50
    rng = np.random.default_rng(0)
    X, W = sparse(rng, rows, features, of_row), sparse(rng, options.labels, features, of_label)
    pairs = float(np.bincount(X.indices, minlength=features) @ np.bincount(W.indices, minlength=features))
    width = _device_weights.sparse_labels(options.labels, W.nnz, NUMBER, block=_device_weights.BYTES_OF_GPU)
    work = _device_prediction.Work(
        n_rows=rows,
        n_features=features,
        n_labels=options.labels,
        entries=X.nnz,
        turns=int(np.diff(X.indptr).max()),
        pairs=pairs,
        blocks=-(-options.labels // width),
        passes=1,
        itemsize=NUMBER,
    )
    scores, sent = SCORES * NUMBER * rows * options.labels, ENTRY * W.nnz
    of_pairs = scores + work._replace(turns=0).bytes_by_pairs
    turns = work.blocks * work.turns + pairs / work.window
    ways = {
        "dense on the host": (NUMBER * features * options.labels, scores + work.bytes_dense, 0.0, 0),
        "dense on the device": (sent, scores + work.bytes_dense, 0.0, 0),
        "pairs, plain JAX": (sent, of_pairs, turns, SORTED * W.nnz),
        "pairs, kernels in CUDA": (sent, of_pairs, 0.0, SORTED * W.nnz),
    }
    found = {
        way: {
            "sent_bytes": sent,
            "moved_bytes": moved,
            "turns": turns,
            "sending_seconds": sent / BUS + once / MEMORY,
            "kept_seconds": moved / MEMORY + turns * TURN,
        }
        for way, (sent, moved, turns, once) in ways.items()
    }
    rates = {"bus": BUS, "memory": MEMORY, "turn": TURN}
    sizes = {"labels": options.labels, "rows": rows, "weights": int(W.nnz), "pairs": pairs, "width": width}
    return {**sizes, "rates": rates, "ways": found}


def markdown(result: dict) -> str:
    """A line for each way."""
    header = ("way", "sent, GB", "moved, GB", "turns", "weights sent and ordered, ms", "scores, ms")
    lines = [
        (
            way,
            row["sent_bytes"] / 1e9,
            row["moved_bytes"] / 1e9,
            row["turns"],
            1e3 * row["sending_seconds"],
            1e3 * row["kept_seconds"],
        )
        for way, row in result["ways"].items()
    ]
    what = f"{result['labels']:,} labels, {result['rows']:,} rows, {result['pairs']:,.0f} pairs"
    return f"{what}, by assumed rates:\n\n{_report.markdown_table(header, lines)}"


if __name__ == "__main__":
    _report.main("gpu_prediction", Options, __doc__, run, markdown)
