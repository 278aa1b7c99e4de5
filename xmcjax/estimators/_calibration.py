"""The option ``calibration`` of the estimators: probabilities of losses that know none."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import (
    RepeatedStratifiedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    check_cv,
)

from xmcjax._options import SHARED
from xmcjax.estimators._options import CALIBRATION
from xmcjax.estimators._targets import Targets
from xmcjax.estimators._weights import row_weights
from xmcjax.models import ArrayModel, Calibration, Calibrator, HeldOut, fit_temperature


def check(classifier: Any) -> bool:
    """Whether a fit makes a calibration.

    Raises:
        TypeError, ValueError: a calibration or a number of folds of another kind, or out of range.
    """
    SHARED["cv"].check(classifier.cv)
    option = CALIBRATION
    if classifier._system == "one-vs-all":
        from xmcjax.lanes import OPTIONS

        option = OPTIONS["calibration"]
    return option.check(classifier.calibration) is not None


def own_method(classifier: Any) -> str:
    """The method of a calibration that a fit of this classifier makes, whatever one it was loaded with."""
    return "sigmoid" if classifier._system == "one-vs-all" else "temperature"


_STRATIFIED = StratifiedKFold, StratifiedShuffleSplit, StratifiedGroupKFold, RepeatedStratifiedKFold
#: Rows to train on and rows to hold out.
Splits = list[tuple[np.ndarray, np.ndarray]]


def splits_of_one_vs_all(classifier: Any, X, problems: Targets, sample_weight, labels) -> Splits | None:
    """The folds, before anything is trained; None where there is to be no calibration.

    Args:
        classifier, X, problems, sample_weight, labels: of :func:`of_one_vs_all`.

    Raises:
        ValueError, TypeError: as :meth:`Calibrator.splits`; a splitter that does not fit.
    """
    if not check(classifier):
        return None
    kinds = None
    if problems.form == "classes":
        Y = problems.Y
        kinds = Y.argmax(axis=1) if Y.shape[1] > 1 else Y.toarray()[:, 0].astype(int)
    return Calibrator.splits(problems.Y, _given(classifier, X, kinds), labels, sample_weight)


def of_one_vs_all(
    classifier: Any, X, problems: Targets, options, sample_weight, labels, weights_of, splits: Splits | None
) -> Calibration | None:
    """The calibration of the binary problems of a one-vs-all classifier; None where it is to have none.

    Args:
        classifier: with the options of the calibration.
        X, problems, options, sample_weight: of its training.
        labels: that are trained, or None for all.
        weights_of: a function of problems and sample weights, which gives the weights of labels.
        splits: of :func:`splits_of_one_vs_all`.
    """
    if splits is None:
        return None
    from tqdm import tqdm

    from xmcjax.lanes import calibrate_one_vs_all, precision

    count = problems.Y.shape[1] if labels is None else len(labels)
    shown = SHARED["verbose"].check(classifier.verbose)
    bar = tqdm(
        total=len(splits) * count,
        unit="label",
        desc="calibration",
        disable=None if shown else True,
    )
    with bar, precision(X.dtype):
        return calibrate_one_vs_all(
            X,
            problems.Y,
            options,
            cv=splits,
            labels=labels,
            sample_weight=sample_weight,
            label_weights=lambda Y, weight: weights_of(problems._replace(Y=Y), weight),
            done=bar.update,
        )


def splits_of_classes(
    classifier: Any, X, classes: np.ndarray, numbers: np.ndarray, weight, fewest: int = 2
) -> Splits | None:
    """The folds, before anything is trained; None where there is to be no calibration.

    A fold is left out where too few classes remain without its rows, because it has all rows of one; then its
    rows have no scores.

    Args:
        classifier, X, classes, numbers, weight: of :func:`of_classes`.
        fewest: the fewest classes that a training takes.

    Raises:
        ValueError, TypeError: as :meth:`Calibrator.splits`; a splitter that does not fit; no fold is left.
    """
    if not check(classifier):
        return None
    entries = np.ones(len(numbers), bool), (np.arange(len(numbers)), numbers)
    Y = sp.csr_array(entries, shape=(len(numbers), len(classes)))
    splits = Calibrator.splits(Y, _given(classifier, X, numbers), None, weight)
    of_rows = row_weights(classifier.class_weight, classes, numbers, weight)
    kept, scored = [], False
    for train, rows in splits:
        there = np.unique(numbers[train if of_rows is None else train[of_rows[train] > 0]])
        if len(there) >= fewest:
            kept.append((train, rows))
            scored = scored or bool(np.isin(numbers[rows], there).any())
    if not scored:
        raise ValueError(
            f"calibration: expected {fewest} classes with rows beside those that a fold holds out, found "
            "fewer in every fold"
        )
    return kept


def of_classes(
    classifier: Any, X, classes: np.ndarray, numbers: np.ndarray, weight, splits: Splits | None
) -> Calibration | None:
    """The calibration of a classifier of all classes together; None where it is to have none.

    Args:
        classifier: with the options of the calibration and of the training.
        X: features, or inner products where the classifier is pairwise.
        classes: ascending, [K].
        numbers: of the class of each row, [n].
        weight: s ≥ 0, [n], or None.
        splits: of :func:`splits_of_classes`.

    Raises:
        ValueError: the training of a fold fails.

    Warns:
        ConvergenceWarning: where training does not converge in some of the folds.
    """
    if splits is None:
        return None
    parts, failed = [], 0
    # the deadline and the statistics of a command that runs this fit
    fold = classifier._checkpoint.of_a_fold() if hasattr(classifier, "_checkpoint") else None
    for number, (train, rows) in enumerate(splits):
        pairwise = classifier.__sklearn_tags__().input_tags.pairwise
        columns = train if pairwise else slice(None)
        part = clone(classifier).set_params(
            calibration=None, class_weight=_known(classifier.class_weight, classes[numbers[train]])
        )
        if fold is not None:
            fold.offer()
            part._checkpoint = fold
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                part.fit(
                    X[train][:, columns], classes[numbers[train]], None if weight is None else weight[train]
                )
            except ValueError as error:
                raise ValueError(f"calibration: without the rows of fold {number + 1}: {error}") from error
        failed += any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
        parts.append(HeldOut(rows, X[rows][:, columns], _of_all(part, classes)))
    if failed:
        warnings.warn(
            f"training did not converge in {failed} of {len(splits)} folds of the calibration: raise "
            "max_iter or tol, or lower C",
            ConvergenceWarning,
            stacklevel=4,  # the caller of a decorated method
        )
    return fit_temperature(parts, numbers, weight, threads=classifier._threads)


def _known(class_weight: Any, y: np.ndarray) -> Any:
    """Class weights without those of classes that y lacks, which a training would refuse."""
    if not isinstance(class_weight, Mapping):
        return class_weight
    there = set(np.unique(y).tolist())
    return {key: v for key, v in class_weight.items() if getattr(key, "item", lambda key=key: key)() in there}


def _of_all(part: Any, classes: np.ndarray) -> ArrayModel:
    """The weights of all classes, of which a classifier may lack some; of two classes those of the second."""
    coef, bias = part.coef_, part.intercept_
    if len(classes) == 2:
        return ArrayModel(coef, bias)
    if len(part.classes_) == 2:
        coef, bias = np.concatenate([-coef, coef]), np.concatenate([-bias, bias])
    places = np.searchsorted(classes, part.classes_)
    every, biases = np.zeros((len(classes), coef.shape[1]), coef.dtype), np.full(len(classes), -np.inf)
    every[places], biases[places] = coef, bias
    return ArrayModel(every, biases)


def extended(classifier: Any, problems: Targets, made: Calibration | None, new) -> Calibration | None:
    """The calibration of more problems than a fitted one-vs-all classifier has.

    Args:
        classifier: with the calibration of the earlier problems.
        problems: the earlier and the new problems.
        made: the calibration of the new problems, with places for all.
        new: the places of the new problems, or None for all.
    """
    if new is None or made is None:
        return made
    before, classes = classifier.calibration_, problems.classes
    if classifier._binary:
        before = Calibration.joined(before.opposite(), before)
    if problems.form == "classes" and len(classes) == 2:
        classes = classes[1:]
    place = {kind: i for i, kind in enumerate(classifier.classes_.tolist())}
    old = np.setdiff1d(np.arange(len(classes)), new)
    found = before.at(np.array([place[kind] for kind in classes[old].tolist()], np.int64))
    joined = found.placed(old, len(classes))
    for name in ("slope", "offset", "shared"):
        getattr(joined, name)[new] = getattr(made, name)[new]
    return joined


def check_alike(classifier: Any) -> None:
    """Checks that a fitted classifier has the calibration that further labels are to have.

    Raises:
        ValueError: it has another one, or none.
    """
    had = None if classifier.calibration_ is None else own_method(classifier)
    if had != classifier.calibration:
        raise ValueError(
            f"calibration: expected {had!r}, as in the fit of the weights that are there, got "
            f"{classifier.calibration!r}"
        )


def _given(classifier: Any, X, y) -> int | list:
    """The option cv as a number of folds, or as pairs of rows.

    Args:
        classifier: that has it.
        X: features.
        y: classes of the rows, or None.
    """
    cv = SHARED["cv"].check(classifier.cv)
    if isinstance(cv, int):
        return cv
    if y is None and isinstance(cv, _STRATIFIED):
        raise ValueError(
            f"cv: {type(cv).__name__} needs one class in each row, which a label matrix has not; KFold works"
        )
    return [tuple(pair) for pair in check_cv(cv, y, classifier=True).split(X, y)]
