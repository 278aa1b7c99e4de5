"""Every reader of a file that is no model on damaged files; see harness.py for how to run it."""

from __future__ import annotations

import functools
import gzip
import importlib.util
import json
import lzma
import resource
import shutil
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tests.attack._mutation import flipped, mutated
from tests.attack.harness import Wrong, main
from tests.support.internals import cli_config, cli_runs, multinomial_checkpoint
from xmcjax.cli.inspect import read_vocabulary
from xmcjax.data import (
    DataFormatError,
    load_arrow,
    load_demo,
    load_labels,
    load_matrix,
    load_npy,
    load_npz,
    load_pairs,
    load_parquet,
    load_pieces,
    load_scipy_npz,
    load_svmlight,
    load_xmc,
    save,
    save_matrix,
    save_npz,
    save_svmlight,
    save_xmc,
)
from xmcjax.models import ModelFormatError, import_model, read_predictions, write_predictions
from xmcjax.native import load_library

PURPOSE = (
    "Damaged files of data, predictions, runs and states: no crash, hang, bare error or much memory; C++ and "
    "Python agree; no flip is silent"
)
# Address space beyond that of the process before its first case: small files are promised to take 64 MB.
MEMORY = 300 << 20


def _read_runs(path: Path) -> tuple:
    return tuple(json.dumps(run) for run in cli_runs.read_runs(path))


def _read_options(path: Path) -> tuple:
    return tuple(f"{name} = {value!r}" for name, value in cli_config.read_options(path).items())


def _read_vocabulary(path: Path) -> tuple:
    return tuple(read_vocabulary(path, 5))


def _read_state(path: Path) -> tuple:
    names = [f"{i}_0" for i in range(len(multinomial_checkpoint.State._fields))]
    return (*multinomial_checkpoint._head(path), *multinomial_checkpoint._arrays(path, names))


def _alone(load, **fixed):
    """A reader of one matrix, under its own name, which gives a tuple."""

    @functools.wraps(load)
    def read(path: Path, **options) -> tuple:
        found = load(path, **fixed, **options)
        return found if isinstance(found, tuple) else (found,)

    return read


def _imported(format: str, path: Path, **options) -> tuple:
    """Weights and biases of a foreign model, which is stored beside the file."""
    directory = path.with_name("imported")
    shutil.rmtree(directory, ignore_errors=True)
    model = import_model(path, directory, format, **options)
    return model.coef(), model.intercept()


def _dismec_weights(kind: str, path: Path) -> tuple:
    """A model of dismecpp whose file of weights is the one that was damaged."""
    beside = path.with_name("whole.json")
    entry = {"first": 0, "count": 9, "file": path.name, "weight-format": kind}
    beside.write_text(json.dumps({"num-features": 40, "num-labels": 9, "files": [entry]}))
    return _imported("dismec", beside, bias=1)


# How a reader may be asked to read.
_CALLS = {
    "xmc": (load_xmc, ({}, {"dtype": np.float64})),
    "svmlight": (load_svmlight, ({}, {"n_features": 40}, {"zero_based": True, "dtype": np.float64})),
    "multilabel": (
        load_svmlight,
        ({"multilabel": True}, {"multilabel": True, "n_labels": 9, "n_features": 60, "first_label": 1}),
    ),
    "npz": (load_npz, ({}, {"dtype": np.float64})),
    "predictions": (read_predictions, ({},)),
    "runs": (_read_runs, ({},)),
    "options": (_read_options, ({},)),
    "vocabulary": (_read_vocabulary, ({},)),
    "pairs": (load_pairs, ({"n_rows": 9, "n_labels": 30},)),
    "state": (_read_state, ({},)),
    "matrix": (_alone(load_matrix), ({}, {"dtype": np.float64}, {"one_based": True})),
    "scipy": (_alone(load_scipy_npz), ({}, {"dtype": np.float32}, {"zeros": True})),
    "npy": (_alone(load_npy), ({}, {"dtype": np.float64})),
    "npy labels": (_alone(load_labels), ({"format": "npy"},)),
    "jsonl": (_alone(read_predictions, format="jsonl"), ({},)),
    "scores": (_alone(read_predictions, format="npz"), ({},)),
    "liblinear": (functools.partial(_imported, "liblinear"), ({},)),
    "dismec": (functools.partial(_imported, "dismec"), ({}, {"bias": 1.0})),
    "dismec dense": (functools.partial(_dismec_weights, "DenseTXT"), ({},)),
    "dismec sparse": (functools.partial(_dismec_weights, "SparseTXT"), ({},)),
    "dismec npy": (functools.partial(_dismec_weights, "DenseNPY"), ({},)),
    "parquet": (load_parquet, ({}, {"n_features": 40, "n_labels": 9})),
    "arrow": (load_arrow, ({}, {"n_features": 40, "n_labels": 9})),
}
_OF_MODELS = ("liblinear", "dismec", "dismec dense", "dismec sparse", "dismec npy")
# Those that two parsers read.
_PARSED = ("xmc", "svmlight", "multilabel", "matrix")
# Of each kind that is read in pieces: its format, and options with which a piece is read as the whole is.
_PIECES = {
    "xmc": ("xmc", {}),
    "svmlight": ("svmlight", {"n_features": 40}),
    "multilabel": ("svmlight", {"n_labels": 9}),
    "parquet": ("parquet", {"n_features": 40, "n_labels": 9}),
    "arrow": ("arrow", {"n_features": 40, "n_labels": 9}),
}


