"""Calibration by scores of rows that the weights were not trained on, some labels at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import instance, whole_number
from xmcjax._labels import label_matrix
from xmcjax._platt import Pool, fit_sigmoids, targets
from xmcjax.models._arrays import ArrayModel
from xmcjax.models._calibration import Calibration
from xmcjax.models._predict import decision_function

#: A label with at least this many positive rows that have a held-out score gets its own slope and offset.
FEW = 10
# The most scores that are held at a time; a dozen float64 arrays have that size.
_SCORES = 1 << 20


_NOTHING = "calibration: expected a label with positive rows in two folds, found none"


class HeldOut(NamedTuple):
    """Rows that a model was not trained on.

    Attributes:
        rows: their numbers, [h].
        X: their features, [h, d].
        model: weights of the labels that are calibrated, which were trained on the other rows.

    Example:
        >>> import numpy as np
        >>> from xmcjax.models import ArrayModel
        >>> held = HeldOut(np.array([3]), np.float32([[1, 0]]), ArrayModel(np.float32([[1, 0]])))
        >>> held.rows.tolist()
        [3]
    """

    rows: np.ndarray
    X: object
    model: ArrayModel


def checked_parts(parts, n_rows: int, n_labels: int) -> list[HeldOut]:
    """Sets of rows that fit n rows and m labels, their features checked.

    Raises:
        TypeError: no list of them.
        ValueError: shapes or numbers of rows that do not fit.
    """
    if not isinstance(parts, (list, tuple)) or not parts:
        raise TypeError(f"parts: expected a list of HeldOut, found {type(parts).__name__}")
    found = []
    for part in parts:
        instance("parts", part, HeldOut)
        rows, X = whole_numbers(part.rows, "rows", n_rows), _sparse.matrix(part.X)
        if X.ndim != 2 or X.shape[0] != len(rows):
            raise ValueError(f"X: expected {len(rows)} rows as in HeldOut.rows, found shape {list(X.shape)}")
        instance("model", part.model, ArrayModel)
        if part.model.n_labels != n_labels:
            raise ValueError(f"model: expected {n_labels} labels, found {part.model.n_labels}")
        found.append(HeldOut(rows, X, part.model))
    return found


def whole_numbers(values, name: str, end: int) -> np.ndarray:
    """Numbers from 0 to end − 1, int64 [k], each once.

    Raises:
        TypeError: numbers that are not whole.
        ValueError: no vector, or one that is repeated or out of range.
    """
    values = _sparse.dense(values, name)
    if values.size and values.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected whole numbers, found values of type {values.dtype}")
    once = values.ndim == 1 and len(np.unique(values)) == len(values)
    if not once or (values.size and not 0 <= values.min() <= values.max() < end):
        raise ValueError(f"{name}: expected different numbers from 0 to {end - 1} [k], found others")
    return values.astype(np.int64)


def checked_weight(weight, n_rows: int) -> np.ndarray:
    """Weights of n rows, float64; ones of None.

    Raises:
        TypeError: no numbers.
        ValueError: another number of them, or one that is below 0 or not finite.
    """
    if weight is None:
        return np.ones(n_rows)
    weight = _sparse.numbers(weight, "weight")
    if weight.shape != (n_rows,) or not (np.isfinite(weight) & (weight >= 0)).all():
        found = "others" if weight.shape == (n_rows,) else f"shape {list(weight.shape)}"
        raise ValueError(f"weight: expected {n_rows} finite numbers from 0, found {found}")
    return weight


def _label_matrix(Y) -> sp.csr_array:
    """Labels [n, m] without stored zeros."""
    return _sparse.canonical_csr(sp.csr_array(label_matrix(Y)), "Y", zeros=False)


def _counts(Y: sp.csr_array) -> np.ndarray:
    return np.bincount(Y.indices, minlength=Y.shape[1])


def _check_known(known: np.ndarray, counts: np.ndarray, labels: np.ndarray | None) -> None:
    """Whether there is anything to calibrate by.

    Args:
        known: whether a label has positive rows with a held-out score, [L].
        counts: its positive rows, [L].
        labels: numbers of those that are to be calibrated; None for all.

    Raises:
        ValueError: no label is known, or none of `labels`, of which some have rows.
    """
    if not known.any():
        raise ValueError(_NOTHING)
    if labels is not None and counts[labels].any() and not known[labels].any():
        raise ValueError(f"{_NOTHING} among the labels to calibrate")


class Calibrator:
    """Platt's scaling of labels, from scores that are held out: p_l = σ(a_l z_l + b_l).

    For a label with at least ten positive rows that have a score, a > 0 and b minimise the cross-entropy of
    its scores over all rows, with targets (N₊ + 1)/(N₊ + 2) and 1/(N₋ + 2) in place of 1 and 0. Labels with
    fewer share one such fit over all of their pairs of a row and a label; where none of these pairs is
    positive, they take the medians of the labels with a fit. Scores of only a few labels exist at a time:
    memory does not grow with rows times labels.

    Args:
        n_labels: L, of the calibration.
        weight: of the rows, at least 0, [n]; None for ones. A row of weight 0 has no label and no score.
        threads: of the products.

    Raises:
        TypeError, ValueError: numbers of another kind or out of range.

    References:
        Platt, "Probabilistic outputs for support vector machines", 1999. Lin, Lin and Weng, "A note on
        Platt's probabilistic outputs for support vector machines", 2007.

    Example:
        >>> X = np.array([[-1.0], [0.5], [0.0], [1.0], [-0.5], [2.0]] * 5)
        >>> Y = np.array([[0], [0], [0], [1], [1], [1]] * 5)
        >>> calibrator = Calibrator(1)
        >>> calibrator.add([0], Y, [HeldOut(np.arange(30), X, ArrayModel([[3.0]]))])
        >>> np.round(calibrator.finish().slope, 2)
        array([0.36])
    """

    def __init__(self, n_labels: int, weight: np.ndarray | None = None, *, threads: int = 1):
        self._found = Calibration.identity(whole_number("n_labels", n_labels, 1))
        self._weight = None if weight is None else _sparse.numbers(weight, "weight")
        self._threads = whole_number("threads", threads, 1)
        self._own, self._given = np.zeros(n_labels, bool), np.zeros(n_labels, bool)
        self._pool = Pool()

    @staticmethod
    def folds(Y, cv: int, labels: np.ndarray | None = None) -> np.ndarray:
        """The fold of each row, 0 … cv − 1. Rows with the same rarest label go to the folds in turn.

        So rows of one class each are spread evenly, class by class, and so are the rows of rare labels. The
        rows of a label are shuffled first, always in the same way.

        Args:
            Y: labels [n, L]; a stored non-zero is a label.
            cv: folds, from 2 to n.
            labels: numbers of those that are to be calibrated; None for all. Labels without a row keep
                their scores as they are; it is no error if none of `labels` has a row.

        Raises:
            ValueError, TypeError: another number of folds; fewer than two rows; a malformed matrix; no label
                of Y has rows in two folds, or none of `labels` has although some have rows, so that there is
                nothing to calibrate by.
        """
        cv, Y = whole_number("cv", cv, 2), _label_matrix(Y)
        n, n_labels = Y.shape
        labels = None if labels is None else whole_numbers(labels, "labels", n_labels)
        if n < 2:
            raise ValueError(f"calibration: expected at least 2 rows, of which some are held out, got {n}")
        if cv > n:
            raise ValueError(f"cv: expected at most {n}, the number of rows, got {cv}")
        counts = _counts(Y)
        rank = np.empty(n_labels, np.int64)
        rank[np.argsort(counts, kind="stable")] = np.arange(n_labels)
        rarest = np.full(n, n_labels)
        filled = np.flatnonzero(np.diff(Y.indptr))
        if filled.size:
            rarest[filled] = np.minimum.reduceat(rank[Y.indices], Y.indptr[filled])
        drawn = np.random.default_rng(0).permutation(n)
        order = drawn[np.argsort(rarest[drawn], kind="stable")]
        fold = np.empty(n, np.int64)
        fold[order] = np.arange(n) % cv
        pairs = np.unique(fold[np.repeat(np.arange(n), np.diff(Y.indptr))] * n_labels + Y.indices)
        _check_known(np.bincount(pairs % n_labels, minlength=n_labels) > 1, counts, labels)
        return fold

    @staticmethod
    def splits(
        Y, cv, labels: np.ndarray | None = None, weight: np.ndarray | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """The rows to train on and those to hold out, for each fold; rows of weight 0 are in none.

        Args:
            Y, labels: of :meth:`folds`.
            cv: the number of folds; or pairs (rows to train on, rows to hold out). No row may be held out
                in two pairs, or stand on both sides of a pair. Rows that are never held out have no score.
            weight: of the rows, at least 0, [n]; None for ones.

        Raises:
            ValueError, TypeError: as :meth:`folds`; malformed pairs, or one without rows of positive
                weight; no label of Y has positive rows on both sides of a pair, or none of `labels` has
                although some have rows.
        """
        Y = _label_matrix(Y)
        n = Y.shape[0]
        there = np.arange(n) if weight is None else np.flatnonzero(weight)
        if not isinstance(cv, (list, tuple)):
            fold = Calibrator.folds(Y[there], cv, labels)
            return [(there[fold != number], there[fold == number]) for number in range(fold.max() + 1)]
        if not cv or not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in cv):
            raise ValueError("cv: expected pairs of rows to train on and to hold out, found others")
        pairs = [tuple(whole_numbers(rows, "cv", n) for rows in pair) for pair in cv]
        times = np.bincount(np.concatenate([out for _, out in pairs]), minlength=n)
        if times.max(initial=0) > 1:
            twice = int(times.argmax())
            raise ValueError(
                f"cv: expected each row held out once at most, as by KFold, found row {twice} more often"
            )
        for number, (train, out) in enumerate(pairs, 1):
            both = np.intersect1d(train, out)
            if both.size:
                found = f"row {both[0]} of pair {number} in both"
                raise ValueError(f"cv: expected rows to hold out that are not trained on, found {found}")
        pairs = [(train[np.isin(train, there)], out[np.isin(out, there)]) for train, out in pairs]
        labels = None if labels is None else whole_numbers(labels, "labels", Y.shape[1])
        known = np.zeros(Y.shape[1], bool)
        for number, (train, out) in enumerate(pairs, 1):
            if not (train.size and out.size):
                kind = "hold out" if train.size else "train on"
                raise ValueError(f"cv: expected rows to {kind} in each pair, found none in pair {number}")
            known |= (_counts(Y[train]) > 0) & (_counts(Y[out]) > 0)
        _check_known(known, _counts(Y[there]), labels)
        return pairs

    def add(self, labels: np.ndarray, Y, parts: Sequence[HeldOut]) -> None:
        """Takes some labels, each of which is given once.

        Args:
            labels: their numbers, [m].
            Y: which rows have them, [n, m]; a stored non-zero is a label.
            parts: disjoint sets of rows, each with weights of these m labels. A label without weights in a
                part, because no row it was trained on had the label, has no scores there.

        Raises:
            ValueError, TypeError, IndexError: shapes that do not fit; features or weights that are none; a
                label that was given before.
        """
        labels = whole_numbers(labels, "labels", len(self._own))
        Y = sp.csc_array(_label_matrix(Y))
        n, m = Y.shape
        parts = checked_parts(parts, n, m)
        if labels.shape != (m,):
            raise ValueError(f"labels: expected {m} numbers as Y has columns, found shape {labels.shape}")
        again = labels[self._given[labels]]
        if again.size:
            raise ValueError(f"labels: expected each label once, found {again[0]} again")
        weight = checked_weight(self._weight, n)
        self._given[labels] = True
        size = max(1, _SCORES // max(1, n))
        for first in range(0, m, size):
            some = slice(first, min(first + size, m))
            z = np.full((n, some.stop - first), -np.inf)
            for rows, X, model in parts:
                block = model.weights(first, some.stop)
                bias = np.where(
                    model.trained(first, some.stop), model.intercept_of(first, some.stop), -np.inf
                )
                z[rows] = decision_function(ArrayModel(block, bias), X, threads=self._threads)
            self._fit(labels[some], z.T, Y[:, some].toarray().T != 0, weight)

    def _fit(self, labels: np.ndarray, z: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> None:
        """Fits some labels to their scores z [B, n], which are −∞ where there is none."""
        scored, positive = np.isfinite(z) & (weight > 0), positive & (weight > 0)
        z = np.where(scored, z, 0.0)
        count = scored * weight
        known = (positive & scored).sum(axis=1)
        own = known >= FEW
        few = np.flatnonzero((known > 0) & ~own)
        if few.size:
            there = scored[few]
            self._pool.add(z[few][there], positive[few][there], count[few][there])
        self._found.shared[labels[~own & positive.any(axis=1)]] = True
        if own.any():
            z, count, positive, labels = z[own], count[own], positive[own], labels[own]
            plus, minus = (count * positive).sum(axis=1), (count * ~positive).sum(axis=1)
            one, zero = targets(plus, minus)
            target = count * np.where(positive, one[:, None], zero[:, None])
            self._own[labels] = True
            self._found.slope[labels], self._found.offset[labels] = fit_sigmoids(z, count, target)

    def finish(self) -> Calibration:
        """The calibration of all labels; those that no row has are left as they are.

        Raises:
            ValueError: no label has a positive row with a score.
        """
        slope, offset, shared = self._found.slope, self._found.offset, self._found.shared
        if shared.any():
            if self._pool.positive:
                slope[shared], offset[shared] = self._pool.fit()
            elif self._own.any():
                slope[shared], offset[shared] = (np.median(a[self._own]) for a in (slope, offset))
            else:
                raise ValueError(_NOTHING)
        return Calibration(slope, offset, shared)
