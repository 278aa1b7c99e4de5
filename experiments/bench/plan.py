"""What `xmcjax plan` says, beside what `xmcjax train` then takes.

    python -m experiments.bench.plan [--small|--full] [--out results]

For each set, and one and two threads, by turns: the memory and the time of the plan, and the peak memory of
the training and its seconds. Needs the data sets of experiments._data; a made one is always there. Writes
plan.json and plan.md.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from experiments import _data, _report

MADE = "made"
# A program that runs a command and prints its peak memory as the last line on stderr.
_PROGRAM = """
import re, sys
from xmcjax.cli.main import main
status = main(sys.argv[1:])
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
print(peak, file=sys.stderr)
sys.exit(status)
"""


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(sets=(MADE,), threads=(1,), rows=1500, features=800, labels=200),
    full=dict(repeats=3),
):
    """Plans and runs.

    Attributes:
        sets: folders of the data, or "made".
        threads: of the runs.
        repeats: of every plan and run; medians count.
        rows, features, labels: of the made set.
        small: a made set of 200 labels alone.
        full: three repetitions.
    """

    sets: tuple[str, ...] = (
        *("bibtex", "delicious", "rcv1_subset1", "stackexchange_tags", "yeast_gasch1_go"),
        MADE,
    )
    threads: tuple[int, ...] = (1, 2)
    repeats: int = 1
    rows: int = 40_000
    features: int = 20_000
    labels: int = 2_000


def run(options: Options) -> dict:
    """Plans and trains by turns."""
    from xmcjax.data import make_power_law, save_npz

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "train.npz")
        if MADE in options.sets:
            save_npz(made, *make_power_law(options.rows, options.features, options.labels, seed=3))
        for name in options.sets:
            file = made if name == MADE else _data.folder() / name / "train.txt.xz"
            for threads in options.threads:
                found = [_measured(file, threads, Path(folder)) for _ in range(options.repeats)]
                median = {key: float(np.median([one[key] for one in found])) for key in found[0]}
                rows.append({"set": name, "threads": threads} | median)
    return {"options": dataclasses.asdict(options) | {"out": None}, "rows": rows}


def _measured(file: Path, threads: int, folder: Path) -> dict[str, float]:
    both = ["--json", "--train", str(file), "--n-jobs", str(threads)]
    planned, _ = _command("plan", *both)
    with tempfile.TemporaryDirectory(dir=folder) as model:
        trained, peak = _command("train", *both, "--model", model)
    return {
        "planned_mb": planned["memory"]["bytes"] / 2**20,
        "peak_mb": peak / 1024,
        "planned_s": planned["time"]["training"],
        "training_s": trained["training"]["seconds"],
        "planning_s": planned["sample"]["seconds"],
    }


def _command(*arguments: str) -> tuple[dict, int]:
    """The JSON that a command prints, and its peak memory in kB."""
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"xmcjax {arguments[0]} failed: {done.stderr[-300:]}")
    peak = re.findall(r"^\d+$", done.stderr, re.MULTILINE)[-1]
    return json.loads(done.stdout), int(peak)


def markdown(result: dict) -> str:
    """The table."""
    header = [
        "set",
        "threads",
        "planned MB",
        "peak MB",
        "ratio",
        "planned s",
        "training s",
        "ratio",
        "sample s",
    ]
    table = [
        [
            row["set"],
            row["threads"],
            f"{row['planned_mb']:.0f}",
            f"{row['peak_mb']:.0f}",
            f"{row['planned_mb'] / row['peak_mb']:.2f}",
            f"{row['planned_s']:.1f}",
            f"{row['training_s']:.1f}",
            f"{row['planned_s'] / row['training_s']:.2f}",
            f"{row['planning_s']:.1f}",
        ]
        for row in result["rows"]
    ]
    return f"{_report.markdown_table(header, table)}\n"


if __name__ == "__main__":
    _report.main("plan", Options, __doc__, run, markdown)
