"""One-vs-all training on a GPU: its products against the bandwidth of the memory, and whole sets.

    python -m experiments.bench.gpu [--small|--full] [--sets stackexchange_tags ...] [--out results]

Bandwidth is that of a copy on the same device. For each set three products with a block of lanes (with D and
C zero in all but a few rows of each lane, as in training), by the kernels for a GPU and by plain JAX. Each
has two numbers of bytes: what must move if every array moved once, and what moves if every entry of X that
counts fetches its lanes from memory, which a cache makes less. Then all labels of the set are trained, or a
seeded part of them whose time is scaled to all. wiki10_31k and amazon_670k are power-law sets of the size of
Wiki10-31K and Amazon-670K. Where the device is no GPU the kernels are interpreted and the figures mean
nothing; the page says so. Writes gpu.json and gpu.md.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from pathlib import Path

import numpy as np

from experiments import _data, _one_vs_all, _report


class Size:
    """Of a synthetic set, and the part of its labels that is trained."""

    def __init__(self, rows, features, labels, nonzeros, labels_per_row, part=1.0):
        self.rows, self.features, self.labels = rows, features, labels
        self.more = dict(nonzeros_per_row=nonzeros, labels_per_row=labels_per_row)
        self.part = part


MADE = {
    "wiki10_31k": Size(14_146, 101_938, 30_938, 673, 18.6),
    "amazon_670k": Size(490_449, 135_909, 670_091, 76, 5.45, part=0.1),
    "tiny": Size(300, 200, 40, 15, 2),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """One-vs-all training on a GPU.

    Attributes:
        sets: stackexchange_tags, wiki10_31k, amazon_670k, tiny.
        lanes: of the products; 0 for as many as training takes.
        active: part of the rows of a lane that is not zero in D and C.
        copy_mb: size of the array that is copied to measure the bandwidth.
        repeats: of copies and products; their medians count.
        out: folder of the results.
        small: the set tiny, 32 lanes, for a machine without a GPU.
        full: stackexchange_tags, wiki10_31k and amazon_670k, which is the default.
    """

    sets: tuple[str, ...] = ("stackexchange_tags", "wiki10_31k", "amazon_670k")
    lanes: int = 0
    active: float = 0.015
    copy_mb: int = 2_000
    repeats: int = 5
    out: Path = Path("results")
    small: bool = False
    full: bool = False

    def chosen(self) -> Options:
        """With the sizes that --small stands for."""
        if not self.small:
            return self
        return dataclasses.replace(self, sets=("tiny",), lanes=32, copy_mb=50, repeats=2)


def run(options: Options) -> dict:
    """Bandwidth, products and training of each set."""
    import jax

    from xmcjax import linops

    device = jax.local_devices()[0]
    limit = bandwidth(options)
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "devices": jax.local_device_count(),
        "kernels_interpreted": not linops.gpu_ready(),
        "bandwidth_gb_s": limit / 1e9,
        "sets": {name: one_set(name, options, limit) for name in options.sets},
    }


def bandwidth(options: Options) -> float:
    """Bytes a second that a copy reads and writes."""
    import jax
    import jax.numpy as jnp

    array = jnp.zeros(options.copy_mb * 250_000, jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    return 2 * array.nbytes / seconds_of(lambda: copy(array), options.repeats)


def seconds_of(work, repeats: int) -> float:
    """The median after a first call, which compiles."""
    import jax

    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:]))


def one_set(name: str, options: Options, limit: float) -> dict:
    """Of the set: its size, its products, its training."""
    X, Y, part = load(name)
    return {
        "rows": X.shape[0],
        "features": X.shape[1],
        "labels": Y.shape[1],
        "nonzeros": X.nnz,
        "products": products(X, options, limit),
        "training": training(X, Y, part),
    }


def load(name: str):
    """Transformed features, labels, and the part of the labels that is to be trained."""
    if name not in MADE:
        split = _data.load_split(name)
        return split.X, split.Y, 1.0
    size = MADE[name]
    split = _data.power_law(size.rows, 0, size.features, size.labels, **size.more)
    split = _data.transformed(split, "log,idf,unit")
    return split.X, split.Y, size.part


def products(X, options: Options, limit: float) -> dict:
    """Seconds and bytes of each product, by backend."""
    import jax
    import jax.numpy as jnp

    from xmcjax import linops
    from xmcjax.lanes import lanes_that_fit

    lanes = options.lanes or lanes_that_fit(linops.make(X, backend="gpu"))
    rng = np.random.default_rng(0)
    V = jnp.asarray(rng.normal(size=(X.shape[1], lanes)).astype(X.dtype))
    chosen = rng.random((X.shape[0], lanes), dtype=np.float32) < options.active
    D = jnp.asarray(chosen.astype(X.dtype))
    # entries of X whose row has an active lane in a tile of 32
    per_row = np.diff(X.indptr)
    tiles = np.add.reduceat(chosen, np.arange(0, lanes, 32), axis=1) > 0
    counted = int((tiles * per_row[:, None]).sum()) * min(32, lanes)
    matrix, size = X.nnz * (X.dtype.itemsize + 4), X.dtype.itemsize
    dense_V, dense_D = size * X.shape[1] * lanes, size * X.shape[0] * lanes
    works = {
        "matmat": (lambda op: op.matmat(V), dense_V + dense_D, X.nnz * lanes),
        "rmatmat": (lambda op: op.rmatmat(D), dense_V + dense_D, counted),
        "gram_matmat": (lambda op: op.gram_matmat(D, V), 2 * dense_V + dense_D, 2 * counted),
    }

    def times(backend: str, repeats: int) -> list[float]:
        op = linops.make(X, backend=backend)
        programs = [jax.jit(work) for work, *_ in works.values()]
        return [seconds_of(functools.partial(program, op), repeats) for program in programs]

    found = {}
    for (name, (_, once, fetched)), seconds, plain in zip(
        works.items(), times("gpu", options.repeats), times("jnp", 1), strict=True
    ):
        entries = matrix * (2 if name == "gram_matmat" else 1)
        found[name] = {
            "seconds": seconds,
            "plain_jax_seconds": plain,
            "limit_once": (entries + once) / limit / seconds,
            "limit_fetched": (entries + once + size * fetched) / limit / seconds,
        }
    return {"lanes": lanes, "active": options.active, **found}


def training(X, Y, part: float) -> dict:
    """Seconds of all labels with positives, or of a seeded part of them, scaled to all."""
    from xmcjax.lanes import OneVsAll, train_one_vs_all

    every = _one_vs_all.sample(Y, 0)
    labels = _one_vs_all.sample(Y, int(np.ceil(part * len(every))))
    kept = [0]

    def count(result) -> None:
        kept[0] += len(result.indices)

    begin = time.perf_counter()
    summary = train_one_vs_all(X, Y, OneVsAll(), count, labels=labels)
    seconds = time.perf_counter() - begin
    after_first = seconds - summary.first_step_seconds
    return {
        "labels": len(labels),
        "labels_with_positives": len(every),
        "seconds": seconds,
        "first_step_seconds": summary.first_step_seconds,
        "scaled_seconds": summary.first_step_seconds + after_first * len(every) / len(labels),
        "statuses": {status.name: count for status, count in summary.statuses.items()},
        "newton_steps": summary.newton_steps / len(labels),
        "cg_steps": summary.cg_steps / len(labels),
        "weights": kept[0],
    }


def markdown(result: dict) -> str:
    """Products and training, under the device and its bandwidth."""
    count = f", {result['devices']} of them" if result["devices"] > 1 else ""
    text = f"{result['device']}{count}; a copy moves {result['bandwidth_gb_s']:,.0f} GB/s\n\n"
    if result["kernels_interpreted"]:
        text += "No GPU: the kernels were interpreted, and no figure of them means anything.\n\n"
    products_table, training_table = [], []
    for name, found in result["sets"].items():
        many = found["products"]
        for product in ("matmat", "rmatmat", "gram_matmat"):
            one = many[product]
            shares = [f"{100 * one[limit]:.0f}%" for limit in ("limit_once", "limit_fetched")]
            milliseconds = [f"{1e3 * one[key]:,.2f}" for key in ("seconds", "plain_jax_seconds")]
            products_table.append((name, product, many["lanes"], *milliseconds, *shares))
        trained = found["training"]
        scaled = "" if trained["labels"] == trained["labels_with_positives"] else " (scaled)"
        training_table.append(
            (
                name,
                f"{trained['labels']:,} of {trained['labels_with_positives']:,}",
                f"{trained['seconds']:,.1f}",
                f"{trained['first_step_seconds']:,.1f}",
                f"{trained['scaled_seconds']:,.1f}{scaled}",
                trained["newton_steps"],
                trained["cg_steps"],
            )
        )
    header = ("set", "product", "lanes", "ms", "plain JAX, ms", "of the limit, arrays once", "fetched")
    text += _report.markdown_table(header, products_table) + "\n"
    header = ("set", "labels", "s", "of which the first step", "s for all labels", "Newton steps", "CG steps")
    return text + _report.markdown_table(header, training_table)


if __name__ == "__main__":
    _report.main("gpu", Options, __doc__, run, markdown)