class _Seed(NamedTuple):
    """A good file: what reads it, how its bytes are packed, and the bytes before that."""

    kind: str
    suffix: str
    content: bytes


class _Context(NamedTuple):
    folder: Path
    seeds: list[_Seed]
    parsers: list[str]


def prepare(folder: Path) -> _Context:
    demo = load_demo()
    X, Y = demo.X_test[:30], demo.Y_test[:30]
    frequent = np.argsort(-X.getnnz(axis=0), kind="stable")[:40]
    X = sp.csr_matrix(X[:, frequent])
    used = np.unique(Y.indices)
    Y = sp.csr_matrix(Y[:, used])
    classes = Y.indices.astype(np.int64)
    seeds = []
    save_xmc(folder / "a", X, Y)
    save_svmlight(folder / "b", X, classes)
    save_svmlight(folder / "c", X, Y, first_label=1)
    for kind, name in (("xmc", "a"), ("svmlight", "b"), ("multilabel", "c")):
        text = (folder / name).read_bytes()
        seeds += [_Seed(kind, suffix, text) for suffix in ("", "", ".gz", ".xz")]
    for compressed in (False, True):
        for labels in (Y, classes):
            save_npz(folder / "d.npz", X, labels, compressed=compressed)
            seeds.append(_Seed("npz", ".npz", (folder / "d.npz").read_bytes()))
    rng = np.random.default_rng(0)
    scores = -np.sort(-rng.standard_normal((30, 5)), axis=1).astype(np.float32)
    write_predictions(folder / "e", rng.permuted(np.tile(np.arange(9), (30, 1)), axis=1)[:, :5], scores)
    seeds.append(_Seed("predictions", "", (folder / "e").read_bytes()))
    records = [{"command": "train", "options": {"C": 1.0, "labels": None}, "nodes": []}] * 2
    seeds.append(_Seed("runs", "", json.dumps(records, indent=1).encode()))
    seeds.append(_Seed("pairs", "", b"0 3\n1\t29\r\n\n8  0\n"))
    text = 'C = 0.5\nloss = "logistic"\nfit_intercept = false\nk = [1, 3]\n[table]\nx = 1979-05-27\n'
    seeds.append(_Seed("options", "", text.encode()))
    seeds.append(_Seed("vocabulary", "", "one\ntwo\nthrée\nfour\nfive\n".encode()))
    arrays = {f"{i}_0": np.arange(i) for i in range(len(multinomial_checkpoint.State._fields))}
    arrays[f"{multinomial_checkpoint.State._fields.index('steps')}_0"] = np.array(3)
    header = json.dumps({"mark": "0" * 64, "method": "newton"}).encode()
    np.savez(folder / "f.npz", header=np.frombuffer(header, np.uint8), **arrays)
    seeds.append(_Seed("state", ".npz", (folder / "f.npz").read_bytes()))
    seeds += _separate(folder, X, Y, classes, scores)
    _limit_memory()
    parsers = ["python"] if load_library() is None else ["native", "python"]
    return _Context(folder, seeds, parsers)


