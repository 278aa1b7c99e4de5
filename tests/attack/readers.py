"""Every reader of data on damaged files; see harness.py for how to run it."""

from __future__ import annotations

import gzip
import lzma
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tests.attack._mutation import flipped, mutated
from tests.attack.harness import Wrong, main
from xmcjax.data import (
    DataFormatError,
    load_demo,
    load_npz,
    load_svmlight,
    load_xmc,
    save_npz,
    save_svmlight,
    save_xmc,
)
from xmcjax.data._text_native import library
from xmcjax.models import read_predictions, write_predictions

PURPOSE = (
    "Damaged data and prediction files: no crash, hang or bare error; C++ and Python agree; no flip is silent"
)

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
    parsers = ["python"] if library() is None else ["native", "python"]
    return _Context(folder, seeds, parsers)


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
    parsers = context.parsers if seed.kind in ("xmc", "svmlight", "multilabel") else [None]
    results = [_result(read, path, options, parser) for parser in parsers]
    if any(not _same(result, results[0]) for result in results[1:]):
        raise Wrong(f"{what}: {' and '.join(f'{p}: {r}' for p, r in zip(parsers, results, strict=True))}")
    if isinstance(results[0], str):
        return f"{what}: refused"
    _check(seed.kind, results[0], what)
    if what.startswith("flip"):
        path.write_bytes(whole)
        if not _same(_result(read, path, options, parsers[0]), results[0]):
            raise Wrong(f"{what}: other data without a word")
    return f"{what}: fine"


def _result(read, path: Path, options: dict, parser: str | None):
    """What a reader gives, or the text of its error; anything but a DataFormatError is wrong."""
    more = {} if parser is None else {"parser": parser}
    try:
        return read(path, **options, **more)
    except DataFormatError as error:
        if "\n" in str(error) or not str(error).startswith(str(path)) or len(str(error)) > 1000:
            raise Wrong(f"the message is no sentence about the file: {error}") from error
        return str(error)
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, EOFError, zlib.error) as error:
        raise Wrong(f"{parser or ''} {type(error).__name__}: {error}") from error


def _same(one, two) -> bool:
    if isinstance(one, str) or isinstance(two, str):
        return isinstance(one, str) and one == two
    return all(_same_array(a, b) for a, b in zip(one, two, strict=True))


def _same_array(a, b) -> bool:
    if not sp.issparse(a):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return a.shape == b.shape and all(
        getattr(a, name).dtype == getattr(b, name).dtype
        and np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("data", "indices", "indptr")
    )


def _check(kind: str, result, what: str) -> None:
    """Whether data that were read are data."""
    first, second = result
    if kind == "predictions":
        labels, scores = first, second
        stored = labels >= 0
        order = np.where(stored, scores, -np.inf)
        if not np.isfinite(scores[stored]).all() or (order[:, 1:] > order[:, :-1]).any():
            raise Wrong(f"{what}: scores that are not finite or rise")
        return
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
