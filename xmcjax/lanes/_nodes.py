"""One-vs-all training with a process for each NUMA node, pinned to its cores, with its own copy of X.

The processes take labels from one queue, so that the nodes end together whatever their speed, and
send every result to this process. A result does not depend on where it was computed (on a CPU, to the bit).
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

import xmcjax
from xmcjax import _sparse, linops
from xmcjax._matrix_pipes import send_matrix
from xmcjax._topology import Share, format_cores
from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._queue import Queue, make_queue
from xmcjax.lanes._results import LabelResult, Summary
from xmcjax.lanes._training_data import all_labels, check_labels, label_columns


def train_on_nodes(
    X,
    Y,
    options: OneVsAll,
    sink: Callable[[LabelResult], None],
    shares: Sequence[Share],
    *,
    label_weights: LabelWeights | None = None,
    labels: np.ndarray | None = None,
    may_begin: Callable[[int], bool] | None = None,
) -> Summary:
    """:func:`xmcjax.lanes.train_one_vs_all` with a process for each share.

    Args:
        X, Y, sink, label_weights, labels, may_begin: as there.
        options: as there; its threads are those of the shares together.
        shares: nodes and the threads on each, from :func:`xmcjax._topology.share_threads`.

    Raises:
        ChildProcessError: a process died; which, and how.
        Exception: what training raised in one of them.

    Example:
        >>> import scipy.sparse as sp
        >>> from xmcjax._topology import nodes, share_threads
        >>> from xmcjax.lanes import OneVsAll, train_on_nodes
        >>> X, Y, found = np.eye(4, dtype=np.float32), sp.csr_array(np.eye(4)), []
        >>> shares = share_threads(nodes(), threads=1)  # one process, on the first node
        >>> summary = train_on_nodes(X, Y, OneVsAll(n_jobs=1), found.append, shares)
        >>> sorted(result.label for result in found)
        [0, 1, 2, 3]
    """
    begin = time.perf_counter()
    X = _sparse.matrix(X)
    linops.check_features(X)
    columns = label_columns(Y)
    labels = all_labels(columns) if labels is None else check_labels(labels, columns.shape[1])
    tree = options.init.tree and options.max_iter > 0
    threads = sum(share.threads for share in shares)
    queue = make_queue(columns, labels, tree=tree, threads=threads, may_begin=may_begin)
    wanted = set(labels.tolist())
    summary = Summary()
    workers: list[_Worker] = []
    try:
        for share in shares:  # one by one: those that are there are closed where another does not begin
            workers.append(_Worker(share))
        with ThreadPoolExecutor(len(workers)) as pool:
            own = (dataclasses.replace(options, n_jobs=share.threads) for share in shares)
            data = [(X, columns, how, label_weights, tree) for how in own]
            list(pool.map(_Worker.send_data, workers, data))
        left = {worker.receiving: worker for worker in workers}
        while left:
            for ready in wait(list(left)):
                worker = left[ready]  # type: ignore[index]
                kind, content = worker.receive()
                if kind == "result":
                    if content.label in wanted:
                        summary.add(content)
                        sink(content)
                elif kind == "end":
                    del left[worker.receiving]
                    summary.active += content.active
                    summary.steps += content.steps
                    first = summary.first_step_seconds
                    summary.first_step_seconds = max(first, content.first_step_seconds)
                else:
                    _answer(worker, queue, kind, content)
    finally:
        for worker in workers:
            worker.close()
    summary.seconds = time.perf_counter() - begin
    return summary


def _answer(worker: _Worker, queue: Queue, kind: str, content: Any) -> None:
    if kind == "take":
        taken = queue.take(content)
        worker.send((taken, queue.finished))
    elif kind == "done":
        queue.done(*content)
    else:
        raise content  # what ended the training there


def _import_path() -> list[str]:
    """Folders from which a new process imports what this one does, and this very package first of all."""
    package = str(Path(xmcjax.__file__).parents[1])
    path = [folder for folder in sys.path if folder]
    return path if package in path else [package, *path]


class _Worker:
    """The process of a node, and the pipes to and from it."""

    def __init__(self, share: Share):
        self._node = share.node
        there, to = os.pipe()
        own, back = os.pipe()
        self._sending = Connection(to, readable=False)
        self.receiving = Connection(own, writable=False)
        cores = format_cores(share.node.cores)
        # -P: nothing is imported from the folder in which the command happens to be run
        command = [sys.executable, "-P", "-m", "xmcjax._node_worker", str(there), str(back), cores]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())}
        try:
            self._process = subprocess.Popen(command, pass_fds=(there, back), env=environment)
        except BaseException:
            self._sending.close()
            self.receiving.close()
            raise
        finally:
            os.close(there)
            os.close(back)

    def send(self, content: Any) -> None:
        try:
            self._sending.send(content)
        except BrokenPipeError:
            raise self._died() from None

    def send_data(self, data) -> None:
        """Features, labels and options; the process puts the arrays into memory of its node."""
        X, columns, options, label_weights, tree = data
        try:
            send_matrix(self._sending, X)
            send_matrix(self._sending, columns)
            self._sending.send((options, label_weights, tree))
        except BrokenPipeError:
            raise self._died() from None

    def receive(self) -> tuple[str, Any]:
        try:
            return self.receiving.recv()
        except (EOFError, ConnectionResetError):
            raise self._died() from None

    def _died(self) -> ChildProcessError:
        code = self._process.wait()
        how = f"ended with status {code}"
        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        return ChildProcessError(
            f"the worker of NUMA node {self._node.number} (process {self._process.pid}) {how}"
        )

    def close(self) -> None:
        """Ends the process, if it has not ended, and lets go of the pipes; it has nothing to lose."""
        if self._process.poll() is None:
            self._process.kill()
        self._sending.close()
        self.receiving.close()
        self._process.wait()
