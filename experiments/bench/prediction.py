"""Prediction with a one-vs-all model against dismecpp's predict program, with the same weights.

    python -m experiments.bench.prediction [--small|--full] [--dismecpp PATH_OF_ITS_predict] [--out results]

The model is trained by xmcjax with its defaults, and dismecpp gets its weights as a dense npy. Each run is a
process of its own on one processor, and they go round by turns. Prediction is the work from the test features
and the model on disk to the five best labels of each row; dismecpp's is without reading its weights, which
stands apart, and xmcjax's with that, without compilation, which stands apart. The program is the whole
process: start, reading, prediction, writing; dismecpp's works out metrics as well. Labels that differ at the
same place are counted where their scores are further apart than 1e-4. Writes prediction.json and
prediction.md.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from experiments import _data, _report
from experiments.bench import _peers, _worker

TOP = 5
TIE = 1e-4


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Prediction against dismecpp.

    Attributes:
        data: a set of experiments._data.
        repeats: of every run.
        dismecpp: its predict program; empty leaves it out.
        small: the demo set that comes with the package, one repetition.
        full: stackexchange_tags, seven repetitions.
    """

    data: str = "stackexchange_tags"
    repeats: int = 3
    dismecpp: str = ""

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            return dataclasses.replace(self, repeats=max(self.repeats, 7))
        if self.small:
            return dataclasses.replace(self, data="naics_demo", repeats=1)
        return self


def run(options: Options) -> dict:
    """Trains, then predicts by turns."""
    split = _data.load_split(options.data)
    processors = _worker.usable_processors()[:1]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        store(folder, split)
        contestants = {"xmcjax": lambda: xmcjax(folder, processors)}
        if options.dismecpp:
            contestants["dismecpp"] = lambda: dismecpp(options.dismecpp, folder, processors)
        runs: dict[str, list[dict]] = {name: [] for name in contestants}
        for _ in range(options.repeats):
            for name, contestant in contestants.items():
                runs[name].append(contestant())
        rows = {
            name: {key: float(np.median([one[key] for one in done])) for key in done[0]}
            for name, done in runs.items()
        }
        result = {
            "data": options.data,
            "rows": split.X_test.shape[0],
            "labels": split.Y.shape[1],
            "repeats": options.repeats,
            "runs": rows,
            "all_runs": runs,
        }
        if options.dismecpp:
            result["different"] = different(read(folder / "xmcjax.txt"), read(folder / "dismecpp.txt", 1))
    return result


def store(folder: Path, split: _data.Split) -> None:
    """Test features as npz and text; the model in both forms."""
    from xmcjax.data import save_npz, save_xmc
    from xmcjax.models import LinearModel

    save_npz(folder / "train.npz", split.X, split.Y)
    save_npz(folder / "test.npz", split.X_test, split.Y_test)
    save_xmc(folder / "test.txt", split.X_test, split.Y_test)
    command = [sys.executable, "-m", "xmcjax", "train", "--train", "train.npz", "--model", "model"]
    _checked(command, folder, [])
    model, (n_features, n_labels) = LinearModel.load(folder / "model"), (split.X.shape[1], split.Y.shape[1])
    W, b = model.dense_block(0, n_labels)
    weights = np.ascontiguousarray(np.vstack([W, b]).T, np.float32)
    weights[~model.trained(0, n_labels)] = [*[0.0] * n_features, -1e30]  # never among the best
    with open(folder / "dismecpp.weights", "wb") as file:
        np.save(file, weights)
    file = {"count": n_labels, "file": "dismecpp.weights", "first": 0, "weight-format": "DenseNPY"}
    head = {"date": "", "files": [file], "num-features": n_features + 1, "num-labels": n_labels}
    (folder / "dismecpp").write_text(json.dumps(head))


def xmcjax(folder: Path, processors: list[int]) -> dict:
    """Seconds of prediction, of the first call with compilation, and of the command."""
    inside = _worker.ask("prediction", folder, processors, top=TOP)
    begin = time.perf_counter()
    arguments = ["--model", "model", "--data", "test.npz", "--out", "xmcjax.txt", "--n-jobs", "1"]
    command = [sys.executable, "-m", "xmcjax", "predict", *arguments, "--top-k", str(TOP)]
    _checked(command, folder, processors)
    return {**inside, "program": time.perf_counter() - begin}


def dismecpp(program: str, folder: Path, processors: list[int]) -> dict:
    """dismecpp's own times of prediction and of reading the weights, and the time of the whole program."""
    begin = time.perf_counter()
    files = ["test.txt", "dismecpp", "dismecpp.txt"]
    arguments = ["--augment-for-bias", "--threads=1", f"--topk={TOP}", "-v"]
    printed = _checked([str(Path(program).resolve()), *files, *arguments], folder, processors)
    seconds = time.perf_counter() - begin
    reading = re.search(r"read weight file .* in (\d+)ms", printed)
    assert reading
    # the first pass predicts; the second computes metrics
    clock = dict(reversed(_peers.dismecpp_clock(printed, "spawning", "Threads finished")))
    prediction = clock["Threads finished"] - clock["spawning"]
    return {"prediction": prediction, "reading": int(reading[1]) / 1e3, "program": seconds}


def _checked(command: list[str], folder: Path, processors: list[int]) -> str:
    """What a program prints, run in the folder on these processors."""
    environment = os.environ | _worker.ONE_THREAD | {"PYTHONPATH": str(_worker.ROOT)}
    return _worker.output(command[0], command, processors, cwd=folder, env=environment)


def read(path: Path, header: int = 0) -> list[list[tuple[int, float]]]:
    """Labels and scores of each row, best first."""
    pairs = [line.split() for line in path.read_text().splitlines()[header:]]
    return [[(int(label), float(score)) for label, score in (p.split(":") for p in row)] for row in pairs]


def different(ours, theirs) -> int:
    """Places with different labels whose scores are further apart than TIE."""
    if len(ours) != len(theirs):
        raise ValueError(f"expected as many rows, got {len(ours)} and {len(theirs)}")
    return sum(
        a[0] != b[0] and abs(a[1] - b[1]) > TIE
        for row, other in zip(ours, theirs, strict=True)
        for a, b in zip(row, other, strict=True)
    )


def markdown(result: dict) -> str:
    """A line for each program."""
    rows = [
        (name, *(row.get(key, "") for key in ("prediction", "first_call", "reading", "program")))
        for name, row in result["runs"].items()
    ]
    header = (
        "program",
        "prediction, s",
        "first call, s",
        "reading the weights, s",
        "whole program, s",
    )
    text = (
        f"{result['data']}: {TOP} best of {result['labels']:,} labels for {result['rows']:,} rows, "
        f"one thread; median of {result['repeats']}\n\n" + _report.markdown_table(header, rows)
    )
    if "different" in result:
        text += f"\n{result['different']} places with other labels, scores within {TIE:g} being ties.\n"
    return text


if __name__ == "__main__":
    _report.main("prediction", Options, __doc__, run, markdown)
