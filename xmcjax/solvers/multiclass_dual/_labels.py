"""One against the rest with the hinge, where a row may have any number of labels.

The problem of a label, with a feature of value 1 for its bias and costs c_i of the rows, and its dual are

    min P(w) = ½ ‖w‖² + Σ_i c_i [1 − y_i w·x_i]₊,
    max D(α) = Σ_i α_i − ½ ‖Σ_i y_i α_i x_i‖²,    0 ≤ α_i ≤ c_i.

Native coordinate ascent solves some labels at a time (:class:`xmcjax.native.SeparateAscent`). Labels that it
does not solve go to other methods one by one: with rows y_i x_i each is a problem of one class. Where
features are dense, and many for the rows, steps for all rows at once (:mod:`xmcjax.solvers._admm_dense`) come
next, and all labels share the eigenvectors of XᵀX. Up to some number of features Newton's method follows
(:class:`xmcjax.native.Proximal`). Labels still unsolved go to :func:`run` as problems of two classes.
P(w) − D(α), worked out in float64, bounds how far P(w) is from its minimum, whatever rounding did before.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse, native
from xmcjax.solvers import _admm_dense
from xmcjax.solvers._accuracy import Accuracy
from xmcjax.solvers._admm_blocks import Basis
from xmcjax.solvers._base import Status
from xmcjax.solvers._certified import LONGER
from xmcjax.solvers._host_loop import abandonable
from xmcjax.solvers._products import product, transposed
from xmcjax.solvers.multiclass_dual._native import (
    FAILURES,
    SHARE,
    canonical,
    factorised,
    more_than_ascent,
    multiplied_densely,
    passes_before_newton,
    passes_of_steps,
)
from xmcjax.solvers.multiclass_dual._solve import run

# Bytes of an array of some rows and all labels of a block.
_BYTES = 16 << 20
# Part of the tolerance at which ascent ends, because the certified gap may be a little larger than its own.
_MARGIN = 0.9
# Passes of ascent after which a label goes to other methods: _EARLY where steps for all rows at once follow,
# _PATIENCE where there are neither such steps nor Newton's method.
_EARLY, _PATIENCE = 60.0, 300.0
# How often :func:`run` takes up a label again, each time with half the tolerance: its gap is that of both
# classes together, and the class that is kept may have more than half of this gap.
_AGAIN = 3


class Labels(NamedTuple):
    """Some labels of a problem.

    Attributes:
        numbers: of the labels, [k].
        rows: the rows that have each label, CSC [n, k] of ones.
        positive, negative: factors of the costs for rows with and without each label, [k].

    Example:
        >>> Y = sp.csc_array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> both = Labels(np.array([4, 9]), Y, positive=np.array([2.0, 5.0]), negative=np.ones(2))
        >>> second = both.some(np.array([1]))
        >>> second.numbers.tolist(), second.rows.indices.tolist(), second.positive.tolist()
        ([9], [1], [5.0])
    """

    numbers: np.ndarray
    rows: sp.csc_array
    positive: np.ndarray
    negative: np.ndarray

    def some(self, which: np.ndarray) -> Labels:
        """The labels at some places."""
        rows = sp.csc_array(self.rows[:, which])
        return Labels(self.numbers[which], rows, self.positive[which], self.negative[which])


class LabelSolution(NamedTuple):
    """Weights of k labels, and arrays [k] with a number per label.

    Example:
        >>> one = Labels(np.array([0]), sp.csc_array([[1.0], [0.0]]), np.ones(1), np.ones(1))
        >>> hinges = LabelHinges(np.float32([[1], [-1]]), np.float32, np.ones(1), False, 1, 1e-6, 100)
        >>> found = hinges.solved(one)
        >>> found.W.round(3).tolist(), [Status(s).name for s in found.status]
        ([[1.0]], ['CONVERGED'])
    """

    W: np.ndarray  #: in the dtype of the features, [d + 1, k] with the bias last, or [d, k] without one
    passes: np.ndarray
    value: np.ndarray  #: P
    gap: np.ndarray  #: P − D
    status: np.ndarray


class _Best:
    """Dual variables of k labels: those of the first method, and better ones of other methods for some.

    Args:
        alpha: CSR of the first method, [n, k].

    Attributes:
        columns: the better ones by the place of their label, [n, 1] each.
    """

    def __init__(self, alpha: sp.csr_array):
        self._alpha, self.columns = alpha, dict[int, sp.csc_array]()

    def of(self, which: np.ndarray) -> sp.csc_array:
        """The dual variables of the labels at some places."""
        alpha = sp.csc_array(self._alpha)
        if not self.columns:
            return alpha[:, which]
        return sp.csc_array(sp.hstack([self.columns.get(k, alpha[:, [k]]) for k in which.tolist()]))


class LabelHinges:
    """The problems of all labels over the same rows. An object serves any number of threads.

    Args:
        X: features, CSR or dense [n, d].
        dtype: of the numbers that ascent works with.
        cost: C s of the rows, [n] or [1].
        bias: whether there is a bias, regularised as the weight of a feature of value 1.
        labels: number of labels of the whole problem.
        tol: relative duality gap at which a label ends.
        passes: passes over the rows that a label makes at most.

    Example:
        >>> Y = sp.csc_array(np.eye(3, 4))  # no row has label 3
        >>> every = Labels(np.arange(4), Y, np.ones(4), np.ones(4))
        >>> problems = LabelHinges(np.eye(3, dtype=np.float32), np.float32, np.ones(1), True, 4, 1e-3, 100)
        >>> problems.solved(every).W.shape  # three features and the bias
        (4, 4)
    """

    def __init__(self, X: Any, dtype, cost: np.ndarray, bias: bool, labels: int, tol: float, passes: float):
        rows = X.astype(dtype, copy=False)
        if bias:
            ones = np.ones((X.shape[0], 1), dtype)
            rows = sp.hstack([rows, ones], format="csr") if sp.issparse(X) else np.hstack([rows, ones])
        self._X = canonical(rows)
        self._dense = multiplied_densely(self._X)
        self._cost = np.broadcast_to(np.asarray(cost, np.float64), X.shape[0])
        self._bias, self._of, self._tol, self._most = bias, labels, tol, passes
        self._more = native.available() and more_than_ascent(self._X)
        # the methods that take over need bounds above 0
        early = self._more and bool(np.all(self._cost > 0))
        self._steps = passes_of_steps(self._X) if early else 0.0
        self._newton = early and factorised(self._X)
        if self._steps:
            patience = _EARLY
        else:
            patience = passes_before_newton(self._X, SHARE * passes) if self._newton else _PATIENCE
        self._ascent = min(passes, patience) if self._more else passes
        self._basis: Basis | None = None
        self._whole: sp.csr_array | None = None
        self._of_basis = threading.Lock()

    def solved(self, labels: Labels) -> LabelSolution:
        """Solves the problems of some labels. What a label comes to does not depend on the others."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if not native.available():
                return self._by_one(labels, np.full(len(labels.numbers), self._most))
            ended, alpha = self._ascended(self._X, labels, self._ascent)
            best = _Best(alpha)
            if self._steps and (which := self._behind(ended)).size:
                left = np.minimum(self._most - ended.passes, self._steps)
                again, found = self._by_steps(labels.some(which), left[which])
                self._improve(ended, which, again, best, found)
            if self._newton and (which := self._behind(ended)).size:
                left = self._most - ended.passes
                again, found = self._by_newton(labels.some(which), left[which], best.of(which))
                self._improve(ended, which, again, best, found)
            which = self._behind(ended)
            left = self._most - ended.passes
            if self._more:
                if which.size:
                    again = self._by_one(labels.some(which), left[which], best.of(which))
                    self._improve(ended, which, again)
            elif self._X.dtype != np.float64:
                # rounding to float32 may be the reason
                which = which[ended.status[which] == Status.STALLED]
                wide = self._wide(slice(0, self._X.shape[0])) if which.size else self._X
                for passes in np.unique(left[which]):
                    same = which[left[which] == passes]
                    again, _ = self._ascended(wide, labels.some(same), float(passes))
                    self._improve(ended, same, again)
            return ended

    def _behind(self, ended: LabelSolution) -> np.ndarray:
        """Places of labels that have not ended and may make more passes."""
        unsolved = np.isin(ended.status, (Status.STALLED, Status.MAX_STEPS))
        return np.flatnonzero(unsolved & (self._most - ended.passes >= 1))

    def _improve(
        self,
        ended: LabelSolution,
        which: np.ndarray,
        again: LabelSolution,
        best: _Best | None = None,
        found: list[sp.csc_array] | None = None,
    ) -> None:
        """Keeps the smaller P, and the larger D with its dual variables, of two solutions of some labels.

        Args:
            ended: the solution of all labels, which changes.
            which: places of the labels that have another solution.
            again: the other solution.
            best: dual variables of all labels; None where no method follows.
            found: the dual variables of the other solution, [n, 1] each.
        """
        value, passes = ended.value[which], ended.passes[which] + again.passes
        before, now = value - ended.gap[which], again.value - again.gap
        dual = np.fmax(before, now)
        if best is not None and found is not None:
            best.columns.update((k, found[i]) for i, k in enumerate(which.tolist()) if now[i] > before[i])
        better = ~(again.value > value)
        ended.W[:, which[better]], value[better] = again.W[:, better], again.value[better]
        gap = np.maximum(value - dual, 0)
        ended.passes[which], ended.value[which], ended.gap[which] = passes, value, gap
        ended.status[which] = np.where(gap <= self._tol * value, Status.CONVERGED, again.status)

    def _ascended(self, X: sp.csr_array, labels: Labels, most: float) -> tuple[LabelSolution, sp.csr_array]:
        """The solution after at most `most` passes of coordinate ascent, and its dual variables [n, k]."""
        point = native.SeparateAscent(
            X,
            labels.rows,
            "ovr",
            self._cost,
            positive=labels.positive,
            negative=labels.negative,
            numbers=labels.numbers,
            of=self._of,
            dense=self._dense,
        )
        point.advance(_MARGIN * self._tol, most)
        passes, alpha = point.ended().passes, sp.csr_array(point.alpha)
        return self._certified(labels, alpha, passes, passes >= most), alpha

    def _by_steps(self, labels: Labels, most: np.ndarray) -> tuple[LabelSolution, list[sp.csc_array]]:
        """The solution by steps for all rows at once, label by label, and the dual variables of each.

        Args:
            labels: k of them.
            most: passes that each may make, [k].
        """
        n = self._X.shape[0]
        basis = self._eigenvectors()
        features = basis.part(slice(0, n))
        own, none = np.zeros(n, np.int32), sp.csr_array((0, 0))
        alpha, weights, passes = [], [], np.zeros(len(most))
        for k in range(len(most)):
            has, cost = self._of_label(labels, k)
            signed = basis._replace(rows=np.where(has, 1.0, -1.0)[:, None] * features)
            steps = _admm_dense.Method(signed, own, 1, "ovr", cost)
            found, passes[k] = steps.in_passes(none, _MARGIN * self._tol, most[k])
            assert found.W is not None
            alpha.append(sp.csc_array(found.alpha))
            weights.append(found.W[:, 0].astype(self._X.dtype))
        W = np.stack(weights, axis=1)
        return self._certified(labels, sp.csr_array(sp.hstack(alpha)), passes, passes > most - 1, W), alpha

    def _by_newton(
        self, labels: Labels, most: np.ndarray, start: sp.csc_array
    ) -> tuple[LabelSolution, list[sp.csc_array]]:
        """The solution by proximal point steps of Newton's method, label by label, and its dual variables.

        Args:
            labels: k of them.
            most: Newton steps that each may make, [k].
            start: dual variables [n, k] to start from.
        """
        X, own = self._rows_of_newton(), np.zeros(self._X.shape[0], np.int32)
        alpha, steps = [], np.zeros(len(most))
        for k in range(len(most)):
            has, cost = self._of_label(labels, k)
            sign = np.where(has, 1, -1).astype(X.dtype)
            signed = X.data * np.repeat(sign, np.diff(X.indptr)), X.indices, X.indptr
            rows = _sparse.trusted_csr(sp.csr_array, signed, X.shape)
            point = native.Proximal(rows, own, 1, "ovr", cost)
            point.alpha, accuracy = sp.csr_array(start[:, [k]]), Accuracy(np.float64, _MARGIN * self._tol)
            while point.failures < FAILURES and point.newton_steps <= most[k] - 1:
                found = point.step(accuracy.eps, int(most[k] - point.newton_steps))
                if accuracy.enough(found.gap, found.violation):
                    break
            alpha.append(sp.csc_array(point.alpha))
            steps[k] = point.newton_steps
        return self._certified(labels, sp.csr_array(sp.hstack(alpha)), steps, steps > most - 1), alpha

    def _rows_of_newton(self) -> sp.csr_array:
        """The features, which all labels share, with their zeros stored too where they are dense."""
        with self._of_basis:
            if self._whole is None:
                full = not self._dense or self._X.nnz == math.prod(self._X.shape)
                self._whole = self._X if full else _whole(self._X)
            return self._whole

    def _eigenvectors(self) -> Basis:
        """The basis of the features, with the features in it; all labels share it."""
        with self._of_basis:
            if self._basis is None:
                basis = abandonable(lambda: _admm_dense.basis_of(self._X.toarray()))
                self._basis = basis._replace(rows=basis.part(slice(0, self._X.shape[0])))
            return self._basis

    def _of_label(self, labels: Labels, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Of each row, whether it has the k-th of some labels, and its cost."""
        has = labels.rows[:, [k]].toarray()[:, 0] != 0
        return has, np.where(has, labels.positive[k], labels.negative[k]) * self._cost

    def _by_one(
        self, labels: Labels, most: np.ndarray, start: sp.csc_array | None = None, again: int = _AGAIN
    ) -> LabelSolution:
        """Solves a problem of two classes per label, by all methods of :func:`run`.

        Args:
            labels: k of them.
            most: passes that each may make, [k].
            start: dual variables [n, k] to start from; None for 0.
            again: how often labels whose own gap is too large are taken up again.
        """
        alpha, weights, passes, status = [], [], [], []
        for k in range(len(labels.numbers)):
            has, cost = self._of_label(labels, k)
            found = run(
                self._X,
                np.where(has, 0, 1).astype(np.int32),  # the class 0 has the label
                formulation="ovr",
                C=cost,
                classes=2,
                tol=_MARGIN * self._tol / 2 ** (_AGAIN - again),
                max_epochs=max(1, int(most[k])),
                # the other class is the same problem with its signs changed
                start=None if start is None else sp.csr_array(sp.hstack([start[:, [k]]] * 2)),
            )
            alpha.append(sp.csc_array(found.alpha)[:, [0]])
            weights.append(found.W[:, 0])
            passes.append(found.epochs + found.newton_steps)
            status.append(found.status)
        both, made, of_both = sp.csc_array(sp.hstack(alpha)), np.array(passes, np.float64), np.array(status)
        over, W = of_both == Status.MAX_STEPS, np.stack(weights, axis=1)
        ended = self._certified(labels, sp.csr_array(both), made, over, W)
        behind = (ended.status == Status.STALLED) & (of_both == Status.CONVERGED) & (most - made >= 1)
        which = np.flatnonzero(behind)
        if which.size and again:
            left = (most - made)[which]
            self._improve(ended, which, self._by_one(labels.some(which), left, both[:, which], again - 1))
        return ended

    def _certified(
        self,
        labels: Labels,
        alpha: sp.csr_array,
        passes: np.ndarray,
        over: np.ndarray,
        given: np.ndarray | None = None,
    ) -> LabelSolution:
        """The weights of dual variables with their objectives.

        Args:
            labels: k of them.
            alpha: [n, k], within their bounds but for rounding.
            passes: passes made, [k].
            over: whether no further pass was allowed, [k].
            given: weights that may be better than those of the dual variables, [d, k].
        """
        V = np.zeros((self._X.shape[1], len(labels.numbers)))
        dual = np.zeros(V.shape[1])
        for rows, sign, cost in self._parts(labels):
            inside = np.clip(alpha[rows].toarray(), 0, cost)
            dual += inside.sum(axis=0)
            V += transposed(self._wide(rows), sign * inside)
        dual -= np.einsum("jk,jk->k", V, V) / 2
        W = V.astype(self._X.dtype)
        value = self.values(labels, W)
        if given is not None:
            other = self.values(labels, given)
            better = other < value
            W[:, better], V[:, better], value[better] = given[:, better], given[:, better], other[better]
        for k in LONGER if W.dtype == np.float32 else ():
            wrong = np.flatnonzero(value - dual > self._tol * value)
            if not wrong.size:
                break
            longer = (V[:, wrong] * (1 + k * float(np.finfo(np.float32).eps))).astype(W.dtype)
            other = self.values(labels.some(wrong), longer)
            better = other < value[wrong]
            W[:, wrong[better]], value[wrong[better]] = longer[:, better], other[better]
        gap = np.maximum(value - dual, 0)
        status = np.full(len(value), Status.STALLED)
        status[over] = Status.MAX_STEPS
        status[gap <= self._tol * value] = Status.CONVERGED  # false for NaN
        status[~(np.isfinite(value) & np.isfinite(dual))] = Status.NONFINITE
        return LabelSolution(W, passes.copy(), value, gap, status)

    def values(self, labels: Labels, W: np.ndarray) -> np.ndarray:
        """P of some weights, [k]."""
        wide = W.astype(np.float64)
        value = np.einsum("jk,jk->k", wide, wide) / 2
        for rows, sign, cost in self._parts(labels):
            value += np.einsum("ik,ik->k", cost, np.maximum(1 - sign * product(self._wide(rows), wide), 0))
        return value

    def _parts(self, labels: Labels) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Some rows at a time with y and c of each label, [rows, k]."""
        n, k = self._X.shape[0], len(labels.numbers)
        by_row = sp.csr_array(labels.rows)
        size = max(1, _BYTES // (8 * k))
        for first in range(0, n, size):
            rows = slice(first, min(first + size, n))
            has = by_row[rows].toarray() != 0
            factor = np.where(has, labels.positive, labels.negative)
            yield rows, np.where(has, 1.0, -1.0), self._cost[rows, None] * factor

    def _wide(self, rows: slice) -> sp.csr_array:
        """These rows of X in float64."""
        return _sparse.csr(_sparse.rows_of(self._X, rows).astype(np.float64, copy=False))


def _whole(X: sp.csr_array) -> sp.csr_array:
    """X with its zeros stored too, because rows with all features are multiplied faster."""
    n, d = X.shape
    index = _sparse.index_type(n, d, n * d)
    ends = np.arange(0, n * d + 1, d, dtype=index) if d else np.zeros(n + 1, index)
    parts = X.toarray().ravel(), np.tile(np.arange(d, dtype=index), n), ends
    return _sparse.trusted_csr(sp.csr_array, parts, X.shape)
