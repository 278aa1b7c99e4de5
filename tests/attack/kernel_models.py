"""Directories of kernel models that are damaged, or made to do harm; see harness.py for how to run it."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save

from tests.attack._mutation import flipped
from tests.attack.harness import Wrong, main
from tests.attack.models import make_odd, signed, spoil, spoiled
from xmcjax import KernelLogisticClassifier
from xmcjax.models import ModelError, read_kernel_model

PURPOSE = "Damaged and hostile kernel models: none that is wrong without a word, no crash, hang or bare error"
KINDS = ("flip", "cut or longer", "missing", "mixed", "odd file", "manifest", "arrays", "shapes")
_TREE = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)]


class _Model(NamedTuple):
    files: dict[str, bytes]
    scores: np.ndarray


class _Context(NamedTuple):
    folder: Path
    models: list[_Model]
    X: np.ndarray


def prepare(folder: Path) -> _Context:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(3, 7, 40)
    models = []
    for number, options in enumerate(({}, {"rank": 9}, {"hierarchy": _TREE})):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier = KernelLogisticClassifier(max_iter=5, **options).fit(X, y)
        classifier.save(folder / f"{number}")
        files = {path.name: path.read_bytes() for path in (folder / f"{number}").iterdir()}
        models.append(_Model(files, classifier.decision_function(X[:4])))
    return _Context(folder, models, X[:4])


def case(context: _Context, rng: np.random.Generator) -> str:
    number = int(rng.integers(len(context.models)))
    model, other = context.models[number], context.models[number - 1]
    files = dict(model.files)
    kind = KINDS[rng.integers(len(KINDS))]
    name = sorted(files)[rng.integers(len(files))]
    match kind:
        case "flip":
            files[name] = flipped(files[name], rng, int(rng.integers(1, 4)))
        case "cut or longer":
            size = int(rng.integers(len(files[name])))
            files[name] = files[name][:size] if rng.integers(2) else files[name] + rng.bytes(1 + size % 50)
        case "missing":
            del files[name]
        case "mixed":
            files[name] = other.files[name]
        case "manifest":
            content = json.loads(files["manifest.json"])
            for _ in range(int(rng.integers(1, 3))):
                spoil(content, rng)
            files["manifest.json"] = signed(content)
        case "arrays" | "shapes":
            change = spoiled if kind == "arrays" else _reshaped
            files["arrays.safetensors"] = raw = change(files["arrays.safetensors"], rng)
            content = copy.deepcopy(json.loads(files["manifest.json"]))
            content["arrays"] |= {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
            files["manifest.json"] = signed(content)
    directory = context.folder / "case"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for file, content in files.items():
        (directory / file).write_bytes(content)
    if kind == "odd file":
        make_odd(directory / name, context.folder, other.files[name], rng)
    return _opened(directory, context.X, model.scores, kind)


def _reshaped(raw: bytes, rng: np.random.Generator) -> bytes:
    """One of the arrays shorter, longer, empty, or with another number of axes."""
    arrays = load(raw)
    name = sorted(arrays)[rng.integers(len(arrays))]
    array = np.atleast_1d(arrays[name])
    match rng.integers(4):
        case 0:
            array = array[:-1]
        case 1:
            array = np.concatenate([array, array[:1]])
        case 2:
            array = array[None] if rng.integers(2) else array.ravel()
        case 3:
            array = np.moveaxis(array, 0, -1)[..., : rng.integers(3)]
    return save(arrays | {name: np.ascontiguousarray(array)})


def _opened(directory: Path, X: np.ndarray, scores: np.ndarray, kind: str) -> str:
    try:
        if max(read_kernel_model(directory).meta[key] for key in ("n_labels", "n_features")) > 10**6:
            return f"{kind}: too large to look at"
        found: Any = KernelLogisticClassifier.load(directory).decision_function(X)
    except ModelError as error:
        if "\n" in str(error) or len(str(error)) > 1000:
            raise Wrong(f"{kind}: the message is no sentence: {str(error)[:300]}") from error
        return f"{kind}: refused"
    except OSError as error:
        if not str(error.filename or error).startswith(str(directory)):
            raise Wrong(f"{kind}: {type(error).__name__} without the file: {error}") from error
        return f"{kind}: refused by the file system"
    except Exception as error:
        raise Wrong(f"{kind}: {type(error).__name__}: {str(error)[:300]}") from error
    if np.array_equal(found, scores):
        return f"{kind}: the same model"
    if kind in ("manifest", "arrays", "shapes"):
        return f"{kind}: the model that was signed"
    raise Wrong(f"{kind}: another model without a word")


if __name__ == "__main__":
    sys.exit(main(__spec__))