def _separate(folder: Path, X, Y, classes: np.ndarray, scores: np.ndarray) -> list[_Seed]:
    """Good files that hold one matrix, a model of another program, or predictions in other forms."""

    def add(kind: str, suffix: str, content: bytes | None = None) -> None:
        seeds.append(_Seed(kind, suffix, (folder / "g").read_bytes() if content is None else content))

    seeds: list[_Seed] = []
    save_matrix(folder / "g", X)
    for suffix in ("", ".gz", ".xz"):
        add("matrix", suffix)
    for format in ("csr", "csc", "coo"):
        for compressed in (True, False):
            sp.save_npz(folder / "g.npz", X.asformat(format), compressed)
            add("scipy", ".npz", (folder / "g.npz").read_bytes())
    for kind, array in (
        *(("npy", X.toarray()), ("npy", np.asfortranarray(X.toarray(), np.float64))),
        *(("npy labels", classes), ("npy labels", Y.toarray().astype(np.int8))),
    ):
        np.save(folder / "g.npy", array)
        add(kind, "", (folder / "g.npy").read_bytes())
    best = np.argsort(-scores, axis=1, kind="stable")
    for kind, format in (("jsonl", "jsonl"), ("scores", "npz")):
        write_predictions(folder / "g", best, scores, format)
        add(kind, ".npz" if kind == "scores" else "")
    W = np.round(np.random.default_rng(1).standard_normal((9, 40)) * (np.arange(40) % 3 > 0), 3)
    for classes_, rows, solver in ((np.arange(9) - 4, W, "MCSVM_CS"), (np.array([1, -1]), W[:1], "L2R_LR")):
        lines = [
            f"solver_type {solver}",
            f"nr_class {len(classes_)}",
            f"label {' '.join(map(str, classes_))}",
        ]
        lines += ["nr_feature 39", "bias 1", "w", *(" ".join(map(str, row)) + " " for row in rows.T)]
        add("liblinear", "", ("\n".join(lines) + "\n").encode())
    texts = {
        "dismec dense": "".join(" ".join(map(str, row)) + "\n" for row in W),
        "dismec sparse": "".join("".join(f"{j}:{v} " for j, v in enumerate(row) if v) + "\n" for row in W),
    }
    for kind, text in texts.items():
        add(kind, "", text.encode())
    np.save(folder / "g.npy", W.astype(np.float32))
    add("dismec npy", "", (folder / "g.npy").read_bytes())
    (folder / "w0").write_text(texts["dismec dense"])
    (folder / "w1").write_text(texts["dismec sparse"])
    files = [
        {"first": 9 * i, "count": 9, "file": f"w{i}", "weight-format": format}
        for i, format in enumerate(("DenseTXT", "SparseTXT"))
    ]
    content = {"num-features": 40, "num-labels": 18, "date": "2022-09-28", "files": files}
    add("dismec", "", json.dumps(content, indent=4).encode())
    if importlib.util.find_spec("pyarrow") is not None:
        import pyarrow

        # each of its threads takes address space, of which little is left below
        pyarrow.set_cpu_count(1)
        pyarrow.set_io_thread_count(1)
        for kind in ("parquet", "arrow"):
            for features in (X, X.toarray()):
                for labels in (Y, classes):
                    save(folder / "g", features, labels, kind)
                    add(kind, "")
    return seeds


