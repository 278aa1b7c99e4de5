"""The forms of y that classifiers take, and the one that solvers take."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d


class Targets(NamedTuple):
    """Binary problems made of y."""

    Y: sp.csr_array  #: [n, m], a stored non-zero is a positive row of the problem
    classes: np.ndarray  #: of a class vector, ascending; numbers of the labels of a matrix
    form: Literal["classes", "dense", "sparse"]  #: of y, and so of predictions


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
            raise ValueError("expected a class vector or a matrix of 0 and 1 as y, found other values")
        _refuse(y[(y != 0) & (y != 1)])
        return Targets(sp.csr_array(y), np.arange(y.shape[1]), "dense")
    classes, number = class_numbers(y, sample_weight)
    if len(classes) == 2:
        return Targets(sp.csr_array((number == 1)[:, None]), classes, "classes")
    entries = np.ones(len(y), np.int8), (np.arange(len(y)), number)
    return Targets(sp.csr_array(entries, shape=(len(y), len(classes))), classes, "classes")


def class_numbers(y, sample_weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The classes of a class vector, ascending, and the number of each row's among them.

    Raises:
        ValueError: y of two dimensions, numbers that are no classes, or fewer than two classes (in
            rows of weight above 0).
    """
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    classes, number = np.unique(y, return_inverse=True)
    present = number if sample_weight is None else number[sample_weight > 0]
    if len(np.unique(present)) < 2:
        raise ValueError("expected at least two classes in y, found one class")
    return classes, number


def _refuse(values: np.ndarray) -> None:
    if values.size:
        raise ValueError(f"expected a matrix of 0 and 1 as y, found {values[0]}")
