"""Commands called in this process, and files for them to read."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xmcjax.cli.main import BAD_INPUT, main
from xmcjax.data import save_svmlight, save_xmc

# Nothing is left in the home directory, and a disk that fails is that of the command's own files.
os.environ.setdefault("XMCJAX_CACHE", "0")

ROWS, FEATURES, LABELS = 30, 6, 4


def called(*words: str | Path) -> tuple[int, str]:
    """Status of a command, and what it wrote to stderr."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            status = main([str(word) for word in words])
        except SystemExit as exit:
            status = exit.code if isinstance(exit.code, int | None) else BAD_INPUT
    return status or 0, errors.getvalue()


def make_inputs(folder: Path) -> None:
    """Puts data.txt, data.svm, classes.txt, model, model.txt, part0, part1, predictions.txt into a folder."""
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(np.abs(rng.normal(size=(ROWS, FEATURES))) * (rng.random((ROWS, FEATURES)) < 0.7))
    Y = sp.csr_matrix((rng.random((ROWS, LABELS)) < 0.4).astype(float))
    data, model = folder / "data.txt", folder / "model"
    save_xmc(data, X, Y)
    save_svmlight(folder / "data.svm", X, Y)
    train = ["train", "--train", data, "--model", model]
    predict = ["predict", "--model", model, "--data", data, "--out", folder / "predictions.txt"]
    save_xmc(folder / "classes.txt", X, sp.csr_matrix(np.eye(LABELS)[np.arange(ROWS) % LABELS]))
    parts = [
        ["train", "--train", data, "--model", folder / f"part{i}", "--labels", labels, "--shard-size", "2"]
        for i, labels in enumerate(("0:1", "1:4"))
    ]
    export = ["export", "--model", model, "--out", folder / "model.txt", "--format", "liblinear"]
    for command in (train, predict, export, *parts):
        status, errors = called(*command)
        if status:
            raise RuntimeError(errors)
