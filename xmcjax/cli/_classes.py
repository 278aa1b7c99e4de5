"""Training of the systems in which each row has one class: their common flags, and training to a model."""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
import tyro

from xmcjax._memory import usable_memory
from xmcjax._options import flag_of
from xmcjax._state_folder import state_folder
from xmcjax.cli import _report, _training
from xmcjax.cli._data import MORE_FEATURES, Joined, of_file, read_test, read_training, transformed_test
from xmcjax.cli._data_options import DtypeName, SizedDataOptions
from xmcjax.cli._needs import check_weights
from xmcjax.cli._options import Directory, File, TransformNames, check_folds, check_stats
from xmcjax.cli._runs import add_record
from xmcjax.data import DataFormatError, Dataset, parse_transforms
from xmcjax.estimators import OPTIONS, Checkpoint, FitFile, OutOfTimeError, fit_with_state, save_with_numbers
from xmcjax.models import (
    IncompleteModelError,
    LinearModel,
    ModelFormatError,
    ModelMismatchError,
    read_kernel_model,
    reserved,
)

# Arguments that a result does not depend on.
_BESIDE = ("n_jobs", "verbose", "warm_start")
# The first entry of what a run must have in common with the run that it continues; see `_mark`.
_SYSTEM = "--system"
# The meta data's name for the dtype of the features of a kernel model, which itself may be in float64.
_DATA_DTYPE = "data_dtype"


@dataclasses.dataclass(frozen=True)
class ClassOptions:
    """What the systems with a class per row have in common.

    Attributes:
        train: training data, one label per row.
        model: new or empty directory for the model.
        labels_file: labels of the rows, where they have a file of their own.
        more_features: features to stand beside those of --train, row by row, such as embeddings.
        dtype: of the features, the weights and all arithmetic; a kernel machine takes float64 for features in
            float32 where its products have too few digits.
        test: data to evaluate the finished model on.
        test_labels_file: labels of these, where they have a file of their own.
        test_more_features: features to stand beside those of --test.
        stats: file for the progress of the fit, each time that its solver looks how far it is, Parquet where
            its name ends in .parquet and JSON lines otherwise. It must not be there yet; with --resume its
            rows come first.
        timeout: seconds from the start of the command after which training ends; its state is beside the
            model then, the exit status is 75, and --resume goes on.
        resume: go on with a run that was interrupted or out of time, from its state beside the model; data
            and options must be the same. Of a model that is complete nothing is left to do.
    """

    train: File
    model: Directory
    labels_file: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    more_features: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    transform: TransformNames = ""
    dtype: DtypeName = "float32"
    test: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    test_labels_file: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    test_more_features: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    stats: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    timeout: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    resume: bool = False
    files: SizedDataOptions = dataclasses.field(default_factory=SizedDataOptions)


def _arguments(options: ClassOptions, system: str) -> dict[str, Any]:
    """The arguments of the estimator of a system that the flags give.

    Raises:
        ValueError: a value out of range.
    """
    known = {name: option.check_flag(getattr(options, name)) for name, option in OPTIONS[system].items()}
    if "cv" in known:
        check_folds(getattr(options, "calibration"), known["cv"])  # noqa: B009 – a field of some systems
    return known


def class_numbers(path: Path, Y: sp.csr_matrix, several: bool = False) -> Any:
    """The label of each row, int [n]; Y itself if `several` is allowed and some row has none or several.

    Raises:
        DataFormatError: a row that has none, or several, where that is not allowed.
    """
    counts = np.diff(Y.indptr)
    wrong = np.flatnonzero(counts != 1)
    if wrong.size and several:
        return Y
    if wrong.size:
        expected = "one label in every row (one-vs-all, multinomial and the formulation cs take any number)"
        found = f"{counts[wrong[0]]} in row {wrong[0] + 1}"
        raise DataFormatError(path, None, None, expected, found)
    return Y.indices.astype(np.int64)


