"""A process with the library of _disk.c between itself and its files, which writes what it is told.

It reads a JSON object per line, forks, lets the fork write, and answers with a JSON object: how the fork
ended, its error and the number of its calls. Beside the folder that is written to are data and a model for
commands to read (`_commands.make_inputs`).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from tests.attack import _commands
from tests.support.internals import model_writer, multinomial_checkpoint
from xmcjax import linops
from xmcjax.cli import convert, export, index, predict, report, train  # noqa: F401 (here, so that no fork has to)
from xmcjax.data import (
    atomic_write,
    make_power_law,
    save_arrow,
    save_features,
    save_labels,
    save_matrix,
    save_npy,
    save_npz,
    save_parquet,
    save_scipy_npz,
    save_svmlight,
    save_xmc,
)
from xmcjax.models import (
    Calibration,
    LinearModel,
    ModelError,
    Names,
    ShardWriter,
    prediction_file,
    read_kernel_model,
    write_calibration,
    write_index,
    write_kernel_model,
)
from xmcjax.solvers import multinomial

with contextlib.suppress(ImportError):  # as above; without matplotlib no report is written
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401

    import xmcjax.plots  # noqa: F401

_PR_SET_PDEATHSIG = 1
_X, _Y = make_power_law(3000, 400, 30, labels_per_row=2, nonzeros_per_row=12, seed=1)
_X = sp.csr_matrix(_X, dtype=np.float32)
_META = {"n_features": 50, "n_labels": 23, "dtype": "float32"}


def _blocks(folder: Path) -> None:
    with atomic_write(folder / "blocks") as file:
        for number in range(40):
            file.write(b"%d" % number * 5000)


def _link(folder: Path) -> None:
    with atomic_write(folder / "link") as file:
        file.write(b"new" * 1000)


def _predictions(folder: Path, name: str = "predictions") -> None:
    rng = np.random.default_rng(0)
    with prediction_file(folder / name) as write:
        for _ in range(3):
            scores = -np.sort(-rng.standard_normal((5000, 3)), axis=1).astype(np.float32)
            write(np.tile(np.arange(3), (5000, 1)), scores)


def fill(writer: ShardWriter | _GoingOn) -> None:
    """All labels that are missing, each a function of its number."""
    for label in writer.missing().tolist():
        rng = np.random.default_rng(label)
        indices = np.sort(rng.choice(50, int(rng.integers(1, 12)), replace=False)).astype(np.int32)
        writer.add(label, indices, rng.uniform(1, 2, indices.size).astype(np.float32), 0.5, 1, label, label)


def _writer(folder: Path) -> ShardWriter:
    arrays = {"idf.weight": np.arange(1.0, 51.0)}
    return ShardWriter(folder / "m", _META, shard_size=4, transforms_arrays=arrays, resume=True)


def model(folder: Path) -> None:
    with _writer(folder) as writer:
        fill(writer)


def _calibrated(folder: Path) -> None:
    with contextlib.suppress(ModelError, OSError):  # there is none yet, or a part of it
        if LinearModel.load(folder / "m").calibrated:
            return  # a model that has been calibrated is not one that is started without
    model(folder)
    if not LinearModel.load(folder / "m").calibrated:
        numbers = np.arange(1.0, 24.0)
        write_calibration(folder / "m", Calibration(numbers, -numbers, numbers > 9))


def _model_named_at_the_end(folder: Path) -> None:
    """Shards wait for the manifest, as those do that are written faster than it."""
    model_writer._PAUSES = 10**9
    model(folder)


class _GoingOn:
    """A writer whose user goes on after an error of a shard: the next shard, or the end, tries it again."""

    def __init__(self, writer: ShardWriter):
        self.missing, self._writer = writer.missing, writer

    def add(self, *label) -> None:
        with contextlib.suppress(OSError):
            self._writer.add(*label)


def _model_going_on(folder: Path) -> None:
    with _writer(folder) as writer:
        fill(_GoingOn(writer))


def _state(folder: Path) -> None:
    problem = multinomial.multinomial_problem(linops.make(np.eye(6, dtype=np.float32)), np.arange(6) % 3, 1.0)
    zeros = multinomial.State(*(jnp.zeros(500) for _ in multinomial.State._fields))
    multinomial_checkpoint.Store(folder / "states", problem, "newton", 1).save(
        "newton", zeros._replace(steps=jnp.zeros((), int))
    )


class Failed(Exception):
    """A command ended with another status than 0; the text is what it said."""


def _command(*words: str | Path) -> None:
    status, errors = _commands.called(*words)
    if status:
        raise Failed(errors)


def _train(folder: Path) -> None:
    data = ["--train", folder.parent / "data.txt", "--shard-size", "1", "--n-jobs", "1"]
    _command("train", *data, "--transform", "log,idf,unit", "--model", folder / "m", "--resume")


def _predict(folder: Path) -> None:
    inputs = ["--model", folder.parent / "model", "--data", folder.parent / "data.txt"]
    _command("predict", *inputs, "--out", folder / "best.txt")


def _convert(folder: Path) -> None:
    _command("convert", "--data", folder.parent / "data.txt", "--out", folder / "converted.npz")


def _export(folder: Path) -> None:
    """As LIBLINEAR reads it; the writers of the others are those above."""
    model = folder.parent / "model"
    _command("export", "--model", model, "--out", folder / "exported", "--format", "liblinear")


def _report(folder: Path) -> None:
    data = folder.parent / "data.txt"
    _command("report", "--model", folder.parent / "model", "--test", data, "--out", folder / "report.html")


def _linked_model(folder: Path) -> Path:
    """A model of links to the files of a complete one, beside which an index can be written."""
    for file in (folder.parent / "model").iterdir():
        with contextlib.suppress(FileExistsError):
            (folder / "indexed" / file.name).symlink_to(file)
    return folder / "indexed"


def _write_index(folder: Path) -> None:
    write_index(_linked_model(folder))


def _index(folder: Path) -> None:
    _command("index", "--model", _linked_model(folder))


def _merge(folder: Path) -> None:
    parts = [folder.parent / "part0", folder.parent / "part1"]
    _command("merge", "--parts", *parts, "--model", folder / "m", "--resume")


def _kernel_model(folder: Path) -> None:
    if (folder / "m" / "manifest.json").exists():
        read_kernel_model(folder / "m")
        return
    meta = {"n_features": 2, "n_labels": 3, "dtype": "float64"}
    arrays = {"a": np.arange(5000.0), "b": np.arange(3)}
    write_kernel_model(folder / "m", meta, arrays, Names(np.array(["x", "y", "z"])))


class Target(NamedTuple):
    """What can be written.

    Attributes:
        file: in the folder; None for the directory m of a model.
        write: writes it into a folder.
        cost: as many times as rarely it is attacked as one that takes some milliseconds.
    """

    file: str | None
    write: Callable[[Path], None]
    cost: int = 1


_INDEX = "indexed/by-feature.safetensors"
TARGETS = {
    "atomic_write": Target("blocks", _blocks),
    "atomic_write through a link": Target("far/real", _link),
    "save_npz": Target("data.npz", lambda folder: save_npz(folder / "data.npz", _X, _Y)),
    "save_npz compressed": Target(
        "zip.npz", lambda folder: save_npz(folder / "zip.npz", _X, _Y, compressed=True)
    ),
    "save_xmc": Target("data.txt", lambda folder: save_xmc(folder / "data.txt", _X, _Y)),
    "save_xmc .gz": Target("data.txt.gz", lambda folder: save_xmc(folder / "data.txt.gz", _X, _Y)),
    "save_svmlight .xz": Target("data.svm.xz", lambda folder: save_svmlight(folder / "data.svm.xz", _X, _Y)),
    "save_matrix": Target("X.txt", lambda folder: save_matrix(folder / "X.txt", _X)),
    "save_scipy_npz": Target("X.npz", lambda folder: save_scipy_npz(folder / "X.npz", _X)),
    "save_npy": Target("E.npy", lambda folder: save_npy(folder / "E.npy", np.eye(300))),
    "save_features": Target("E2.npy", lambda folder: save_features(folder / "E2.npy", np.eye(300))),
    "save_labels": Target("Y.npz", lambda folder: save_labels(folder / "Y.npz", _Y)),
    **(
        {
            "save_parquet": Target("X.parquet", lambda folder: save_parquet(folder / "X.parquet", _X, _Y)),
            "save_arrow": Target("X.arrow", lambda folder: save_arrow(folder / "X.arrow", _X, _Y)),
        }
        if importlib.util.find_spec("pyarrow") is not None
        else {}
    ),
    "prediction_file": Target("predictions", _predictions),
    "prediction_file .jsonl": Target("best.jsonl", lambda folder: _predictions(folder, "best.jsonl")),
    "prediction_file .npz": Target("best.npz", lambda folder: _predictions(folder, "best.npz")),
    "ShardWriter": Target(None, model),
    "ShardWriter, its manifest at the end": Target(None, _model_named_at_the_end),
    "ShardWriter, going on after an error": Target(None, _model_going_on),
    "write_calibration": Target(None, _calibrated),
    "write_kernel_model": Target(None, _kernel_model),
    "write_index": Target(_INDEX, _write_index, 2),
    "state of a solver": Target("states/state-0-0.npz", _state, 10),
    "xmcjax train": Target(None, _train, 10),
    "xmcjax merge": Target(None, _merge, 10),
    "xmcjax predict": Target("best.txt", _predict, 10),
    "xmcjax index": Target(_INDEX, _index, 2),
    "xmcjax export": Target("exported", _export, 2),
    "xmcjax convert": Target("converted.npz", _convert, 2),
    "xmcjax report": Target("report.html", _report, 10),
}


def _end_with_the_parent() -> None:
    """Nothing is left of a fork that hangs when the attack, which reports it, has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _child(disk: ctypes.CDLL, order: dict, answer: int) -> None:
    _end_with_the_parent()
    said: dict = {}
    folder = os.fsencode(order["folder"])
    disk.disk_arm(folder, ctypes.c_long(order["call"]), order["how"], order["errno"])
    try:
        TARGETS[order["target"]].write(Path(order["folder"]))
    except BaseException as error:
        said = {"type": type(error).__name__, "text": str(error), "errno": getattr(error, "errno", None)}
        said["filename"] = getattr(error, "filename", None)
    disk.disk_calls.restype = ctypes.c_long
    calls = disk.disk_calls()
    disk.disk_arm(b"", ctypes.c_long(0), 0, 0)
    os.write(answer, json.dumps({"error": said or None, "calls": calls}).encode())
    os._exit(0)


def serve() -> None:
    """Answers until its input ends."""
    _end_with_the_parent()
    model_writer._PAUSES = 0  # a manifest with each shard, whatever the clock says: always as many calls
    disk = ctypes.CDLL(None)
    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _child(disk, order, writing)
        os.close(writing)
        with open(reading, "rb") as pipe:
            said = pipe.read()
        status = os.waitpid(pid, 0)[1]
        ended = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else json.loads(said)
        print(json.dumps({"signal": 0, "error": None} | ended), flush=True)


if __name__ == "__main__":
    serve()
