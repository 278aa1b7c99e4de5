"""Small data on disk, and the command run in this process."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import commands
from xmcjax.cli.main import main
from xmcjax.data import make_power_law, save_xmc

N_LABELS = 30
N_FEATURES = 80


@pytest.fixture
def xmcjax(capsys):
    """Runs a command: ``xmcjax("train", "--train", path, …)``."""
    return functools.partial(commands.run, capsys)


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> Path:
    """A folder with train.txt and test.txt, counts in XMC text; the last label has no positive row."""
    folder = tmp_path_factory.mktemp("files")
    X, Y = make_power_law(360, N_FEATURES, N_LABELS, labels_per_row=2, nonzeros_per_row=12, seed=1)
    Y = Y.tolil()
    Y[:, N_LABELS - 1] = 0
    Y = Y.tocsr()
    save_xmc(folder / "train.txt", X[:300], Y[:300])
    save_xmc(folder / "test.txt", X[300:], Y[300:])
    return folder


@pytest.fixture(scope="session")
def classes_of(tmp_path_factory):
    """Makes a folder with train.txt, rows up to `cut`, and test.txt: one label a row, never `absent`."""

    def made(labels: int, absent: int, rows: int, cut: int, noise: float) -> Path:
        folder = tmp_path_factory.mktemp("classes")
        rng = np.random.default_rng(3)
        centres = rng.exponential(size=(labels, 12)) * (rng.random((labels, 12)) < 0.5)
        y = rng.choice([label for label in range(labels) if label != absent], rows)
        X = np.maximum(centres[y] + noise * rng.normal(size=(rows, 12)), 0).astype(np.float32)
        X[:, 0] = 1
        Y = np.eye(labels, dtype=np.float32)[y]
        for name, some in (("train", slice(0, cut)), ("test", slice(cut, rows))):
            save_xmc(folder / f"{name}.txt", sp.csr_matrix(X[some]), sp.csr_matrix(Y[some]))
        return folder

    return made


@pytest.fixture
def train(xmcjax, files, tmp_path):
    """Trains on the small data: (model directory, result of the command)."""

    def run(*options, name="m", file=None, transform="unit"):
        begin = ("train", "--train", file or files / "train.txt", "--model", tmp_path / name)
        return tmp_path / name, xmcjax(*begin, "--transform", transform, *options)

    return run


@pytest.fixture(scope="session")
def model(tmp_path_factory, files):
    """A trained model of the small data."""
    directory = tmp_path_factory.mktemp("model") / "m"
    train = ("train", "--train", files / "train.txt", "--model", directory, "--transform", "unit")
    assert main([str(argument) for argument in train]) == 0
    return directory


@pytest.fixture
def contents():
    """{name: SHA-256} of a model's directory without run.json."""

    def read(directory) -> dict[str, str]:
        paths = sorted(Path(directory).iterdir())
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in paths if p.name != "run.json"}

    return read


@pytest.fixture
def no_wait_for_the_disk(monkeypatch):
    """Syncing is for power cuts; tests/attack makes it fail."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
