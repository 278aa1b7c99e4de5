"""Whether a run that has ended has converged: what its status promises must be certain."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np

from xmcjax.solvers._base import Status
from xmcjax.solvers.multinomial import _certificate
from xmcjax.solvers.multinomial._problem import Problem
from xmcjax.solvers.multinomial._state import HParams, State

# Newton steps in float64, at most, where steps in the dtype of X bring nothing any more.
_NEWTON_STEPS = 20
# Factor of the gradient's tolerance with which a run goes on where its gap is too large.
FALL = 0.1


class Verdict(NamedTuple):
    """About the state with which a run has ended."""

    status: Status  #: RUNNING where it has to go on
    gap: float  #: (G − min G) / G at most; nan where not asked
    better: _certificate.Certified | None = None  #: weights that take the place of the state's


class Judge:
    """Judges the runs of a problem.

    Args:
        problem: on one device, or on all devices of a mesh.
        hp: the stopping rule, whose tolerance the gap has to keep.
        split: whether a mesh has the weights.
    """

    def __init__(self, problem: Problem, hp: HParams, split: bool):
        self._problem, self._tol, self._split = problem, float(hp.tolerance), split
        self._certifier: _certificate.Certifier | None = None

    def verdict(self, method: str, state: State, direction: _certificate.Direction | None = None) -> Verdict:
        """The verdict on a state that is not running.

        Args:
            method: the method that made the state.
            state: as it ended.
            direction: of :meth:`Certifier.certified`.
        """
        status = Status(int(state.status))
        if self._tol == 0 or status not in (Status.CONVERGED, Status.LINE_SEARCH_FAILED):
            return Verdict(status, math.nan)
        stuck = status == Status.LINE_SEARCH_FAILED
        split = isinstance(state.W, jax.Array) and not state.W.is_fully_addressable
        if method == "dm" or split or not _certificate.possible(self._problem):
            gap = self._by_gradient(method, state)
            if gap <= self._tol:
                return Verdict(Status.CONVERGED, gap)
            return Verdict(status, gap) if stuck else Verdict(Status.RUNNING, gap)
        if self._certifier is None:
            self._certifier = _certificate.Certifier(self._problem)
        W, bias = (np.asarray(a)[..., : self._problem.classes] for a in (state.W, state.bias))
        if not (np.isfinite(W).all() and np.isfinite(bias).all()):
            return Verdict(Status.NONFINITE, math.nan)
        steps = _NEWTON_STEPS if stuck and not self._split else 0
        found = self._certifier.certified(W, bias, self._tol, steps, direction)
        better = None if self._split else found
        # where weights gain little a smaller gap is asked for, as far as steps bring it
        if found.enough or (stuck and found.gap <= self._tol):
            return Verdict(Status.CONVERGED, found.gap, better=better)
        if stuck:
            return Verdict(Status.STALLED, found.gap, better=better)
        return Verdict(Status.RUNNING, found.gap)

    def _by_gradient(self, method: str, state: State) -> float:
        """‖∇F‖²/(2λ F) for the function F of the method; ∇F has the gradient of the intercepts too."""
        value = float(state.bound if method == "dm" else state.value)
        norm = float(state.stationarity)
        return norm**2 / (2 * float(self._problem.l2)) / value if value > 0 else math.inf
