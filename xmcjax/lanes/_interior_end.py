"""The end of a label with the squared hinge by a primal-dual interior-point method, in float64.

Where C is large, few rows are active at the minimum, and most of those that a Newton step would make active
are not: steps are short, and there are dozens of them. An interior point moves all rows at once, so that some
twenty steps end a label, however large C ‖x‖² is. With ξ the slacks, B the rows y_i (x_i, 1) and
Λ = diag(1, …, 1, r),

    min ½ uᵀΛu + Σ c_i ξ_i²,  B u + ξ − 1 = s,  s, α ≥ 0,  s_i α_i = μ → 0,

where ξ = α/2c, and each step solves systems with Λ + Bᵀ diag(1/(1/2c + s/α)) B (S. Mehrotra, "On the
implementation of a primal-dual interior point method", 1992; M. Ferris and T. Munson, "Interior-point methods
for massive support vector machines", 2002).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from xmcjax.lanes._dual_end import End, balanced_variables
from xmcjax.lanes._label_features import LabelFeatures
from xmcjax.losses import MarginLoss, SquaredHinge

# _STEPS: most steps. _LOOKED_AT: relative gap up to which weights are yielded. _TOLERANCE: relative gap that
# ends a label. _PART: part that a step goes of the way to where an s or α is 0. _AWAY: how far from 0 s and α
# start, relative to their means; ten times as far, or a tenth, takes up to twice the steps.
_STEPS, _LOOKED_AT, _TOLERANCE, _PART, _AWAY = 60, 1e-4, 1e-10, 0.995, 0.1


class _Point(NamedTuple):
    w: np.ndarray
    bias: float
    m: np.ndarray  # B u
    alpha: np.ndarray
    s: np.ndarray


class InteriorEnd:
    """What an interior-point method gives, over the same features for all labels.

    Args:
        features: with exact directions.
        l2_bias: r; negative for no bias.
    """

    def __init__(self, features: LabelFeatures, l2_bias: float):
        self._features, self._r = features, l2_bias

    @staticmethod
    def serves(loss: MarginLoss, features: LabelFeatures) -> bool:
        """Whether labels with this loss, and with ½ ‖w‖² as the penalty, have such an end here."""
        return type(loss) is SquaredHinge and features.factors

    def __call__(self, y: np.ndarray, c: np.ndarray, w: np.ndarray, bias: float) -> Iterator[End]:
        """Better and better ends of a label, which do not depend on other labels.

        Args:
            y: targets, [n].
            c: weights of the losses, [n]; rows of weight 0 are left out.
            w, bias: to start from.
        """
        kept = np.flatnonzero(c > 0)
        if kept.size:
            yield from _Interior(self._features.taken(kept), self._r, y[kept], c[kept]).ends(w, bias)


class _Interior:
    """The interior-point method for one label."""

    def __init__(self, features: LabelFeatures, r: float, y: np.ndarray, c: np.ndarray):
        self._features, self._r, self._y, self._c = features, r, y, c

    def ends(self, w: np.ndarray, bias: float) -> Iterator[End]:
        """Yields the points of a gap up to _LOOKED_AT, until rounding or the tolerance ends the steps."""
        now = self._start(w, bias)
        for _ in range(_STEPS):
            if now is None or not np.isfinite(now.m).all():
                return
            short = np.maximum(1 - now.m, 0)
            f = float(self._c @ (short * short) + now.w @ now.w / 2 + max(self._r, 0) * now.bias**2 / 2)
            bound = self._bound(now.alpha)
            if f - bound <= _LOOKED_AT * f:
                yield End(now.w, now.bias, bound)
            if f - bound <= _TOLERANCE * f:
                return
            now = self._next(now)

    def _transposed(self, a: np.ndarray) -> tuple[np.ndarray, float]:
        """Bᵀ a."""
        a = self._y * a
        return self._features.transposed(a), float(a.sum()) if self._r >= 0 else 0.0

    def _product(self, w: np.ndarray, bias: float) -> np.ndarray:
        """B u."""
        return self._y * (self._features.product(w) + bias)

    def _start(self, w: np.ndarray, bias: float) -> _Point:
        """The first point: α and s follow from the margins of w and b, and are then moved away from 0."""
        m = self._product(w, bias)
        alpha, s = 2 * self._c * np.maximum(1 - m, 0), np.maximum(m - 1, 0)
        mean, far = float(alpha.mean()), float(abs(1 - m).mean())
        alpha += _AWAY * (mean if mean > 0 else float(self._c.mean()))
        return _Point(w, bias, m, alpha, s + _AWAY * (far if far > 0 else 1.0))

    def _next(self, now: _Point) -> _Point | None:
        """The point after a predictor-corrector step; None where rounding makes the factorisation fail."""
        y, r, alpha, s = self._y, max(self._r, 0.0), now.alpha, now.s
        D = 1 / (1 / (2 * self._c) + s / alpha)
        try:
            solve = self._features.factored(D, self._r)
        except np.linalg.LinAlgError:
            return None
        v, of_bias = self._transposed(alpha)
        primal = s + 1 - now.m - alpha / (2 * self._c)

        def towards(complement):
            q = primal - complement / alpha
            to_w, to_bias = self._transposed(D * q)
            dw, db = solve(v - now.w + to_w, of_bias - r * now.bias + to_bias)
            dm = self._product(dw, db)
            dalpha = D * (q - dm)
            return dw, db, dm, dalpha, -(complement + s * dalpha) / alpha

        *_, dalpha, ds = towards(alpha * s)
        mu = alpha @ s / len(y)
        after = (alpha + _reach(alpha, dalpha) * dalpha) @ (s + _reach(s, ds) * ds) / len(y)
        dw, db, dm, dalpha, ds = towards(alpha * s - (after / mu) ** 3 * mu + dalpha * ds)
        t = min(1.0, _PART * min(_reach(alpha, dalpha, np.inf), _reach(s, ds, np.inf)))
        return _Point(now.w + t * dw, now.bias + t * db, now.m + t * dm, alpha + t * dalpha, s + t * ds)

    def _bound(self, alpha: np.ndarray) -> float:
        """D(α) = Σ α − ½ αᵀBΛ⁻¹Bᵀα − Σ α²/4c; where r is 0, α is scaled first so that Σ α y is 0."""
        if self._r == 0:
            alpha = balanced_variables(alpha, self._y > 0)
        v, of_bias = self._transposed(alpha)
        bound = float(alpha.sum() - v @ v / 2 - (alpha * alpha / (4 * self._c)).sum())
        return bound - (of_bias * of_bias / (2 * self._r) if self._r > 0 else 0.0)


def _reach(a: np.ndarray, step: np.ndarray, most: float = 1.0) -> float:
    """The largest t up to `most` with a + t step ≥ 0."""
    falls = step < 0
    return min(most, float((a[falls] / -step[falls]).min())) if falls.any() else most
