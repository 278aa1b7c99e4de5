"""``xmcjax demo``."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from xmcjax._arguments import job_count
from xmcjax._options import SHARED
from xmcjax._words import counted
from xmcjax.cli import _report, _training
from xmcjax.cli._cache import compilation_cache
from xmcjax.cli._options import Directory, described
from xmcjax.cli._runs import write_run_file
from xmcjax.data import Dataset, Demo, load_demo
from xmcjax.lanes import OneVsAll
from xmcjax.metrics import RANKING_METRICS
from xmcjax.models import LinearModel, check_vacant

_TRANSFORMS = "log,idf,unit"
_KS = (1, 3, 5)
_EXAMPLES = 4


@described(SHARED)
@dataclasses.dataclass(frozen=True)
class Options:
    """Train, save, load and evaluate a model on data that ship with the package.

    The data are the index of the 2017 North American Industry Classification System: 16,108 short
    texts, 1,055 classes, one a text.

    Attributes:
        model: new directory for the model; without it xmcjax-demo, or xmcjax-demo-2 and so on.
    """

    model: Annotated[Directory | None, tyro.conf.arg(metavar="DIR")] = None
    n_jobs: int = SHARED["n_jobs"].of_flag


@compilation_cache()
def run(options: Options) -> None:
    """Trains and shows what came of it."""
    trainer = OneVsAll(n_jobs=job_count(options.n_jobs, "--n-jobs"))
    directory = _fresh_directory() if options.model is None else options.model
    check_vacant(directory, resumable=False)
    begin = time.perf_counter()
    demo = load_demo()
    dataset = Dataset(demo.X_train, demo.Y_train)
    data = _training.prepare(dataset, _TRANSFORMS)
    reading = time.perf_counter() - begin
    _report.describe_data(dataset, "NAICS 2017: ")
    _report.print_field(
        "method", f"one-vs-all {trainer.loss.name}, init {trainer.init.name}, transforms {_TRANSFORMS}"
    )
    outcome = _training.train_to_directory(data, trainer, directory)
    _report.warn_of_labels(outcome, data.X.dtype)
    model = LinearModel.load(directory)
    write_run_file(directory, "demo", options, outcome, {"reading": reading})
    _report.print_training(outcome, model, dataset.n_rows)
    begin = time.perf_counter()
    labels = _training.best_labels(model, model.transforms().apply(demo.X_test), max(_KS), trainer.threads)
    seconds = time.perf_counter() - begin
    _report.print_field(
        "prediction", f"{seconds:.2f} s for {counted(len(labels), 'row')}", seconds=seconds, rows=len(labels)
    )
    metrics = {name: RANKING_METRICS[name] for name in ("P", "top")}
    _report.print_lines(
        [
            "",
            "per cent of the test rows (P: precision at k, top: the class is among the k best;",
            "with one class per row, P@3 cannot exceed 33.3 and P@5 not 20.0)",
        ]
    )
    _report.print_metrics(demo.Y_test, labels, _KS, metrics)
    _report.print_lines(
        [
            "",
            "words of a test row -> predicted NAICS codes, best first [true code]",
            *_examples(demo, labels),
            "",
            f"The model is in {directory.resolve()}",
        ]
    )


def _fresh_directory() -> Path:
    """The first of xmcjax-demo, xmcjax-demo-2, xmcjax-demo-3, … that does not exist."""
    path, number = Path("xmcjax-demo"), 1
    while path.exists():
        number += 1
        path = Path(f"xmcjax-demo-{number}")
    return path


def _examples(demo: Demo, labels: np.ndarray) -> list[str]:
    """A few test rows with enough words to read, spread over the file."""
    readable = np.flatnonzero(np.diff(demo.X_test.indptr) >= 4)
    rows = readable[np.linspace(0, len(readable) - 1, _EXAMPLES + 2).astype(int)[1:-1]]
    lines = []
    for row in rows.tolist():
        words = " ".join(demo.words[j] for j in demo.X_test[[row]].indices)
        codes = " ".join(demo.class_names[label] for label in labels[row, :3])
        true = demo.class_names[demo.Y_test.indices[row]]
        lines.append(f"  {words} -> {codes} [{true}]")
    return lines
