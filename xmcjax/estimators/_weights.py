"""Weights of classes, and what they and those of rows make of the losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from xmcjax._arguments import number
from xmcjax.estimators._targets import Targets

BALANCED = "balanced"


def check_class_weight(value) -> None:
    """Checks that `value` is None, "balanced" or a dict of finite numbers from 0.

    Raises:
        ValueError: another text, or another number.
        TypeError: of another kind.
    """
    expected = "class_weight: expected None, balanced or a dict"
    if value is None or (isinstance(value, str) and value == BALANCED):
        return
    if isinstance(value, str):
        raise ValueError(f"{expected}, got {value!r}")
    if not isinstance(value, Mapping):
        raise TypeError(f"{expected}, got {value!r}")
    for key, weight in value.items():
        if not 0 <= number(f"class_weight of {key!r}", weight) < np.inf:
            raise ValueError(
                f"class_weight: expected finite weights of at least 0, found {weight} for {key!r}"
            )


def _no_class(key) -> ValueError:
    return ValueError(f"class_weight: expected classes of y, found {key!r}")


def class_weights(
    class_weight: Any,
    classes: np.ndarray,
    numbers: np.ndarray,
    sample_weight: np.ndarray | None,
    refusal: Callable[[Any], ValueError] = _no_class,
) -> np.ndarray:
    """v, float64 [K].

    Args:
        class_weight: None for ones; "balanced" for n / (K n_k), rows counted with their weights and classes
            where they have any; or a dict from classes to weights, 1 where it lacks one.
        classes: [K].
        numbers: of the class of each row, [n].
        sample_weight: s ≥ 0, [n], or None.
        refusal: key of the dict that is none of `classes` -> the error that says so.

    Raises:
        ValueError, TypeError: as :func:`check_class_weight`; classes that y has not, where the dict lacks
            some that it has.
    """
    check_class_weight(class_weight)
    weights = np.ones(len(classes))
    if class_weight is None:
        return weights
    if isinstance(class_weight, str):
        counts = np.bincount(numbers, sample_weight, minlength=len(classes)).astype(np.float64)
        there = counts > 0
        weights[there] = counts.sum() / (np.count_nonzero(there) * counts[there])
        return weights
    given = {key.item() if isinstance(key, np.generic) else key: v for key, v in class_weight.items()}
    known = [kind for kind in classes.tolist() if kind in given]
    # as in scikit-learn: keys that are no classes are refused only where the dict lacks a class, too
    if len(known) < min(len(given), len(classes)):
        raise refusal(next(key for key in given if key not in known))
    for i, kind in enumerate(classes.tolist()):
        weights[i] = given.get(kind, 1.0)
    return weights


def row_weights(
    class_weight: Any,
    classes: np.ndarray,
    numbers: np.ndarray,
    sample_weight: np.ndarray | None,
    refusal: Callable[[Any], ValueError] = _no_class,
) -> np.ndarray | None:
    """s_i v_{y_i}, float64 [n]; None where all are 1.

    Args:
        class_weight, classes, numbers, sample_weight, refusal: of :func:`class_weights`.

    Raises:
        ValueError, TypeError: as there; fewer than two classes in rows of weight above 0.
    """
    if class_weight is None and sample_weight is None:
        return None
    weights = class_weights(class_weight, classes, numbers, sample_weight, refusal)[numbers]
    if sample_weight is not None:
        weights = weights * sample_weight
    if np.all(weights == 1):
        return None
    if len(np.unique(numbers[weights > 0])) < 2:
        raise ValueError("class_weight: expected two classes with weights above 0 at least, found fewer")
    return weights


def label_weights(class_weight: Any, problems: Targets, sample_weight: np.ndarray | None):
    """Weights of the losses of binary problems, a :class:`xmcjax.lanes.LabelWeights`, or None for ones.

    The weight of a class is that of its rows in its own problem, or, of two classes, in the problem that they
    share; the weight of a label is that of the rows that have it.

    Args:
        class_weight: None; "balanced", of label matrices label by label; or a dict, of classes or numbers of
            labels.
        problems: of y.
        sample_weight: s ≥ 0, [n], or None.

    Raises:
        ValueError, TypeError: as :func:`class_weights`; a weight of 0, numbers that are no labels.
    """
    from xmcjax.lanes import LabelWeights, balanced_weights

    check_class_weight(class_weight)
    if class_weight is None:
        return None
    if not isinstance(class_weight, str):
        wrong = [key for key, weight in class_weight.items() if weight == 0]
        if wrong:
            raise ValueError(f"class_weight: expected weights above 0, found 0 for {wrong[0]!r}")
    Y, classes = problems.Y, problems.classes
    if problems.form == "classes":
        binary = len(classes) == 2
        numbers = Y.toarray()[:, 0].astype(np.int64) if binary else Y.indices
        v = class_weights(class_weight, classes, numbers, sample_weight)
        return LabelWeights(v[1:], v[:1]) if binary else LabelWeights(v, np.ones(len(v)))
    if isinstance(class_weight, str):
        return balanced_weights(Y, sample_weight)
    positive, labels = np.ones(len(classes)), set(range(len(classes)))
    for key, weight in class_weight.items():
        whole = isinstance(key, Integral) and not isinstance(key, bool)
        if not whole or key not in labels:
            raise ValueError(f"class_weight: expected labels 0 … {len(classes) - 1}, found {key!r}")
        positive[int(key)] = weight
    return LabelWeights(positive, np.ones(len(classes)))


def check_products(C: float, weight: np.ndarray, dtype) -> None:
    """Checks that the numbers of the solver can hold the weights C r_i of the losses of rows.

    Args:
        C: above 0.
        weight: r ≥ 0 of all rows of X, sample weight times class weight, [n]; 0 for rows that are left out.
        dtype: of X.

    Raises:
        ValueError: they overflow, or vanish; the sentence names the first row.
    """
    low, high = np.finfo(dtype).tiny, np.finfo(dtype).max
    with np.errstate(over="ignore", under="ignore"):
        products = C * weight
    wrong = np.flatnonzero((weight > 0) & ~((products >= low) & (products <= high)))
    if wrong.size:
        raise ValueError(
            f"sample_weight, class_weight: expected weights of rows whose product with C is from {low:.3g} "
            f"to {high:.3g}, the range of {np.dtype(dtype)}, found {weight[wrong[0]]:.3g} times C = {C:g} "
            f"for row {wrong[0]} of X"
        )


def check_label_products(C: float, of_labels: Any, sample_weight: np.ndarray | None, dtype) -> None:
    """:func:`check_products` for binary problems: the extreme products of C with both kinds of weights.

    Args:
        C, dtype: of :func:`check_products`.
        of_labels: of :func:`label_weights`, or None.
        sample_weight: s ≥ 0, [n], or None.

    Raises:
        ValueError: one is outside the range of the dtype.
    """
    factors = [np.ones(1)] if sample_weight is None else [sample_weight[sample_weight > 0]]
    if of_labels is not None:
        factors.append(np.concatenate([np.ravel(of_labels.positive), np.ravel(of_labels.negative)]))
    low, high = np.finfo(dtype).tiny, np.finfo(dtype).max
    with np.errstate(over="ignore", under="ignore"):
        products = C * np.array([np.prod([f.min() for f in factors]), np.prod([f.max() for f in factors])])
    wrong = products[~((products >= low) & (products <= high))]
    if wrong.size:
        raise ValueError(
            f"sample_weight, class_weight: expected weights whose product with C is from {low:.3g} to "
            f"{high:.3g}, the range of {np.dtype(dtype)}, found {wrong[0]:.3g} with C = {C:g}"
        )
