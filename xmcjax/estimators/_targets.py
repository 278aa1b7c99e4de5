"""The forms of y that classifiers take, and the one that solvers take."""

from __future__ import annotations

import datetime
import numbers
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from xmcjax import _sparse
from xmcjax._arguments import kind_of, of_one_dtype


class Targets(NamedTuple):
    """Binary problems made of y."""

    Y: sp.csr_array  #: [n, m], a stored non-zero is a positive row of the problem
    classes: np.ndarray  #: of a class vector, ascending; numbers of the labels of a matrix
    form: Literal["classes", "dense", "sparse"]  #: of y, and so of predictions

    @property
    def counts(self) -> np.ndarray:
        """Rows of each problem that are positive, [m]."""
        return np.bincount(self.Y.indices[self.Y.data != 0], minlength=self.Y.shape[1])


def targets(y, sample_weight: np.ndarray | None = None) -> Targets:
    """One problem for each label or class; for two classes one, with the second as positive.

    Args:
        y: class vector [n] or label matrix [n, L], as :func:`sklearn.utils.validation.check_array`
            gives it.
        sample_weight: ≥ 0, [n]: a class needs a row of weight above 0 to count as present.

    Raises:
        ValueError: numbers that are neither classes nor labels, or fewer than two classes.
    """
    if sp.issparse(y):
        _refuse(y.data[y.data < 0])
        return Targets(sp.csr_array(y), np.arange(y.shape[1]), "sparse")
    if y.ndim == 2 and y.shape[1] > 1:
        check_classification_targets(y)
        if type_of_target(y, input_name="y") != "multilabel-indicator":
            wrong = y[(y != 0) & (y != 1)]
            found = wrong[0] if wrong.size else "other values"
            raise ValueError(f"expected a class vector or a matrix of 0 and 1 as y, found {found}")
        _refuse(y[(y != 0) & (y != 1)])
        return Targets(sp.csr_array(y), np.arange(y.shape[1]), "dense")
    return _of_classes(*class_numbers(y, sample_weight))


def more_targets(y, classes, sample_weight: np.ndarray | None, before: np.ndarray | None) -> Targets:
    """As :func:`targets`, with classes or labels beside those of y.

    Args:
        y, sample_weight: of :func:`targets`.
        classes: of a class vector further classes; of a label matrix the numbers of its columns; or None.
        before: classes or labels that a classifier has already, ascending; None for none.

    Raises:
        ValueError: as there; `classes` of several kinds, or a missing one; classes of y that are neither in
            `classes`, where that is given, nor in `before`; fewer columns than labels before.
        TypeError: numbers or truth values among texts, or one among the other.
    """
    if classes is not None:
        classes = _sparse.array(classes, "classes")
        if classes.ndim != 1:
            raise ValueError(f"classes: expected a vector of classes, found shape {list(classes.shape)}")
        if classes.dtype == object:
            refuse_kinds(classes, "classes", "place")
    if sp.issparse(y) or (y.ndim == 2 and y.shape[1] > 1):
        problems = targets(y, sample_weight)
        count = problems.Y.shape[1]
        if before is not None and count < len(before):
            raise ValueError(f"y: expected the {len(before)} labels that are there and more, found {count}")
        if classes is not None and not np.array_equal(classes, np.arange(count)):
            raise ValueError(f"classes: expected None or 0 … {count - 1}, the columns of y, found others")
        return problems
    if classes is None and before is None:
        return targets(y, sample_weight)
    found, number = class_numbers(y, sample_weight)
    parts = [part for part in (before, classes) if part is not None]
    if classes is not None and not len(classes):
        raise ValueError("classes: expected None or the classes that there are or will be, found none")
    for part in parts:
        if part.dtype.kind == "f" and not np.isfinite(part).all():
            raise ValueError(f"classes: expected finite numbers, found {part[~np.isfinite(part)][0]}")
    if len(set(map(kind_of, (*parts, found)))) > 1:
        raise TypeError(
            f"y: expected classes such as {parts[0][:1].tolist()[0]!r}, found {found.tolist()[0]!r}"
        )
    found, *parts = of_one_dtype(found, *parts)
    known = np.unique(np.concatenate(parts))
    foreign = found[~np.isin(found, known)]
    if classes is not None and foreign.size:
        raise ValueError(f"y: expected classes that are in classes, found {foreign.tolist()[0]!r}")
    known = np.unique(np.concatenate([known, found]))
    number = np.searchsorted(known, found)[number]
    return _of_classes(known, number)


