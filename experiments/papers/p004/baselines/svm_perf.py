"""SVM-perf's Prec@k and Recall@k over the pairs of Lapin, Hein and Schiele's reduction.

Joachims, "A support vector method for multivariate performance measures", 2005: the structural
SVM with one slack variable,

    min_W ½‖W‖² + C R,   R = max over labellings Ȳ of  Δ(Ȳ) + ⟨W, Ψ(Ȳ) − Ψ(Y)⟩,

where Ψ sums the features of the pairs that are called right, of the n m pairs of an instance and a
class of which n are right. A labelling that calls a right and b wrong pairs right has

    Recall@k   Δ = n (1 − a/n),       a + b ≤ k n
    Prec@k     Δ = n (1 − a/(a+b)),   a + b ≥ n/k

as in the program svm_perf, which takes a multiple of n above 1 for recall and below 1 for precision.
The paper does not say how its k came to be such a multiple; this is our reading. Δ is n times the
program's hundredth part, so that C weighs a sum over instances as in the other methods.

Δ of recall is linear in the labelling, so that a pair is worth calling right by itself, z − 1 for a
right and z for a wrong one, and the worst labelling calls the k n worthiest of those above 0.

Both are solved by :mod:`._splitting` to a relative duality gap of TOL = 1e-3 (the program: a violation of
0.1 per cent). Δ of recall is linear in the labelling, so that the step for R is a projection; that of
precision is in :mod:`._precision_step`. Where features are sparse or too many, cutting planes, of which the
program makes use, take their place, until the gap is reached or MAX_ITERATIONS planes were made, which
the gap then shows.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse as sp

from experiments.papers.p004.baselines import _cutting_planes, _precision_step, _splitting
from experiments.papers.p004.baselines._base import GRID, TOL, Fitted, linear, one_hot

TOP = 8  # at first TOP · n of the wrong pairs are sorted
RHO = {"recall": 0.02, "precision": 0.1}  # ρ over C, fixed because margins are 1 whatever the features are


@dataclasses.dataclass(frozen=True)
class RecallAt:
    """SVM-perf for Recall@k.

    Attributes:
        k: the number of pairs that may be called right, divided by n.
    """

    k: int
    grid: tuple[float, ...] = GRID

    def fit(self, X, y, C: float, start=None) -> Fitted:
        """See :class:`.Method`; `start` is of the splitting, or the planes, which no C changes."""
        right = one_hot(y, bool)
        return _fit(RecallRisk(right, self.k * len(y)), right, X, C, start)


@dataclasses.dataclass(frozen=True)
class PrecisionAt:
    """SVM-perf for Prec@k.

    Attributes:
        k: n divided by the number of pairs that must be called right.
    """

    k: int
    grid: tuple[float, ...] = GRID

    def fit(self, X, y, C: float, start=None) -> Fitted:
        """See :class:`.Method`; `start` is of the splitting, or the planes, which no C changes."""
        right = one_hot(y, bool)
        return _fit(PrecisionRisk(right, -(-len(y) // self.k)), right, X, C, start)


def _fit(risk, right, X, C: float, start) -> Fitted:
    if not sp.issparse(X) and X.shape[1] <= _splitting.MOST_FEATURES:
        W, gap, start = _splitting.minimise(risk, right, X, C, TOL, start)
        return Fitted(linear(W), gap, start)
    shape = X.shape[1], right.shape[1]
    planes = _cutting_planes.Planes(shape, X.dtype) if start is None else start
    W, gap = _cutting_planes.minimise(planes, risk, X, C, TOL)
    return Fitted(linear(W), gap, planes)


class RecallRisk:
    """R of Recall@k as a function of the scores Z [n, m].

    Args:
        right: which pairs are right, [n, m].
        most: the most pairs that are called right.
    """

    def __init__(self, right: np.ndarray, most: int):
        self.right, self.most = np.flatnonzero(right), min(most, right.size)
        self.rho = RHO["recall"]

    def labelling(self, V, t, kept) -> tuple[np.ndarray, float, None]:
        """P of argmin ½‖Z − V‖² + t R(Z), the projection of (V + (t − 1) Y) / t, and n − ⟨P, Y⟩."""
        Y = np.zeros_like(V)
        Y.ravel()[self.right] = 1
        P = _splitting.project((V + (t - 1) * Y) / t, self.most)
        return P, len(self.right) - float(np.vdot(P, Y)), None

    def value(self, Z) -> float:
        """R."""
        worth, least = self._worth(Z)
        # n − Σ right z + the sum of the `most` largest of max(0, worth)
        called = np.maximum(worth - least, 0).sum(dtype=np.float64) + least * self.most
        return float(len(self.right) - Z.ravel()[self.right].sum(dtype=np.float64) + called)

    def plane(self, Z) -> tuple[np.ndarray, float]:
        """Slope and offset of a plane that touches R at Z: ⟨slope, Z⟩ + offset = R(Z)."""
        worth, least = self._worth(Z)
        called = worth > least
        if least > 0:
            tied = np.flatnonzero(worth == least)
            called[tied[: self.most - int(called.sum())]] = True
        slope = called.astype(Z.dtype)
        slope[self.right] -= 1
        return slope.reshape(Z.shape), float(len(self.right) - called[self.right].sum())

    def _worth(self, Z) -> tuple[np.ndarray, float]:
        """The gain of calling each pair right, [n m], and the least gain of those called right, or 0."""
        worth = Z.ravel().copy()
        worth[self.right] -= 1
        place = worth.size - self.most
        return worth, max(float(np.partition(worth, place)[place]), 0.0)


class PrecisionRisk:
    """R of Prec@k as a function of the scores Z [n, m].

    Args:
        right: which pairs are right, [n, m].
        least: the fewest pairs that are called right.
    """

    def __init__(self, right: np.ndarray, least: int):
        self.right, self.least = np.flatnonzero(right), least
        self.n_wrong = right.size - len(self.right)
        self.rho = RHO["precision"]

    def labelling(self, V, t, kept) -> tuple[np.ndarray, float, _precision_step.Mixture]:
        """P of argmin ½‖Z − V‖² + t R(Z), Δ(P), and the mixture of labellings that P is."""
        scores, t = V.ravel().astype(np.float64), float(t)
        right = self.right[np.argsort(-scores[self.right])]
        begin = kept or {(0, self.least): 1.0}
        known = min(max(TOP * len(right), max(b for _, b in begin)), self.n_wrong)
        while True:
            wrong, below = self._largest(scores, known)
            found = _precision_step.nearest(scores[right], scores[wrong], t, self.least, begin)
            z_right, z_wrong, kept = found
            # otherwise a labelling calls unsorted pairs right, or they are averaged with sorted ones
            if (z_wrong[-1] >= below and max(b for _, b in kept) < known) or known == self.n_wrong:
                break
            known = min(TOP * known, self.n_wrong)
        P = np.zeros_like(scores)
        P[right], P[wrong] = 1 + (scores[right] - z_right) / t, (scores[wrong] - z_wrong) / t
        n = len(right)
        missed = sum(weight * float(_precision_step.loss(n, *pair)) for pair, weight in kept.items())
        return P.reshape(V.shape).astype(V.dtype), missed, kept

    def value(self, Z) -> float:
        """R."""
        return self._worst(Z)[0]

    def plane(self, Z) -> tuple[np.ndarray, float]:
        """Slope and offset of a plane that touches R at Z: ⟨slope, Z⟩ + offset = R(Z)."""
        _, last_right, last_wrong = self._worst(Z)
        n, slope = len(self.right), (last_wrong <= Z).astype(Z.dtype)
        # of pairs with equal scores all or none are called right, so that the numbers are counted again
        called = Z.ravel()[self.right] >= last_right
        slope.ravel()[self.right] = 0
        a, b = int(called.sum()), float(slope.sum(dtype=np.float64))
        slope.ravel()[self.right] = called.astype(Z.dtype) - 1
        return slope, n * (1 - a / (a + b))

    def _worst(self, Z) -> tuple[float, float, float]:
        """R and the scores of the last right and the last wrong pair that the worst labelling calls right."""
        scores = Z.ravel()
        right = np.sort(scores[self.right])[::-1]
        known = min(TOP * len(right), self.n_wrong)
        while True:
            wrong = scores[self._largest(scores, known)[0]]
            called, values = _precision_step.numbers(right, wrong, self.least)
            if called.max() < known or known == self.n_wrong:
                break
            known = min(TOP * known, self.n_wrong)
        # n (1 − a/(a+b)) − Σ right that are called wrong + Σ wrong that are called right
        at = int(values.argmax())
        b, value = int(called[at]), float(values[at] - right.sum(dtype=np.float64))
        return value, right[at - 1] if at else np.inf, wrong[b - 1] if b else np.inf

    def _largest(self, scores: np.ndarray, known: int) -> tuple[np.ndarray, float]:
        """Places of the wrong pairs with the largest scores, falling, and the largest of the other scores."""
        scores = -scores
        scores[self.right] = np.inf
        places = np.argpartition(scores, min(known, len(scores) - 1))
        below = -np.inf if known == self.n_wrong else -float(scores[places[known]])
        places = places[:known]
        return places[np.argsort(scores[places])], below
