"""Which labels one task trains, and how long tasks take side by side."""

from __future__ import annotations

import dataclasses
import heapq
import itertools

import numpy as np

#: A task has at most 1/_PART of a thread's share of the labels that are left, so that threads end together.
_PART = 16
#: A shard is only split into tasks of at least this many labels, which keep the lanes of a thread busy.
_LEAST = 128
# A block whose workers have died is cut into at most _CUTS blocks of at least _FEWEST labels each, because
# workers that die every few seconds never finish a longer task.
_CUTS, _FEWEST = 8, 16


@dataclasses.dataclass(frozen=True)
class Block:
    """Labels first … last − 1.

    Attributes:
        first, last: the bounds above.
        shard: whether the labels are a whole shard of the model.
    """

    first: int
    last: int
    shard: bool

    def __str__(self) -> str:
        return f"labels {self.first} to {self.last - 1}"


def blocks_of(
    labels: np.ndarray, counts: np.ndarray, shard_size: int, threads: int, *, ascending: bool
) -> list[Block]:
    """Blocks of labels, each within a shard.

    Args:
        labels: numbers of the labels to train, ascending; of each shard either all labels of the model or
            none.
        counts: positives of every label.
        shard_size: labels per shard.
        threads: of the cluster.
        ascending: whether blocks come in the order of labels; otherwise shards with the most positives come
            first, so that the tasks that end last are short.

    Example:
        >>> counts = np.array([1, 1, 1, 9, 9, 9])
        >>> blocks = blocks_of(np.arange(6), counts, shard_size=3, threads=2, ascending=False)
        >>> [(block.first, block.last) for block in blocks]  # the shard with most positives is first
        [(3, 6), (0, 3)]
    """
    shards = np.split(labels, np.flatnonzero(np.diff(labels // shard_size)) + 1) if len(labels) else []
    if not ascending:
        shards.sort(key=lambda shard: -int(counts[shard].sum()))
    blocks, left = [], len(labels)
    for shard in shards:
        most = max(_LEAST, left // (_PART * threads))
        parts = -(-len(shard) // most)
        runs = np.split(shard, np.flatnonzero(np.diff(shard) > 1) + 1)
        whole = parts == 1 and len(runs) == 1
        for run in runs:
            for part in np.array_split(run, min(parts, len(run))):
                blocks.append(Block(int(part[0]), int(part[-1]) + 1, whole))
        left -= len(shard)
    return blocks


def cut(block: Block) -> list[Block]:
    """The blocks that a block is cut into; the block itself where it has few labels."""
    count = min(_CUTS, (block.last - block.first) // _FEWEST)
    if count < 2:
        return [block]
    ends = np.linspace(block.first, block.last, count + 1).round().astype(int).tolist()
    return [Block(first, last, False) for first, last in itertools.pairwise(ends)]


def makespan(lengths: np.ndarray, threads: int) -> float:
    """When the last task ends, if each thread takes the next task as soon as it is free.

    Args:
        lengths: how long each task takes, in the order of the tasks.
        threads: of the cluster.

    Example:
        >>> makespan(np.array([3.0, 2.0, 2.0, 1.0]), threads=2)
        4.0
    """
    free = [0.0] * min(threads, max(len(lengths), 1))  # a thread without a task does not count
    for length in lengths.tolist():
        heapq.heapreplace(free, free[0] + length)
    return max(free)
