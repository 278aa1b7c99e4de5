"""A million labels by the command line: time and peak memory of training and prediction, size of the model.

    python -m experiments.bench.many_labels [--small|--full] [--threads 2] [--out results]

A power-law set in which every label has a positive row: the labels that the draw leaves without one get a
row at random. `xmcjax train` and `xmcjax predict` run as processes of their own, on the set as npz, with
--transform log,idf,unit; peak memory is the resident memory of the process. The rows that are predicted
were not trained on. Writes many_labels.json and many_labels.md.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from experiments import _data, _report
from experiments.bench import _worker


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(labels=20_000), full=dict(labels=1_000_000)):
    """A million labels by the command line.

    Attributes:
        rows, features, nonzeros, labels: of the synthetic training set; non-zeros are of a row.
        test_rows: that are predicted.
        threads: of both commands.
        folder: for the data and the model; a temporary one if not given. A model that is there is resumed.
        small: 20,000 labels.
        full: 1,000,000 labels.
    """

    rows: int = 20_000
    features: int = 50_000
    nonzeros: int = 40
    labels: int = 20_000
    test_rows: int = 2_000
    threads: int = 2
    folder: Path | None = None


def run(options: Options) -> dict:
    """Makes the set, trains, predicts."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.folder or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        positives = store(options, folder)
        model, threads = folder / "model", ("--n-jobs", str(options.threads))
        train = ["train", "--train", folder / "train.npz", "--model", model, "--transform", "log,idf,unit"]
        training = command([*train, *threads, *(["--resume"] if model.exists() else [])])
        predict = ["predict", "--model", model, "--data", folder / "test.npz", "--out", folder / "best.txt"]
        prediction = command([*predict, *threads, "--top-k", "5"])
        megabytes = sum(file.stat().st_size for file in model.iterdir()) / 1e6
    size = {name: getattr(options, name) for name in ("rows", "features", "nonzeros", "labels", "test_rows")}
    return {
        **size,
        "positives": positives,
        "threads": options.threads,
        "training": training,
        "prediction": prediction,
        "model_mb": megabytes,
    }


def store(options: Options, folder: Path) -> int:
    """Writes train.npz and test.npz; returns the number of positives."""
    from xmcjax.data import save_npz

    n = options.rows
    size = n, options.test_rows, options.features, options.labels
    split = _data.power_law(*size, labels_per_row=10, nonzeros_per_row=options.nonzeros)
    known = sp.coo_matrix(split.Y)
    empty = np.setdiff1d(np.arange(options.labels), known.col)
    row = np.concatenate([known.row, np.random.default_rng(0).integers(0, n, len(empty))])
    column = np.concatenate([known.col, empty])
    filled = sp.csr_matrix((np.ones(len(row), split.X.dtype), (row, column)), (n, options.labels))
    save_npz(folder / "train.npz", split.X, filled)
    save_npz(folder / "test.npz", split.X_test, split.Y_test)
    return filled.nnz


def command(arguments: list) -> dict:
    """Seconds, peak memory in MB and the output of a command of xmcjax, in a process of its own.

    Raises:
        RuntimeError: the command failed.
    """
    begin = time.perf_counter()
    program = [sys.executable, "-m", "experiments.bench.many_labels", "command", *map(str, arguments)]
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, cwd=_worker.ROOT)
    if done.returncode:
        raise RuntimeError(f"xmcjax {arguments[0]} failed with exit code {done.returncode}")
    *printed, last = done.stdout.splitlines()
    return {"seconds": time.perf_counter() - begin, **json.loads(last), "printed": printed}


def measured(arguments: list[str]) -> int:
    """Runs a command of xmcjax in this process; prints what it took as a last line. Returns its exit code."""
    from xmcjax.cli.main import main

    code = main(arguments)
    print(json.dumps({"cpu_seconds": time.process_time(), "peak_mb": _worker.memory_mb()}))
    return code


def markdown(result: dict) -> str:
    """A line for each command."""
    rows = [
        (name, f"{done['seconds']:,.1f}", f"{done['cpu_seconds']:,.1f}", f"{done['peak_mb']:,.0f}")
        for name, done in ((name, result[name]) for name in ("training", "prediction"))
    ]
    return (
        f"{result['labels']:,} labels with {result['positives']:,} positives, {result['rows']:,} rows, "
        f"{result['features']:,} features, {result['nonzeros']} non-zeros per row; "
        f"{result['test_rows']:,} rows predicted; {result['threads']} threads; "
        f"model {result['model_mb']:,.0f} MB\n\n"
        + _report.markdown_table(("", "seconds", "CPU seconds", "peak memory, MB"), rows)
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["command"]:
        sys.exit(measured(sys.argv[2:]))
    _report.main("many_labels", Options, __doc__, run, markdown)
