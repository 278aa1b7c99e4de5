"""Weights that are dropped after training, and what that costs.

A weight stays where |w_j| ≥ t. Without a number given,

    t = 0.01 min(1/r, ‖w‖/4),    r² = Σ_i s_i ‖x_i‖² / Σ_i s_i,

so that a dropped weight moves the score of a row of usual length by a hundredth of the margin at most, and
by little compared with the spread of the label's scores. The unit of the features does not matter. Then t is
halved until the weights δ that are dropped are expected to raise the objective f of the label by little:

    ½ ‖δ‖² + ½ κ (a/n) Σ_j δ_j² Σ_i C s_i x_ij²  ≤  f/400,

where a of the n rows are active and φ'' ≤ κ. This is ½ δᵀHδ if the columns of the active rows are orthogonal
and as long as those of other rows. (A bound of ½ δᵀHδ by norms of X is hundreds of times too large on text.)

This estimate is many times too small where C s ‖x‖² is large: the weights dropped along a row have one sign,
and rows just beyond the margin come within it, even where no row was active before. Where the estimate with
a = n expects some rise there, the rise is computed from the losses of the rows, at each t that the estimate
above allows, and t is halved until that rise is f/200 at most.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax._range import largest_norm
from xmcjax._words import counted
from xmcjax.lanes._job import Weights
from xmcjax.lanes._objective import Objective
from xmcjax.losses import MarginLoss

#: Rise of a label's objective, relative to it, above which a warning is given.
RISE = 0.01
# Expected rise above which t is halved, or, where the user gave t, the objective is evaluated again.
EXPECTED = RISE / 4
# ALLOWED: largest rise where the rise is computed from the losses. This is done where the mean of κ C s ‖x‖²,
# times the larger weight of the label's rows, is above _STIFF, and the rise that is expected if all rows are
# active is above _DOUBTED.
ALLOWED, _STIFF, _DOUBTED = RISE / 2, 3.0, EXPECTED / 16
# Where no t is given, it is the smaller of _OF_MARGIN / r and _OF_NORM ‖w‖.
_OF_MARGIN, _OF_NORM = 0.01, 0.0025
# Scales of t that are tried, each half the one before; after them all weights stay.
HALVINGS = 10
_SCALES = (*(0.5**k for k in range(HALVINGS)), 0.0)
# Most labels whose objective is evaluated again: each costs a product with X.
LOOKS = 64


@dataclasses.dataclass(frozen=True)
class Clipping:
    """The rule for one set of features.

    Attributes:
        most: the largest t; 0 keeps all weights.
        part: t is at most this part of ‖w‖ too; infinite where `most` was given by the user.
        curvature: ½ κ/n Σ_i C s_i x_ij², [d], in the dtype of the weights.
        stiffness: the mean of κ C s ‖x‖²; 0 where no objective is looked at.
        largest_row: the largest ‖x‖, set where objectives may be looked at.
        rows: n, set where objectives may be looked at.
    """

    most: float
    part: float
    curvature: np.ndarray
    stiffness: float = 0.0
    largest_row: float = 0.0
    rows: int = 0

    @property
    def adapts(self) -> bool:
        """Whether t is halved where dropping would raise f."""
        return math.isfinite(self.part)

    def is_stiff(self, heaviest: float) -> bool:
        """Whether the objective of a label may rise by far more than expected.

        Args:
            heaviest: the larger weight of the label's rows.
        """
        return self.stiffness * heaviest > _STIFF

    def doubts(self, square: float, curved: float, value: float, heaviest: float) -> bool:
        """Whether the rise is computed from the losses: dropping weights may make further rows active.

        Args:
            square, curved, value: as in :meth:`expected_rise`.
            heaviest: the larger weight of the label's rows.
        """
        if not self.is_stiff(heaviest):
            return False
        return self.expected_rise(square, curved, value, self.rows * heaviest) > _DOUBTED

    def weights(
        self,
        w: np.ndarray,
        value: float,
        active: float,
        heaviest: float,
        risen: Callable[[np.ndarray, float], float],
    ) -> Weights:
        """The weights of a label that are kept.

        Args:
            w: all, [d].
            value: f.
            active: rows with a slope or a curvature.
            heaviest: the larger weight of the label's rows.
            risen: gives f(w − δ) − f(w) from δ, [d], and a number that, times the square root of a row's
                number of entries, bounds the row's score by δ.
        """
        if self.most == 0:
            kept = np.flatnonzero(np.abs(w) > 0)
            return Weights(kept, w[kept])
        with np.errstate(over="ignore", invalid="ignore"):
            magnitude = np.abs(w)
            most = min(self.most, self.part * math.sqrt(float(w @ w))) if self.adapts else self.most
            for scale in self.scales():
                t = w.dtype.type(scale * most)
                kept = np.flatnonzero(magnitude >= t if t > 0 else magnitude > 0)
                values = w.take(kept)
                dropped = w.copy()
                dropped[kept] = 0
                # sums over the dropped weights alone: a difference of larger sums might be all rounding
                square, curved = float(dropped @ dropped), float((dropped * dropped) @ self.curvature)
                expected = self.expected_rise(square, curved, value, active * heaviest)
                if not self.adapts or expected <= EXPECTED:
                    if not self.doubts(square, curved, value, heaviest):
                        break
                    if risen(dropped, self.largest_row * float(t)) <= ALLOWED * value:
                        break
        return Weights(kept, values, expected)

    def scales(self):
        """The factors of t that are tried, one after the other."""
        return _SCALES if self.adapts else (1.0,)

    @staticmethod
    def expected_rise(square: float, curved: float, value: float, active: float) -> float:
        """The expected rise of f, relative to f; infinite where it cannot be told.

        Args:
            square: Σ δ².
            curved: Σ δ² curvature.
            value: f.
            active: rows with a slope or a curvature, times the larger weight of the label's rows.
        """
        rise = float(0.5 * square + active * curved)
        if rise <= 0:  # nothing was dropped, up to rounding
            return 0.0
        rise = rise / value if value > 0 else math.inf
        return rise if rise == rise else math.inf


def keep_all(dtype) -> Clipping:
    """The rule that drops zeros only."""
    return Clipping(0.0, math.inf, np.zeros(0, dtype))


def make_clipping(X: Any, weight: np.ndarray, loss: MarginLoss, clip: float | None) -> Clipping:
    """The rule for these features.

    Args:
        X: CSR or dense [n, d].
        weight: C s of the rows, [1] or [n].
        loss: φ.
        clip: t; None for one that looks at the features.
    """
    dtype = np.dtype(np.float64 if X.dtype == np.float64 else np.float32)
    if clip == 0:
        return keep_all(dtype)
    n = X.shape[0]
    weight = np.broadcast_to(weight, n)
    if sp.issparse(X):
        of_entries = np.square(X.data, dtype=np.float64)
        squares = sp.csr_array((of_entries, X.indices, X.indptr), shape=X.shape).T @ weight
    else:
        squares = np.einsum("i,ij,ij->j", weight, X, X, dtype=np.float64)
    # infinite curvatures of a loss may give ∞ or NaN here: then no rise can be told, and all weights stay
    with np.errstate(over="ignore", invalid="ignore"):
        total = squares.sum()
        curvature = (0.5 * loss.most_curvature / n * squares).astype(dtype)
        stiffness = float(loss.most_curvature * total / n)
    if clip is not None:
        return Clipping(clip, math.inf, curvature)
    r = math.sqrt(total / weight.sum())
    of_margin = _OF_MARGIN / r if r > 0 else math.inf
    return Clipping(of_margin, _OF_NORM, curvature, stiffness, largest_norm(X), n)


class CloserLook:
    """Evaluates f again, without weights that are dropped.

    Args:
        X: CSR or dense [n, d].
        objective: f.
    """

    def __init__(self, X: Any, objective: Objective):
        self._X, self._objective = X, objective
        self._left = LOOKS

    def rise(
        self,
        weights: Weights,
        bias: float,
        value: float,
        positives: np.ndarray,
        positive: float,
        negative: float,
    ) -> float:
        """(f(w) − f) / f for the weights w that a clip keeps; NaN once ``LOOKS`` labels have been looked at.

        Args:
            weights: those kept.
            bias: of the label.
            value: f, of all weights.
            positives: rows with the label.
            positive, negative: weights of the rows with and without it.
        """
        if self._left <= 0:  # threads share the count
            return math.nan
        self._left -= 1
        w = np.zeros(self._X.shape[1], weights.values.dtype)
        w[weights.indices] = weights.values
        return (self.value(w, bias, positives, positive, negative) - value) / value

    def value(
        self, w: np.ndarray, bias: float, positives: np.ndarray, positive: float, negative: float
    ) -> float:
        """f(w) at weights w, [d]; the other arguments as in :meth:`rise`."""
        y, c = self._objective.targets(positives, positive, negative, w.dtype)
        f = self._objective.losses(self._X @ w + w.dtype.type(bias), y, c)
        return f + self._objective.of_weights(w).sum() + self._objective.of_bias(bias, w.dtype)


class Raised(NamedTuple):
    """Labels whose objective a clip has raised by more than ``RISE``, among those looked at."""

    labels: int = 0
    worst: int = -1  #: the label whose objective rose most; between equals the lower number
    rise: float = 0.0  #: of the objective of `worst`, relative to it
    looked_at: int = 0  #: labels whose rise was worked out
    unseen: int = 0  #: labels not looked at, although some rise is expected

    def with_label(self, label: int, rise: float) -> Raised:
        """The counts with one label more, whose rise is 0 if none is expected, NaN if not looked at."""
        if rise == 0:
            return self
        if rise != rise:
            return self._replace(unseen=self.unseen + 1)
        seen = self._replace(looked_at=self.looked_at + 1)
        if not rise > RISE:
            return seen
        worst = (rise, -label) > (self.rise, -self.worst)
        return seen._replace(labels=self.labels + 1, **(dict(worst=label, rise=rise) if worst else {}))

    def describe(self, name: str, clip: float | None) -> str:
        """What has happened, and the remedy.

        Args:
            name: of the worst label.
            clip: that was given.
        """
        labels = f"{counted(self.labels, 'label')} by more than {RISE:.0%}"
        worst = f"that of {name}" + (" most," if self.labels > 1 else "")
        if self.unseen:
            candidates = f"{self.looked_at + self.unseen:,} that may have risen"
            labels = f"at least {labels} ({self.looked_at:,} of the {candidates} were looked at)"
            worst = f"of these {worst}"
        return (
            f"dropping weights below clip = {clip:g} raised the objective of {labels}, {worst} by "
            f"{self.rise:.2%}: leave clip out, so that the scale of the features decides, or set it to 0, "
            "which keeps all weights"
        )


NOTHING_RAISED = Raised()
