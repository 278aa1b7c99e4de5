"""``xmcjax inspect``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from xmcjax._arguments import whole_number
from xmcjax._words import counted
from xmcjax.cli import _report
from xmcjax.cli._options import Directory, File
from xmcjax.cli._runs import known_runs, version_and_seconds
from xmcjax.cli._streams import seekable
from xmcjax.data import DataFormatError
from xmcjax.models import (
    LinearModel,
    Names,
    check_regular,
    read_kernel_model,
    system_of,
)

# The most classes that are shown.
_FEW = 8


@dataclasses.dataclass(frozen=True)
class Options:
    """Show how a model was trained, on what, how it ended, and the largest weights of its labels.

    Attributes:
        model: a model that `xmcjax train` made, or an estimator saved.
        label: labels whose largest weights are shown, by number.
        top_k: how many weights of each.
        vocabulary: the names of the features, one per line; without it those that the model knows, or
            numbers.
    """

    model: Directory
    label: tuple[int, ...] = ()
    top_k: int = 10
    vocabulary: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None


def run(options: Options) -> None:
    """Shows what is known; weights are read only for the labels that are asked for."""
    whole_number("--top-k", options.top_k, 1)
    known = open_model(options.model, options.label, options.vocabulary, partial=True)
    system, model, meta, names = known.system, known.model, known.meta, known.names
    _report.print_field("system", system)
    sizes = f"{counted(meta['n_features'], 'feature')}, {counted(meta['n_labels'], 'label')}, {meta['dtype']}"
    _report.print_field(
        "problem", sizes, features=meta["n_features"], labels=meta["n_labels"], dtype=meta["dtype"]
    )
    options_of_it = {
        key: value
        for key, value in sorted(meta.items())
        if key not in ("n_features", "n_labels", "dtype", "system", "kernels", "kernel")
    }
    _report.print_field(
        "training",
        ", ".join(f"{key} {_text(value)}" for key, value in options_of_it.items()),
        **options_of_it,
    )
    _print_classes(names)
    if model is not None:
        _print_labels(model)
    size = _report.model_size(options.model)
    _report.print_field("size", f"{size / 1e6:.1f} MB", bytes=size)
    _print_runs(options.model)
    if model is not None and options.label:
        _print_weights(known, options)


class Known(NamedTuple):
    """What a directory says of its model.

    Attributes:
        system: of :data:`xmcjax._systems.SYSTEMS`.
        model: the linear model; None for a kernel model.
        meta: how the model was made.
        names: of classes and features, as the model has them.
        features: names of the raw features, or None.
        order: the raw feature of each weight, or None where weights and raw features have the same order.
    """

    system: str
    model: LinearModel | None
    meta: dict[str, Any]
    names: Names
    features: Sequence[str] | None
    order: np.ndarray | None


def open_model(directory: Path, labels: Sequence[int], vocabulary: Path | None, *, partial: bool) -> Known:
    """A model of any system, opened to show some of its labels and the names of its features.

    Raises:
        ValueError: labels that the model does not have, that are not trained yet, or of a kernel model.
        ModelFormatError, DataFormatError, OSError: the model or the vocabulary cannot be read.
    """
    system, model, order = system_of(directory), None, None
    if system == "kernel":
        if labels:
            raise ValueError("--label: expected a linear model, found one of the system kernel")
        kernel = read_kernel_model(directory)
        meta, names = kernel.meta, kernel.names
    else:
        model = LinearModel.load(directory, partial=partial)
        meta, names, order = model.meta, model.names(), model.transforms().order
        _check_labels(model, labels)
    features = names.features
    if vocabulary is not None:
        with seekable(vocabulary, None) as place:
            features = read_vocabulary(place, meta["n_features"])
    return Known(system, model, meta, names, features, order)


class Largest(NamedTuple):
    """The bias of a label, how many weights it has, and (feature, weight) of the largest ones."""

    bias: float
    nonzeros: int
    weights: list[tuple[str, float]]


def largest_weights(known: Known, label: int, top_k: int) -> Largest:
    """The largest weights of a label of a linear model; features without names are given by raw number."""
    model = known.model
    assert model is not None
    row, bias = model.weights(label, label + 1), float(model.intercept_of(label, label + 1)[0])
    chosen = np.argsort(-np.abs(row.data), kind="stable")[:top_k]
    places = row.indices[chosen]
    raw: list[int] = (places if known.order is None else known.order[places]).tolist()
    called = [str(j) if known.features is None else known.features[j] for j in raw]
    return Largest(bias, int(row.nnz), list(zip(called, row.data[chosen].tolist(), strict=True)))


def _check_labels(model: LinearModel, labels: Sequence[int]) -> None:
    low, high = model.label_range
    part = "" if high - low == model.n_labels else ", those of this part"
    for label in labels:
        if not low <= label < high:
            raise ValueError(f"--label: expected numbers from {low} to {high - 1}{part}, got {label}")
    status = model.status
    missing = [label for label in labels if status[label] == -1]
    if missing:
        raise ValueError(f"--label: expected labels that are trained, got {missing[0]}, which is missing")


def _print_runs(directory: Path) -> None:
    runs = known_runs(directory)
    for run in runs:
        version, took = version_and_seconds(run)
        text = f"{run.get('command')}, xmcjax {version}, {took} s of training on {run.get('host')}"
        _report.print_lines([f"{'run':<11} {text}"])
    _report.print_values("runs", runs)


def _print_classes(names: Names) -> None:
    if names.classes is None:
        return
    classes = names.classes.tolist()
    few = ", ".join(map(repr, classes[:_FEW])) + (", …" if len(classes) > _FEW else "")
    _report.print_field("classes", f"{few} (labels are their places)", names=classes)


def _print_labels(model: LinearModel) -> None:
    from xmcjax.solvers import Status

    low, high = model.label_range
    status = model.status[low:high]
    counts = {
        Status(number).name.lower() if number != -1 else "missing": int(count)
        for number, count in zip(*np.unique(status, return_counts=True), strict=True)
    }
    text = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    _report.print_field("labels", f"{low:,} to {high - 1:,}: {text}", first=low, last=high - 1, **counts)
    if model.calibrated:
        calibration = model.calibration_of()
        assert calibration is not None
        shared = int(calibration.shared.sum())
        slopes = calibration.slope[model.trained(*model.label_range)]
        three = np.quantile(slopes, [0, 0.5, 1]).tolist() if slopes.size else None
        text = "no label is trained" if three is None else f"slopes {three[0]:.3g} to {three[2]:.3g}"
        text += f", {shared:,} labels share one fit"
        _report.print_field("calibration", text, slopes=three, shared=shared)
    stored = max(1, int((status != -1).sum()))
    _report.print_field(
        "weights",
        f"{model.n_weights:,} that are not zero, {model.n_weights / stored:.1f} per label, "
        f"{model.density():.3%} of all",
        nonzeros=model.n_weights,
        density=model.density(),
    )


def _print_weights(known: Known, options: Options) -> None:
    shown: dict[str, Any] = {}
    classes = known.names.classes
    for label in options.label:
        bias, nonzeros, weights = largest_weights(known, label, options.top_k)
        name = "" if classes is None else f" ({classes[label]})"
        text = ", ".join(f"{feature} {weight:+.4g}" for feature, weight in weights)
        _report.print_lines([f"label {label}{name}: bias {bias:+.4g}, {nonzeros:,} weights: {text}"])
        listed = [{"feature": feature, "weight": weight} for feature, weight in weights]
        shown[str(label)] = {"bias": bias, "nonzeros": nonzeros, "weights": listed}
    _report.print_values("largest_weights", shown)


def read_vocabulary(path: Path, n_features: int) -> list[str]:
    """The names of features, one per line. Lines end in LF or CRLF; other separators are part of a name.

    Raises:
        DataFormatError: no UTF-8, a byte order mark, or another number of lines.
        ModelFormatError: the file is not regular.
        OSError: it cannot be read.
    """
    check_regular(path)
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise DataFormatError(path, None, None, "names of features in UTF-8", str(error)) from error
    if text.startswith("\ufeff"):
        raise DataFormatError(path, 1, 1, "the name of a feature", "a byte order mark")
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    if len(lines) != n_features:
        raise DataFormatError(path, None, None, f"{n_features} lines, one per feature", str(len(lines)))
    return lines


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {_text(entry)}" for key, entry in value.items()) + ")"
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 else text
