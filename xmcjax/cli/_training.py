"""From a data set to a model directory: what ``train`` and ``demo`` share."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import __version__
from xmcjax._device_memory import ran_out
from xmcjax._links import CALIBRATED
from xmcjax._systems import FIRST_SYSTEM, saved_by_estimator
from xmcjax._topology import Share
from xmcjax.cli import _report
from xmcjax.cli._calibration import calibrate, check_calibration, weights_of
from xmcjax.cli._cluster import Cluster
from xmcjax.cli._data import MORE_FEATURES
from xmcjax.cluster import ClusterError
from xmcjax.data import Dataset, Transforms, fit_transforms
from xmcjax.lanes import (
    LabelResult,
    OneVsAll,
    StepFile,
    Summary,
    Unfinished,
    Weighting,
    by_positives,
    precision,
    train_on_nodes,
    train_one_vs_all,
    worse,
)
from xmcjax.models import LinearModel, ModelError, ModelMismatchError, ShardWriter, meta_of, predict_topk

# The flags, for errors, of options that have another name in the format of models.
_FLAGS = {
    "eps": "--tol",
    "sparsify": "--sparsify-rise",
    "bias": "--no-fit-intercept, --no-regularise-intercept",
    "class_weight": "--class-weight",
    CALIBRATED: "--calibration, --cv",
    MORE_FEATURES: "--more-features",
}


#: The exit status of a run whose time was over, which is "try again later" in sysexits.h.
TIMED_OUT = 75


def deadline_of(timeout: float | None) -> float | None:
    """The time of ``time.monotonic`` at which --timeout ends; None without that flag.

    Raises:
        ValueError: the flag is no finite number above 0.
    """
    if timeout is None:
        return None
    if not 0 < timeout < float("inf"):
        raise ValueError(f"--timeout: expected seconds above 0, got {timeout}")
    return time.monotonic() + timeout


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """A data set ready for training.

    Attributes:
        X: features after the transforms, CSR [n, d].
        Y: labels, CSR [n, L].
        transforms: fitted on these data.
        fingerprint: SHA-256 of the data as they were read.
        beside: how many of the last columns are from a second source.
    """

    X: sp.csr_matrix
    Y: sp.csr_matrix
    transforms: Transforms
    fingerprint: str
    beside: int = 0


def prepare(dataset: Dataset, transforms: str, beside: int = 0) -> TrainingData:
    """Fits and applies transforms, "log,idf,unit" or the like.

    Args:
        dataset: as it was read.
        transforms: their names.
        beside: how many of the last columns are of a second source.

    Raises:
        ValueError: an unknown transform, or values that it cannot take.
    """
    fingerprint = dataset.fingerprint()
    fitted = fit_transforms(transforms, dataset.X)
    X = fitted.apply(dataset.X) if fitted.names else dataset.X
    return TrainingData(X, sp.csr_matrix(dataset.y), fitted, fingerprint, beside)


@dataclasses.dataclass
class Outcome:
    """What a run did.

    Attributes:
        label_range: of the model.
        trained: labels trained by this run.
        stored: labels that were there already.
        missing: labels that were not begun, because the time was over.
        summary: of the trainer.
        worst: the label farthest from convergence; None where every label converged.
        empty: labels of the range without a positive row.
        clip: the flag.
        calibrated: whether the model has the calibration that flags ask for, if they ask for one.
        calibration_seconds: how long the calibration took.
    """

    label_range: tuple[int, int]
    trained: int
    stored: int
    missing: int
    summary: Summary
    worst: Unfinished | None
    empty: int
    clip: float | None
    calibrated: bool = True
    calibration_seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether every label of the range is stored, and calibrated where that was asked for."""
        return self.missing == 0 and self.calibrated


class ShardClock:
    """Tells whether a label may still be begun: its shard is begun already, or time is left.

    Args:
        shard_size: labels per shard.
        deadline: a time of ``time.monotonic``, after which no shard is begun.
    """

    def __init__(self, shard_size: int, deadline: float):
        self._size, self._deadline = shard_size, deadline
        self._shard = -1  # the last shard begun; shards come in ascending order

    def __call__(self, label: int) -> bool:
        shard = label // self._size
        if shard != self._shard:
            if time.monotonic() >= self._deadline:
                return False
            self._shard = shard
        return True


