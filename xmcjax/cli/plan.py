"""``xmcjax plan``."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro

from xmcjax._arguments import whole_number
from xmcjax._memory import size, usable_memory
from xmcjax._words import counted
from xmcjax.cli import _report, _training
from xmcjax.cli import train as _train
from xmcjax.cli._data import check_numbers, of_file, read_training
from xmcjax.cli._data_options import DtypeName, SizedDataOptions
from xmcjax.cli._needs import as_trained, memory_of, remedy, shape_of
from xmcjax.cli._options import File, TransformNames, described, one_of
from xmcjax.cluster import blocks_of, makespan
from xmcjax.inits import INITS, Pretrained
from xmcjax.lanes import (
    OPTIONS,
    Forecast,
    Shape,
    forecast,
    forecast_of_shape,
    model_bytes,
)
from xmcjax.losses import MARGIN_LOSSES

if TYPE_CHECKING:
    LossName = InitName = str
else:
    LossName = one_of(MARGIN_LOSSES)
    InitName = one_of(name for name, init in INITS.items() if not (init.tree or init is Pretrained))

# The mean number of labels per row where --shape does not state it.
_OF_A_ROW = 3.0
_MOST = 2**62


@described(OPTIONS)
@dataclasses.dataclass(frozen=True)
class Options:
    """Say what training one-vs-all would take: memory, disk, tasks and, by training some labels, time.

    What cannot fit ends with status 2, and with the setting that would make it fit.

    Attributes:
        train: training data; or --shape.
        shape: rows, features, entries of the features and labels of data that are not at hand, such as
            1000000,500000,80000000,600000; as a fifth number the entries of the labels, 3 per row if not
            given. Time and disk are those of data made with Zipf's law, of large ones by those of two parts.
        labels_file: labels of the rows, where they have a file of their own.
        more_features: features to stand beside those of --train.
        dtype: of the features, the weights and all arithmetic.
        shard_size: labels per file of the model.
        workers: processes like this one, of --n-jobs threads each, that share the labels.
        model: directory for the model, whose disk is looked at; this one if not given.
    """

    train: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    shape: Annotated[str | None, tyro.conf.arg(metavar="N,D,NNZ,L")] = None
    labels_file: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    more_features: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    transform: TransformNames = ""
    loss: LossName = OPTIONS["loss"].default
    init: InitName = OPTIONS["init"].default
    C: float = OPTIONS["C"].default
    tol: float = OPTIONS["tol"].default
    max_iter: int = OPTIONS["max_iter"].default
    clip: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = OPTIONS["clip"].default
    dtype: DtypeName = "float32"
    block_size: Annotated[int | None, tyro.conf.arg(metavar="N")] = OPTIONS["block_size"].default
    n_jobs: int = OPTIONS["n_jobs"].of_flag
    shard_size: int = 1000
    workers: int = 1
    model: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    files: SizedDataOptions = dataclasses.field(default_factory=SizedDataOptions)

    def of_training(self) -> _train.Options:
        """The flags of ``train``."""
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        kept = given.keys() & {f.name for f in dataclasses.fields(_train.Options)} - {"train", "model"}
        return _train.Options(
            train=self.train or Path(), model=Path(), **{name: given[name] for name in kept}
        )


def run(options: Options) -> None:
    """Prints what a run takes.

    Raises:
        ValueError: neither data nor a shape, or both; a run that does not fit into memory.
    """
    if (options.train is None) == (options.shape is None):
        raise ValueError(f"expected --train or --shape, got {'neither' if options.train is None else 'both'}")
    if options.workers < 1:
        raise ValueError(f"--workers: expected at least 1, got {options.workers}")
    whole_number("--shard-size", options.shard_size, 1)
    flags = options.of_training()
    trainer = _train.trainer_options(flags)
    begin, here = time.perf_counter(), usable_memory()
    if options.shape is None:
        dataset, _ = read_training(flags)
        check_numbers(flags, dataset)
        with of_file(options.train):
            data = _training.prepare(dataset, options.transform)
        del dataset
        X, Y, shape = data.X, data.Y, shape_of(data.X, data.Y)
        reading = time.perf_counter() - begin
        trained = as_trained(X, shape)
        _check_memory(options, trained, trainer.threads, 0.0, here)  # before arrays of all labels are made
        counts, found = np.bincount(Y.indices, minlength=Y.shape[1]), forecast(X, Y, trainer)
    else:
        options.files.check()
        shape, reading = _parsed(options.shape), 0.0
        _check_memory(options, shape, trainer.threads, 0.0, here)  # before data are made
        counts, found = forecast_of_shape(shape, trainer, options.dtype)
        trained = shape
    _report.print_field("data", _described(shape), **shape._asdict())
    _print(options, trainer.threads, trained, found, counts, reading, here)


def _parsed(text: str) -> Shape:
    parts = text.split(",")
    if len(parts) not in (4, 5) or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"--shape: expected four or five whole numbers N,D,NNZ,L, got {text!r}")
    n, d, entries, labels, *more = map(int, parts)
    positives = more[0] if more else min(round(_OF_A_ROW * n), n * labels)
    shape = Shape(n, d, entries, positives, labels)
    too_few = min(shape) < 1 or min(entries, positives) < n
    too_many = entries > n * d or positives > n * labels or max(shape) > _MOST
    if too_few or too_many:
        raise ValueError(
            "--shape: expected at least one row, feature and label, an entry of the features and a label for "
            f"each row, and no more entries than rows times features or labels, got {text!r}"
        )
    return shape


def _described(shape: Shape) -> str:
    return (
        f"{counted(shape.rows, 'row')}, {counted(shape.features, 'feature')}, "
        f"{counted(shape.labels, 'label')}, {shape.entries:,} entries of features, "
        f"{shape.positives:,} of labels"
    )


def _check_memory(options: Options, shape: Shape, threads: int, weights: float, here: int | None) -> int:
    """How many bytes a process takes.

    Raises:
        ValueError: they do not fit into `here` bytes; the message names a setting that would fit.
    """
    needed = memory_of(options, shape, threads, weights)
    if here is not None and needed > here:
        raise ValueError(
            f"the run needs about {size(needed)} of memory and does not fit into {size(here)}; "
            + remedy(options, shape, threads, weights, here)
        )
    return needed


def _print(
    options: Options,
    threads: int,
    shape: Shape,
    found: Forecast,
    counts: np.ndarray,
    reading: float,
    here: int | None,
) -> None:
    needed = _check_memory(options, shape, threads, found.weights, here)
    place = (options.model or Path()).absolute()
    disk, free = model_bytes(found.weights, np.dtype(options.dtype).itemsize), _free(place)
    said = f"about {size(needed)}" + (f" of {size(here)} here" if here else "")
    said += " per process" if options.workers > 1 else ""
    _report.print_field("memory", said, bytes=needed, usable=here)
    _report.print_field(
        "disk", f"about {size(disk)} for the model, {size(free)} are free", bytes=disk, free=free
    )
    tasks, seconds = math.ceil(shape.labels / options.shard_size), found.seconds
    if options.workers > 1:
        all_threads = options.workers * threads
        blocks = blocks_of(np.arange(len(counts)), counts, options.shard_size, all_threads, ascending=False)
        tasks = round(len(blocks) * max(1.0, shape.labels / len(counts)))
        lengths = np.array([block.last - block.first for block in blocks], float)
        share = makespan(lengths / lengths.sum(), all_threads)
        if shape.labels > len(counts):
            share = 1 / all_threads  # all labels make many more tasks than those of the made data
        seconds = found.seconds * threads * share
    _report.print_field(
        "tasks",
        f"{tasks:,} of at most {counted(min(options.shard_size, shape.labels), 'label')}",
        count=tasks,
    )
    _report.print_field(
        "sample",
        f"{counted(found.sample, 'label')} trained, {found.spent:.1f} s",
        labels=found.sample,
        seconds=found.spent,
    )
    where = counted(threads, "thread")
    if options.workers > 1:
        where = f"{options.workers} workers of {where} like those here"
    text = f"about {_duration(seconds)} of training with {where}"
    text += f", after {reading:.1f} s of reading" if reading else ""
    _report.print_field("time", text, training=seconds, reading=reading)
    if disk > free:
        raise ValueError(
            f"the model needs about {size(disk)} and does not fit onto the disk of "
            f"{place}, with {size(free)} left; a larger --clip or another --model would"
        )


def _free(directory: Path) -> int:
    """The free bytes of the disk on which a directory is, or will be."""
    place = directory
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free if os.access(place, os.W_OK) else 0


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