def train(options: ClassOptions, kind: type, system: str, several: bool = False) -> int:
    """Trains, stores, summarises, and evaluates where a test file is given.

    Returns:
        0, or 75 where the time was over.

    Args:
        options: the flags.
        kind: the estimator of the system.
        system: of :data:`xmcjax._systems.SYSTEMS`.
        several: whether rows may have any number of labels.

    Raises:
        ValueError: a flag out of range, data that do not fit, or numbers that overflowed.
        OSError: a file that cannot be read or written.
    """
    classifier: Any = kind(**_arguments(options, system))
    deadline = _training.deadline_of(options.timeout)
    parse_transforms(options.transform)
    Checkpoint(state_folder(options.model), {_SYSTEM: system}).check(options.resume)
    if options.stats is not None:
        check_stats(options.stats, options.model, options.resume)
    stored = _stored(options, classifier) if options.resume else None
    if stored is not None:
        _nothing_left(options, classifier, stored, system)
        return 0
    file = nullcontext() if options.stats is None else FitFile(options.stats, options.resume)
    with reserved(options.model), file as statistics:
        if options.stats is not None:  # a run that ended just now may have made the file
            check_stats(options.stats, options.model, options.resume)
        (dataset, beside), test, seconds = _read(options)
        y, n_labels = (
            class_numbers(_place_of_labels(options), sp.csr_matrix(dataset.y), several),
            dataset.n_labels,
        )
        _report.describe_data(dataset)
        with of_file(options.train):
            data = _training.prepare(dataset, options.transform)
        del dataset  # the features before the transforms
        test = transformed_test(options, test, data.transforms)
        check_weights(data.X, y, n_labels, data.X.dtype.itemsize, system != "kernel", usable_memory())
        begin = time.perf_counter()
        mark = _mark(options, classifier, data.fingerprint, data.transforms.names, options.dtype, system)
        checkpoint = Checkpoint(state_folder(options.model), mark, deadline)
        if checkpoint.begin(options.resume):
            text = f"goes on from {checkpoint.folder}"
            _report.print_field("resumed", text, directory=str(checkpoint.folder))
        try:
            _fit(classifier, data.X, y, options, checkpoint, statistics)
            if getattr(classifier, "hierarchy", None) is None:  # the classes of a tree are its leaves
                _report.warn_of_empty(n_labels - len(classifier.classes_), n_labels)
        except OutOfTimeError:
            _report.warn(
                "training had not ended when the time was over: the same command with --resume goes on with "
                "it, and until then nothing can be predicted"
            )
            return _training.TIMED_OUT
        seconds["training"] = time.perf_counter() - begin
        if data.transforms.names:
            classifier.transforms_ = data.transforms
        more: dict[str, Any] = {MORE_FEATURES: beside} if beside else {}
        if system == "kernel":
            more[_DATA_DTYPE] = options.dtype
        save_with_numbers(classifier, options.model, n_labels, data=data.fingerprint, more=more)
        checkpoint.remove()
    known = _numbers(classifier)
    numbers = {name: value for name, _, value in known}
    add_record(options.model, "train", options, {"system": system, **numbers}, seconds)
    said = ", ".join(f"{text} {value:.6g}" for _, text, value in known)
    took = seconds["training"]
    _report.print_field("training", f"{system}, {took:.2f} s, {said}", system=system, seconds=took, **numbers)
    _report.print_field("method", classifier.reason_)
    _report.print_model(options.model)
    _evaluate(classifier, test)
    return 0


def _evaluate(classifier: Any, test: Dataset | None) -> None:
    """Shows how good a classifier is on rows whose features are transformed."""
    if test is not None:
        classifier.transforms_ = None  # the rows are transformed already
        most = max(_report.TEST_K)
        without = np.count_nonzero(np.isneginf(getattr(classifier, "intercept_", 0)))  # labels without a row
        best = classifier.predict_topk(test.X, min(most, len(classifier.classes_) - without))[0]
        best = np.pad(best, ((0, 0), (0, most - best.shape[1])), constant_values=-1)
        _report.print_test(test.y, best)


def _read(options: ClassOptions) -> tuple[Joined, Dataset | None, dict[str, float]]:
    """Training data, data for the evaluation, and the seconds that reading took."""
    begin = time.perf_counter()
    training = read_training(options)
    test = read_test(options, training)
    return training, test, {"reading": time.perf_counter() - begin}


def _stored(options: ClassOptions, classifier: Any) -> Any:
    """The classifier of a model that is complete, or None.

    Raises:
        ValueError: a model of another system, or one that is damaged.
    """
    if not (options.model / "manifest.json").exists():
        return None
    try:
        return type(classifier).load(options.model)
    except IncompleteModelError:  # a run was killed while it wrote the model
        return None


