"""Two forms of the sparse product on a GPU that xmcjax does not have, by counted bytes and operations.

    python -m experiments.bench.gpu_counts [--small] [--data stackexchange_tags ...] [--out results]

**A dense head**: the k most frequent columns of X as a dense block, multiplied by a matrix product in
float32, and the rest by the kernels. What the sparse product takes is counted level by level of the memory:
an entry of X asks for a row of 128 lanes of V, which the cache of a multiprocessor has, or the cache of the
device, or the memory. What a cache keeps, where what was used least recently goes, follows from how often
each row is asked for (Che, Tung, Wang, "Hierarchical web caching systems", 2002). The slowest level says how
long the product takes. A head takes its multiplications, and in X V one reading and writing more of the
result. Each set is shown with the best k, once as counted and once as if the caches of the multiprocessors
kept nothing, which favours a head. What Xᵀ C asks for, one-vs-all training of some labels says.

**X δ and the first sums of the search in one kernel**: saves one reading of m = X δ, and writes and reads
the sums of each warp.

Rates are assumed (``GPUS``): nothing here is a measurement of a GPU. Writes gpu_counts.json and .md.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from experiments import _data, _multiclass, _report
from experiments.bench.gpu_kit._kit import MADE
from experiments.bench.gpu_kit._training import masks, tiles

#: How many lanes of a product one warp takes together.
LANES = 128
#: The part of a cache that remains for rows of V beside the data that stream through it.
KEPT = 0.75
#: How many rows the fused kernel would give to a warp; with more there are too few warps.
ROWS_OF_WARP = 32
NUMBER, ENTRY = 4, 8  # bytes: float32; an entry of X with its column
PROCESSORS, WARPS = 132, 32  # multiprocessors of an H200; warps of 64 registers that one of them holds
FEWER = {"amazon_670k": 64}  # lanes of sets for which the masks of a block take long to compute
LEVELS = ("caches of multiprocessors", "cache of the device", "memory")


class Gpu(NamedTuple):
    """Assumed rates per second, and sizes in bytes."""

    multiplications: float  #: float32 multiplications and additions that a matrix product reaches
    first: float  #: bytes from the caches of the multiprocessors
    second: float  #: bytes from the cache of the device
    memory: float  #: bytes
    first_size: int  #: of one multiprocessor
    second_size: int


GPUS = {
    # 0.8 of 67 TFLOP/s, and of 128 bytes a cycle of 132 multiprocessors at 1.98 GHz
    "H200": Gpu(0.8 * 67e12, 0.8 * 132 * 128 * 1.98e9, 5.5e12, 4.3e12, 256 << 10, 50 << 20),
    # 0.8 of 8.1 TFLOP/s, and of 64 bytes a cycle of 40 multiprocessors at 1.59 GHz
    "T4": Gpu(0.8 * 8.1e12, 0.8 * 40 * 64 * 1.59e9, 1.2e12, 2.4e11, 64 << 10, 4 << 20),
}


@dataclasses.dataclass(frozen=True)
class Options(_report.Trial, small=dict(data=("naics_demo",))):
    """What a dense head and a fused search would save.

    Attributes:
        data: sets of experiments, naics2017, or amazon_670k, which is made (some minutes).
        lanes: of a block.
        small: naics_demo alone.
    """

    data: tuple[str, ...] = ("stackexchange_tags", "bibtex", "delicious", "naics2017", "amazon_670k")
    lanes: int = 512


class Time(NamedTuple):
    """Seconds of a product at each level of the memory; the largest number is the time of the product."""

    first: float
    second: float
    memory: float

    @property
    def seconds(self) -> float:
        return max(self)


def hits(counts: np.ndarray, slots: float) -> np.ndarray:
    """For each row, the part of its requests that a cache of `slots` rows answers; 1 where all rows fit.

    1 − e^{−p t}, with t such that Σ (1 − e^{−p t}) is the size of the cache.
    """
    used = counts > 0
    if used.sum() <= slots:
        return used.astype(float)
    # rows with equal counts are computed once
    value, many = np.unique(counts[used], return_counts=True)
    rate = value / counts.sum()
    low, high = 0.0, 1.0
    while many @ -np.expm1(-rate * high) < slots:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if many @ -np.expm1(-rate * middle) < slots:
            low = middle
        else:
            high = middle
    return -np.expm1(-counts / counts.sum() * high)


def followed(X, slots: int, requests: int = 200_000) -> float:
    """The part of the requests that the cache of one multiprocessor answers, as rows of X come to it.

    Its warps take turns, 8 entries each, and a warp that has finished takes the next row. Blocks of 8 rows go
    to the multiprocessors in turn. The cache is empty at first, as it is before each further 128 lanes.
    """
    rows = iter(
        [
            row
            for first in range(0, X.shape[0], 8 * PROCESSORS)
            for row in range(first, min(first + 8, X.shape[0]))
        ]
    )
    cache: OrderedDict[int, None] = OrderedDict()
    warps: deque[list[int]] = deque()
    hit = asked = 0
    while asked < requests:
        while len(warps) < WARPS and (row := next(rows, None)) is not None:
            warps.append(X.indices[X.indptr[row] : X.indptr[row + 1]].tolist())
        if not warps:
            break
        left = warps.popleft()
        for column in left[:8]:
            asked += 1
            hit += column in cache
            cache[column] = None
            cache.move_to_end(column)
            if len(cache) > slots:
                cache.popitem(last=False)
        if len(left) > 8:
            warps.append(left[8:])
    return hit / max(asked, 1)


def product(
    counts: np.ndarray, n: int, lanes: int, gpu: Gpu, *, first_level: bool = True, active: float = 1.0
) -> Time:
    """The time of A V for a sparse A.

    Args:
        counts: entries of each column of A, each of which asks for a row of V.
        n: rows of A.
        lanes: of V.
        gpu: rates.
        first_level: whether the caches of the multiprocessors keep anything.
        active: the part of the requests that remain, where zeros of V are skipped.
    """
    counts = counts[counts > 0].astype(float)
    at_once = min(LANES, lanes)
    row = NUMBER * at_once
    near = hits(counts, slots_of(gpu.first_size, row)) if first_level else np.zeros(len(counts))
    far = np.maximum(near, hits(counts, slots_of(gpu.second_size, row)))
    width, stream = NUMBER * lanes, ENTRY * counts.sum() * -(-lanes // at_once)
    first = active * width * counts.sum() + stream
    second = active * width * (counts @ (1 - near)) + stream
    # each row of V at least once, and the result
    memory = active * width * max(counts @ (1 - far), len(counts)) + stream + width * n
    return Time(first / gpu.first, second / gpu.second, memory / gpu.memory)


def slots_of(size: int, row: int) -> int:
    """How many rows of V, of `row` bytes each, a cache of `size` bytes keeps."""
    return int(KEPT * size / row)


def head(k: int, n: int, lanes: int, gpu: Gpu, *, transposed: bool = False) -> float:
    """Seconds of the product with k dense columns of n rows.

    For X V the head's result is added to that of the other columns, which reads and writes the result once
    more. For Xᵀ C the head has rows of its own.
    """
    if k == 0:
        return 0.0
    moved = NUMBER * (n * k + k * lanes + n * lanes)
    again = 0.0 if transposed else NUMBER * 2 * n * lanes / gpu.memory
    return max(2 * n * k * lanes / gpu.multiplications, moved / gpu.memory) + again


class Split(NamedTuple):
    """The best number of dense columns, and its gain."""

    columns: int
    entries: float  #: the part of all entries in these columns
    sparse: float  #: seconds without a head
    best: float  #: seconds with this head
    waits_for: str  #: the slowest level without a head


class Heads:
    """The possible heads of a matrix: some 60 numbers of columns from 0 to all."""

    def __init__(self, X, lanes: int):
        self.shape, self.lanes = X.shape, lanes
        counts = np.bincount(X.indices, minlength=X.shape[1])
        order = np.argsort(-counts, kind="stable")
        self.counts, columns = counts[order], X.tocsc()[:, order]
        tried = np.geomspace(1, X.shape[1], 60).astype(int)
        self.sizes = np.unique(np.concatenate([[0, X.shape[1]], tried]))
        # entries of the rows outside of each head
        self.left = [
            np.bincount(columns.indices[columns.indptr[k] :], minlength=X.shape[0]) for k in self.sizes
        ]

    def best(self, gpu: Gpu, *, transposed: bool, first_level: bool = True, active: float = 1.0) -> Split:
        """The best head for X V, or for Xᵀ C if `transposed`; see :func:`product`."""
        n, d = self.shape

        def without(i: int) -> Time:
            k = self.sizes[i]
            counts, m = (self.left[i], d - k) if transposed else (self.counts[k:], n)
            return product(counts, m, self.lanes, gpu, first_level=first_level, active=active)

        times = [
            without(i).seconds + head(k, n, self.lanes, gpu, transposed=transposed)
            for i, k in enumerate(self.sizes.tolist())
        ]
        best, alone = int(np.argmin(times)), without(0)
        k = int(self.sizes[best])
        share = self.counts[:k].sum() / max(self.counts.sum(), 1)
        return Split(k, float(share), times[0], times[best], LEVELS[int(np.argmax(alone))])

    def needed(self, gpu: Gpu) -> float | None:
        """The least part of the entries that Xᵀ C must ask for so that a head saves a twentieth.

        None where even all entries are too few.
        """

        def saves(active: float) -> bool:
            found = self.best(gpu, transposed=True, active=active)
            return found.best <= 0.95 * found.sparse

        if not saves(1.0):
            return None
        low, high = 0.0, 1.0
        for _ in range(7):
            middle = (low + high) / 2
            low, high = (low, middle) if saves(middle) else (middle, high)
        return high


class Fused(NamedTuple):
    """Bytes per row and lane of X δ and the search, as two kernels and as one, and the part that is saved."""

    apart: float
    fused: float
    saved: float


def fused(X, trials: int) -> Fused:
    """Bytes of X δ and of a search that asks for sums at `trials` points.

    What else a step reads and writes, for the gradient, CG and the lanes, is left out, so that the saved part
    of a whole step is smaller.
    """
    n, _ = X.shape
    sums = 6 * NUMBER
    # V is read; m is written; at each point z, m and y are read
    apart = NUMBER * X.nnz / n + NUMBER + trials * (2 * NUMBER + 1)
    # m is not read for the first point; the sums of each warp are written and read
    together = apart - NUMBER + 2 * sums / ROWS_OF_WARP
    return Fused(apart, together, 1 - together / apart)


def load(name: str) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Features and labels of a set; classes as labels."""
    if name in _multiclass.SETS:
        parts = _multiclass.load(name)
        n = len(parts.y)
        return sp.csr_matrix(parts.X), sp.csr_matrix((np.ones(n, np.float32), (np.arange(n), parts.y)))
    if name == "amazon_670k":
        size = MADE[name]
        split = _data.power_law(size.rows, 0, size.features, size.labels, **size.more)
        split = _data.transformed(split, "log,idf,unit")
    else:
        split = _data.load_split(name)
    return sp.csr_matrix(split.X), sp.csr_matrix(split.Y)


