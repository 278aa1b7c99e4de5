"""One-vs-all training by the workers of a local cluster beside one process, and with workers killed.

    python -m experiments.bench.cluster [--small|--full] [--workers 2] [--every 5] [--out results]

Runs `xmcjax train` by turns: in one process with as many threads as there are workers, with these workers,
and with one of them killed every few seconds, which is started again. Compares the bytes of the models. Times
are those of training and of the whole command, medians of repetitions. Writes cluster.json and cluster.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from experiments import _report

WAYS = ("one process", "workers", "workers, killed")


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    # a block must end between two deaths, even beside other work
    small=dict(rows=2000, features=3000, labels=600, repeats=1, every=20.0),
    full=dict(repeats=5),
):
    """Training on a local cluster.

    Attributes:
        rows, features, labels: of a made power-law set.
        workers: processes of one thread.
        every: seconds after which a worker is killed.
        repeats: of every training.
        small: 600 labels, one repetition, and 20 seconds between two deaths.
        full: five repetitions.
    """

    rows: int = 20_000
    features: int = 30_000
    labels: int = 20_000
    workers: int = 2
    every: float = 5.0
    repeats: int = 3


def run(options: Options) -> dict:
    """Trains by turns."""
    from xmcjax.data import make_power_law, save_npz

    runs: dict[str, list[dict]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.npz")
        save_npz(file, *make_power_law(options.rows, options.features, options.labels, seed=3))
        for turn in range(options.repeats):
            for k, way in enumerate(WAYS):
                runs[way].append(_trained(file, Path(folder, f"model-{turn}-{k}"), way, options))
    hashes = {one["sha256"] for ways in runs.values() for one in ways}
    median = {
        way: {time: float(np.median([one[time] for one in ways])) for time in ("training", "command")}
        for way, ways in runs.items()
    }
    return {
        "set": dataclasses.asdict(options) | {"out": None},
        "runs": runs,
        "median": median,
        "same_bytes": len(hashes) == 1,
    }


def _trained(file: Path, model: Path, way: str, options: Options) -> dict:
    shard = max(1, min(1000, options.labels // 20))
    command = [sys.executable, "-m", "xmcjax", "train", "--json", "--train", str(file), "--model", str(model)]
    command += ["--n-jobs", str(options.workers), "--shard-size", str(shard)]
    if way != WAYS[0]:
        command += ["--local-cluster", str(options.workers)]
    begin, killed = time.perf_counter(), 0
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        last = time.monotonic()
        while way == WAYS[2] and process.poll() is None:
            time.sleep(0.1)
            if time.monotonic() - last > options.every:
                last, killed = time.monotonic(), killed + _kill_one(process.pid)
        answer = process.communicate()[0]
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command)}: {errors.read().strip() or process.returncode}")
        said = json.loads(answer)
    seconds = time.perf_counter() - begin
    digest = hashlib.sha256()
    for name in sorted(path.name for path in model.iterdir() if path.name != "run.json"):
        digest.update((model / name).read_bytes())
    return {
        "training": said["training"]["seconds"],
        "command": seconds,
        "killed": killed,
        "sha256": digest.hexdigest(),
    }


def _kill_one(pid: int) -> int:
    """Kills the first living worker in the list of a command's processes. Returns how many were killed."""
    import psutil

    for child in psutil.Process(pid).children():
        if "spawn_main" in " ".join(child.cmdline()):
            os.kill(child.pid, signal.SIGKILL)
            return 1
    return 0


def markdown(result: dict) -> str:
    """The table."""
    header = ["", "training s", "command s", "of one process", "workers killed"]
    table = []
    one = result["median"][WAYS[0]]["training"]
    for way in WAYS:
        median = result["median"][way]
        killed = sum(run["killed"] for run in result["runs"][way])
        ratio = f"{one / median['training']:.2f}"
        table.append([way, f"{median['training']:.1f}", f"{median['command']:.1f}", ratio, killed])
    made, same = result["set"], "the same bytes" if result["same_bytes"] else "OTHER BYTES"
    text = (
        f"{made['labels']:,} labels, {made['rows']:,} rows, {made['features']:,} features, {made['workers']} "
        f"workers of one thread, one killed every {made['every']:g} s; {same} in all runs"
    )
    return f"{text}\n\n{_report.markdown_table(header, table)}\n"


if __name__ == "__main__":
    _report.main("cluster", Options, __doc__, run, markdown)
