"""From a data set to a model directory: what ``train`` and ``demo`` share."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import __version__
from xmcjax.cli._environment import native_isa, usable_cores, versions
from xmcjax.data import Dataset, Transforms, atomic_write, fit_transforms
from xmcjax.lanes import LabelResult, OneVsAll, Summary, Unfinished, precision, train_one_vs_all, worse
from xmcjax.models import RUN_FILE, LinearModel, ShardWriter, predict_topk


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """A data set ready for training.

    Attributes:
        X: features after the transforms, CSR [n, d].
        Y: labels, CSR [n, L].
        transforms: fitted on these data.
        fingerprint: SHA-256 of the data as they were read.
    """

    X: sp.csr_matrix
    Y: sp.csr_matrix
    transforms: Transforms
    fingerprint: str


def prepare(dataset: Dataset, transforms: str) -> TrainingData:
    """Fits and applies transforms, "log,idf,unit" or the like.

    Raises:
        ValueError: an unknown transform, or values that it cannot take.
    """
    fingerprint = dataset.fingerprint()
    fitted = fit_transforms(transforms, dataset.X)
    X = fitted.apply(dataset.X) if fitted.names else dataset.X
    return TrainingData(X, sp.csr_matrix(dataset.y), fitted, fingerprint)


@dataclasses.dataclass
class Outcome:
    """What a run did.

    Attributes:
        label_range: of the model.
        trained: labels trained by this run; the others were there already.
        summary: of the trainer.
        worst: None where every label converged.
        empty: labels of the range without a positive row.
    """

    label_range: tuple[int, int]
    trained: int
    summary: Summary
    worst: Unfinished | None
    empty: int


def train_to_directory(
    data: TrainingData,
    options: OneVsAll,
    directory: Path,
    *,
    label_range: tuple[int, int] | None = None,
    shard_size: int = 1000,
    resume: bool = False,
) -> Outcome:
    """Trains labels and stores them; a bar on a terminal's stderr shows how far it is.

    Everything that ``options`` leaves to the machine (threads, block size) stays out of the stored
    bytes.

    Raises:
        FileExistsError, ModelError, OSError: as :class:`xmcjax.models.ShardWriter`.
        ValueError: a start that does not fit.
    """
    from tqdm import tqdm

    d, L = data.X.shape[1], data.Y.shape[1]
    options.init.check(d, L, options.bias != "none")
    first, last = label_range or (0, L)
    worst: Unfinished | None = None

    def sink(result: LabelResult) -> None:
        nonlocal worst
        writer.add(*result[:7])  # up to cg_steps
        worst = worse(worst, result)
        bar.update()

    arrays = dict(data.transforms.arrays)
    with ShardWriter(directory, meta(data, options), (first, last), shard_size, arrays, resume) as writer:
        labels = writer.missing()
        stored = last - first - len(labels)
        # disable=None: silent where stderr is no terminal
        with (
            tqdm(total=last - first, initial=stored, unit="label", disable=None, file=sys.stderr) as bar,
            precision(data.X.dtype),
        ):
            summary = train_one_vs_all(data.X, data.Y, options, sink, labels=labels)
    if options.max_iter == 0:
        worst = None  # starting weights were asked for, not optima
    counts = np.bincount(data.Y.indices, minlength=L)[first:last]
    return Outcome((first, last), len(labels), summary, worst, int((counts == 0).sum()))


def meta(data: TrainingData, options: OneVsAll) -> dict[str, Any]:
    """How a model is made, for its manifest: what its bytes depend on, and nothing else."""
    init = dataclasses.asdict(options.init)
    if "pretrained" in init:
        # the model itself, not where it happens to lie
        manifest = Path(init.pop("pretrained")) / "manifest.json"
        init["manifest_sha256"] = hashlib.sha256(manifest.read_bytes()).hexdigest()
    return {
        "xmcjax_version": __version__,
        "n_features": data.X.shape[1],
        "n_labels": data.Y.shape[1],
        "dtype": data.X.dtype.name,
        "data": data.fingerprint,
        "transforms": list(data.transforms.names),
        "loss": {"name": options.loss.name, **dataclasses.asdict(options.loss)},
        "init": {"name": options.init.name, **init},
        **{name: getattr(options, name) for name in ("C", "eps", "clip", "bias", "max_iter")},
    }


def write_run_file(directory: Path, command: str, options: Any, outcome: Outcome, seconds: dict[str, float]):
    """Leaves ``run.json`` beside a model: everything about the run that the model does not depend on."""
    summary = outcome.summary
    record = {
        "command": command,
        "options": dataclasses.asdict(options),
        "host": os.uname().nodename,
        "cores": usable_cores(),
        "native": native_isa(),
        "versions": versions(),
        "labels_trained": outcome.trained,
        "statuses": {status.name.lower(): count for status, count in sorted(summary.statuses.items())},
        "newton_steps": summary.newton_steps,
        "cg_steps": summary.cg_steps,
        "seconds": {name: round(value, 3) for name, value in seconds.items()}
        | {"training": round(summary.seconds, 3), "first_step": round(summary.first_step_seconds, 3)},
    }
    with atomic_write(directory / RUN_FILE) as file:
        file.write(json.dumps(record, indent=1, default=str).encode() + b"\n")


def best_labels(model: LinearModel, X, k: int, threads: int) -> np.ndarray:
    """The k best labels of each row of transformed features, int32 [n, k]."""
    with precision(X.dtype):
        return predict_topk(model, X, k, threads=threads)[0]
