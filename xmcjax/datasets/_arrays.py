"""Parts of the sets whose features are arrays: an npz file, and a MAT file beside a text that splits it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from xmcjax._finite import place_not_finite
from xmcjax.data import DataFormatError, check_seekable, open_npz
from xmcjax.datasets._mat import mat_arrays

_PARTS = ("train", "test", "val")


def npz_parts(path: Path) -> tuple[np.ndarray, ...]:
    """X_train, y_train, X_test and y_test; pickled objects are never read.

    Raises:
        DataFormatError: a damaged file, a missing member, or numbers of another kind or shape.
    """
    parts, held = [], 0
    with open_npz(path) as stored:
        for part in _PARTS[:2]:
            for read, letter, ndim, size in ((_features, "X", 2, 4), (_classes, "y", 1, 8)):
                name = f"{letter}_{part}"
                array = stored.member(name, "biuf", ndim)
                held += array.nbytes + size * array.size
                stored.check_memory(held, f"members up to {name}, and as float32 and int64")
                parts.append(read(path, name, array))
    return tuple(parts)


def silhouettes(images: Path, split: Path) -> tuple[np.ndarray, ...]:
    """X and y of the three parts: 28 x 28 pixels, 0 or 1, as in the file; classes from 1.

    Args:
        images: a MAT file with X [n, d] and Y [1, n].
        split: a text file with train, test or val for each image.

    Raises:
        DataFormatError: a damaged file, other numbers, or a split of other images.
    """
    for path in (images, split):
        check_seekable(path, "it is read at once")
    X, y = mat_arrays(images, ("X", "Y"))
    X, y = _features(images, "X", X), _classes(images, "Y", y.ravel())
    if len(y) != len(X):
        raise DataFormatError(images, None, None, f"classes of {len(X)} images in Y", str(len(y)))
    words = split.read_text("utf-8", "backslashreplace").split()
    if len(words) != len(X):
        raise DataFormatError(split, None, None, f"a word for each of {len(X)} images", f"{len(words)} words")
    other = [word for word in words if word not in _PARTS]
    missing = [part for part in _PARTS if part not in words]
    if other or missing:
        found = repr(other[0][:40]) if other else f"no {missing[0]!r}"
        raise DataFormatError(split, None, None, f"the words {', '.join(_PARTS)}", found)
    return tuple(a[np.array(words) == part] for part in _PARTS for a in (X, y))


def _features(path: Path, name: str, X: np.ndarray) -> np.ndarray:
    """Finite float32 [n, d]."""
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise DataFormatError(path, None, None, f"real numbers [n, d] in {name}", _form(X))
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        cast = X.astype(np.float32, copy=False)
    place = place_not_finite(cast)
    if place is not None:
        row, column, value = place
        found = f"{value} in row {row + 1}, column {column}"
        raise DataFormatError(path, None, None, f"finite float32 numbers in {name}", found)
    return cast


def _classes(path: Path, name: str, y: np.ndarray) -> np.ndarray:
    """Whole numbers, int64 [n]."""
    if y.dtype.kind not in "iuf":
        raise DataFormatError(path, None, None, f"classes, whole numbers, in {name}", _form(y))
    if y.dtype.kind == "f":  # NaN fails the comparisons; 2^63 is a float64, because float16 cannot hold it
        whole = (np.abs(y) < np.float64(2**63)) & (y == np.floor(y))
    else:
        whole = y <= np.iinfo(np.int64).max
    wrong = np.flatnonzero(~whole)
    if wrong.size:
        found = f"{y[wrong[0]]} in row {wrong[0] + 1}"
        raise DataFormatError(path, None, None, f"classes, whole numbers, in {name}", found)
    return y.astype(np.int64, copy=False)


def _form(array: np.ndarray) -> str:
    return f"{list(array.shape)} of {array.dtype}"