def train_to_directory(
    data: TrainingData,
    options: OneVsAll,
    directory: Path,
    *,
    label_range: tuple[int, int] | None = None,
    shard_size: int = 1000,
    resume: bool = False,
    weighting: Weighting | None = None,
    balanced: bool = False,
    deadline: float | None = None,
    shares: Sequence[Share] = (),
    cv: int | None = None,
    cluster: Cluster | None = None,
    stats: StepFile | None = None,
) -> Outcome:
    """Trains labels and stores them; a bar on stderr shows the progress if that is a terminal.

    The stored bytes do not contain anything that ``options`` leaves to the machine (threads, block
    size).

    Args:
        data: the training data.
        options: how to train.
        directory: of the model.
        label_range: labels to be stored; None for all.
        shard_size: labels per file.
        resume: whether the directory may hold a part of the model.
        weighting: of the losses by label; None for none.
        balanced: whether the rows with a label weigh as much together as those without it.
        deadline: a time of ``time.monotonic``, after which no shard is begun; None for none.
        shares: NUMA nodes with a process of their own; empty to train in this process.
        cv: number of folds of the calibration, which this process makes; None for no calibration.
        cluster: the cluster whose workers train; None to train here.
        stats: the file for the numbers of every step, where this process trains by itself; or None.

    Raises:
        FileExistsError, ModelError, OSError: as :class:`xmcjax.models.ShardWriter`.
        ValueError: statistics of another form; nothing to calibrate by, or more folds than rows; a start that
            does not fit.
        ChildProcessError: a process of a node died.
        ClusterError: a cluster cannot go on.
    """
    from tqdm import tqdm

    d, L = data.X.shape[1], data.Y.shape[1]
    options.init.check(d, L, options.fit_intercept)
    first, last = label_range or (0, L)
    worst: Unfinished | None = None

    def count(result: LabelResult) -> None:
        nonlocal worst
        worst = worse(worst, result)
        bar.update()

    def sink(result: LabelResult) -> None:
        writer.add(*result[:7])  # up to cg_steps
        count(result)

    if cv is not None:
        check_calibration(data, cv, np.arange(first, last))
    arrays = dict(data.transforms.arrays)
    label_weights = weights_of(data.Y, weighting, balanced)
    made = meta(data, options, weighting, balanced, cv)
    options = dataclasses.replace(options, init=options.init.of_features(data.transforms.order))
    if resume and (directory / "manifest.json").exists():
        stored = meta_of(directory)
        refuse_saved(directory, stored)
        if MORE_FEATURES not in stored:
            made.pop(MORE_FEATURES, None)  # the model is of an earlier version, which did not record it
        if stored.get("sparsify") is not None and made["clip"] is None:
            made["clip"] = stored.get("clip")  # earlier versions allowed clip with sparsify, without effect
    try:
        opened = ShardWriter(directory, made, (first, last), shard_size, arrays, resume)
    except ModelMismatchError as error:
        if error.key == "system":  # the manifest of a one-vs-all model names no system
            key = "system (--system)"
            raise ModelMismatchError(error.path, key, error.found, repr("one-vs-all")) from error
        if error.key not in _FLAGS:
            raise
        key = f"{error.key} ({_FLAGS[error.key]})"
        raise ModelMismatchError(error.path, key, error.found, error.wanted) from error
    with opened as writer:
        counts = np.bincount(data.Y.indices, minlength=L)
        labels = by_positives(counts, writer.missing(), shard_size)
        stored = last - first - len(labels)
        if stats is not None and resume:
            before = np.setdiff1d(np.arange(first, last), labels)
            lost = np.setdiff1d(before[counts[before] > 0], stats.take_over(labels)).size
            if lost:
                _report.warn(
                    f"--stats: the file has no steps of {lost:,} labels that are stored: the run that "
                    "trained them was killed, or wrote no such file"
                )
        clock = None if deadline is None else ShardClock(shard_size, deadline)
        # disable=None: silent where stderr is no terminal
        with (
            tqdm(total=last - first, initial=stored, unit="label", disable=None, file=sys.stderr) as bar,
            precision(data.X.dtype),
        ):
            more: dict[str, Any] = dict(label_weights=label_weights, labels=labels, may_begin=clock)
            if cluster is not None:
                summary = _continued(cluster.train, data.X, data.Y, options, writer, count, **more)
            elif shares and len(labels):
                summary = _continued(train_on_nodes, data.X, data.Y, options, sink, shares, **more)
            else:
                try:
                    summary = train_one_vs_all(data.X, data.Y, options, sink, observe=stats, **more)
                except (MemoryError, RuntimeError) as error:
                    if isinstance(error, MemoryError) or ran_out(error):
                        writer.withdraw()  # so that the directory is free for a training with other options
                    raise
        missing = len(writer.missing())
    if options.max_iter == 0:
        worst = None  # only starting weights were asked for, not optima
    empty = int((counts[first:last] == 0).sum())
    outcome = Outcome(
        (first, last), len(labels) - missing, stored, missing, summary, worst, empty, options.clip
    )
    if cv is not None and not missing:
        begin = time.perf_counter()
        outcome.calibrated = calibrate(data, options, directory, cv, weighting, balanced, deadline)
        outcome.calibration_seconds = time.perf_counter() - begin
    else:
        outcome.calibrated = cv is None
    return outcome


