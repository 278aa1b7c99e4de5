"""Platt's scaling: p = σ(a z + b) of scores z, by the method of Newton with backtracking.

J. Platt, "Probabilistic outputs for support vector machines", 1999; H.-T. Lin, C.-J. Lin and R. C. Weng,
"A note on Platt's probabilistic outputs for support vector machines", 2007, whose A and B are −a and −b.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# A score falls into a group by its sign, its exponent and the first 10 bits of its mantissa.
_DROPPED_BITS = np.uint64(42)
# The least slope, in units of the inverse of the standard deviation of the scores.
_LEAST = 1e-3
# Standard deviations of scores as parts of the largest: below _CLOSE a standard deviation may be what a fit
# has left open, below _ROUNDING it may be rounding.
_CLOSE, _ROUNDING = 1e-3, 1e-5
# Scores tell something where they lower the objective by at least _NATS, in rows of mean weight, and, below
# _ROUNDING, by at least the part _TOLD of it.
_NATS, _TOLD = 5.0, 1e-2
# Scores that are worked on together: arrays of that size stay in a cache.
_AT_ONCE = 1 << 16
_MOST_STEPS, _MOST_HALVINGS = 100, 40
# The Newton decrement at which a fit ends, relative to its objective.
_ENOUGH = 1e-13


class Sigmoids(NamedTuple):
    """Slopes and offsets of some labels, each [B]."""

    slope: np.ndarray
    offset: np.ndarray


def targets(positive: np.ndarray, negative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N₊ + 1)/(N₊ + 2) and 1/(N₋ + 2), the targets of rows with and without a label in place of 1 and 0.

    Args:
        positive, negative: N₊ and N₋, the total weights of these rows.
    """
    return (positive + 1) / (positive + 2), 1 / (negative + 2)


