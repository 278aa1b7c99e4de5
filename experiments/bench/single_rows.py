"""Prediction of one row after another, as a server does it, beside scipy's product with the weights.

    python -m experiments.bench.single_rows [--small|--full] [--out results]

One thread. Each model predicts the five best labels of rows that differ, one row per call, by turns with
scipy: row @ weights in CSR by feature, made beforehand, and a partial sort. The labels are compared. Then a
stored model of many labels is opened by its index in a process of its own, which predicts one row: seconds
from the call that opens it, and the peak of its memory. Writes single_rows.json and single_rows.md.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from experiments import _data, _report
from experiments.bench._worker import ONE_THREAD, ROOT

TOP = 5
OPEN = r"""
import json, os, re, sys, time
import numpy as np, scipy.sparse as sp
from xmcjax.models import Predictor
row = sp.load_npz(sys.argv[2])
begin = time.perf_counter()
predictor = Predictor(sys.argv[1])
opened = time.perf_counter() - begin
predictor.predict_topk(row, 5)
first = time.perf_counter() - begin
begin = time.perf_counter()
predictor.predict_topk(row, 5)
next_row = time.perf_counter() - begin
status = open("/proc/self/status").read() if os.path.exists("/proc/self/status") else ""
print(json.dumps({
    "open_seconds": opened, "first_row_seconds": first, "next_row_seconds": next_row,
    "peak_mb": int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024 if status else 0,
    "jax": "jax" in sys.modules,
}))
"""


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(rows=20, labels=300, weights=3000, stored=500, repeats=1),
    full=dict(repeats=5),
):
    """Prediction of single rows.

    Attributes:
        rows: that are predicted one by one.
        labels: of the made model of sparse weights, which has as many features.
        weights: of that model.
        stored: labels of the model that is opened by its index; 0 leaves it out.
        repeats: rounds; the median of their times is given.
        small: the demo set, and small models.
        full: five rounds.
    """

    rows: int = 1000
    labels: int = 20_000
    weights: int = 10_000_000
    stored: int = 1_000_000
    repeats: int = 3


def run(options: Options) -> dict:
    """Predicts with each model, then opens the stored one."""
    made = models(options)
    rows = {name: one_by_one(*parts, options.repeats) for name, parts in made.items()}
    for name, row in rows.items():
        print(name, json.dumps(row), flush=True)
    return {"models": rows, "stored": stored(options) if options.stored else None}


def models(options: Options) -> dict[str, tuple[Any, Any, Any]]:
    """(weights [L, d], biases, rows) of each model."""
    from xmcjax import OneVsAllClassifier

    split = _data.load_split("naics_demo" if options.small else "stackexchange_tags")
    trained = OneVsAllClassifier(n_jobs=-1).fit(split.X, split.Y)
    name = "demo" if options.small else "stackexchange_tags"
    rng = np.random.default_rng(0)
    size = options.labels
    made = sp.random_array((size, size), density=options.weights / size**2, rng=rng, format="csr")
    rows = sp.random_array((options.rows, size), density=60 / size, rng=rng, format="csr")
    dense = rng.standard_normal((500, 768)).astype(np.float32)
    dense_rows = rng.standard_normal((options.rows, 768)).astype(np.float32)
    return {
        f"{name}, {len(trained.intercept_):,} labels": (
            trained.coef_,
            trained.intercept_,
            split.X_test[: options.rows],
        ),
        f"made, {size:,} labels, {made.nnz:,} weights": (
            made.astype(np.float32),
            np.zeros(size, np.float32),
            rows.astype(np.float32),
        ),
        "dense, 768 features, 500 labels": (dense, np.zeros(500, np.float32), dense_rows),
    }


def programs(coef, bias) -> dict[str, Callable[[Any], np.ndarray]]:
    """By name, functions that predict the best labels of a row with weights [L, d]."""
    from xmcjax.models import ArrayModel, Predictor

    predictor = Predictor(ArrayModel(coef, bias))
    by_feature = sp.csr_matrix(coef.T) if sp.issparse(coef) else np.ascontiguousarray(coef.T)

    def ours(row):
        return predictor.predict_topk(row, TOP)[0][0]

    def scipys(row):
        return best_labels(row @ by_feature, bias)[0]

    return {"xmcjax": ours, "scipy": scipys}


def best_labels(scores, bias) -> np.ndarray:
    """The best labels of products [n, L], sparse or dense, by a partial sort, [n, TOP]."""
    scores = (scores.toarray() if sp.issparse(scores) else scores) + bias
    best = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)


def one_by_one(coef, bias, X, repeats: int) -> dict:
    """Milliseconds per row of both, and the rows whose labels differ."""
    predictors = programs(coef, bias)
    rows = [X[i : i + 1] for i in range(X.shape[0])]
    times: dict[str, list[float]] = {name: [] for name in predictors}
    found: dict[str, list] = {}
    for _ in range(repeats):
        for name, predict in predictors.items():
            begin = time.process_time()
            found[name] = [predict(row) for row in rows]
            times[name].append(1e3 * (time.process_time() - begin) / len(rows))
    differ = sum(not np.array_equal(a, b) for a, b in zip(found["xmcjax"], found["scipy"], strict=True))
    return {**{name: float(np.median(ms)) for name, ms in times.items()}, "rows_that_differ": differ}


def stored(options: Options) -> dict:
    """A stored model of 200 weights per label and 500,000 features, written, indexed and opened."""
    from xmcjax.models import ShardWriter, write_index

    d = max(options.stored // 2, 300)
    rng = np.random.default_rng(1)
    values = rng.standard_normal(200).astype(np.float32)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "model"
        meta = {"n_features": d, "n_labels": options.stored, "dtype": "float32"}
        with ShardWriter(directory, meta) as writer:
            for label in range(options.stored):
                # distinct features, with more weights for the first ones
                places = np.unique((d * rng.random(200) ** 3).astype(np.int32))
                writer.add(label, places, values[: len(places)], -1.0)
        begin = time.perf_counter()
        index = write_index(directory)
        seconds = time.perf_counter() - begin
        features = np.unique((d * rng.random(80) ** 3).astype(np.int32))
        row = sp.csr_array(
            (np.ones(len(features), np.float32), ([0] * len(features), features)), shape=(1, d)
        )
        sp.save_npz(Path(scratch) / "row.npz", row)
        rounds = []
        for _ in range(options.repeats):
            command = [sys.executable, "-c", OPEN, str(directory), str(Path(scratch) / "row.npz")]
            environment = os.environ | ONE_THREAD
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment
            )
            rounds.append(json.loads(done.stdout))
        found = {key: float(np.median([one[key] for one in rounds])) for key in rounds[0]}
        return {
            "labels": options.stored,
            "model_mb": sum(p.stat().st_size for p in directory.glob("shard*")) / 1e6,
            "index_mb": index.stat().st_size / 1e6,
            "index_seconds": seconds,
            **found,
        }


def markdown(result: dict) -> str:
    """Two tables."""
    header = ["model", "xmcjax, ms per row", "scipy, ms per row", "rows whose labels differ"]
    lines = [[n, r["xmcjax"], r["scipy"], r["rows_that_differ"]] for n, r in result["models"].items()]
    text = _report.markdown_table(header, lines)
    if result["stored"]:
        found = result["stored"]
        header = [
            "labels",
            "shards, MB",
            "index, MB",
            "made in, s",
            "opened and a row, s",
            "next row, ms",
            "peak, MB",
        ]
        line = [f"{found['labels']:,}", found["model_mb"], found["index_mb"], found["index_seconds"]]
        line += [found["first_row_seconds"], 1e3 * found["next_row_seconds"], found["peak_mb"]]
        text += "\n" + _report.markdown_table(header, [line])
    return text


if __name__ == "__main__":
    _report.main("single_rows", Options, __doc__, run, markdown)