def refuse_saved(directory: Path, stored: dict[str, Any], system: str = FIRST_SYSTEM) -> None:
    """Checks that a model to be resumed was made by a run of ``train``.

    Args:
        directory: of the model.
        stored: its meta data.
        system: of the run.

    Raises:
        ModelError: an estimator has saved it.
    """
    if stored.get("system", FIRST_SYSTEM) == system and saved_by_estimator(stored):
        raise ModelError(
            f"{directory}: expected a model of xmcjax train, found one that an estimator saved, which is no "
            "run to resume"
        )


def _continued(train: Callable[..., Summary], *arguments: Any, **more: Any) -> Summary:
    """Trains with other processes; if they fail, the error says how to resume."""
    try:
        return train(*arguments, **more)
    except (ChildProcessError, ClusterError) as error:
        raise type(error)(f"{error}; what is complete is stored, --resume trains the rest") from error


def meta(
    data: TrainingData, options: OneVsAll, weighting: Weighting | None, balanced: bool, cv: int | None
) -> dict[str, Any]:
    """The meta data of a model for its manifest: all that its bytes depend on, and nothing else."""
    init = dataclasses.asdict(options.init)
    if "pretrained" in init:
        # the hash stands for the model, wherever its directory is
        manifest = Path(init.pop("pretrained")) / "manifest.json"
        init["manifest_sha256"] = hashlib.sha256(manifest.read_bytes()).hexdigest()
    bias = "none"
    if options.fit_intercept:
        bias = "regularised" if options.regularise_intercept else "free"
    return {
        "xmcjax_version": __version__,
        "n_features": data.X.shape[1],
        "n_labels": data.Y.shape[1],
        "dtype": data.X.dtype.name,
        "data": data.fingerprint,
        "transforms": list(data.transforms.names),
        "loss": {"name": options.loss.name, **dataclasses.asdict(options.loss)},
        "penalty": {"name": options.penalty.name, **dataclasses.asdict(options.penalty)},
        "init": {"name": options.init.name, **init},
        "weighting": None if weighting is None else dataclasses.asdict(weighting),
        # the keys keep the names of the format, so that models of earlier versions can be resumed
        "C": options.C,
        "eps": options.tol,
        "clip": options.clip,
        "sparsify": options.sparsify_rise,
        "bias": bias,
        "max_iter": options.max_iter,
        # left out where unused, so that models of versions without such weights can be resumed
        **({"class_weight": "balanced"} if balanced else {}),
        **({MORE_FEATURES: data.beside} if data.beside else {}),
        **({} if cv is None else {CALIBRATED: {"method": "sigmoid", "cv": cv}}),
    }


def best_labels(model: LinearModel, X, k: int, threads: int) -> np.ndarray:
    """The k best labels of each row of transformed features, int32 [n, k]."""
    with precision(X.dtype):
        return predict_topk(model, X, k, threads=threads)[0]
