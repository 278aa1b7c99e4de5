"""``--scheduler`` and ``--local-cluster``: the cluster that a command gives its work to."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import stat
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import numpy as np
import tyro

from xmcjax._file_kinds import kind_of
from xmcjax._options import flag_of
from xmcjax.cli import _report
from xmcjax.cli._data import read_training, transformed
from xmcjax.cluster import Part, Source, connected, local_cluster, predict_on_cluster, train_on_cluster
from xmcjax.data import Transforms
from xmcjax.lanes import LabelResult, OneVsAll, Summary
from xmcjax.models import ShardWriter

if TYPE_CHECKING:
    from distributed import Client


class Cluster:
    """Where a command's work is done.

    Args:
        client: the client of the cluster.
        source: lets the hosts read the training data themselves; None where the data are sent to them.
    """

    def __init__(self, client: Client, source: Source | None = None):
        self._client, self._source = client, source

    def train(
        self, X, Y, options: OneVsAll, writer: ShardWriter, count: Callable[[LabelResult], None], **more: Any
    ) -> Summary:
        """:func:`xmcjax.cluster.train_on_cluster` into a writer; `count` is called with each label."""
        instruction_sets = set()

        def done(part: Part) -> None:
            instruction_sets.add(part.isa or "none")
            for result in part.results:
                count(result)

        summary = train_on_cluster(
            self._client, X, Y, options, writer, done=done, source=self._source, **more
        )
        if len(instruction_sets) > 1:
            _report.warn(
                f"workers have kernels for different processors ({', '.join(sorted(instruction_sets))}): the "
                "model is right, but its last bits depend on which labels each has trained"
            )
        return summary

    def predict(
        self, directory: Path, pieces: Iterable[Any], k: int, probabilities: bool
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """:func:`xmcjax.cluster.predict_on_cluster`."""
        return predict_on_cluster(self._client, directory, pieces, k, probabilities=probabilities)


@dataclasses.dataclass(frozen=True)
class TrainingFiles:
    """A source of training data: the files that the flags of ``train`` name, as the hosts see them.

    Attributes:
        options: of the command.
        transforms: fitted on the data.
    """

    options: Any
    transforms: Transforms

    @classmethod
    def of(cls, options: Any, transforms: Transforms) -> TrainingFiles:
        """With names that do not depend on the directory in which the command was started."""
        named = {name: path.absolute() for name, path in _training_files(options).items()}
        return cls(dataclasses.replace(options, **named), transforms)

    def __call__(self) -> dict[str, Any]:
        dataset, _ = read_training(self.options)
        return {"X": transformed(self.options.train, dataset.X, self.transforms), "Y": dataset.y}


def _training_files(options: Any) -> dict[str, Path]:
    """The files of training data that are given, by the names of the options of ``train``."""
    given = {name: getattr(options, name) for name in ("train", "labels_file", "more_features")}
    return {name: path for name, path in given.items() if path is not None}


# Beginnings of paths that mean another file in another process.
_OWN = ("/dev/stdin", "/dev/fd/", "/proc/")


def check_workers_read(options: Any) -> None:
    """Checks that other processes can read the training data as well; they cannot read a stream.

    A missing file and a directory pass: the reader refuses them.

    Args:
        options: of ``train``.

    Raises:
        ValueError: one of the files is a stream.
    """
    for name, path in _training_files(options).items():
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        own = str(path.absolute()).startswith(_OWN)
        if own or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            found = "what this process alone has open" if own else kind_of(mode)
            raise ValueError(
                f"{flag_of(name, path)}: expected a file that workers can open too (--workers-read), "
                f"got {found}: {path}"
            )


# The most worker processes of a cluster on one machine.
_MOST = 1024


def _is_address(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text if "://" in text else f"tcp://{text}")
        return bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False


@dataclasses.dataclass(frozen=True)
class ClusterOptions:
    """Where the work is done, if not in this process.

    Attributes:
        scheduler: of a Dask cluster whose workers do the work, such as tcp://127.0.0.1:8786. It needs the
            extra cluster.
        local_cluster: give the work to N worker processes on this machine, which share --n-jobs threads; one
            that dies is started again. It needs the extra cluster.
    """

    scheduler: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    local_cluster: Annotated[int | None, tyro.conf.arg(metavar="N")] = None

    def flag(self) -> str | None:
        """The flag that names the cluster; None if this process does the work.

        Raises:
            ValueError: both flags, or a value that has no meaning.
        """
        scheduler, workers = self.scheduler, self.local_cluster
        if scheduler is None and workers is None:
            return None
        if scheduler is not None and workers is not None:
            raise ValueError("expected --scheduler or --local-cluster, got both")
        if workers is not None and not 1 <= workers <= _MOST:
            raise ValueError(f"--local-cluster: expected 1 to {_MOST} processes, got {workers}")
        if scheduler is not None and not _is_address(scheduler):
            raise ValueError(f"--scheduler: expected an address such as tcp://HOST:8786, got {scheduler!r}")
        return "--local-cluster" if scheduler is None else "--scheduler"

    @contextlib.contextmanager
    def opened(
        self, threads: int, source: Source | None = None, stream: TextIO | None = None
    ) -> Iterator[Cluster | None]:
        """The cluster; None if this process does the work.

        Args:
            threads: how many the worker processes of this machine share.
            source: as in :class:`Cluster`.
            stream: where the line about it goes; None for stdout.

        Raises:
            ClusterError: there is no scheduler.
            ImportError: there is no Dask.
        """
        if self.flag() is None:
            yield None
            return
        workers = self.local_cluster or 1
        with (
            connected(self.scheduler)
            if self.scheduler is not None
            else local_cluster(workers, max(1, threads // workers))
        ) as client:
            _print_cluster(client, stream)
            yield Cluster(client, source)


def _print_cluster(client: Any, stream: TextIO | None) -> None:
    threads = client.nthreads()
    address = client.scheduler.address
    text = f"{len(threads)} workers with {sum(threads.values())} threads at {address}"
    more: dict[str, Any] = {}
    if importlib.util.find_spec("bokeh") is not None and client.dashboard_link:
        text, more = f"{text}, dashboard {client.dashboard_link}", {"dashboard": client.dashboard_link}
    more |= {"workers": len(threads), "threads": sum(threads.values()), "address": address}
    _report.print_field("cluster", text, stream, **more)
