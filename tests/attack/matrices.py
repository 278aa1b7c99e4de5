"""Random corruptions of sparse matrices of every format, given to every function that takes one.

Whether a corrupted matrix is still one is decided here by plain Python, entry by entry. See harness.py for
how to run it.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tests.attack.harness import Wrong, main
from tests.support.entries import Entry, entries

PURPOSE = (
    "malformed matrices are refused with a sentence by every function, and whole ones give the right result"
)
# Fits that are compiled anew for each number of entries take seconds.
SLOW = (
    *("KernelLogistic", "make X gpu", "make X jnp", ".fit X", "multiclass_problem", "kernels.points"),
    *("run X dense", "run X jnp"),
)
FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
OTHERS = (np.float32, np.float64, np.bool_, np.complex64, object)


def prepare(folder: Path) -> tuple[dict[str, Entry], dict[str, Any]]:
    """The functions, and the results for the valid matrix of those that were called."""
    warnings.simplefilter("ignore")
    table = entries(folder).items()
    return {name: entry for name, entry in table if not any(slow in name for slow in SLOW)}, {}


def case(context, rng: np.random.Generator) -> str:
    table, results = context
    name = str(rng.choice(sorted(table)))
    entry = table[name]
    clean = entry.valid()
    kind = sp.csr_array if rng.random() < 0.5 else sp.csr_matrix
    matrix = kind(clean).asformat(str(rng.choice(FORMATS)))
    changes = [change(matrix, rng) for _ in range(int(rng.integers(3)))]
    what = f"{name}, {matrix.format}, {'; '.join(changes) or 'as it was'}"
    found = meaning(matrix)
    try:
        result = entry.call(matrix)
    except (ValueError, TypeError) as error:
        said = str(error)
        # the last are scikit-learn's, which name the argument too
        if not re.search(r"\b(expected|must|is for values)\b|^Input [Xy] contains (NaN|infinity)", said):
            raise Wrong(f"{what}: a bare error, {type(error).__name__}: {said}") from error
        if found == meaning(clean) and matrix.dtype == clean.dtype:
            raise Wrong(f"{what}: a whole matrix is refused: {said}") from error
        return "refused"
    except Exception as error:
        raise Wrong(f"{what}: {type(error).__name__}: {error}") from error
    if found is None:
        raise Wrong(f"{what}: a malformed matrix is taken")
    if found != meaning(clean):
        return "fine: another matrix"
    if name not in results:
        results[name] = entry.call(entry.valid())
    if not same(result, results[name], matrix.dtype == clean.dtype):
        raise Wrong(f"{what}: another result than that of the clean matrix")
    return "fine"


def change(matrix, rng: np.random.Generator) -> str:
    """Changes an array of the matrix; returns how."""
    if matrix.format == "lil":
        lists = (matrix.rows if rng.random() < 0.7 else matrix.data)[int(rng.integers(matrix.shape[0]))]
        value = odd_number(rng, matrix.shape)
        if lists and rng.random() < 0.7:
            lists[int(rng.integers(len(lists)))] = value
        else:
            lists.append(value)
        return f"{value!r} in a list"
    if matrix.format == "dok":
        key = (odd_number(rng, matrix.shape), int(rng.integers(matrix.shape[1])))
        matrix._dict[key if rng.random() < 0.5 else key[::-1]] = matrix.dtype.type(1)
        return f"{key}"
    names = {"coo": ("rows", "columns", "data"), "dia": ("offsets", "data")}
    field = str(rng.choice(names.get(matrix.format, ("indices", "indptr", "data"))))
    axis = ("rows", "columns").index(field) if field in ("rows", "columns") else None
    before = getattr(matrix, field) if axis is None else matrix.coords[axis]
    after, how = before, "as it was"
    # what a first change made of the array may not allow a second one
    with contextlib.suppress(OverflowError, ValueError, TypeError, IndexError):
        after, how = other_array(before, rng, matrix.shape, whole=field != "data")
    if axis is None:
        with contextlib.suppress(AttributeError):
            setattr(matrix, field, after)
    else:
        matrix.coords = tuple(after if i == axis else a for i, a in enumerate(matrix.coords))
    return f"{field} {how}"


def odd_number(rng: np.random.Generator, shape) -> Any:
    numbers = [-1, 0, 1, *shape, shape[0] - 1, 127, 128, -128, 10**9]
    numbers += [2**31 - 1, -(2**31), 2**31, 2**32, 2**40]
    return [*numbers, 0.5, "a", None][int(rng.integers(len(numbers) + (3 if rng.random() < 0.1 else 0)))]


def other_array(array, rng: np.random.Generator, shape, whole: bool) -> tuple[np.ndarray, str]:
    match int(rng.integers(6)):
        case 0:  # a number or two that do not belong here
            array = array.copy()
            for _ in range(int(rng.integers(1, 4))):
                number = odd_number(rng, shape)
                with contextlib.suppress(ValueError, OverflowError, TypeError, IndexError):
                    array.flat[int(rng.integers(max(array.size, 1)))] = number
            return array, "with odd numbers"
        case 1:
            return array[: int(rng.integers(len(array) + 1))], "cut short"
        case 2:
            return np.concatenate([array, array[: int(rng.integers(1, 4))]]), "made longer"
        case 3:
            kinds = INTEGERS if whole else (np.float16, np.float32, np.float64, np.int32)
            kind = (
                kinds[int(rng.integers(len(kinds)))] if rng.random() < 0.7 else OTHERS[int(rng.integers(5))]
            )
            return array.astype(kind), f"of {np.dtype(kind)}"
        case 4 if whole and array.ndim == 1 and len(array) > 4:  # neighbours whose differences wrap around
            kind = INTEGERS[int(rng.integers(4))]
            array = array.astype(kind)
            array[1:4] = np.iinfo(kind).max, np.iinfo(kind).min, -1
            return array, f"wrapping around in {np.dtype(kind)}"
        case _:
            return array[None] if rng.random() < 0.3 else rng.permutation(array), "of another order or shape"


def meaning(matrix) -> dict[tuple[int, int], float] | None:
    """The entries by place; None where the matrix is malformed."""
    try:
        places, values = places_of(matrix)
        rows, columns = matrix.shape
        sums: dict[tuple[int, int], float] = {}
        for (i, j), value in zip(places, values, strict=True):
            if not (0 <= i < rows and 0 <= j < columns):
                return None
            sums[int(i), int(j)] = sums.get((int(i), int(j)), 0.0) + float(value)
    except Malformed:
        return None
    return {place: value for place, value in sums.items() if value}


class Malformed(Exception):
    pass


def require(condition) -> None:
    if not condition:
        raise Malformed


def numbers(array, ndim: int = 1) -> list:
    """Whole numbers of an array as Python has them, without a limit."""
    require(array.ndim == ndim and array.dtype.kind in "iu")
    return [int(a) for a in array]


def places_of(matrix) -> tuple[list, list]:
    form, (rows, columns) = matrix.format, matrix.shape
    if form == "lil":
        lists = list(zip(matrix.rows, matrix.data, strict=True))
        require(all(len(a) == len(b) for a, b in lists))
        require(all(isinstance(j, (int, np.integer)) for a, _ in lists for j in a))
        require(all(isinstance(v, (int, float, np.number)) for _, b in lists for v in b))
        places = [(i, j) for i, (a, _) in enumerate(lists) for j in a]
        return places, list(itertools.chain.from_iterable(b for _, b in lists))
    if form == "dok":
        require(all(isinstance(n, (int, np.integer)) for key in list(matrix.keys()) for n in key))
        return list(matrix.keys()), list(matrix.values())
    data = matrix.data
    require(data.dtype.kind in "biuf" and data.ndim == {"bsr": 3, "dia": 2}.get(form, 1))
    if form == "coo":
        i, j = (numbers(axis) for axis in matrix.coords)
        require(len(i) == len(j) == len(data))
        return list(zip(i, j, strict=True)), data.tolist()
    if form == "dia":
        offsets = numbers(matrix.offsets)
        require(len(offsets) == len(data) == len(set(offsets)))
        require(all(-rows < k < columns for k in offsets))
        places = [(j - k, j) for k in offsets for j in range(min(columns, data.shape[1]))]
        values = data[:, :columns].ravel().tolist()
        inside = [0 <= i < rows for i, _ in places]
        return list(itertools.compress(places, inside)), list(itertools.compress(values, inside))
    indptr, indices = numbers(matrix.indptr), numbers(matrix.indices)
    size = data.shape[1:] if form == "bsr" else (1, 1)
    require(min(size) > 0 and rows % size[0] == 0 and columns % size[1] == 0)
    major, minor = (columns, rows) if form == "csc" else (rows // size[0], columns // size[1])
    require(len(indptr) == major + 1 and len(indices) == len(data) and indptr[0] == 0)
    require(all(a <= b for a, b in itertools.pairwise(indptr)) and indptr[-1] <= len(data))
    places, values = [], []
    for line, (first, last) in enumerate(itertools.pairwise(indptr)):
        for at in range(first, last):
            require(0 <= indices[at] < minor)
            if form == "bsr":
                for r, c in itertools.product(*map(range, size)):
                    places.append((line * size[0] + r, indices[at] * size[1] + c))
                    values.append(data[at, r, c])
            else:
                places.append((indices[at], line) if form == "csc" else (line, indices[at]))
                values.append(data[at])
    return places, values


def same(ours, theirs, of_one_type: bool) -> bool:
    if isinstance(ours, (tuple, list)):
        if len(ours) == 2 and isinstance(ours[0], np.ndarray) and ours[0].shape == np.shape(ours[1]):
            start = int(ours[0].dtype.kind in "iu")  # of labels with their scores, a tie may fall either way
            ours, theirs = ours[start:], theirs[start:]
        return all(same(our, their, of_one_type) for our, their in zip(ours, theirs, strict=True))
    if isinstance(ours, (bytes, str)):
        return ours == theirs or not of_one_type  # files keep the type
    if ours is None:
        return theirs is None
    if sp.issparse(ours):
        ours, theirs = ours.toarray(), theirs.toarray()
    return bool(np.allclose(ours, theirs, 1e-5, 1e-5))


if __name__ == "__main__":
    sys.exit(main(__spec__))
