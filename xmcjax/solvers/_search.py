"""The driver of the dual solvers: one method after another, until a gap is certified.

A method takes dual variables and a tolerance, and ends where it takes the gap to be small enough, where it
makes no more progress, or where its passes are over. What counts then is the gap that is certified.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from xmcjax._cores import blas_threads
from xmcjax.native import Advanced, Ascent, Assessment, RankingAscent, SeparateAscent
from xmcjax.solvers._accuracy import Accuracy
from xmcjax.solvers._base import Status
from xmcjax.solvers._certified import OF_TOLERANCE, Certified, Share, certified, certified_kernel
from xmcjax.solvers._formulations import Formulation
from xmcjax.solvers._formulations import formulation as formulation_of
from xmcjax.solvers._instance_problem import Gram
from xmcjax.solvers._progress import ASCENT, Observe, Progress

# Part of the tolerance at which a method ends: what is certified may be a little more.
MARGIN = 0.9
# How often a method begins again whose gap is not what it takes it to be.
_ATTEMPTS = 4
# Sweeps in a row between two passes over everything.
_SWEEPS = 20
# Passes beyond its patience in which ascent is to come to its end where it goes on, and the share of the
# instances of which a pass leaves out more where it has so many more in any case: they take little time. The
# next method keeps a share of the passes that are left.
_MORE, _MOSTLY_SHRUNK, _KEPT = 100.0, 0.9, 0.5
# Scores that are looked at together.
_SCORES = 1 << 19
# Passes of which one is begun.
_TINY = 1e-9
# And after which one begins where classes ascend separately: a look at the gap is an eighth.
_FIRST = 0.13


class Ended(NamedTuple):
    """What a method comes to."""

    alpha: sp.csr_array  #: dual variables [n, m]
    gap: float  #: as the method takes it to be
    W: np.ndarray | None = None  #: weights that may be better than those of alpha, float64 [d, m]


class Search:
    """Dual variables of one problem with a certified gap.

    Args:
        X: features [n, d], CSR or dense, or inner products, as `instance_dual.Gram`.
        y, formulation, C, tol, k: of :func:`xmcjax.solvers._certified.certified`.
        agreed: the gap that counts, of the one that was found: where processes solve together they go on
            together, or none of them does.
        start: dual variables in the dual set that the first attempt begins with; None for those of 0.
        share: of this process in certifying; None where it is alone.
        threads: of certifying.

    Attributes:
        found: the best that is certified; before the first attempt its gap is infinite.
        gap: of it, as agreed.
        tol: at which the gap is small enough.
    """

    def __init__(
        self,
        X,
        y,
        formulation: str | Formulation,
        C,
        tol: float,
        k: int = 1,
        agreed: Callable[[float], float] = float,
        start: sp.csr_array | None = None,
        share: Share | None = None,
        threads: int = 1,
    ):
        self.start = sp.csr_array((0, 0)) if start is None else start
        self._given, self.tol, self._k, self._agreed = (X, y, formulation, C), tol, k, agreed
        self._share, self._threads = share, threads
        self.found = Certified(np.zeros((0, 0)), sp.csr_array((0, 0)), np.inf, -np.inf, 0.0)
        self.gap = np.inf

    @property
    def unsolved(self) -> bool:
        """Whether the gap is too large, and its objective a number."""
        return self.gap > self.tol and (not self.found.W.size or bool(np.isfinite(self.found.primal)))

    @property
    def alpha(self) -> sp.csr_array:
        """The dual variables to go on from: the best, or those of the start."""
        return self.found.alpha if self.found.W.size else self.start

    def keep(self, found: Certified) -> None:
        """Takes what is certified, unless something better was.

        Of a process alone weights and dual variables are each the best: the next method may be worse in one.
        """
        first, alone = not self.found.W.size, self._share is None
        if alone and not first:
            found = _best_of(self.found, found)
        gap = self._agreed(found.gap)
        # where D is 0 all gaps are 1 but for rounding, and these are the weights with the lesser P
        if first or not gap > self.gap or (alone and not found.dual > 0):
            self.found, self.gap = found, gap

    def attempt(self, method: Callable[[float, Any], Ended], left: Callable[[], float]) -> None:
        """Runs a method until its gap is certified, or it ends above the gap that it was to reach.

        Args:
            method: ``(tolerance, dual variables)`` -> what it comes to; the variables are those of the start
                at first, of shape [0, 0] where there is none.
            left: passes that are still allowed.
        """
        target = MARGIN * self.tol
        for _ in range(_ATTEMPTS):
            ended = method(target, self.alpha)
            X, y, formulation, C = self._given
            W, (k, share, threads) = ended.W, (self._k, self._share, self._threads)
            if isinstance(X, Gram):
                found = certified_kernel(np.asarray(X.K), y, ended.alpha, formulation, C, k, W)
            else:
                with blas_threads(1):  # with others the bits of products are others
                    found = certified(
                        X, y, ended.alpha, formulation, C, self.tol, W, k, share, threads=threads
                    )
            self.keep(found)
            if ended.gap > target or not self.unsolved or left() < 1:
                return
            target /= 4  # it took its own rounding for progress

    def status(self, left: float) -> Status:
        """How the search ends, with so many passes left."""
        if not np.isfinite(self.found.primal):
            return Status.NONFINITE
        if self.gap <= self.tol:
            return Status.CONVERGED
        return Status.STALLED if left >= 1 else Status.MAX_STEPS


def _best_of(before: Certified, now: Certified) -> Certified:
    """The weights with the lesser primal and the dual variables with the greater dual objective."""
    of_weights = before if before.primal < now.primal or not np.isfinite(now.primal) else now
    of_variables = before if before.dual > now.dual or not np.isfinite(now.dual) else now
    return of_weights._replace(alpha=of_variables.alpha, dual=of_variables.dual)


class Ascending(Protocol):
    """Coordinate ascent, as of :class:`xmcjax.native.Ascent`."""

    def assess(self, tolerance: float, /) -> Assessment: ...

    def sweep(self, tolerance: float, shrink: bool, /) -> tuple[float, float]: ...


class Passes:
    """Sweeps made, and the shares of all instances that they visited, added up."""

    def __init__(self):
        self.sweeps, self.visited = 0, 0.0
        self.shrunk = 0.0  #: share that the last sweep left out


def ascend(
    point: Ascending,
    accuracy: Accuracy,
    shrinking: bool,
    passes: Passes,
    left: Callable[[], float],
    patience: float = np.inf,
    told: Callable[[float], None] | None = None,
    goes_on: bool = True,
) -> Assessment:
    """Sweeps until the gap is small enough, progress ends, or the passes are over.

    Args:
        point: the dual variables, which change.
        accuracy: of the steps.
        shrinking: whether sweeps leave out what does not change.
        passes: is counted on.
        left: passes that are still allowed; another begins where one is.
        patience: passes of this call.
        told: called with the gap where it is looked at, or None.
        goes_on: whether it has some more where those soon bring it to its end.
    """
    work, since, gap, end = 0.0, 0.0, np.inf, np.inf
    while True:
        found = point.assess(accuracy.eps)
        work += 1
        if told is not None:
            told(found.gap)
        if accuracy.enough(found.gap, found.violation, work) or left() < 1:
            return found
        if work >= patience:
            end = min(end, work + (1 - _KEPT) * left())  # that of the first time
            few = passes.shrunk > _MOSTLY_SHRUNK and work < patience + _MORE
            near = few or _nearly_closed(found.gap, gap, accuracy.tol, since + 1)
            if work >= end or not (goes_on and near):
                return found
        # half of what is left, or below the tolerance: what was left out is then worth another look
        enough = max(accuracy.eps / 2, found.violation / 2)
        gap, since, limit = found.gap, 0.0, patience if work < patience else end
        for _ in range(_SWEEPS):
            violation, share = point.sweep(accuracy.eps, shrinking)
            passes.sweeps, passes.visited, work = passes.sweeps + 1, passes.visited + share, work + share
            passes.shrunk, since = 1 - share, since + share
            if violation <= enough or left() < 1 or work >= limit:
                break


def _nearly_closed(gap: float, before: float, tol: float, work: float) -> bool:
    """Whether a gap is closed in `_MORE` passes where it goes on to fall as in the last ones.

    Args:
        gap, before: now, and so much work ago.
        tol: that is wanted.
        work: passes.
    """
    return 0 < tol < gap < before < np.inf and work * math.log(gap / tol) <= _MORE * math.log(before / gap)


class Longer:
    """Coordinate ascent that is assessed at longer weights too, and at the best that it has seen.

    Where C is large and gains are 0 at the optimum, those of W(α) are around 0 for a long time, and what is
    above costs C times as much: P stays far away when D has come to its end. Weights that are longer by a
    part δ of the tolerance have none of the gains up to δ, and cost δ ‖W‖².

    Args:
        point: the ascent.
        X, y, formulation, C: its problem.
        tol: relative duality gap at which it ends.

    Attributes:
        W: the best weights, float64 [d, m]; None where those of the dual variables are.
    """

    def __init__(self, point: Ascent, X: sp.csr_array, y: np.ndarray, formulation: str, C, tol: float):
        self._point, self._X, self._y, self._C, self._tol = point, X, y, C, tol
        self._form, self._least = formulation_of(formulation), np.inf
        self.W: np.ndarray | None = None

    def assess(self, tolerance: float, /) -> Assessment:
        found = self._point.assess(tolerance)
        if not found.gap > self._tol:  # or not a number
            self.W = None
            return found
        W, factors = self._point.weights, [1 + part * self._tol for part in (0.0, *OF_TOLERANCE)]
        with np.errstate(over="ignore", invalid="ignore"):
            losses, rows = np.zeros(len(factors)), max(1, _SCORES // W.shape[1])
            for first in range(0, self._X.shape[0], rows):
                part = slice(first, first + rows)
                Z = self._X[part] @ W
                for k, factor in enumerate(factors):
                    losses[k] += float(
                        np.sum(self._form.losses_of(factor * Z, self._y[part]), dtype=np.float64)
                    )
            half = float(np.einsum("ij,ij->", W, W, dtype=np.float64)) / 2
            primal = np.array(factors) ** 2 * half + self._C * losses
        best = int(np.argmin(primal))
        if primal[best] < self._least:
            self._least, self.W = float(primal[best]), factors[best] * W.astype(np.float64)
        return found._replace(primal=min(found.primal, self._least))

    def sweep(self, tolerance: float, shrink: bool, /) -> tuple[float, float]:
        return self._point.sweep(tolerance, shrink)


class AdvancingSeparately(Protocol):
    """Coordinate ascent of one against the rest, as of :class:`xmcjax.native.SeparateAscent`."""

    def advance(self, tolerance: float, passes: float, shrink: bool, /) -> Advanced: ...


def ascend_separately(
    point: AdvancingSeparately,
    tol: float,
    shrinking: bool,
    passes: Passes,
    left: Callable[[], float],
    patience: float = np.inf,
    told: Callable[[float], None] | None = None,
) -> Assessment:
    """Passes until the gap of each class is small enough, progress ends, or the passes are over.

    Args:
        point, shrinking, passes, left, patience, told: of :func:`ascend`; passes are those of the slowest
            class.
        tol: relative gap at which a class ends.
    """
    work, before, most = 0.0, 0.0, passes.visited + left()
    while True:
        # a pass that begins is a whole one at most, and the first one is to begin
        least = _TINY if passes.visited else _FIRST
        to = point.advance(tol, min(_SWEEPS, max(left() - 1, least), patience - work), shrinking)
        work += to.passes - before
        passes.visited = min(passes.visited + to.passes - before, most)
        passes.sweeps, passes.shrunk, before = math.ceil(passes.visited), to.left_out, to.passes
        if told is not None:
            told(to.found.gap)
        if not to.running or left() < 1 or work >= patience:
            return to.found


def ascended(
    point: Ascent | RankingAscent | SeparateAscent,
    start: sp.csr_array,
    tol: float,
    passes: Passes,
    left: Callable[[], float],
    *,
    patience: float,
    observe: Observe | None,
    made: Callable[[], float],
    shrinking: bool = True,
    longest: Longer | None = None,
    goes_on: bool = True,
) -> tuple[Ended, float]:
    """What native coordinate ascent comes to, and the largest projected gradient there.

    Args:
        point: the ascent, at dual variables of 0.
        start: dual variables to start from, of shape [0, 0] for those of 0.
        tol: relative duality gap at which it ends.
        passes, left, patience: of :func:`ascend`.
        observe: of the solver.
        made: passes made so far, by all methods.
        shrinking, goes_on: of :func:`ascend`.
        longest: looks at longer weights of `point` too; None for those of the dual variables alone.
    """
    if start.size:
        point.alpha = start

    def told(gap: float) -> None:
        if observe is not None:
            observe(Progress(ASCENT, made(), gap, lambda: point.alpha))

    limits = shrinking, passes, left, patience, told
    if isinstance(point, Ascent):
        found = ascend(longest or point, Accuracy(point.dtype, tol), *limits, goes_on)
    else:
        found = ascend_separately(point, tol, *limits)
    return Ended(point.alpha, found.gap, longest.W if longest else None), found.violation
