"""The driver of the dual solvers: one method after another, until a gap is certified.

A method takes dual variables and a tolerance. It ends where its own estimate of the gap is small enough,
where it makes no more progress, or where its passes are used up. The gap that counts is then certified.
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

# Part of the tolerance at which a method ends, because the certified gap may be a little larger than its own.
MARGIN = 0.9
# How often a method is run at most: it runs again where its certified gap is larger than its own.
_ATTEMPTS = 4
# Sweeps at most between two looks at the gap, each of which is a pass over all instances.
_SWEEPS = 20
# Ascent goes on beyond its patience if it is expected to end within _MORE passes. It has _MORE further passes
# in any case if its last sweep left out more than the share _MOSTLY_SHRUNK of the instances, because such
# passes take little time. _KEPT: share of the passes left that the next method keeps.
_MORE, _MOSTLY_SHRUNK, _KEPT = 100.0, 0.9, 0.5
# Number of scores that are computed together.
_SCORES = 1 << 19
# A limit on passes that lets exactly one pass begin.
_TINY = 1e-9
# The same limit for the first call where classes ascend separately: a look at the gap is an eighth of a pass.
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
        agreed: gives the gap that counts, from the gap that this process found: where processes solve
            together, all of them go on or none does.
        start: dual variables in the dual set that the first attempt begins with; None for those of 0.
        share: of this process in certifying; None where it is alone.
        threads: of certifying.

    Attributes:
        found: the best certified solution; before the first attempt its gap is infinite.
        gap: the gap of `found`, as agreed.
        tol: the gap that is small enough.
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
        """Whether the gap is too large and the objective finite."""
        return self.gap > self.tol and (not self.found.W.size or bool(np.isfinite(self.found.primal)))

    @property
    def alpha(self) -> sp.csr_array:
        """The dual variables to go on from: the best, or those of the start."""
        return self.found.alpha if self.found.W.size else self.start

    def keep(self, found: Certified) -> None:
        """Takes what is certified, unless something better was.

        One process alone keeps the best weights and the best dual variables, which may be of two methods.
        """
        first, alone = not self.found.W.size, self._share is None
        if alone and not first:
            found = _best_of(self.found, found)
        gap = self._agreed(found.gap)
        # where D is 0 all gaps are 1 but for rounding, and `found` has the weights with the lesser P
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
                with blas_threads(1):  # another number would change the bits of products
                    found = certified(
                        X, y, ended.alpha, formulation, C, self.tol, W, k, share, threads=threads
                    )
            self.keep(found)
            if ended.gap > target or not self.unsolved or left() < 1:
                return
            target /= 4  # the method took rounding for progress

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
    """The number of sweeps made, and the sum of the shares of all instances that each of them visited."""

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
    """Sweeps until the gap is small enough, progress ends, or the passes are used up.

    Args:
        point: the dual variables, which change.
        accuracy: of the steps.
        shrinking: whether sweeps leave out variables that do not change.
        passes: counts the sweeps.
        left: passes that are still allowed; another sweep begins while there is at least one.
        patience: passes of this call, or more with `goes_on`.
        told: called with the gap each time that it is computed, or None.
        goes_on: whether the call has further passes where these are expected to end it soon.
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
            end = min(end, work + (1 - _KEPT) * left())  # stays what it was when the patience ended
            few = passes.shrunk > _MOSTLY_SHRUNK and work < patience + _MORE
            near = few or _nearly_closed(found.gap, gap, accuracy.tol, since + 1)
            if work >= end or not (goes_on and near):
                return found
        # down to half of the violation, or below the tolerance: left-out variables are then looked at again
        enough = max(accuracy.eps / 2, found.violation / 2)
        gap, since, limit = found.gap, 0.0, patience if work < patience else end
        for _ in range(_SWEEPS):
            violation, share = point.sweep(accuracy.eps, shrinking)
            passes.sweeps, passes.visited, work = passes.sweeps + 1, passes.visited + share, work + share
            passes.shrunk, since = 1 - share, since + share
            if violation <= enough or left() < 1 or work >= limit:
                break


def _nearly_closed(gap: float, before: float, tol: float, work: float) -> bool:
    """Whether a gap comes to `tol` within `_MORE` passes if it goes on to fall as fast as in the last ones.

    Args:
        gap, before: the gap now, and the gap `work` passes ago.
        tol: the gap that is wanted.
        work: number of passes.
    """
    return 0 < tol < gap < before < np.inf and work * math.log(gap / tol) <= _MORE * math.log(before / gap)


class Longer:
    """Coordinate ascent that is assessed at longer weights too, and at the best weights that it has seen.

    Where C is large and gains are 0 at the optimum, the gains of W(α) scatter around 0 for a long time, and
    those above 0 are losses of weight C: P stays far from its minimum when D has come to its maximum. Weights
    longer by the factor 1 + δ, δ a part of the tolerance, have none of the gains up to δ, and cost δ ‖W‖².

    Args:
        point: the ascent.
        X, y, formulation, C: its problem.
        tol: relative duality gap at which it ends.

    Attributes:
        W: the best weights, float64 [d, m]; None where these are the weights that the dual variables give.
    """

    def __init__(self, point: Ascent, X: sp.csr_array, y: np.ndarray, formulation: str, C, tol: float):
        self._point, self._X, self._y, self._C, self._tol = point, X, y, C, tol
        self._form, self._least = formulation_of(formulation), np.inf
        self.W: np.ndarray | None = None

    def assess(self, tolerance: float, /) -> Assessment:
        found = self._point.assess(tolerance)
        if not found.gap > self._tol:  # true of NaN too
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
    """Passes until the gap of each class is small enough, progress ends, or the passes are used up.

    Args:
        point, shrinking, passes, left, patience, told: of :func:`ascend`; passes are those of the slowest
            class.
        tol: relative gap at which a class ends.
    """
    work, before, most = 0.0, 0.0, passes.visited + left()
    while True:
        # once begun, a pass may take a whole one, so one is kept back; the first pass begins in any case
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
