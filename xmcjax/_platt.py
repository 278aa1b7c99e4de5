"""Platt's scaling: p = σ(a z + b) of scores z, by the method of Newton with backtracking.

J. Platt, "Probabilistic outputs for support vector machines", 1999; H.-T. Lin, C.-J. Lin and R. C. Weng,
"A note on Platt's probabilistic outputs for support vector machines", 2007, whose A and B are −a and −b.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# A score falls into a group by its sign, its exponent and the first 10 bits of its mantissa.
_DROPPED_BITS = 13
_GROUPS = 1 << (32 - _DROPPED_BITS)
# The least slope, in units of the inverse of the standard deviation of the scores.
_LEAST = 1e-3
# Scores that are worked on together: arrays of that size stay in a cache.
_AT_ONCE = 1 << 16
_MOST_STEPS, _MOST_HALVINGS = 100, 40
# The Newton decrement at which a fit ends, relative to its objective.
_ENOUGH = 1e-13


class Sigmoids(NamedTuple):
    """Of some labels, each [B]."""

    slope: np.ndarray
    offset: np.ndarray


def targets(positive: np.ndarray, negative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N₊ + 1)/(N₊ + 2) and 1/(N₋ + 2), what rows with and without a label have for 1 and 0.

    Args:
        positive, negative: N₊ and N₋, weights of rows together.
    """
    return (positive + 1) / (positive + 2), 1 / (negative + 2)


def fit_sigmoids(z: np.ndarray, count: np.ndarray, target: np.ndarray) -> Sigmoids:
    """Minimises Σ_i c_i log(1 + e^{u_i}) − T_i u_i with u_i = a z_i + b, for each label by itself.

    That is the cross-entropy of σ(u_i) and targets t_i with weights c_i, T_i = c_i t_i. The slope a is at
    least a thousandth of the inverse of the standard deviation of z, so that the order of scores is that of
    probabilities.

    Args:
        z: scores, finite, [B, m].
        count: c ≥ 0, not all 0, [B, m].
        target: T, [B, m], with 0 < Σ T < Σ c.
    """
    size = max(1, _AT_ONCE // z.shape[1])
    parts = [slice(first, first + size) for first in range(0, len(z), size)]
    found = [_fitted(z[part], count[part], target[part]) for part in parts]
    return Sigmoids(*(np.concatenate(of_parts) for of_parts in zip(*found, strict=True)))


def _fitted(z: np.ndarray, count: np.ndarray, target: np.ndarray) -> Sigmoids:
    total = count.sum(axis=1)
    mean = (count * z).sum(axis=1) / total
    x = z - mean[:, None]
    spread = np.sqrt((count * x * x).sum(axis=1) / total)
    spread = np.where(spread > 0, spread, 1.0)
    x /= spread[:, None]
    known = target.sum(axis=1)
    point = np.stack([np.full(len(z), _LEAST), np.log(known / (total - known))])
    _minimise(x, count, target, point)
    slope = point[0] / spread
    return Sigmoids(slope, point[1] - slope * mean)


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
    """Scores of any number of rows and labels for one fit, in 12 MB: groups of which only the mean is kept.

    Scores of a group have their sign, exponent and first 10 bits of the mantissa in common. With a z + b in
    (−20, 20) the objective is exact to a part of 10⁻⁴ of it, and to 10⁻⁶ where it is in (−2, 2).
    """

    def __init__(self):
        self._count = np.zeros((2, _GROUPS))
        self._sum = np.zeros(_GROUPS)

    def add(self, z: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> None:
        """Takes pairs of a row and a label.

        Args:
            z: finite scores.
            positive: whether the row has the label, of the shape of z.
            weight: of the row, of the shape of z.
        """
        narrow = np.ascontiguousarray(z, np.float32).ravel()
        key = (narrow.view(np.uint32) >> _DROPPED_BITS).astype(np.int64)
        weight, positive = weight.ravel(), positive.ravel()
        for row, chosen in enumerate((positive, ~positive)):
            self._count[row] += np.bincount(key[chosen], weight[chosen], _GROUPS)
        self._sum += np.bincount(key, weight * narrow, _GROUPS)

    @property
    def positive(self) -> float:
        """Weight of the pairs that are positive."""
        return float(self._count[0].sum())

    def fit(self) -> tuple[float, float]:
        """Slope and offset for all of them together; there are pairs of both kinds."""
        both = self._count.sum(axis=0)
        there = np.flatnonzero(both)
        one, zero = targets(*self._count.sum(axis=1))
        target = one * self._count[0, there] + zero * self._count[1, there]
        found = fit_sigmoids((self._sum[there] / both[there])[None], both[there][None], target[None])
        return float(found.slope[0]), float(found.offset[0])
