"""Readers that turn the files of a data set into its parts."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections import Counter
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax.data import DataFormatError, load_scipy_npz, load_svmlight, load_xmc
from xmcjax.datasets._arrays import npz_parts, silhouettes
from xmcjax.datasets._registry import DataSet

# The most bytes of a member of an archive: the features of Amazon-3M take a few GB.
_MOST_BYTES = 1 << 34
_ENDINGS = ("", ".gz", ".xz")
# Errors that tarfile is known to raise for a damaged file; its own OSErrors have no errno.
_OF_ARCHIVES = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError)


class Parts(NamedTuple):
    """Features and labels, or classes, of the parts; None where there is no validation part."""

    X_train: Any
    Y_train: Any
    X_test: Any
    Y_test: Any
    X_valid: Any = None
    Y_valid: Any = None


def _one_of(folder: Path, name: str, endings: tuple[str, ...] = _ENDINGS) -> Path | None:
    """The file, plain or compressed, or None. A dangling link counts as a file, so that reading it fails."""
    return next((folder / (name + end) for end in endings if os.path.lexists(folder / (name + end))), None)


def _wanted(found: DataSet) -> tuple[list[str], tuple[str, ...]]:
    """The names of the files of a local copy, and the endings that each name may have."""
    if found.layout == "silhouettes":
        return ["caltech101_silhouettes_28.mat", "split.txt"], ("",)
    if found.layout == "npz":
        return [f"{found.name}.npz"], ("",)
    ending = {"xmc": "txt", "svmlight": "libsvm"}[found.layout]
    return [f"train.{ending}", f"test.{ending}"], _ENDINGS


def _said(names: list[str], endings: tuple[str, ...]) -> str:
    return " and ".join(names) + (" (plain, .gz or .xz)" if endings == _ENDINGS else "")


def ask_for(found: DataSet) -> str:
    """The files of a local copy, for a sentence."""
    return _said(*_wanted(found))


def refuse_some(found: DataSet, folder: Path) -> None:
    """Raises FileNotFoundError if a folder has some files of a copy, ours or the publisher's, but not all."""
    for names, endings in (_wanted(found), ([file.name for file in found.files], ("",))):
        there = [path.name for name in names if (path := _one_of(folder, name))]
        missing = [name for name in names if not _one_of(folder, name, endings)]
        if there and missing:
            expected, alone = _said(missing, endings), " and ".join(there)
            raise FileNotFoundError(f"{folder}: expected {expected}, found {alone} alone")


def local(found: DataSet, folder: Path) -> tuple[Parts, list[Path]] | None:
    """The parts of a copy in the package's layout, and its files; None where some file is missing."""
    names, endings = _wanted(found)
    files = [path for name in names if (path := _one_of(folder, name, endings))]
    if len(files) < len(names):
        return None
    if found.layout == "xmc":
        return Parts(*load_xmc(files[0]), *load_xmc(files[1])), files
    if found.layout == "npz":
        return Parts(*npz_parts(files[0])), files
    if found.layout == "silhouettes":
        return Parts(*silhouettes(*files)), files
    X, y = load_svmlight(files[0])
    test = load_svmlight(files[1], n_features=X.shape[1])
    valid = _one_of(folder, "val.libsvm")
    more = load_svmlight(valid, n_features=X.shape[1]) if valid else (None, None)
    return Parts(X, y, *test, *more), files


def fetched(found: DataSet, paths: list[Path]) -> Parts:
    """The parts of the publisher's files."""
    if found.reader == "mulan":
        return Parts(*(matrix for path in paths for matrix in _mulan(path, found)))
    return _clinc(paths[0]) if found.reader == "clinc" else _pecos(paths[0])


def _mulan(path: Path, found: DataSet) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """X and Y of an ARFF file of sparse rows, ``{column 1,column 1,…}``; the last columns are the labels."""
    assert found.n_features is not None
    counts, columns = [], []
    inside = False
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not inside:
            inside = line.strip().lower() == "@data"
        elif line.strip():
            if not re.fullmatch(r"\{(\d+ 1(,\d+ 1)*)?\}", line.strip()):
                raise DataFormatError(path, number, None, "a row {column 1,column 1,…}", line)
            row = [int(word.split()[0]) for word in line.strip()[1:-1].split(",") if word]
            counts.append(len(row))
            columns += row
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    width = found.n_features + found.n_labels
    if columns and max(columns) >= width:
        raise DataFormatError(path, None, None, f"columns below {width}", str(max(columns)))
    both = sp.csr_matrix((np.ones(len(columns), np.float32), columns, offsets), (len(counts), width))
    both.sort_indices()
    return both[:, : found.n_features], both[:, found.n_features :]


def _clinc(path: Path) -> Parts:
    """Counts of the words, of two letters and more, of the training questions; classes by name, from 1."""
    try:
        stored = json.loads(path.read_text("utf-8"))
        parts = {name: [tuple(pair) for pair in stored[name]] for name in ("train", "test", "val")}
        words = {name: [re.findall("[a-z][a-z]+", t.lower()) for t, _ in parts[name]] for name in parts}
        column = {w: k for k, w in enumerate(sorted({w for row in words["train"] for w in row}))}
        place = {c: k for k, c in enumerate(sorted({c for _, c in parts["train"]}), 1)}
        classes = {name: np.array([place[c] for _, c in parts[name]], np.int64) for name in parts}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataFormatError(
            path, None, None, "JSON with [text, class] of train, test and val", str(error)
        ) from error

    def counted(rows: list[list[str]]) -> sp.csr_matrix:
        entries = [Counter(column[w] for w in row if w in column) for row in rows]
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in entries], dtype=np.int64)])
        pairs = [pair for row in entries for pair in sorted(row.items())]
        indices, values = [j for j, _ in pairs], np.array([v for _, v in pairs], np.float32)
        return sp.csr_matrix((values, indices, offsets), (len(rows), len(column)))

    return Parts(*(part for name in parts for part in (counted(words[name]), classes[name])))


def _pecos(archive: Path) -> Parts:
    """The parts of an archive of PECOS; only four members are read, each through a temporary file."""
    expected = "an archive .tar.gz of npz files"
    names = ("tfidf-attnxml/X.trn.npz", "Y.trn.npz", "tfidf-attnxml/X.tst.npz", "Y.tst.npz")
    found: dict[str, sp.csr_matrix] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                _, _, inner = member.name.partition(archive.name.removesuffix(".tar.gz") + "/")
                file = tar.extractfile(member) if inner in names and member.isfile() else None
                if file is not None:
                    if member.size > _MOST_BYTES:
                        text = f"at most {_MOST_BYTES >> 30} GiB of {member.name}"
                        raise DataFormatError(archive, None, None, text, f"{member.size >> 30} GiB")
                    found[inner] = _scipy_npz(file, archive, f"{expected}, {inner}:")
    except _OF_ARCHIVES as error:
        if isinstance(error, DataFormatError) or getattr(error, "errno", None) is not None:
            raise
        raise DataFormatError(archive, None, None, expected, str(error)) from error
    if len(found) < len(names):
        raise DataFormatError(archive, None, None, ", ".join(names), f"{len(found)} of them")
    return Parts(*(found[name] for name in names))


def _scipy_npz(file: IO[bytes], archive: Path, expected: str) -> sp.csr_matrix:
    """A member of an archive; errors about the member name the archive."""
    with tempfile.NamedTemporaryFile(suffix=".npz") as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        try:
            return load_scipy_npz(copy.name, np.float32)
        except DataFormatError as error:
            said = f"{expected} {error.expected}"
            raise DataFormatError(archive, None, None, said, error.found) from error
