"""Dual variables of one problem by the alternating direction method of multipliers, on the host.

Many problems as lanes, on any device, take the same steps in :mod:`xmcjax.solvers.admm`.

Where features are long or correlated, and C is large, coordinate ascent needs thousands of passes. With the
row map and the metric M of :mod:`xmcjax.solvers._formulations` a step is

    α⁺ = row_map(M α + ρ h, ρ),   O = −Xᵀ coefficients(α⁺),   Δ = (I + ρ XᵀX)⁻¹ (W + 2 O − V),
    W ← W − κ Δ,   α ← α + κ (α⁺ − α),   V ← V + κ (O − V),

V = −Xᵀ coefficients(α), and W = −V at the optimum. The row map works on each row alone, and the linear system
is the same for all classes. Each step gives P(W) and D(α⁺), and the best W and the best α⁺ are kept. With
sparse features, after many steps, a few sweeps of coordinate ascent from the best α⁺ raise D by a quarter of
the gap: they end the search where that suffices.

ρ begins at 3 ‖α‖ / ‖XW‖ with ‖α‖² = αᵀM α, whatever the scale of the problem, or at the lower bound that the
steps ask for where α is far from the optimum. Afterwards ρ balances the two changes that a step makes:
with r = ‖Δα‖² / (ρ² ‖XΔ‖²), ρ is multiplied by √r where r is outside [1/2.5, 2.5], or outside [1/1.5, 1.5]
where another ρ costs nothing. While steps are extrapolated, r is the geometric mean since the last look at ρ.

The steps are those of :mod:`xmcjax.solvers._admm_blocks` (native, dense features), of
:mod:`xmcjax.solvers._admm_dense` or of :mod:`xmcjax.solvers._admm_sparse`.

Eckstein and Bertsekas, "On the Douglas-Rachford splitting method and the proximal point algorithm for maximal
monotone operators", 1992 (κ); He, Yang and Wang, "Alternating direction method with self-adaptive penalty
parameters", 2000 (ρ).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from xmcjax.solvers._anderson import Extrapolation
from xmcjax.solvers._progress import ALL_ROWS, Observe, Progress

# ρ is looked at after the steps _EARLY, and then every _EVERY steps, or every _PART of the steps made where
# that is more, because a ρ that never rests keeps the gap from falling. It stays while r is within a factor
# _BALANCED of 1. _EARLY_FREE and _BALANCED_FREE take their place where another ρ costs nothing.
_EARLY, _EVERY, _PART, _BALANCED = (10, 25), 50, 1 / 12, 2.5
_EARLY_FREE, _BALANCED_FREE = tuple(range(10, 100, 10)), 1.5
# ρ stays within a factor _RANGE of the first ρ, and does not fall below _TINY.
_RANGE, _TINY = 1e8, float(np.finfo(np.float64).tiny)
# Steps from one look at the gap to the next.
_CHECK = 5
# Sweeps of ascent may end the search where the gap is at most _NEARLY times the tolerance. Before step _SLOW
# the gap falls faster without them.
_NEARLY, _SLOW = 2.0, 400
# Steps in float32 without progress after which rounding is taken to be the reason; where it is more, a
# quarter of all steps. Progress: the gap falls by a tenth, or the dual objective rises by a twentieth.
_IDLE = 200
# Steps in float64 after which they are extrapolated: earlier extrapolation gains nothing.
_LATE = 1000


class Found(NamedTuple):
    """What the steps came to."""

    W: np.ndarray  #: float64 [d, m], of the smallest P
    alpha: sp.csr_array  #: of the largest D
    gap: float  #: (P − D) / P
    steps: int


class Look(NamedTuple):
    """Numbers of W and α⁺ that give the gap."""

    primal: float  #: P(W)
    gain: float  #: D(α⁺) without −½ ‖O‖²
    norm2: float  #: ‖O‖²


class Splitting(Protocol):
    """The steps for some kind of features."""

    exact: bool  #: whether the numbers are of float64
    rounding: float  #: approximate rounding error of P, or 0 where it is not known to matter
    free: bool  #: whether another ρ costs nothing
    least: float  #: lower bound of the first ρ
    #: makes some sweeps of coordinate ascent from the best α⁺ and returns D; best() gives their result until
    #: a better α⁺ is kept. None where there are no sweeps
    polish: Callable[[], float] | None
    extrapolation: Extrapolation | None  #: of the steps, where there is one
    shortens: bool  #: whether α⁺ may be shortened, as all dual sets allow where D has no ridge

    def begin(self) -> tuple[float, float]:
        """‖α‖² and ‖XW‖² at W = −V."""
        ...

    def use(self, rho: float) -> None:
        """Makes ready for steps at this ρ."""
        ...

    def look(self) -> Look:
        """α⁺ and O of a step."""
        ...

    def move(self, count: int) -> tuple[float, float]:
        """Changes W, α and V by what was looked at, and makes count − 1 further steps.

        Returns:
            ‖α⁺ − α‖² and ‖XΔ‖² of the last one.
        """
        ...

    def keep_weights(self) -> None:
        """W of the last look is the best."""
        ...

    def keep_alpha(self, factor: float) -> None:
        """`factor` times the last α⁺ are the best dual variables."""
        ...

    def best(self) -> tuple[np.ndarray, sp.csr_array]:
        """Weights [d, m] in float64 and dual variables [n, m]."""
        ...


#: Called with the gap, the steps made and the dual variables where the gap is looked at.
Told = Callable[[float, int, Callable[[], sp.csr_array]], None]


def told_in_passes(observe: Observe | None, made: Callable[[], float], of_a_pass: int) -> Told | None:
    """Tells `observe` of the passes `made` before and of the steps, `of_a_pass` of which count as a pass."""
    if observe is None:
        return None
    return lambda gap, steps, alpha: observe(Progress(ALL_ROWS, made() + steps / of_a_pass, gap, alpha))


def steps(split: Splitting, C: float, tol: float, most: int, told: Told | None = None) -> Found:
    """Steps until the gap is small enough.

    Args:
        split: with the dual variables to start from.
        C: weight of the losses.
        tol: of the relative duality gap.
        most: steps at most.
        told: see ``Told``; None for nothing.
    """
    # numbers that overflow leave a gap that is not finite, or too large, and the caller says so
    with np.errstate(over="ignore", invalid="ignore"):
        return _steps(split, C, tol, most, told)


def _steps(split: Splitting, C: float, tol: float, most: int, told: Told | None) -> Found:
    penalty, best = _Penalty(split, C), _Best(split)
    step, nearly = 0, _NEARLY * tol
    while True:
        gap = best.gap_now(step)
        if told is not None:
            told(float(gap), step, lambda: split.best()[1])
        if split.polish is not None and step >= _SLOW and tol < gap <= nearly:
            polished = (best.primal - split.polish()) / best.primal
            if polished <= tol or step >= most:
                gap = min(gap, polished)
                break
            nearly = tol * gap / polished  # the gap that sweeps with the same effect will close
        if not tol < gap < np.inf or step >= most:
            break
        if split.rounding > tol * best.primal or not (split.exact or best.rises(step)):
            break
        count = min(_CHECK - step % _CHECK, most - step)
        extrapolation = split.extrapolation if step >= _LATE else None
        if extrapolation:
            extrapolation.begin()
        changed, moved = split.move(count)
        step += count
        if penalty.balanced(step, changed, moved, extrapolated=bool(extrapolation)):
            if extrapolation:
                extrapolation.end()
        elif split.extrapolation:
            split.extrapolation.forget()
    return Found(*split.best(), gap, step)


class _Best:
    """The best W and α⁺ so far, which the steps keep.

    Args:
        split: the steps.
    """

    def __init__(self, split: Splitting):
        self._split, self.primal, self._dual = split, np.inf, -np.inf
        self._gap, self._risen, self._since = np.inf, 0.0, 0

    def gap_now(self, step: int) -> float:
        """The relative gap after a look at this step."""
        at = self._split.look()
        if at.primal < self.primal:
            self.primal = at.primal
            self._split.keep_weights()
        # D(s α⁺) of the best s in [0, 1]: with α⁺ the dual sets hold s α⁺ too
        factor = min(1.0, at.gain / at.norm2) if at.norm2 > 0 and self._split.shortens else 1.0
        dual = factor * at.gain - factor**2 * at.norm2 / 2
        if dual > self._dual:
            self._dual = dual
            self._split.keep_alpha(factor)
        gap = (self.primal - self._dual) / self.primal
        if gap < 0.9 * self._gap or self._dual > 1.05 * self._risen:
            self._gap, self._risen, self._since = min(gap, self._gap), self._dual, step
        return gap

    def rises(self, step: int) -> bool:
        """Whether there was progress not long before this step."""
        return step - self._since <= max(_IDLE, step / 4)


class _Penalty:
    """ρ of the steps.

    Args:
        split: the steps, which are made ready.
        C: weight of the losses.
    """

    def __init__(self, split: Splitting, C: float):
        variables, scores = split.begin()
        first = 3 * float(np.sqrt(variables / scores)) if scores > 0 and variables > 0 else C
        # C where α = 0 or a sum overflows: the first step of a row of mean length then goes to its bound
        self._first = self._rho = max(first, split.least) if 0 < first < np.inf else C
        self._early, self._range = (_EARLY_FREE, _BALANCED_FREE) if split.free else (_EARLY, _BALANCED)
        self._split, self._due, self._ratios = split, _EVERY, list[float]()
        split.use(self._rho)

    def balanced(self, step: int, changed: float, moved: float, *, extrapolated: bool) -> bool:
        """Whether ρ stays after a step with ‖Δα‖² = `changed` and ‖XΔ‖² = `moved`; it is changed if not."""
        curved = self._rho * (self._rho * moved)
        ratio = changed / curved if curved > 0 else 1.0
        self._ratios = [*self._ratios, ratio] if extrapolated and ratio > 0 else []
        if step not in self._early and step < self._due:
            return True
        self._due = step + max(_EVERY, int(_PART * step))
        if self._ratios:  # the ratio of a single step after an extrapolation may be anything
            ratio, self._ratios = float(np.exp(np.mean(np.log(self._ratios)))), []
        if 1 / self._range <= ratio <= self._range:
            return True
        least, most = max(self._first / _RANGE, _TINY), self._first * _RANGE
        self._rho = float(np.clip(self._rho * np.sqrt(ratio), least, most))
        self._split.use(self._rho)
        return False