def asked(X, Y, lanes: int) -> dict[str, float]:
    """The part of the entries that Xᵀ C of one-vs-all asks for, at the start and at the end of training.

    The labels are as many as there are lanes, all with positives, and neighbours by their numbers of
    positives. A row of C is asked for where a lane of its tile is active.
    """
    used = int((np.diff(Y.tocsc().indptr) > 0).sum())
    entries = np.diff(X.indptr)
    shares = {}
    for name, active in masks(X, Y, min(lanes, max(1, 2 * used // 3)), {"start", "end"}).items():
        flagged = tiles(active)
        shares[name] = float((flagged * entries[:, None]).sum() / (X.nnz * flagged.shape[1]))
    return shares


def run(options: Options) -> dict:
    """For each set: the best heads of both products on each GPU, and what a fused kernel would save."""
    sets = {}
    for name in options.data:
        X, Y = load(name)
        heads = Heads(X, options.lanes)
        rows = []
        for gpu in GPUS:
            for transposed in (False, True):
                for first_level in (True, False):
                    best = heads.best(GPUS[gpu], transposed=transposed, first_level=first_level)
                    what = {"gpu": gpu, "transposed": transposed, "first_level": first_level}
                    rows.append(what | best._asdict())
        slots = slots_of(GPUS["H200"].first_size, NUMBER * LANES)
        counts = heads.counts[heads.counts > 0]
        sets[name] = {
            "rows": X.shape[0],
            "features": X.shape[1],
            "entries_of_row": X.nnz / X.shape[0],
            "hits": float(counts @ hits(counts, slots) / counts.sum()),
            "hits_followed": followed(X, slots),
            "heads": rows,
            "needed": heads.needed(GPUS["H200"]),
            "asked": {
                when: {"part": part, **heads.best(GPUS["H200"], transposed=True, active=part)._asdict()}
                for when, part in asked(X, Y, FEWER.get(name, options.lanes)).items()
            },
            "fused": {trials: fused(X, trials)._asdict() for trials in (1, 4)},
        }
    return {"lanes": options.lanes, "sets": sets, "gpus": {name: gpu._asdict() for name, gpu in GPUS.items()}}


def markdown(result: dict) -> str:
    """The three tables."""
    header = ["set", "product", "GPU", "first caches", "waits for", "without, ms", "columns", "entries, %"]
    header += ["with a head, ms", "saved, %"]
    lines = [
        [
            name,
            "Xᵀ C, no zeros" if row["transposed"] else "X V",
            row["gpu"],
            "counted" if row["first_level"] else "keep nothing",
            row["waits_for"],
            1e3 * row["sparse"],
            row["columns"],
            100 * row["entries"],
            1e3 * row["best"],
            100 * (1 - row["best"] / row["sparse"]),
        ]
        for name, found in result["sets"].items()
        for row in found["heads"]
    ]
    of_sets = ["set", "hits of first caches, %", "in the order of the rows, %"]
    of_sets += ["entries that Xᵀ C must ask for, %", "asks for at the start, %", "at the end, %"]
    of_sets += ["a head would save at the start, ms", "at the end, ms"]
    caches = [
        [
            name,
            100 * found["hits"],
            100 * found["hits_followed"],
            "never enough" if found["needed"] is None else 100 * found["needed"],
            *(100 * found["asked"][when]["part"] for when in ("start", "end")),
            *(
                1e3 * (found["asked"][when]["sparse"] - found["asked"][when]["best"])
                for when in ("start", "end")
            ),
        ]
        for name, found in result["sets"].items()
    ]
    of_one = [
        "set",
        "entries of a row",
        "points",
        "bytes of a row and lane, apart",
        "in one kernel",
        "saved, %",
    ]
    fusions = [
        [name, found["entries_of_row"], trials, row["apart"], row["fused"], 100 * row["saved"]]
        for name, found in result["sets"].items()
        for trials, row in found["fused"].items()
    ]
    what = f"A dense head, {result['lanes']} lanes, by assumed rates"
    return (
        f"{what}:\n\n{_report.markdown_table(header, lines)}\n"
        f"On an H200:\n\n{_report.markdown_table(of_sets, caches)}\n"
        f"X δ and the first sums of the search in one kernel:\n\n{_report.markdown_table(of_one, fusions)}"
    )


if __name__ == "__main__":
    _report.main("gpu_counts", Options, __doc__, run, markdown)
