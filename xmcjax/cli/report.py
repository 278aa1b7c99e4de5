"""``xmcjax report``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import scipy.sparse as sp
import tyro

from xmcjax._arguments import job_count, whole_number
from xmcjax._links import link_of
from xmcjax._options import SHARED
from xmcjax._systems import FIRST_SYSTEM
from xmcjax.cli import _report
from xmcjax.cli._data import read, transformed
from xmcjax.cli._data_options import UNSIZED, DataOptions, Source
from xmcjax.cli._more import columns_beside
from xmcjax.cli._options import Directory, File, check_out, check_uncompressed, described
from xmcjax.cli._page import Page
from xmcjax.cli._runs import known_runs, version_and_seconds
from xmcjax.cli.inspect import Known, largest_weights, open_model
from xmcjax.cli.predict import Opened, opened
from xmcjax.data import DataFormatError, Dataset, atomic_write
from xmcjax.metrics import RANKING_METRICS
from xmcjax.models import LinearModel

if TYPE_CHECKING:
    from xmcjax.lanes import StepRecord

# _SHOWN: of how many labels the weights are shown where --label names none. _WORST: how many labels with the
# lowest recall are listed.
_SHOWN, _WORST = 12, 20
# The full names of the metrics of `xmcjax evaluate`.
_METRIC_NAMES = {
    "P": "precision",
    "nDCG": "discounted gain",
    "top": "top-k accuracy",
    "R": "recall",
    "C": "labels found at least once",
    "miF1": "micro F1",
    "maF1": "macro F1",
}
# The least number of positives in the test data with which the recall of a label is meaningful.
_ENOUGH = 5


@described(SHARED)
@dataclasses.dataclass(frozen=True)
class Options:
    """Write a page with pictures: how a model was trained, how it ended, its weights, and how it predicts.

    Attributes:
        model: a model that `xmcjax train` made, or an estimator saved.
        out: file for the page, HTML that needs no other file; an old one is replaced.
        test: rows with their labels, which the model predicts for the page.
        test_labels_file: labels of these, where they have a file of their own.
        train: the training data, whose labels tell how frequent each is.
        train_labels_file: labels of these, where they have a file of their own.
        stats: the file that training wrote by its --stats: curves of its steps or passes.
        label: labels whose largest weights are shown, by number; without it those with the most rows in
            --train, or with the most weights.
        top_k: how many weights of each.
        vocabulary: the names of the features, one per line; without it those that the model knows, or
            numbers.
    """

    model: Directory
    out: File
    test: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    test_labels_file: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    train: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    train_labels_file: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    stats: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    label: tuple[int, ...] = ()
    top_k: int = 10
    vocabulary: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    n_jobs: int = SHARED["n_jobs"].of_flag
    files: DataOptions = dataclasses.field(default_factory=DataOptions)


def run(options: Options) -> None:
    """Reads, predicts, draws and writes the page."""
    try:
        import matplotlib  # noqa: F401 – before minutes of work
    except ImportError as error:
        raise ValueError('report needs matplotlib: pip install "xmcjax[plots]"') from error
    whole_number("--top-k", options.top_k, 1)
    threads = job_count(options.n_jobs, "--n-jobs")
    data = [path for source in _sources(options) for path in source]
    given = (*data, options.stats, options.vocabulary)
    check_out(options.out, *(path for path in given if path is not None), model=options.model)
    check_uncompressed(options.out, "pages")
    for part in ("test", "train"):
        if getattr(options, part) is None and getattr(options, f"{part}_labels_file") is not None:
            raise ValueError(f"--{part}-labels-file needs --{part}, got none")
    options.files.check(*_sources(options))
    if options.test is not None:
        _check_width(options, options.test)
    known = open_model(options.model, options.label, options.vocabulary, partial=False)
    system, model, meta, names = known.system, known.model, known.meta, known.names
    page = Page(f"{options.model.name}: {system}")
    predictor = opened(options.model, threads, probabilities=False)
    joint = system != FIRST_SYSTEM
    fit = _fit(options.stats) if joint else []
    steps = [] if joint else _steps(options.stats, meta["n_labels"])
    n_rows, frequencies = _frequencies(options, predictor, names.classes)
    _training(page, options.model, system, meta)
    of_labels = None if frequencies is None else _by_place(frequencies, predictor)
    if model is not None:
        _endings(page, model, of_labels)
    if steps:
        _curves(page, steps, n_rows)
    if fit:
        _progress(page, fit)
    if options.test is not None:
        _test(
            page,
            options,
            predictor,
            frequencies,
            threads,
            names.classes,
            knows=system == "kernel" or link_of(meta) is not None,
        )
    if model is not None:
        _weights(page, model, known, options, of_labels)
    with atomic_write(options.out) as file:
        file.write(page.html().encode(errors="backslashreplace"))  # file names may be invalid UTF-8
    _report.print_written(options.out, _report.summary_stream(options.out))


def _steps(stats: Path | None, n_labels: int) -> list[StepRecord]:
    """The steps in the file of --stats."""
    if stats is None:
        return []
    from xmcjax.lanes import StepFile

    steps = list(StepFile(stats).records())
    labels = np.concatenate([record.labels for record in steps]) if steps else np.zeros(0, int)
    if not len(labels):
        raise ValueError(f"--stats: expected steps of a training in {stats}, found none")
    if not 0 <= labels.min() <= labels.max() < n_labels:
        raise ValueError(
            f"--stats: expected labels from 0 to {n_labels - 1} as in the model, found "
            f"{labels.min()} to {labels.max()} in {stats}"
        )
    return steps


def _fit(stats: Path | None) -> list[dict[str, Any]]:
    """The rows of a joint fit in the file of --stats."""
    if stats is None:
        return []
    from xmcjax.estimators import FitFile

    rows = FitFile.rows(stats)
    if not rows:
        raise ValueError(f"--stats: expected the progress of a training in {stats}, found none")
    return rows


def _frequencies(
    options: Options, model: Opened, classes: np.ndarray | None
) -> tuple[int | None, np.ndarray | None]:
    """The number of rows of the training data, and of rows per label as the data number them, or None."""
    if options.train is None:
        return None, None
    train = _read(options, options.train, options.train_labels_file, model, classes)
    return train.n_rows, np.bincount(train.y.indices, minlength=train.y.shape[1])


def _by_place(frequencies: np.ndarray, model: Opened) -> np.ndarray:
    """Rows of each label of the model, from the rows of each label number in the data."""
    return frequencies[: model.columns] if model.numbers is None else frequencies[model.numbers]


def _read(
    options: Options, path: Path, labels: Path | None, model: Opened, classes: np.ndarray | None
) -> Dataset:
    """Rows whose labels are those of the model.

    Raises:
        DataFormatError: a file states another number of labels than the model; where the model has classes,
            which need not be all labels of the training data, only too small a number is refused.
        OSError, ValueError: as in :func:`read`.
    """
    like = f"as in {options.model}"
    dataset = read(
        path,
        options.files,
        labels=labels,
        dtype=model.dtype,
        n_features=model.n_features,
        n_labels=model.columns if classes is None else None,
        least_labels=model.columns,
        like=like,
        lists_from_0=options.files.first_label_is_for_svmlight(*_sources(options)),
    ).dataset
    if dataset.n_labels < model.columns:
        expected = f"at least {model.columns} labels {like}"
        raise DataFormatError(labels or path, None, None, expected, str(dataset.n_labels))
    return dataset


def _sources(options: Options) -> tuple[Source, Source]:
    """The data of ``--test`` and ``--train``."""
    return Source(options.test, options.test_labels_file), Source(options.train, options.train_labels_file)


# The present names of options by the names in a manifest, which keeps those of the first models.
_NAMES = {"eps": "tol", "sparsify": "sparsify_rise"}


def _training(page: Page, directory: Path, system: str, meta: dict[str, Any]) -> None:
    """What was trained, how, where and how long."""
    page.heading("Training")
    size = f"{_report.model_size(directory) / 1e6:.1f} MB"
    rows = [("system", system), ("features", f"{meta['n_features']:,}"), ("labels", f"{meta['n_labels']:,}")]
    rows += [("size of the model", size)]
    known = ("n_features", "n_labels", "system", "kernels", "kernel")
    rows += sorted((_NAMES.get(key, key), _short(value)) for key, value in meta.items() if key not in known)
    page.table(["option", "value"], rows)
    runs = known_runs(directory)
    if runs:
        lines = []
        for one in runs:
            version, took = version_and_seconds(one)
            lines.append([_short(cell) for cell in (one.get("command"), version, one.get("host"), took)])
        page.table(["run", "xmcjax", "host", "seconds of training"], lines)


def _endings(page: Page, model: LinearModel, frequencies: np.ndarray | None) -> None:
    """How the problems of the labels ended, their steps and their weights."""
    from xmcjax import plots
    from xmcjax.solvers import Status

    low, high = model.label_range
    status = model.status[low:high]
    page.heading("How the labels ended")
    lines = []
    for number, count in zip(*np.unique(status, return_counts=True), strict=True):
        known = number in {*Status}
        remedy = Status(number).remedy(model.dtype) if known else "resume the training"
        lines.append([Status(number).name.lower() if known else "missing", int(count), remedy])
    page.table(["status", "labels", "what helps"], lines)
    stored = max(1, int((status != -1).sum()))
    page.text(
        f"{model.n_weights:,} weights are not zero, {model.n_weights / stored:.1f} per label, "
        f"{model.density():.3%} of all."
    )
    steps = model.newton_steps[low:high]
    if frequencies is not None and steps.max(initial=0) > 0 and frequencies[low:high].any():
        positives = frequencies[low:high]
        page.picture(
            "Newton steps of each label against its rows in the training data",
            lambda ax: plots.steps_by_positives(steps, positives, ax=ax),
        )
    elif steps.max(initial=0) > 0:
        page.picture("Newton steps of the labels", lambda ax: _histogram(ax, steps))
    if model.n_weights:
        page.picture(
            "Weights of the labels that are not zero, the labels with the most first",
            lambda ax: plots.model_density(model, ax=ax),
        )


def _curves(page: Page, steps: list[StepRecord], n_rows: int | None) -> None:
    """The numbers of the Newton steps, one after the other."""
    from xmcjax import plots

    page.heading("Newton steps")
    curves: dict[str, Callable[[Any], Any]] = {
        "Objective by Newton step": lambda ax: plots.objective(steps, ax=ax),
        "Gradient by Newton step": lambda ax: plots.convergence(steps, ax=ax),
        "Active rows by Newton step": lambda ax: plots.active_fraction(steps, n_rows, ax=ax),
    }
    if any((record.newton_steps > 0).any() for record in steps):
        curves["Multiple of the direction by Newton step"] = lambda ax: plots.multiplier(steps, ax=ax)
    for caption, draw in curves.items():
        try:
            page.picture(caption, draw)
        except ValueError as error:  # numbers that are not finite, or starts that are 0
            page.text(f"{caption}: {error}.")


def _progress(page: Page, rows: list[dict[str, Any]]) -> None:
    """The curves of the statistics that a joint fit wrote after its passes."""
    from xmcjax import plots

    page.heading("Progress of the fit")
    quantities = {
        "gap": "Relative duality gap by passes",
        "objective": "Objective by passes",
        "gradient_norm": "Norm of the gradient by passes",
        "residual": "Residual by passes",
    }
    for quantity, caption in quantities.items():
        if any(row["fit"] == 0 and row[quantity] is not None for row in rows):
            try:
                page.picture(caption, lambda ax, name=quantity: plots.progress(rows, name, ax=ax))
            except ValueError as error:  # numbers too large for a picture
                page.text(f"{caption}: {error}.")


def _histogram(ax: Any, steps: np.ndarray) -> None:
    ax.hist(steps, bins=np.arange(steps.max() + 2) - 0.5)
    ax.set(xlabel="Newton steps", ylabel="labels")


def _test(
    page: Page,
    options: Options,
    model: Opened,
    frequencies: np.ndarray | None,
    threads: int,
    classes: np.ndarray | None,
    *,
    knows: bool,
) -> None:
    """How well the rows of --test are predicted; `knows` says whether the model has probabilities."""
    from xmcjax import plots

    assert options.test is not None
    test = _read(options, options.test, options.test_labels_file, model, classes)
    X = transformed(options.test, test.X, model.transforms)
    ks = _report.TEST_K
    labels, _ = model.finished(*model.best(X, min(max(ks), model.n_labels)))
    if labels.shape[1] < max(ks):
        labels = np.pad(labels, ((0, 0), (0, max(ks) - labels.shape[1])), constant_values=-1)
    page.heading(f"Prediction of {test.n_rows:,} rows of {options.test.name}")
    lines = [
        [f"{_METRIC_NAMES[name]} ({name})", *(100 * float(metric(test.y, labels, k)) for k in ks)]
        for name, metric in RANKING_METRICS.items()
    ]
    page.table(["metric, per cent", *(f"k = {k}" for k in ks)], lines)
    L = test.y.shape[1]
    if frequencies is not None:
        known = np.zeros(L, np.int64)
        known[: min(L, len(frequencies))] = frequencies[:L]
        page.picture(
            "Labels by their rows in the training data",
            lambda ax: plots.precision_by_frequency(test.y, labels, max(ks), frequencies=known, ax=ax),
        )
    if knows:
        sure = opened(options.model, threads, probabilities=True)
        best, p = (part[:, 0] for part in sure.finished(*sure.best(X, 1)))
        true = _hits(test.y, best[:, None]).sum(axis=1).ravel() > 0
        page.picture(
            "Probability of the best label of each row, and how often it is right",
            lambda ax: plots.reliability(true, p, ax=ax),
        )
        page.picture(
            "Errors of the best label where rows of low probability are rejected",
            lambda ax: plots.reject_curve(np.ones(len(true)), true, p, ax=ax),
        )
    _worst(page, test, labels, frequencies, classes, model.numbers)


def _check_width(options: Options, path: Path) -> None:
    """Checks rows for a model that was trained with --more-features, a flag that report does not have.

    Raises:
        ValueError: the file does not state its width, so that its rows would pass although they lack the
            model's last features.
    """
    beside = columns_beside(options.model)
    format = options.files.format_of(path, alone=options.test_labels_file is not None)
    if beside and format in UNSIZED:
        raise ValueError(
            f"{path}: expected rows with the {beside} columns of --more-features as in training, which "
            f"xmcjax convert joins to a file of npz, found {format}, which states no width"
        )


def _hits(Y: Any, labels: np.ndarray) -> sp.csr_array:
    """Which predictions are right, [n, L]."""
    rows, places = np.nonzero((labels >= 0) & (labels < Y.shape[1]))
    entries = np.ones(len(rows), np.int64), (rows, labels[rows, places])
    predicted = sp.csr_array(entries, shape=Y.shape)
    return sp.csr_array(predicted.multiply(sp.csr_array(Y) > 0))


def _worst(
    page: Page,
    test: Dataset,
    labels: np.ndarray,
    frequencies: np.ndarray | None,
    classes: np.ndarray | None,
    numbers: np.ndarray | None,
) -> None:
    """The labels with the lowest recall. Predictions, data and `frequencies` have labels by number."""
    k, Y = labels.shape[1], sp.csr_array(test.y)
    positives = np.asarray((Y > 0).sum(axis=0)).ravel()
    found = np.asarray(_hits(Y, labels).sum(axis=0)).ravel()
    enough = np.flatnonzero(positives >= min(_ENOUGH, positives.max(initial=1)))
    recall = found[enough] / positives[enough]
    worst = enough[np.lexsort((enough, -positives[enough], recall))[:_WORST]]
    page.heading("Labels that are found least")
    page.text(
        f"Of the labels with {min(_ENOUGH, int(positives.max(initial=1)))} rows and more in the test data."
    )
    header = ["label", f"recall@{k}, per cent", "rows in the test data"]
    lines: list[list[Any]] = [
        [
            _called_in_data(label, classes, numbers),
            100 * float(found[label] / positives[label]),
            int(positives[label]),
        ]
        for label in worst
    ]
    if frequencies is not None:
        header.append("in the training data")
        for line, label in zip(lines, worst, strict=True):
            line.append(int(frequencies[label]) if label < len(frequencies) else 0)
    page.table(header, lines)


def _weights(
    page: Page,
    model: LinearModel,
    known: Known,
    options: Options,
    frequencies: np.ndarray | None,
) -> None:
    """The largest weights of some labels."""
    low, high = model.label_range
    chosen = list(options.label)
    if not chosen:
        counts = np.diff(model.weights(low, high).indptr) if frequencies is None else frequencies[low:high]
        chosen = (low + np.argsort(-counts, kind="stable")[:_SHOWN]).tolist()
    page.heading("Largest weights")
    lines = []
    for label in chosen:
        bias, nonzeros, weights = largest_weights(known, label, options.top_k)
        text = ", ".join(f"{name} {weight:+.3g}" for name, weight in weights)
        lines.append([_called(label, known.names.classes), bias, nonzeros, text])
    page.table(["label", "bias", "weights", "the largest"], lines)


def _called(label: int, classes: np.ndarray | None) -> str:
    """The text for a label: its place, and its name where it has one."""
    return str(label) if classes is None else f"{label} ({classes[label]})"


def _called_in_data(number: int, classes: np.ndarray | None, numbers: np.ndarray | None) -> str:
    """The text for a label with this number in the data, with its name where the model knows it."""
    if classes is None:
        return _called(number, None)
    place = np.flatnonzero((np.arange(len(classes)) if numbers is None else numbers) == number)
    return _called(int(place[0]), classes) if place.size else f"{number}, which the model does not have"


def _short(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        rest = ", ".join(f"{key} {_short(value[key])}" for key in value if key != "name")
        return rest if "name" not in value else f"{value['name']} ({rest})" if rest else str(value["name"])
    if isinstance(value, list | tuple):
        return ", ".join(_short(entry) for entry in value) or "none"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"{text[:16]}…" if len(text) == 64 else text
