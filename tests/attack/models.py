"""Model directories that are damaged, or made to do harm; see harness.py for how to run it."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tests.attack._mutation import flipped, mutated
from tests.attack.harness import Wrong, main
from xmcjax.models import (
    Calibration,
    LinearModel,
    ModelError,
    Names,
    Predictor,
    ShardWriter,
    predict_topk,
    scores_above,
    write_index,
)
from xmcjax.native import PerformanceWarning

PURPOSE = (
    "Damaged and hostile models, read and resumed: no wrong one with verify full and lazy, no crash, hang or "
    "bare error"
)

L, D, SHARD = 23, 50, 8
VERIFY = ("full", "lazy", "size", "none")
_HOSTILE: list[Any] = [None, True, 1.5, float("inf"), float("nan"), [], [0], [0, 23], [23, 0], [[]], {}]
_HOSTILE += [-1, 0, 1, 2, 7, 8, 9, 22, 24, 2**31 - 1, 2**31, 2**63, 2**64, 10**400, {"file": "x"}, "", "x"]
_HOSTILE += ["../../etc/passwd", "shard-000000.safetensors", "manifest.json", "0" * 64, "float16", "float64"]
_HOSTILE += ["\ud800", "\0", "x" * 5000]
_HOSTILE += ["F16", "F32", "F64", "BF16", "F8_E4M3", "BOOL", "U8", "I8", "I16", "I32", "I64", "U64", "C64"]


KINDS = ("flip", "cut or longer", "missing", "swapped", "mixed", "odd file", "manifest", "shard", "index")
INDEX = "by-feature.safetensors"
# The members of the manifest that name other files than shards.
BESIDE = ("transforms", "names", "calibration")


class _Context(NamedTuple):
    folder: Path
    model: dict[str, bytes]  # the files of a good model
    other: dict[str, bytes]  # of another one with the same meta data, and of the same sizes
    parts: tuple


def prepare(folder: Path) -> _Context:
    model, other = _files(folder / "a", 0), _files(folder / "b", 1)
    return _Context(folder, model, other, _read(folder / "a", "full", partial=False))


def _files(directory: Path, seed: int) -> dict[str, bytes]:
    _write(directory, seed)
    write_index(directory)
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def _write(directory: Path, seed: int) -> None:
    """The labels that a directory lacks of the model of that seed."""
    meta = {"n_features": D, "n_labels": L, "dtype": "float32", "transforms": ["idf", "unit"], "C": 1.0}
    arrays = {"idf.weight": np.random.default_rng(seed).uniform(1, 2, D)}
    names = Names(np.array([f"label {l:02}" for l in range(L)]), tuple(f"feature {j}" for j in range(D)))
    scale = np.random.default_rng(seed).uniform(1, 2, L)
    more = dict(shard_size=SHARD, transforms_arrays=arrays, resume=True, names=names)
    more["calibration"] = Calibration(scale, -scale, scale > 1.5)
    with ShardWriter(directory, meta, **more) as writer:
        for label in writer.missing().tolist():
            size, rng = label * 7 % 12, np.random.default_rng([seed, label])
            indices = np.sort(rng.choice(D, size, replace=False)).astype(np.int32)
            values = rng.standard_normal(size).astype(np.float32)
            status = 5 if label == 4 else 1
            writer.add(label, indices, values, float(rng.standard_normal()), status, label, label)


def _read(directory: Path, verify: str, *, partial: bool) -> tuple:
    """All that a model says."""
    model = LinearModel.load(directory, verify=verify, partial=partial)
    if model.n_labels > 10**6 or model.n_features > 10**6:
        return ("too large to look at",)
    weights = model.coef()
    starts = range(0, model.n_labels, 5)
    blocks = [part for low in starts for part in model.dense_block(low, min(low + 5, model.n_labels))]
    transforms = model.transforms()
    X = transforms.apply(sp.csr_matrix(np.eye(3, model.n_features, dtype=np.float32)))
    arrays = [weights.data, weights.indices, weights.indptr, *blocks, model.intercept()]
    arrays += [*predict_topk(model, X, 3), scores_above(model, X).toarray()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)  # of an index of another model, which is not used
        arrays += Predictor(model).predict_topk(X, 3)
    calibration = model.calibration()
    if calibration is not None:
        arrays += [calibration.slope, calibration.offset, calibration.shared]
        if not (np.isfinite(calibration.offset).all() and (calibration.slope > 0).all()):
            raise Wrong("a calibration that is not one")
    arrays += [model.status, model.newton_steps, model.cg_steps, *model.transforms_arrays().values()]
    if not np.isfinite(weights.data).all() or not np.isfinite(model.intercept()).all():
        raise Wrong("weights that are not finite")
    weights.check_format(full_check=True)
    names = model.names()
    named = () if names.classes is None else tuple(names.classes.tolist())
    sizes = (model.n_labels, model.n_features, model.label_range)
    return (*sizes, transforms.names, named, names.features, *arrays)


def _same(one: tuple, two: tuple) -> bool:
    return len(one) == len(two) and all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def case(context: _Context, rng: np.random.Generator) -> str:
    files = dict(context.model)
    kind = KINDS[rng.integers(len(KINDS))]
    shards = sorted(name for name in files if name.startswith("shard"))
    name = sorted(files)[rng.integers(len(files))]
    with_hashes = kind in ("manifest", "shard", "index")
    match kind:
        case "flip":
            files[name] = flipped(files[name], rng, int(rng.integers(1, 4)))
        case "cut or longer":
            size = int(rng.integers(len(files[name])))
            files[name] = files[name][:size] if rng.integers(2) else files[name] + rng.bytes(1 + size % 50)
        case "missing":
            del files[name]
        case "swapped":
            one, two = rng.choice(shards, 2, replace=False)
            files[one], files[two] = files[two], files[one]
        case "mixed":
            name = [n for n in sorted(files) if n != "manifest.json"][rng.integers(len(files) - 1)]
            files[name] = context.other[name]
        case "manifest":
            content = json.loads(files["manifest.json"])
            for _ in range(int(rng.integers(1, 3))):
                spoil(content, rng)
            files["manifest.json"] = signed(content)
        case "shard":
            name = [n for n in sorted(files) if n not in ("manifest.json", INDEX)][
                rng.integers(len(files) - 2)
            ]
            damage = _spoiled_names if name == "names.json" else spoiled
            files[name] = damage(files[name], rng)
            content = json.loads(files["manifest.json"])
            for entry in (*content["shards"], *(content[key] for key in BESIDE)):
                if entry["file"] == name:
                    entry |= {"bytes": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}
            files["manifest.json"] = signed(content)
        case "index":
            files[INDEX] = _signed_index(spoiled(files[INDEX], rng))
    directory = context.folder / "case"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for file, content in files.items():
        (directory / file).write_bytes(content)
    if kind == "odd file":
        make_odd(directory / name, context.folder, context.other[name], rng)
    resumed = not rng.integers(4)
    verify, partial = VERIFY[rng.integers(4)], bool(rng.integers(2))
    what = f"{kind}, resumed" if resumed else f"{kind}, {verify}"
    try:
        if resumed:
            _write(directory, 0)
            verify, partial = "full", False
        found = _read(directory, verify, partial=partial)
    except ModelError as error:
        if "\n" in str(error) or len(str(error)) > 1000:
            raise Wrong(f"{what}: the message is no sentence: {str(error)[:300]}") from error
        return f"{what}: refused"
    except OSError as error:
        # what is not there or leads nowhere, and whoever resumes what has no manifest
        if not str(error.filename or error).startswith(str(directory)):
            raise Wrong(f"{what}: {type(error).__name__} without the file: {error}") from error
        return f"{what}: refused by the file system"
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"{what}: {type(error).__name__}: {str(error)[:300]}") from error
    if _same(found, context.parts):
        return f"{what}: the same model"
    if with_hashes:
        return f"{what}: the model that was signed"
    if verify in ("full", "lazy"):
        raise Wrong(f"{what}: another model without a word")
    return f"{what}: another model, as documented"


def make_odd(path: Path, folder: Path, other: bytes, rng: np.random.Generator) -> None:
    """Something that is no file, or a link, in place of a file; `other` is the content of another one."""
    content = path.read_bytes()
    path.unlink()
    match int(rng.integers(5)):
        case 0:
            path.mkdir()
        case 1:
            os.mkfifo(path)
        case 2:
            path.symlink_to("/dev/zero")
        case 3:
            path.symlink_to(path.name)
        case 4:  # the same content, or that of another model, in another place
            (folder / "elsewhere").write_bytes(content if rng.integers(2) else other)
            path.symlink_to("../elsewhere")


def spoil(value: Any, rng: np.random.Generator) -> None:
    """Changes one member somewhere in a JSON value."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = keys[rng.integers(len(keys))]
        inner = value[key]
        if isinstance(inner, (dict, list)) and inner and rng.integers(4):
            value = inner
            continue
        match int(rng.integers(6)):
            case 0:
                del value[key]
            case 1 if isinstance(value, list):
                value.append(copy.deepcopy(inner))
            case 2 if isinstance(inner, int):
                value[key] = inner + int(rng.integers(-2, 3))
            case _:
                value[key] = copy.deepcopy(_HOSTILE[rng.integers(len(_HOSTILE))])
        return