def _nothing_left(options: ClassOptions, classifier: Any, stored: Any, system: str) -> None:
    """Reports that a complete model of the same data and options needs no training, and evaluates it.

    Raises:
        ModelMismatchError: the model is of other data or options.
    """
    (dataset, _), test, seconds = _read(options)
    with of_file(options.train):
        transforms = _training.prepare(dataset, options.transform).transforms
    kernel = system == "kernel"
    meta = read_kernel_model(options.model)[0] if kernel else LinearModel.load(options.model).meta
    _training.refuse_saved(options.model, meta, system)
    # the features of a kernel model in float64 may have either dtype, which earlier versions did not record
    unknown = options.dtype if kernel and meta["dtype"] == "float64" else meta["dtype"]
    dtype = str(meta.get(_DATA_DTYPE, unknown))
    found = _mark(options, stored, str(meta.get("data")), tuple(meta.get("transforms", ())), dtype, system)
    wanted = _mark(options, classifier, dataset.fingerprint(), transforms.names, options.dtype, system)
    for key, value in wanted.items():
        if found[key] != value:
            raise ModelMismatchError(options.model, key, str(found[key]), str(value))
    test = transformed_test(options, test, transforms)
    _report.describe_data(dataset)
    checkpoint = Checkpoint(state_folder(options.model), wanted)
    checkpoint.begin(True)
    checkpoint.remove()  # a run may have been killed before it removed its state
    numbers = {name: value for name, _, value in _numbers(stored)}
    add_record(options.model, "train", options, {"system": system, **numbers}, seconds | {"training": 0.0})
    text = f"{system}, nothing left to train; the model was complete before"
    _report.print_field("training", text, system=system, seconds=0.0, **numbers)
    _report.print_model(options.model)
    _evaluate(stored, test)


def _mark(
    options: ClassOptions,
    classifier: Any,
    fingerprint: str,
    transforms: Sequence[str],
    dtype: str,
    system: str,
) -> dict[str, Any]:
    """What a run must have in common with the run that it continues: all that the result depends on.

    The fingerprint comes last, because it depends on the dtype, which is compared before.
    """
    parameters = {
        flag_of(name, None): value
        for name, value in classifier.get_params(False).items()
        if name not in _BESIDE and hasattr(options, name)
    }
    return {
        _SYSTEM: system,
        "--dtype": dtype,
        "--transform": list(transforms),
        **parameters,
        "data": fingerprint,
    }


def _place_of_labels(options: ClassOptions) -> Path:
    """The file that holds the labels of the rows."""
    return options.files.place_of_labels(options.train, options.labels_file)[0]


def _fit(
    classifier: Any,
    X: Any,
    y: np.ndarray,
    options: ClassOptions,
    checkpoint: Any,
    statistics: FitFile | None,
) -> None:
    """Trains; warnings of the estimator become warnings of the command.

    Raises:
        ValueError: flags that do not fit each other or the data, with the names of the flags; or data that
            cannot be trained on, with the name of their file.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)  # ConvergenceWarning is one
        try:
            fit_with_state(classifier, X, y, checkpoint, statistics)
        except (DataFormatError, ModelFormatError):  # faults in the saved state, which these errors name
            raise
        except (ValueError, TypeError) as error:
            if os.environ.get("XMCJAX_TRACEBACK") == "1":
                raise
            name, colon, text = str(error).partition(": ")
            places = {name: flag_of(name, None) for name in classifier.get_params(False)}
            places |= {"X": options.train, "y": _place_of_labels(options)}
            if colon and name in places:
                raise ValueError(f"{places[name]}: {text}") from error
            raise ValueError(f"{options.train}: {error}") from error
    for warning in caught:
        _report.warn(str(warning.message))


def _numbers(classifier: Any) -> list[tuple[str, str, int | float]]:
    """What is known of a fit: (name in run.json, words, number)."""
    known = [
        ("iterations", "iterations", "n_iter_"),
        ("objective", "objective", "objective_"),
        ("gap", "relative duality gap", "dual_gap_"),
    ]
    values = [(name, text, getattr(classifier, place, None)) for name, text, place in known]
    return [(name, text, value) for name, text, value in values if value is not None]
