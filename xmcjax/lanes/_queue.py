"""Which label is trained next."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from xmcjax.inits import label_tree

# A start from another label: its weights [d] and bias.
Parent = tuple[np.ndarray, float]


def by_positives(positives: np.ndarray, labels: np.ndarray, shard_size: int) -> np.ndarray:
    """The labels shard after shard, in each those with the most positives first.

    The lanes of a block are then alike: they have many active rows together or few, take about as many
    steps, and what is made for all lanes at once is made for most of them.

    Args:
        positives: of every label, [L].
        labels: numbers of those to be trained.
        shard_size: labels per shard.

    Example:
        >>> import numpy as np
        >>> by_positives(np.array([1, 5, 2, 9]), np.arange(4), shard_size=2).tolist()
        [1, 0, 3, 2]
    """
    return labels[np.lexsort((labels, -positives[labels], labels // shard_size))]


class LabelQueue:
    """Labels in the given order, for several threads.

    A thread takes several labels at once, which makes their starts cheaper, and fewer towards
    the end, so that the threads end together. It takes no more than its share where its lanes could
    hold the labels of the other threads too.

    Args:
        labels: their numbers.
        threads: that take from the queue.
        may_begin: asked before each label; where it says no the queue ends. None always says yes.
    """

    LONGEST = 64

    def __init__(self, labels: np.ndarray, threads: int = 1, may_begin: Callable[[int], bool] | None = None):
        self._labels = labels
        self._threads = threads
        self._most = -(-len(labels) // threads)
        self._may_begin = may_begin
        self._next = 0
        self._lock = threading.Lock()

    def take(self, idle: int) -> list[tuple[int, Parent | None]]:
        """Labels for `idle` lanes, often more, while there are any, with their starts."""
        with self._lock:
            share = (len(self._labels) - self._next) // (4 * self._threads)
            count = max(min(idle, self._most), min(self.LONGEST, share))
            taken: list[tuple[int, Parent | None]] = []
            for label in self._labels[self._next : self._next + count].tolist():
                if self._may_begin is not None and not self._may_begin(label):
                    self._next = len(self._labels)
                    return taken
                taken.append((label, None))
                self._next += 1
            return taken

    def done(self, label: int, w: np.ndarray, bias: float) -> None:
        """Tells that a label was solved."""

    @property
    def finished(self) -> bool:
        """Nothing is left to take, now or later."""
        return self._next == len(self._labels)


class TreeQueue:
    """Labels of a tree: a label can be taken when its parent is solved, and starts from that solution.

    The label that became ready last goes first: a depth-first walk in blocks, which keeps few
    solutions waiting for their children.

    Args:
        parents: the parent of each label, −1 for the root.
        labels: those to be solved; their ancestors are solved too.
    """

    def __init__(self, parents: np.ndarray, labels: np.ndarray):
        wanted = np.zeros(len(parents), bool)
        for label in labels:
            while label >= 0 and not wanted[label]:
                wanted[label] = True
                label = parents[label]
        self._children: dict[int, list[int]] = {}
        for label in np.flatnonzero(wanted)[::-1].tolist():
            self._children.setdefault(int(parents[label]), []).append(label)
        self._ready: list[tuple[int, Parent | None]] = [(label, None) for label in self._children.pop(-1, [])]
        self._in_flight = 0
        self._lock = threading.Lock()

    def take(self, idle: int) -> list[tuple[int, Parent | None]]:
        """At most `idle` labels that are ready, with their starts; another may be ready later."""
        with self._lock:
            taken = [self._ready.pop() for _ in range(min(idle, len(self._ready)))]
            self._in_flight += len(taken)
            return taken

    def done(self, label: int, w: np.ndarray, bias: float) -> None:
        """Tells that a label was solved: its children are ready."""
        with self._lock:
            self._in_flight -= 1
            self._ready += [(child, (w, bias)) for child in self._children.pop(label, [])]

    @property
    def finished(self) -> bool:
        """Nothing is left to take, now or later."""
        with self._lock:
            return not self._ready and not self._in_flight


Queue = LabelQueue | TreeQueue


def make_queue(
    Y: sp.csc_array,
    labels: np.ndarray,
    *,
    tree: bool,
    weight: np.ndarray | None = None,
    threads: int = 1,
    may_begin: Callable[[int], bool] | None = None,
) -> Queue:
    """The queue of a training run.

    Args:
        Y: label matrix of ones, [n, L].
        labels: to be trained, in this order; a tree has its own, and hands out their ancestors too.
        tree: whether labels start from the solutions of others.
        weight: of the rows, [n], or None.
        threads, may_begin: as the queue takes them.

    Example:
        >>> import numpy as np
        >>> Y = sp.csc_array(np.eye(3))
        >>> queue = make_queue(Y, np.array([2, 0, 1]), tree=False)
        >>> [label for label, start in queue.take(3)], queue.finished
        ([2, 0, 1], True)
    """
    if not tree:
        return LabelQueue(labels, threads, may_begin)
    trained = np.flatnonzero(np.diff(Y.indptr))
    parents = np.full(Y.shape[1], -1)  # a label without positives waits for nothing
    found = label_tree(Y[:, trained], weight)
    parents[trained] = np.where(found >= 0, trained[found], -1)
    return TreeQueue(parents, labels)