def _of_classes(classes: np.ndarray, number: np.ndarray) -> Targets:
    n = len(number)
    if len(classes) == 2:
        return Targets(sp.csr_array((number == 1)[:, None]), classes, "classes")
    entries = np.ones(n, np.int8), (np.arange(n), number)
    return Targets(sp.csr_array(entries, shape=(n, len(classes))), classes, "classes")


def class_numbers(y, sample_weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The classes of a class vector, ascending, and the number of each row's among them.

    Raises:
        ValueError: y of two dimensions, numbers that are no classes, or fewer than two classes (in rows of
            weight above 0).
    """
    y = column_or_1d(y, warn=True)
    counted = _counted(y)
    if counted is not None:
        classes, number = counted
    else:
        classes, number = np.unique(y, return_inverse=True)
        # each class twice: where most classes have one row, as is usual here, the check warns of regression
        check_classification_targets(np.repeat(classes, 2))
    present = number if sample_weight is None else number[sample_weight > 0]
    if np.count_nonzero(np.bincount(present)) < 2:
        raise ValueError("y: expected at least two classes, found one class")
    return classes, number


def _counted(y: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """What ``np.unique`` makes of whole numbers, without sorting them; None where they are far apart."""
    if y.dtype.kind not in "iu" or not len(y):
        return None
    low, high = int(y.min()), int(y.max())
    if high - low > len(y):
        return None
    wide = np.uint64 if y.dtype.kind == "u" else np.int64
    place = (y.astype(wide) - wide(low)).astype(np.intp, copy=False)
    there = np.bincount(place) > 0
    classes = np.flatnonzero(there)
    if len(classes) < len(there):
        place = (np.cumsum(there) - 1)[place]
    return (classes.astype(wide) + wide(low)).astype(y.dtype), place


def refuse_kinds(classes: np.ndarray, name: str, place: str) -> None:
    """ValueError where classes that are objects, [n], are of several kinds, or one is missing or no class.

    Args:
        classes: numbers, truth values or texts, if they are right.
        name: of the argument.
        place: what the number of a class says: "row" or "place".
    """
    if set(map(type, classes)) <= {str}:
        return
    kinds = [kind_of_object(value) for value in classes]
    wrong = next((i for i, kind in enumerate(kinds) if kind is None or kind != kinds[0]), None)
    if wrong is None:
        return
    value, kind = classes[wrong], kinds[wrong]
    found = f"{value!r} in {place} {wrong}"
    # a date that is missing equals nothing, itself included
    if isinstance(value, (datetime.date, np.datetime64)) and value == value:
        remedy = f"give numpy.array({name}, 'datetime64[us]')"
        raise ValueError(f"{name}: expected dates of NumPy, found {found}: {remedy}")
    beside = "" if kind is None else f" beside {kinds[0]}"
    raise ValueError(f"{name}: expected classes that are all numbers or all texts, found {found}{beside}")


def kind_of_object(value) -> str | None:
    """What a class that is an object is; None where it is missing, or neither a number nor a text."""
    if isinstance(value, str):
        return "texts"
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, (bool, np.bool_)):
        return "truth values"
    return "numbers" if isinstance(value, numbers.Real) and value == value else None


def _refuse(values: np.ndarray) -> None:
    if values.size:
        raise ValueError(f"expected a matrix of 0 and 1 as y, found {values[0]}")