def fit_sigmoids(z: np.ndarray, count: np.ndarray, target: np.ndarray) -> Sigmoids:
    """Minimises Σ_i c_i log(1 + e^{u_i}) − T_i u_i with u_i = a z_i + b, for each label by itself.

    That is the cross-entropy of σ(u_i) and targets t_i with weights c_i, T_i = c_i t_i. The slope a is at
    least a thousandth of the inverse of the standard deviation of z, so that the order of scores is that of
    probabilities.

    Scores that are all but equal and tell nothing, as those of labels whose only weight is the bias, differ
    by rounding: scores of another model may lie any number of standard deviations away. Then b is the best
    for a = 0, and a is a thousandth of the inverse of the largest score, which hardly changes a probability.

    Args:
        z: scores, finite, of any magnitude, [B, m].
        count: c ≥ 0, not all 0, [B, m].
        target: T, [B, m], with 0 < Σ T < Σ c.
    """
    size = max(1, _AT_ONCE // z.shape[1])
    parts = [slice(first, first + size) for first in range(0, len(z), size)]
    found = [_fitted(z[part], count[part], target[part]) for part in parts]
    return Sigmoids(*(np.concatenate(of_parts) for of_parts in zip(*found, strict=True)))


def _fitted(z: np.ndarray, count: np.ndarray, target: np.ndarray) -> Sigmoids:
    # in units of a power of two, so that no sum or square leaves the range of numbers
    unit = np.frexp(np.abs(z).max(axis=1))[1]
    z = np.ldexp(z, -unit[:, None])
    total = count.sum(axis=1)
    mean = (count * z).sum(axis=1) / total
    x = z - mean[:, None]
    relative = np.sqrt((count * x * x).sum(axis=1) / total)
    spread = np.where(relative > 0, relative, 1.0)
    x /= spread[:, None]
    known = target.sum(axis=1)
    start = np.stack([np.full(len(z), _LEAST), np.log(known / (total - known))])
    point = start.copy()
    _minimise(x, count, target, point)
    if (relative < _CLOSE).any():
        without = _values(x, count, target, np.zeros(len(z)), start[1]).f
        found = _values(x, count, target, *point).f
        nats = (without - found) * total / (count * count).sum(axis=1)
        flat = (relative < _CLOSE) & (nats < _NATS)
        flat |= (relative < _ROUNDING) & (without - found < _TOLD * without)
        point[:, flat], spread[flat] = start[:, flat], 1.0
    slope = point[0] / spread
    return Sigmoids(in_units(slope, unit), point[1] - slope * mean)


def in_units(slope, unit):
    """Slopes of scores, finite and above 0, of those of scores that are divided by 2^unit."""
    numbers = np.finfo(float)
    with np.errstate(over="ignore", under="ignore"):  # of scores below 10⁻³⁰⁰ or above 10³⁰⁰
        return np.clip(np.ldexp(slope, -unit), numbers.smallest_subnormal, numbers.max)


class _Values(NamedTuple):
    """Objective, gradient and Hessian of each label."""

    f: np.ndarray
    ga: np.ndarray
    gb: np.ndarray
    haa: np.ndarray
    hab: np.ndarray
    hbb: np.ndarray


def _values(x: np.ndarray, count: np.ndarray, target: np.ndarray, a: np.ndarray, b: np.ndarray) -> _Values:
    u = a[:, None] * x + b[:, None]
    e = np.exp(-np.abs(u))
    p = np.where(u >= 0, 1.0, e) / (1 + e)
    f = (count * (np.maximum(u, 0) + np.log1p(e)) - target * u).sum(axis=1)
    r, h = count * p - target, count * e / ((1 + e) * (1 + e))
    hx = h * x
    return _Values(f, (r * x).sum(axis=1), r.sum(axis=1), (hx * x).sum(axis=1), hx.sum(axis=1), h.sum(axis=1))


def _minimise(x: np.ndarray, count: np.ndarray, target: np.ndarray, point: np.ndarray) -> None:
    """Moves the points (a, b), [2, B], to the minima with a ≥ _LEAST."""
    active = np.arange(len(x))
    now = _values(x, count, target, *point)
    for _ in range(_MOST_STEPS):
        da, db, decrement = _direction(now, point[0, active])
        moving = decrement > _ENOUGH * now.f
        if not moving.any():
            return
        active, da, db, decrement = active[moving], da[moving], db[moving], decrement[moving]
        now = _Values(*(value[moving] for value in now))
        a, b = point[0, active], point[1, active]
        # the longest step that keeps the slope
        step = np.ones(len(active))
        low = a + da < _LEAST
        step[low] = (a[low] - _LEAST) / -da[low]
        left = np.arange(len(active))
        found = [np.array(value) for value in now]
        for _ in range(_MOST_HALVINGS):
            rows = active[left]
            ta, tb = a[left] + step[left] * da[left], b[left] + step[left] * db[left]
            ta = np.maximum(ta, _LEAST)
            tried = _values(x[rows], count[rows], target[rows], ta, tb)
            good = tried.f <= now.f[left] - 1e-4 * step[left] * decrement[left]
            point[0, rows[good]], point[1, rows[good]] = ta[good], tb[good]
            for value, new in zip(found, tried, strict=True):
                value[left[good]] = new[good]
            left = left[~good]
            if not left.size:
                break
            step[left] /= 2
        if left.size:  # rounding: no step lowers these any more
            kept = np.ones(len(active), bool)
            kept[left] = False
            active, found = active[kept], [value[kept] for value in found]
        now = _Values(*found)


def _direction(now: _Values, a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Newton directions in a and b, and how much they promise; in b alone where a is to stay at its bound."""
    bound = (a <= _LEAST) & (now.ga >= 0)
    tiny = np.finfo(float).tiny
    haa, hbb = now.haa * (1 + 1e-12) + tiny, now.hbb * (1 + 1e-12) + tiny
    det = np.maximum(haa * hbb - now.hab * now.hab, 1e-12 * haa * hbb + tiny)
    da = np.where(bound, 0.0, (now.hab * now.gb - hbb * now.ga) / det)
    db = np.where(bound, -now.gb / hbb, (now.hab * now.ga - haa * now.gb) / det)
    # at the bound a joint step may still lead out of it: then b alone
    out = (a <= _LEAST) & (da < 0)
    da, db = np.where(out, 0.0, da), np.where(out, -now.gb / hbb, db)
    return da, db, -(now.ga * da + now.gb * db)


class Pool:
    """Scores of any number of rows and labels for one fit: groups of which only the mean is kept.

    Scores of a group have their sign, exponent and first 10 bits of the mantissa in common: of scores from
    10⁻⁹ to 10⁹ there are at most 120,000 groups. With a z + b in (−20, 20) the objective is exact to a part
    of 10⁻⁴ of it, and to 10⁻⁶ where it is in (−2, 2).
    """

    def __init__(self):
        self._key = np.empty(0, np.uint64)
        # weights of positive and of negative pairs, and sums of weights times z/edge − 1
        self._sums = np.zeros((3, 0))

    def add(self, z: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> None:
        """Takes pairs of a row and a label.

        Args:
            z: finite scores.
            positive: whether the row has the label, of the shape of z.
            weight: of the row, above 0, of the shape of z.
        """
        z = np.ascontiguousarray(z, np.float64).ravel()
        weight, positive = weight.ravel(), positive.ravel()
        key = z.view(np.uint64) >> _DROPPED_BITS
        edge = _edges(key)
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.where(edge != 0, z / edge - 1, 0.0)
        found, place = np.unique(np.concatenate([self._key, key]), return_inverse=True)
        sums = np.zeros((3, len(found)))
        old, place = place[: len(self._key)], place[len(self._key) :]
        sums[:, old] = self._sums
        for row, values in enumerate((weight * positive, weight * ~positive, weight * beyond)):
            sums[row] += np.bincount(place, values, len(found))
        self._key, self._sums = found, sums

    @property
    def positive(self) -> float:
        """Weight of the pairs that are positive."""
        return float(self._sums[0].sum())

    def fit(self) -> tuple[float, float]:
        """Slope and offset for all of them together; there are pairs of both kinds."""
        plus, minus, beyond = self._sums
        both = plus + minus
        one, zero = targets(plus.sum(), minus.sum())
        z = _edges(self._key) * (1 + beyond / both)
        found = fit_sigmoids(z[None], both[None], (one * plus + zero * minus)[None])
        return float(found.slope[0]), float(found.offset[0])


def _edges(key: np.ndarray) -> np.ndarray:
    """The number of each group that is closest to 0."""
    return (key << _DROPPED_BITS).view(np.float64)
