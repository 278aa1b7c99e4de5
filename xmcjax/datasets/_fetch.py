"""A data set by its name: from a folder, from the cache, or from its publisher."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xmcjax.data import load_demo
from xmcjax.datasets._download import cache, check, download, without_pooch
from xmcjax.datasets._readers import Parts, ask_for, fetched, local, refuse_some
from xmcjax.datasets._registry import SETS, DataSet


class Fetched(NamedTuple):
    """A data set.

    Attributes:
        X_train: features [n, d], CSR or an array, float32, as the source has them: counts of words are
            not yet transformed (:func:`xmcjax.data.fit_transforms`).
        Y_train: labels, CSR [n, L] of ones; or the class of each row, [n] of whole numbers as the files have
            them.
        X_test: features of the test part.
        Y_test: labels or classes of the test part.
        X_valid: features of the validation part; None where there is none.
        Y_valid: labels or classes of the validation part; None where there is none.
        info: name, shape, licence and source.

    Example:
        >>> from xmcjax import datasets
        >>> demo = datasets.fetch("naics_demo")
        >>> demo.X_train.shape[0] == demo.info.n_train, demo.X_valid is None
        (True, True)
    """

    X_train: Any
    Y_train: Any
    X_test: Any
    Y_test: Any
    X_valid: Any
    Y_valid: Any
    info: DataSet


def fetch(name: str, *, folder: str | os.PathLike[str] | None = None) -> Fetched:
    """A data set by name: a local copy where there is one, or the publisher's files, checked and kept.

    These places are searched in this order:

    1. the folder `folder`/`name`, with the files train.txt and test.txt (XMC), or train.libsvm and
       test.libsvm, plain, .gz or .xz, or those that the publisher has; usps is the file usps.npz, and
       caltech101_silhouettes are caltech101_silhouettes_28.mat and split.txt, which are not packed. A folder
       with only some of these files is refused, and nothing is written there;
    2. the cache of this user (``pooch.os_cache("xmcjax")``), and the publisher's address. A file appears in
       the cache when its checksum is right: a download that ends early leaves nothing. Licence and source are
       then printed to the standard error. This needs pooch (``pip install "xmcjax[datasets]"``).

    The package knows the SHA-256 of most files. Archives of the Extreme Classification Repository are first
    compared with the SHA-1 in the Internet Archive's listing; their SHA-256 is then kept in SHA256SUMS beside
    each file of the cache that is read, and compared from then on. Copies of these archives in
    `folder`/`name` are compared with a SHA256SUMS there, in the form of sha256sum, if there is one.

    Args:
        name: of :func:`names`.
        folder: searched first; None for the one that the environment variable XMCJAX_DATA names.

    Raises:
        TypeError: `folder` is no path.
        ValueError: no such data set, another checksum, or files of another shape.
        DataFormatError: a file that does not follow its format.
        FileNotFoundError: a local copy lacks a file; or there is no local copy, and the set has no address or
            pooch is not installed.
        OSError: no answer of the publisher; the message says where the file may be put by hand.

    Example:
        >>> from xmcjax import datasets
        >>> demo = datasets.fetch("naics_demo")
        >>> demo.X_train.shape, demo.Y_train.shape, demo.info.licence
        ((16108, 8216), (16108, 1055), 'public domain')
    """
    if not isinstance(name, str) or name not in SETS:
        raise ValueError(f"name: expected a data set of {', '.join(SETS)}, got {name!r}")
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder: expected a path, got {folder!r}")
    found = SETS[name]
    if found.layout == "package":
        return _checked(found, Parts(*load_demo()[:4]), Path())
    given = folder if folder is not None else os.environ.get("XMCJAX_DATA")
    kept = cache()
    for root in (given, kept):
        if root:
            ours = kept is not None and os.path.realpath(root) == os.path.realpath(kept)
            parts = _in(found, Path(root) / name, given=not ours)
            if parts is not None:
                return _checked(found, parts, Path(root) / name)
    if not found.files:
        home = Path(given) / name if given else f"a folder {name} of the folder that XMCJAX_DATA names"
        raise FileNotFoundError(
            f"{name}: expected {ask_for(found)} in {home}, found none; no public address with a checksum is "
            f"known ({found.source})"
        )
    if kept is None:
        raise without_pooch(found)
    paths = [download(found, file, kept / name) for file in found.files]
    print(f"{name}: licence {found.licence}; from {found.source}", file=sys.stderr)
    return _checked(found, fetched(found, paths), kept / name)


def _in(found: DataSet, place: Path, *, given: bool) -> Parts | None:
    """The parts in a folder, in the package's layout or as published.

    In a folder that the caller gave no file is replaced or added, and a missing file is an error.
    """
    own = local(found, place)
    if own is not None:
        for path in own[1] if found.reader == "pecos" else ():
            check(path, keep=not given)
        return own[0]
    paths = [place / file.name for file in found.files]
    if not paths or not all(os.path.lexists(path) for path in paths):
        if given:
            refuse_some(found, place)
        return None
    for path, file in zip(paths, found.files, strict=True):
        if given:
            check(path, file.sha256)
        else:
            download(found, file, place)
    return fetched(found, paths)


def _checked(found: DataSet, parts: Parts, place: Path) -> Fetched:
    """The data set, after a check that its shapes are the known ones and that each row has labels."""
    labels = parts.Y_train.shape[1] if found.kind == "labels" else len(np.unique(parts.Y_train))
    shape = (labels, parts.X_train.shape[0], parts.X_test.shape[0])
    known = [(found.n_labels, found.n_train, found.n_test), *found.variants]
    if shape not in known:
        expected = " or ".join(map(str, known))
        raise ValueError(f"{place}: expected labels, rows and test rows {expected}, found {shape}")
    if found.kind == "labels" and parts.Y_test.shape[1] != labels:
        raise ValueError(f"{place}: expected {labels} labels, found {parts.Y_test.shape[1]} of the test rows")
    for part, X, Y in zip(("training", "test", "validation"), parts[::2], parts[1::2], strict=True):
        if X is not None and X.shape[0] != Y.shape[0]:
            raise ValueError(
                f"{place}: expected labels of the {X.shape[0]} {part} rows, found those of {Y.shape[0]}"
            )
    d, d_test = parts.X_train.shape[1], parts.X_test.shape[1]
    expected = found.n_features or d
    if not d == d_test == expected:
        raise ValueError(f"{place}: expected {expected} features, found {d} and {d_test}")
    return Fetched(*parts, found)
