"""One-vs-rest coordinate ascent, which decides itself when to check its gap and when to stop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax.native import _ids
from xmcjax.native._dual_point import Assessment, DualPoint


class Advanced(NamedTuple):
    """How far `SeparateAscent` or `RankingAscent` has come."""

    found: Assessment
    passes: float  #: over all rows, since the start; the most of any class where each class is a problem
    left_out: float  #: share of the rows that the last sweeps left out
    running: bool  #: whether it could go on


class Ends(NamedTuple):
    """How far each label has come; arrays [L]."""

    primal: np.ndarray
    gap: np.ndarray  #: primal − dual
    passes: np.ndarray  #: over all rows, made so far


class Advancing(DualPoint):
    def advance(self, tolerance: float, passes: float, shrink: bool = True) -> Advanced:
        """Goes on until the gap is at most `tolerance` times P; in one-vs-rest, that of each class.

        Args:
            tolerance: of the relative gap.
            passes: the most passes over the rows, per class; 0 only computes the gap.
            shrink: whether sweeps leave out rows with a small part of the gap.
        """
        found = np.zeros(6)
        self._call("advance", tolerance=tolerance, passes=passes, shrink=shrink, found=found)
        primal, dual, violation, made, left_out, running = found.tolist()
        return Advanced(Assessment(primal, dual, violation), made, left_out, running > 0)


class SeparateAscent(Advancing):
    """One-vs-rest coordinate ascent, where each label ends on its own.

    Args:
        X, seed, threads: as in :class:`DualPoint`.
        formulation: "ovr" or "ovr_squared".
        labels: CSC [n, L], each stored entry a label of its row, rows ascending in a column and none twice.
        cost: weights C of the losses of the rows, above 0, [n]; or one number.
        positive, negative: factors of `cost` for rows with and without each label, above 0, [L]; None for 1.
        dense: whether to multiply rows as dense vectors instead of by their non-zeros.
        free: whether the last feature, which has the same value in all rows, is a bias without a penalty.
            A value of a third of the length of the rows is best.
        numbers: numbers of the labels, which seed the random order of each, [L]; None for 0 … L−1.
        of: how many labels the whole problem has, of which these are some; None for L. If it has many, they
            start from the optimum without labels. With `numbers` and `of` the result of a label is equal to
            the bit, whatever the other labels are.
        classes: first and last + 1 of the labels of this process, if there are several; None for all.
    """

    def __init__(
        self,
        X,
        labels,
        formulation: str,
        cost: np.ndarray | float,
        *,
        positive: np.ndarray | None = None,
        negative: np.ndarray | None = None,
        dense: bool = False,
        free: bool = False,
        numbers: np.ndarray | None = None,
        of: int | None = None,
        seed: int = 0,
        threads: int = 1,
        classes: tuple[int, int] | None = None,
    ):
        n, m = labels.shape
        first, last = classes or (0, m)
        begin, end = labels.indptr[first], labels.indptr[last]
        ones = np.ones(last - first)
        numbers = np.arange(m) if numbers is None else numbers
        self._make(
            "separate_new",
            X,
            m,
            offset=(labels.indptr[first : last + 1] - begin).astype(np.int64),
            row=np.ascontiguousarray(labels.indices[begin:end], np.int32),
            cost=np.ascontiguousarray(np.broadcast_to(np.asarray(cost, np.float64), n)),
            positive=ones if positive is None else np.ascontiguousarray(positive, np.float64),
            negative=ones if negative is None else np.ascontiguousarray(negative, np.float64),
            dense=dense,
            free=free,
            number=np.ascontiguousarray(numbers[first:last], np.int64),
            of=m if of is None else of,
            formulation=_ids.number("formulation", formulation),
            seed=seed,
            threads=threads,
            classes=classes,
        )

    @classmethod
    def of_classes(cls, X, y, m: int, formulation: str, C: np.ndarray | float, **options) -> SeparateAscent:
        """The ascent of a multi-class problem, whose classes y, 0 … m−1, are the labels."""
        rows = np.argsort(y, kind="stable").astype(np.int32)
        ends = np.concatenate([[0], np.cumsum(np.bincount(y, minlength=m))])
        labels = sp.csc_array((np.ones(len(y), np.int8), rows, ends), shape=(len(y), m))
        return cls(X, labels, formulation, C, **options)

    def ended(self) -> Ends:
        """How far each label has come."""
        first, last = self._classes
        found = Ends(*(np.zeros(last - first) for _ in Ends._fields))
        self._call("ended", **found._asdict())
        return found