def _spoiled_names(content: bytes, rng: np.random.Generator) -> bytes:
    if rng.integers(2):
        return mutated(content, rng, content)
    names = json.loads(content)
    spoil(names, rng)
    return json.dumps(names).encode()


def signed(content: Any) -> bytes:
    """The manifest with the right hash."""
    if isinstance(content, dict):
        content.pop("manifest_sha256", None)
    body = json.dumps(content, indent=1, sort_keys=True).encode()
    head = body[:-2] + b',\n "manifest_sha256": "'
    return head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n'


def _signed_index(content: bytes) -> bytes:
    """The index with the right hashes, as far as it still is one."""
    size = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + size])
        data = bytearray(content[8 + size :])
        spans = {n: slice(*one["data_offsets"]) for n, one in header.items() if n != "__metadata__"}
        # the model is so small that it has one block
        data[spans["hashes"]] = hashlib.sha256(data[spans["values"]] + data[spans["labels"]]).digest()
        head = b"".join(data[spans[name]] for name in ("indptr", "bias", "hashes"))
        header["__metadata__"]["head_sha256"] = hashlib.sha256(head).hexdigest()
        text = json.dumps(header).encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return content
    text += b" " * (size - len(text))
    return len(text).to_bytes(8, "little") + text + bytes(data)


def spoiled(content: bytes, rng: np.random.Generator) -> bytes:
    """A safetensors file with other bytes, another header, or other numbers in an array."""
    size = int.from_bytes(content[:8], "little")
    way = int(rng.integers(4))
    if way == 0:
        return mutated(content, rng, content)
    header = json.loads(content[8 : 8 + size])
    if way == 1:
        spoil(header, rng)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[8 + size :]
    names = sorted(name for name in header if name != "__metadata__")
    begin, end = header[names[rng.integers(len(names))]]["data_offsets"]
    data = bytearray(content[8 + size :])
    for _ in range(int(rng.integers(1, 4))):
        if end - begin >= 8:
            place = begin + 4 * int(rng.integers((end - begin) // 4 - 1))
            number = (2**31 - 1, -(2**31), -1, 0, 1, D, 2**62, -(2**63), 127, -128)[rng.integers(10)]
            width = 8 if rng.integers(2) else 4
            data[place : place + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")
    return content[: 8 + size] + bytes(data)


if __name__ == "__main__":
    sys.exit(main(__spec__))
