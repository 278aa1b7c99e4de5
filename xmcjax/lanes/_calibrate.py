"""Calibration of one-vs-all scores: weights that are trained without a fold's rows score these rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._one_vs_all import train_one_vs_all
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._results import LabelResult
from xmcjax.lanes._training_data import check_labels, check_sample_weight
from xmcjax.models import ArrayModel, Calibration, Calibrator, HeldOut, is_trained

# Labels that are trained in all folds and then scored before the next ones: only their weights are kept.
_AT_ONCE = 512


def calibrate_one_vs_all(
    X,
    Y,
    options: OneVsAll,
    *,
    cv: int | Sequence[tuple[np.ndarray, np.ndarray]] = 5,
    labels: np.ndarray | None = None,
    sample_weight: np.ndarray | None = None,
    label_weights: Callable[[sp.csr_array, np.ndarray | None], LabelWeights | None] | None = None,
    may_go_on: Callable[[], bool] | None = None,
    done: Callable[[], object] | None = None,
) -> Calibration | None:
    """Platt's scaling of one-vs-all labels, by weights that are trained without each fold of the rows.

    Memory is that of X, of the weights of 512 labels in each fold, and of some scores; see
    :class:`xmcjax.models.Calibrator` for what is fitted, and :meth:`xmcjax.models.Calibrator.folds` for the
    folds.

    Args:
        X, Y, options, sample_weight: of :func:`train_one_vs_all`. Rows of weight 0 are left out.
        cv: folds, from 2 to the number of rows; or pairs of the rows to train on and those to hold out.
        labels: numbers of the labels; None for all.
        label_weights: a function from the labels of a fold's training rows, CSR, and their sample weights to
            `label_weights` of :func:`train_one_vs_all`; None for ones. The calibration itself ignores them.
        may_go_on: asked before each label is begun, or, where the init takes labels in the order of a tree,
            before each fold only; after the first no, nothing is calibrated.
        done: called when a label has been trained in a fold.

    Returns:
        The calibration of all L labels, which leaves scores of labels outside `labels` as they are; None
        where `may_go_on` said no.

    Raises:
        ValueError, TypeError: as :func:`train_one_vs_all`; another number of folds; no label that has rows in
            two folds.

    Example:
        >>> from xmcjax.data import make_power_law
        >>> X, Y = make_power_law(200, 50, 5)
        >>> calibrate_one_vs_all(X, Y, OneVsAll(), cv=2).slope.shape
        (5,)
    """
    X, Y = _sparse.matrix(X), _sparse.matrix(Y, "Y")
    if X.ndim != 2 or Y.ndim != 2 or X.shape[0] != Y.shape[0]:
        found = f"shapes {list(X.shape)} and {list(Y.shape)}"
        raise ValueError(f"expected features X [n, d] and labels Y [n, L], found {found}")
    Y = sp.csr_array(Y)
    weight = None if sample_weight is None else check_sample_weight(sample_weight, X.shape[0])
    count = Y.shape[1]
    labels = np.arange(count) if labels is None else check_labels(labels, count)
    splits = Calibrator.splits(Y, cv, labels, weight)
    calibrator = Calibrator(count, weight, threads=options.threads)
    size = len(labels) if options.init.tree else _AT_ONCE
    asked = _Asked(may_go_on)
    for begin in range(0, len(labels), max(1, size)):
        some = np.sort(labels[begin : begin + size])
        parts = []
        for train, rows in splits:
            # the labels of a tree are begun together, so the question is asked between folds
            if options.init.tree and not asked(-1):
                return None
            Y_train, w = Y[train], None if weight is None else weight[train]
            more: dict[str, Any] = dict(sample_weight=w, labels=_largest_first(Y_train, some))
            if label_weights is not None:
                more["label_weights"] = label_weights(Y_train, w)
            if may_go_on is not None and not options.init.tree:
                more["may_begin"] = asked
            kept_weights = _Kept(some, X.shape[1], done)
            train_one_vs_all(X[train], Y_train, options, kept_weights, **more)
            if not asked.yes:
                return None
            parts.append(HeldOut(rows, X[rows], kept_weights.model()))
        calibrator.add(some, Y[:, some], parts)
    return calibrator.finish()


def _largest_first(Y: sp.csr_array, labels: np.ndarray) -> np.ndarray:
    counts = np.bincount(Y.indices[Y.data != 0], minlength=Y.shape[1])
    return labels[np.argsort(-counts[labels], kind="stable")]


class _Asked:
    """A question that is not asked again after the first no."""

    def __init__(self, question: Callable[[], bool] | None):
        self._question, self.yes = question, True

    def __call__(self, label: int) -> bool:
        self.yes = self.yes and (self._question is None or self._question())
        return self.yes


class _Kept:
    """The results of some labels."""

    def __init__(self, labels: np.ndarray, n_features: int, done: Callable[[], object] | None):
        self._place = {label: i for i, label in enumerate(labels.tolist())}
        self._found: list[LabelResult | None] = [None] * len(labels)
        self._n_features, self._done = n_features, done

    def __call__(self, result: LabelResult) -> None:
        self._found[self._place[result.label]] = result
        if self._done is not None:
            self._done()

    def _results(self) -> Iterator[LabelResult]:
        return (result for result in self._found if result is not None)

    def model(self) -> ArrayModel:
        """The weights of these labels, each of which has a result."""
        rows = [(result.indices, result.values) for result in self._results()]
        coef = _sparse.stacked(rows, self._n_features)
        status = np.array([result.status for result in self._results()], np.int64)
        bias = np.array([result.bias for result in self._results()])
        return ArrayModel(coef, np.where(is_trained(status), bias, -np.inf))
