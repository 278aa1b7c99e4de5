"""Dual variables by the alternating direction method of multipliers.

Where features are long or correlated, and C is large, coordinate ascent needs thousands of passes. With the
row map and the metric M of :mod:`xmcjax.solvers._formulations` a step is

    α⁺ = row_map(M α + ρ h, ρ),   O = −Xᵀ coefficients(α⁺),   Δ = (I + ρ XᵀX)⁻¹ (W + 2 O − V),
    W ← W − κ Δ,   α ← α + κ (α⁺ − α),   V ← V + κ (O − V),

V = −Xᵀ coefficients(α), and W = −V at the optimum. The map knows nothing of other rows, and the system is the
same for all classes. P(W) and D(α⁺) come with every step: the best of both are kept. With sparse features,
where steps are many, a few sweeps of coordinate ascent from the best α⁺ raise D by a quarter of the gap: they
end the search where that suffices.

ρ is free of scale in the beginning, 3 ‖α‖ / ‖XW‖ with ‖α‖² = αᵀM α, or what the steps ask for at least where
α is far from the optimum. Afterwards it balances what a step changes: r = ‖Δα‖² / (ρ² ‖XΔ‖²), and ρ is
multiplied by √r where r is not within [1/2.5, 2.5], or [1/1.5, 1.5] where another ρ costs nothing. Of steps
that are extrapolated r is the geometric mean since ρ was looked at last.

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

# Steps at which ρ is looked at, and then every so many, or this part of those made where that is more,
# because a ρ that never rests keeps the gap from falling; and changes of it that are let be: where another ρ
# costs a factorisation, and where it costs nothing.
_EARLY, _EVERY, _PART, _BALANCED = (10, 25), 50, 1 / 12, 2.5
_EARLY_FREE, _BALANCED_FREE = tuple(range(10, 100, 10)), 1.5
# The range that ρ stays in, relative to the first.
_RANGE, _TINY = 1e8, float(np.finfo(np.float64).tiny)
# Steps from one look at the gap to the next.
_CHECK = 5
# Gaps, relative to the tolerance, from which on sweeps of ascent may end the search, and steps before which
# the gap falls faster without them.
_NEARLY, _SLOW = 2.0, 400
# Steps in float32 without progress after which rounding is taken to be the reason, at least; it may also be a
# quarter of all steps. Progress is a gap that falls by a tenth, or a dual that rises by a twentieth.
_IDLE = 200
# Steps in float64 after which they are extrapolated: before, nothing is gained.
_LATE = 1000


class Found(NamedTuple):
    """What came of it."""

    W: np.ndarray  #: float64 [d, m], of the smallest P
    alpha: sp.csr_array  #: of the largest D
    gap: float  #: (P − D) / P
    steps: int


class Look(NamedTuple):
    """Of W and α⁺, where the gap is looked at."""

    primal: float  #: P(W)
    gain: float  #: D(α⁺) without −½ ‖O‖²
    norm2: float  #: ‖O‖²


class Splitting(Protocol):
    """The steps for some kind of features."""

    exact: bool  #: whether the numbers are of float64
    rounding: float  #: of P, about, where that is known to matter
    free: bool  #: whether another ρ costs nothing
    least: float  #: ρ to begin with, at least
    #: makes some sweeps of coordinate ascent from the best α⁺, which is what best() gives from then on, until
    #: a better one is kept; returns D. None where there are no sweeps
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
        """So much of the last α⁺ is the best."""
        ...

    def best(self) -> tuple[np.ndarray, sp.csr_array]:
        """Weights [d, m] in float64 and dual variables [n, m]."""
        ...


#: Called with the gap, the steps made and the dual variables where the gap is looked at.
Told = Callable[[float, int, Callable[[], sp.csr_array]], None]


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
    variables, scores = split.begin()
    first = 3 * float(np.sqrt(variables / scores)) if scores > 0 and variables > 0 else C
    # α = 0, or sums beyond their dtype: the first step of a row of mean length goes to its bound
    rho = first = max(first, split.least) if 0 < first < np.inf else C
    split.use(rho)
    best_primal, best_dual, gap, step = np.inf, -np.inf, np.inf, 0
    fallen, risen, since, due = np.inf, 0.0, 0, _EVERY
    extrapolation, ratios = split.extrapolation, list[float]()
    nearly = _NEARLY * tol
    early, balanced = (_EARLY_FREE, _BALANCED_FREE) if split.free else (_EARLY, _BALANCED)
    while True:
        at = split.look()
        if at.primal < best_primal:
            best_primal = at.primal
            split.keep_weights()
        # D(s α) of the best s: the dual sets hold all shorter ones
        factor = min(1.0, at.gain / at.norm2) if at.norm2 > 0 and split.shortens else 1.0
        dual = factor * at.gain - factor**2 * at.norm2 / 2
        if dual > best_dual:
            best_dual = dual
            split.keep_alpha(factor)
        gap = (best_primal - best_dual) / best_primal
        if told is not None:
            told(float(gap), step, lambda: split.best()[1])
        if split.polish is not None and step >= _SLOW and tol < gap <= nearly:
            polished = (best_primal - split.polish()) / best_primal
            if polished <= tol or step >= most:
                gap = min(gap, polished)
                break
            nearly = tol * gap / polished  # where as much will suffice
        if not gap > tol or step >= most or not np.isfinite(gap):
            break
        if gap < 0.9 * fallen or best_dual > 1.05 * risen:
            fallen, risen, since = min(gap, fallen), best_dual, step
        if split.rounding > tol * best_primal:
            break
        if not split.exact and step - since > max(_IDLE, step / 4):
            break
        count = min(_CHECK - step % _CHECK, most - step)
        further = extrapolation if step >= _LATE else None
        if further:
            further.begin()
        changed, moved = split.move(count)
        step += count
        curved = rho * (rho * moved)
        ratio = changed / curved if curved > 0 else 1.0
        ratios = [*ratios, ratio] if further and ratio > 0 else []
        if step in early or step >= due:
            due = step + max(_EVERY, int(_PART * step))
            if ratios:  # of a single step after an extrapolation it may be anything
                ratio, ratios = float(np.exp(np.mean(np.log(ratios)))), []
            if not 1 / balanced <= ratio <= balanced:
                rho = float(np.clip(rho * np.sqrt(ratio), max(first / _RANGE, _TINY), first * _RANGE))
                split.use(rho)
                further = None
                if extrapolation:
                    extrapolation.forget()
        if further:
            further.end()
    return Found(*split.best(), gap, step)
