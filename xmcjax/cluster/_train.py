"""One-vs-all training on a Dask cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from xmcjax import __version__, _sparse, native
from xmcjax._arguments import whole_number
from xmcjax.cluster._blocks import Block, blocks_of, cut
from xmcjax.cluster._clients import check_may_wait
from xmcjax.cluster._dispatch import Dispatcher
from xmcjax.cluster._errors import ClusterError
from xmcjax.cluster._supply import Source, Supply
from xmcjax.cluster._training_tasks import Ended, Run, train_block
from xmcjax.data import Dataset
from xmcjax.lanes import (
    LabelResult,
    LabelWeights,
    OneVsAll,
    Summary,
    check_labels,
    checked_arguments,
    label_columns,
    precision,
)
from xmcjax.models import ShardWriter, beacon

if TYPE_CHECKING:
    from distributed import Client


@dataclasses.dataclass(frozen=True)
class Part:
    """Labels that have been trained and stored.

    Attributes:
        results: one per label; without weights where a worker has written the weights itself.
        isa: instruction set of the kernels that trained them; None without kernels.

    Example:
        >>> from xmcjax.lanes import LabelResult
        >>> result = LabelResult(7, np.array([0]), np.float32([0.5]), 0.0, 0, 3, 5, 1.25, 1e-4)
        >>> part = Part([result], isa="avx2")
        >>> [done.label for done in part.results]
        [7]
    """

    results: list[LabelResult]
    isa: str | None


def train_on_cluster(
    client: Client,
    X,
    Y,
    options: OneVsAll,
    out: ShardWriter | Callable[[LabelResult], None],
    *,
    sample_weight: np.ndarray | None = None,
    label_weights: LabelWeights | None = None,
    labels: np.ndarray | None = None,
    may_begin: Callable[[int], bool] | None = None,
    shard_size: int = 1000,
    source: Source | None = None,
    done: Callable[[Part], None] | None = None,
) -> Summary:
    """:func:`xmcjax.lanes.train_one_vs_all` with the workers of a Dask cluster.

    A task trains some labels of a shard in one thread of a worker; a million labels are a thousand tasks. The
    tasks of a worker that dies, or is silent for 20 seconds, are given to others. The run ends, within a
    minute, if the scheduler is gone, if the cluster has no workers, or if a worker cannot do its work because
    it has another version of xmcjax or a full disk.

    Args:
        client: a ``distributed.Client``.
        X, Y, options, sample_weight, label_weights, labels, may_begin: as in
            :func:`xmcjax.lanes.train_one_vs_all`. ``n_jobs`` has no meaning.
        out: a writer: workers that see its directory write shards there, and other workers hand their results
            back; or a function that is called with each result, one call at a time.
        shard_size: labels per task at most; for a writer it is the writer's.
        source: lets each host read the data for itself instead of sending them: it is pickled, called there,
            and gives a mapping with "X" and "Y", which must be those of this call. A worker that reads may
            be silent for ten minutes.
        done: called when labels are stored.

    Raises:
        ClusterError: the cluster cannot go on; the shards that are stored are complete.
        ValueError: as in :func:`xmcjax.lanes.train_one_vs_all`; an initialisation with an order of labels of
            its own; a call on the thread of the client's event loop, which ``asyncio.to_thread`` avoids, or
            in a task that holds its thread, which ``distributed.worker_client()`` avoids.

    Example:
        >>> import scipy.sparse as sp
        >>> from xmcjax.cluster import local_cluster, train_on_cluster
        >>> from xmcjax.lanes import OneVsAll
        >>> X, Y = np.eye(4, dtype=np.float32), sp.csr_array(np.eye(4))
        >>> results = []
        >>> with local_cluster(1) as client:
        ...     summary = train_on_cluster(client, X, Y, OneVsAll(), results.append, shard_size=2)
        >>> sorted(result.label for result in results), summary.statuses
        ([0, 1, 2, 3], {<Status.CONVERGED: 1>: 4})
    """
    begin = time.perf_counter()
    check_may_wait(client)
    if options.init.tree:
        raise ValueError(
            f"init {options.init.name} starts labels from the solutions of others, which tasks of a cluster "
            "do not have"
        )
    X = _sparse.matrix(X)
    with precision(X.dtype):
        X, Y, weight = checked_arguments(X, Y, sample_weight, label_weights, options)
    columns = label_columns(Y)
    matrices: dict[str, Any] = {"X": X, "Y": columns}
    if weight is not None:
        matrices["sample_weight"] = weight
    if label_weights is not None:
        matrices |= {"positive": label_weights.positive, "negative": label_weights.negative}
    labels = np.arange(columns.shape[1]) if labels is None else check_labels(labels, columns.shape[1])
    writer = out if isinstance(out, ShardWriter) else None
    shard_size = writer.shard_size if writer else whole_number("shard_size", shard_size, 1)
    results = _Results(out, done)
    if not len(labels):
        return results.summary
    name = f"xmcjax-{secrets.token_hex(6)}"
    with contextlib.ExitStack() as stack:
        light = stack.enter_context(beacon(writer.directory)) if writer else None
        own = dataclasses.replace(options, n_jobs=1, init=options.init.for_workers())
        run = Run(name, __version__, native.sources(), own, light, shard_size)
        supply = Supply(client, name, matrices if source is None else _Compared(source, matrices))
        dispatcher: Dispatcher[Block] = Dispatcher(client, train_block, run, supply, results.discard, cut)
        dispatcher.workers.wait()
        threads = sum(dispatcher.workers.threads.values())
        stack.callback(supply.remove)
        counts = np.diff(columns.indptr)
        ascending = may_begin is not None
        blocks = blocks_of(np.sort(labels), counts, shard_size, threads, ascending=ascending)
        for _, ended in dispatcher.results(_begun(blocks, may_begin)):
            results.store(ended)
    results.summary.seconds = time.perf_counter() - begin
    return results.summary


def _begun(blocks: list[Block], may_begin: Callable[[int], bool] | None) -> Iterator[Block]:
    for block in blocks:
        if may_begin is not None and not may_begin(block.first):
            return
        yield block


class _Results:
    """Stores the results of blocks and counts them."""

    def __init__(self, out: ShardWriter | Callable[[LabelResult], None], done: Callable[[Part], None] | None):
        self._out, self._done = out, done
        self.summary = Summary()

    def store(self, ended: Ended) -> None:
        """Stores the result of a block."""
        results = ended.results()
        if isinstance(self._out, ShardWriter):
            if ended.outside is not None:
                self._out.adopt(ended.outside)
            else:
                for result in results:
                    self._out.add(*result[:7])
        else:
            for result in results:
                self._out(result)
        for result in results:
            self.summary.add(result)
        self.summary.active += ended.summary.active
        self.summary.steps += ended.summary.steps
        first = ended.summary.first_step_seconds
        self.summary.first_step_seconds = max(self.summary.first_step_seconds, first)
        if self._done is not None:
            self._done(Part(results, ended.isa))

    def discard(self, ended: Any) -> None:
        """Drops a result that another worker has given already."""
        if isinstance(ended, Ended) and ended.outside is not None and isinstance(self._out, ShardWriter):
            self._out.adopt(ended.outside)  # removes the file, since the shard is stored


def _fingerprint(matrices: Any) -> str:
    """SHA-256 of features and labels."""
    return Dataset(matrices["X"], sp.csr_array(matrices["Y"])).fingerprint()


class _Compared:
    """A source that checks that its data are those of the client."""

    def __init__(self, source: Source, matrices: dict[str, Any]):
        self._source = source
        self._expected = _fingerprint(matrices)
        self._more = {name: value for name, value in matrices.items() if name not in ("X", "Y")}

    def __call__(self) -> dict[str, Any]:
        found = dict(self._source())
        found["Y"] = label_columns(found["Y"])
        fingerprint = _fingerprint(found)
        if fingerprint != self._expected:
            raise ClusterError(
                f"expected the data of the run, SHA-256 {self._expected[:12]}…, found others, "
                f"{fingerprint[:12]}…"
            )
        return found | self._more