def _limit_memory() -> None:
    """Leaves this process so much more memory than it has."""
    pages = Path("/proc/self/statm")
    if pages.exists():
        size = int(pages.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _packed(content: bytes, suffix: str, rng: np.random.Generator) -> bytes:
    """In one part or two, with and without padding."""
    if suffix not in (".gz", ".xz"):
        return content
    cut = int(rng.integers(len(content) + 1)) if rng.integers(2) else len(content)
    padding = bytes(4 * int(rng.integers(3)))
    if suffix == ".gz":
        level = int(rng.integers(10))
        parts = [gzip.compress(part, level, mtime=0) for part in (content[:cut], content[cut:])]
    else:
        check = (lzma.CHECK_CRC32, lzma.CHECK_CRC64, lzma.CHECK_SHA256)[rng.integers(3)]
        parts = [lzma.compress(part, check=check, preset=0) for part in (content[:cut], content[cut:])]
    return padding.join(parts if cut < len(content) else parts[:1])


def case(context: _Context, rng: np.random.Generator) -> str:
    seed = context.seeds[rng.integers(len(context.seeds))]
    other = context.seeds[rng.integers(len(context.seeds))]
    read, choices = _CALLS[seed.kind]
    options = choices[rng.integers(len(choices))]
    path = context.folder / f"case{seed.suffix}"
    checked = seed.suffix != ""  # its format has checksums
    way = int(rng.integers(3))
    if checked and way == 0:
        what = "flip of a checked file"
        whole = _packed(seed.content, seed.suffix, rng)
        content = flipped(whole, rng, int(rng.integers(1, 3)))
    elif seed.suffix in (".gz", ".xz") and way == 1:
        what = "archive of a damaged text"
        content = _packed(mutated(seed.content, rng, other.content), seed.suffix, rng)
    else:
        what = f"damaged {seed.kind}{seed.suffix}"
        content = mutated(_packed(seed.content, seed.suffix, rng), rng, other.content)
    path.write_bytes(content)
    parsers = context.parsers if seed.kind in _PARSED else [None]
    results = [_result(read, path, options, parser) for parser in parsers]
    if any(not _same(result, results[0]) for result in results[1:]):
        raise Wrong(f"{what}: {' and '.join(f'{p}: {r}' for p, r in zip(parsers, results, strict=True))}")
    if seed.kind in _PIECES and not rng.integers(4):
        _check_pieces(seed.kind, path, options, parsers[rng.integers(len(parsers))], results[0], what)
    if isinstance(results[0], str):
        return f"{what}: refused"
    _check(seed.kind, results[0], what)
    if what.startswith("flip"):
        path.write_bytes(whole)
        if not _same(_result(read, path, options, parsers[0]), results[0]):
            raise Wrong(f"{what}: other data without a word")
    return f"{what}: fine"


def _check_pieces(kind: str, path: Path, options: dict, parser: str | None, whole, what: str) -> None:
    """Whether a file that is read in pieces is the one that is read at once, or refused as that is."""
    format, needed = _PIECES[kind]
    if not set(needed) <= set(options):
        return

    def read(path, **options):
        parts = list(load_pieces(path, format, piece=800, **options))
        labels = [part.y for part in parts]
        stacked = sp.vstack(labels, "csr") if sp.issparse(labels[0]) else np.concatenate(labels)
        features = [part.X for part in parts]
        return sp.vstack(features, "csr") if sp.issparse(features[0]) else np.vstack(features), stacked

    found = _result(read, path, options, parser)
    if isinstance(found, str) or isinstance(whole, str):
        if type(found) is not type(whole):
            raise Wrong(f"{what}: in pieces {found!r:.300}, at once {whole!r:.300}")
    elif any(
        a.shape != b.shape or (a != b).sum() or a.dtype != b.dtype for a, b in zip(found, whole, strict=True)
    ):
        raise Wrong(f"{what}: other data in pieces than at once")


def _result(read, path: Path, options: dict, parser: str | None):
    """What a reader gives, or the text of its error; anything but a sentence about the file is wrong."""
    more = {} if parser is None else {"parser": parser}
    try:
        return read(path, **options, **more)
    except (DataFormatError, ModelFormatError) as error:
        about = str(path), str(path.with_name("w"))  # or a file of weights that a damaged list of them names
        if "\n" in str(error) or not str(error).startswith(about) or len(str(error)) > 1000:
            raise Wrong(f"the message is no sentence about the file: {error}") from error
        return str(error)
    except (
        *(OSError, ValueError, TypeError, LookupError, ArithmeticError, EOFError, zlib.error),
        *(MemoryError, RuntimeError),
    ) as error:
        if read is _read_state and str(error).startswith(f"{path}: expected the state of a run"):
            return str(error)
        raise Wrong(f"{parser or ''} {type(error).__name__}: {error}") from error


def _same(one, two) -> bool:
    if isinstance(one, str) or isinstance(two, str):
        return isinstance(one, str) and one == two
    return all(_same_array(a, b) for a, b in zip(one, two, strict=True))


def _same_array(a, b) -> bool:
    if isinstance(a, str | int):
        return a == b
    if not sp.issparse(a):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return a.shape == b.shape and all(
        getattr(a, name).dtype == getattr(b, name).dtype
        and np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("data", "indices", "indptr")
    )


def _check(kind: str, result, what: str) -> None:
    """Whether data that were read are data."""
    if kind in ("runs", "state", "options", "vocabulary"):
        return
    if kind == "npy labels":
        (y,) = result
        wrong = sp.issparse(y) and (y.data != 1).any()
        if wrong or (not sp.issparse(y) and (y.dtype != np.int64 or y.ndim != 1)):
            raise Wrong(f"{what}: labels that are none")
        return
    if kind == "npy":
        if not np.isfinite(result[0]).all() or result[0].ndim != 2:
            raise Wrong(f"{what}: no finite features")
        return
    if kind in _OF_MODELS:
        coef, bias = result
        coef.check_format(full_check=True)
        if not (np.isfinite(coef.data).all() and np.isfinite(bias).all()) or len(bias) != coef.shape[0]:
            raise Wrong(f"{what}: weights that are not finite, or too few biases")
        return
    if kind == "pairs":
        if (result < 0).any() or (result >= [9, 30]).any():
            raise Wrong(f"{what}: pairs out of range")
        return
    if kind in ("predictions", "jsonl", "scores"):
        labels, scores = result
        stored = labels >= 0
        order = np.where(stored, scores, -np.inf)
        if not np.isfinite(scores[stored]).all() or (order[:, 1:] > order[:, :-1]).any():
            raise Wrong(f"{what}: scores that are not finite or rise")
        return
    first, second = result[0], result[-1]
    matrices = [part for part in result if sp.issparse(part)]
    for matrix in matrices:
        matrix.check_format(full_check=True)
        entries = np.repeat(
            np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr.astype(np.int64))
        )
        places = entries * max(matrix.shape[1], 1) + matrix.indices
        if (places[1:] <= places[:-1]).any() or not np.isfinite(matrix.data).all():
            raise Wrong(f"{what}: unsorted or repeated entries, or values that are not finite")
    if (second.shape[0] if sp.issparse(second) else second.size) != first.shape[0]:
        raise Wrong(f"{what}: labels of another number of rows")


if __name__ == "__main__":
    sys.exit(main(__spec__))
