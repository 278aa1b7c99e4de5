"""Real data sets for experiments: a folder that ``XMCJAX_DATA`` names, or shared/data beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import datasets
from xmcjax.data import fit_transforms
from xmcjax.datasets import make_power_law

ROOT = Path(__file__).resolve().parent.parent
# The most training images per class of the silhouettes.
MOST_PER_CLASS = 100

# The transforms with which a set is usually trained.
TRANSFORMS = {
    "naics_demo": "log,idf,unit",
    "stackexchange_tags": "log,idf,unit",
    "delicious": "unit",
    "bibtex": "unit",
    "rcv1_subset1": "unit",
}


class NoDataError(FileNotFoundError):
    """There is no folder of data sets, and none was named."""


class Split(NamedTuple):
    """Transformed features and labels of the two parts."""

    X: sp.csr_matrix
    Y: sp.csr_matrix
    X_test: sp.csr_matrix
    Y_test: sp.csr_matrix


def folder() -> Path:
    """The folder of the data sets. Raises NoDataError if there is none, FileNotFoundError if the named one is
    missing.
    """
    named = os.environ.get("XMCJAX_DATA")
    path = ROOT.parent / "shared" / "data" if named is None else Path(named)
    if not path.is_dir():
        kind = NoDataError if named is None else FileNotFoundError
        raise kind(f"{path}: expected a folder of data sets; set XMCJAX_DATA")
    return path


def fetch(name: str) -> datasets.Fetched:
    """A set of :mod:`xmcjax.datasets`, from the folder of the data sets if it is there.

    Raises:
        FileNotFoundError: it is neither there nor to be fetched, so that a study goes on without it.
        ValueError: the files have another shape or checksum.
    """
    path = Path(os.environ.get("XMCJAX_DATA", ROOT.parent / "shared" / "data"))
    try:
        return datasets.fetch(name, folder=path)
    except OSError as error:
        raise FileNotFoundError(str(error)) from error


def load_split(name: str) -> Split:
    """A multi-label set by name; "naics_demo" comes with the package, "power_law" is made.

    Args:
        name: of ``TRANSFORMS``, or "power_law": 100,000 rows of 80 non-zeros, 50,000 features, and a seeded
            sample of 200 of the 20,000 labels.
    """
    if name == "power_law":
        X, Y, X_test, Y_test = power_law(100_000, 10_000, 50_000, 20_000, nonzeros_per_row=80)
        used = np.flatnonzero(np.asarray(Y.sum(axis=0)).ravel())
        labels = np.sort(np.random.default_rng(0).choice(used, 200, replace=False))
        parts, transforms = (X, Y[:, labels], X_test, Y_test[:, labels]), "log,idf,unit"
    else:
        parts, transforms = fetch(name)[:4], TRANSFORMS[name]
    return transformed(Split(*parts), transforms)


def power_law(rows: int, test_rows: int, features: int, labels: int, **options) -> Split:
    """A synthetic set of :func:`xmcjax.data.make_power_law`, whose options it takes, as it is drawn."""
    X, Y = make_power_law(rows + test_rows, features, labels, seed=0, **options)
    return Split(X[:rows], Y[:rows], X[rows:], Y[rows:])


def transformed(split: Split, transforms: str) -> Split:
    """The split after transforms, which are fitted on the training part."""
    fitted = fit_transforms(transforms, split.X)
    return split._replace(X=fitted.apply(split.X), X_test=fitted.apply(split.X_test))


class ClassSplit(NamedTuple):
    """Features and classes 0 … m−1 of three parts; every class occurs in the training part."""

    X: sp.csr_matrix | np.ndarray
    y: np.ndarray
    X_valid: sp.csr_matrix | np.ndarray
    y_valid: np.ndarray
    X_test: sp.csr_matrix | np.ndarray
    y_test: np.ndarray


def load_classes(name: str) -> ClassSplit:
    """A multi-class set by name.

    Args:
        name: of ``CLASS_SETS``.
    """
    return CLASS_SETS[name]()


def padded(X) -> tuple[np.ndarray | None, np.ndarray]:
    """Indices (None for a dense X) and values of the non-zeros of each row, padded with zeros."""
    if not sp.issparse(X):
        return None, np.asarray(X)
    X = X.tocsr()
    lengths = np.diff(X.indptr)
    place = np.arange(max(int(lengths.max()), 1)) < lengths[:, None]
    indices, values = np.zeros(place.shape, np.int32), np.zeros(place.shape, X.dtype)
    indices[place], values[place] = X.indices, X.data
    return indices, values


def _silhouettes() -> ClassSplit:
    """Caltech 101 Silhouettes, 4,100 / 2,264 / 2,307 images of 28 x 28 pixels, 0 or 1, unscaled."""
    found = fetch("caltech101_silhouettes")
    return ClassSplit(
        *(found.X_train, found.Y_train - 1, found.X_valid, found.Y_valid - 1, found.X_test, found.Y_test - 1)
    )


def _silhouettes_by_class() -> ClassSplit:
    """The silhouettes, split so that each part has probably as many images per class as the official split.

    The official file is missing here, but the sizes of its parts are known, and one rule gives exactly these
    sizes: of each class three fifths, rounded up and at most 100, are for training, half of the rest, rounded
    down, for validation, and the remaining images for the test. Which images these are is drawn at random.
    """
    found = fetch("caltech101_silhouettes")
    X = np.concatenate([found.X_train, found.X_valid, found.X_test])
    y = np.concatenate([found.Y_train, found.Y_valid, found.Y_test]) - 1
    rng, parts = np.random.default_rng(0), ([], [], [])
    for c in range(int(y.max()) + 1):
        rows = rng.permutation(np.flatnonzero(y == c))
        train = min(-(-3 * len(rows) // 5), MOST_PER_CLASS)
        valid = train + (len(rows) - train) // 2
        for part, those in zip(parts, np.split(rows, [train, valid]), strict=True):
            part.append(those)
    rows = [np.sort(np.concatenate(part)) for part in parts]
    return ClassSplit(*(array[part] for part in rows for array in (X, y)))


def _clinc150() -> ClassSplit:
    """CLINC-150, the official parts without the questions that are out of scope: log, idf, unit rows."""
    found = fetch("clinc150")
    fitted, classes = fit_transforms("log,idf,unit", found.X_train), np.unique(found.Y_train)
    pairs = ((found.X_train, found.Y_train), (found.X_valid, found.Y_valid), (found.X_test, found.Y_test))
    return ClassSplit(*(part for X, y in pairs for part in (fitted.apply(X), np.searchsorted(classes, y))))


def _digits() -> ClassSplit:
    """scikit-learn's 1,797 digits of 8 x 8 pixels, rows of norm 1, a third each."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    third = np.random.default_rng(0).permutation(len(y)) % 3
    return ClassSplit(*(a[third == part] for part in range(3) for a in (X, y)))


CLASS_SETS = {
    "caltech101_silhouettes": _silhouettes,
    "caltech101_silhouettes_by_class": _silhouettes_by_class,
    "clinc150": _clinc150,
    "digits": _digits,
}
