"""Temperature scaling: one slope for the scores of all classes, where each row has one class.

C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger, "On calibration of modern neural networks", 2017.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import whole_number
from xmcjax._platt import in_units
from xmcjax.models._arrays import ArrayModel
from xmcjax.models._calibration import Calibration
from xmcjax.models._calibrator import HeldOut, checked_parts, checked_weight
from xmcjax.models._predict import decision_function

# The most scores that are held at a time; several float64 arrays have that size.
_SCORES = 1 << 21
_MOST_STEPS, _MOST_HALVINGS, _ENOUGH = 100, 40, 1e-12
# The least slope, as a multiple of the slope that gives the scores of a row standard deviation 1 on average.
_LEAST = 1e-3


def fit_temperature(
    parts: Sequence[HeldOut], y: np.ndarray, weight: np.ndarray | None = None, *, threads: int = 1
) -> Calibration:
    """The slope a > 0 with the least cross-entropy of softmax(a z_i) over rows that were held out.

    The target of a row's class is (n + 1)/(n + 2), and the other classes share the rest, so that a is finite
    even if all rows are predicted right. The calibration keeps the order of the classes of a row. Newton's
    method takes some ten steps and computes the scores anew in each, a few rows at a time.

    Args:
        parts: disjoint sets of rows, each with weights of all K classes. A class without weights in a part
            has no score there. Where there are two classes, a part has the weights of the second only, and
            softmax is over −z/2 and z/2.
        y: class of each row, whole numbers, [n].
        weight: of the rows, at least 0, [n]; None for ones. Rows of weight 0 count for nothing.
        threads: of the products.

    Returns:
        The calibration of the K classes, or of the one score: all have the same slope and offset 0.

    Raises:
        ValueError, TypeError: numbers that do not fit; no row has scores of its class and of another one.

    Example:
        >>> from xmcjax.models import ArrayModel
        >>> X = np.array([[1.0, 0.2, 0.0], [0.9, 1.0, 0.3], [0.0, 1.0, 0.5], [0.2, 0.1, 1.0]] * 9)
        >>> part = HeldOut(np.arange(36), X, ArrayModel(np.eye(3)))
        >>> fit_temperature([part], np.array([0, 1, 1, 2] * 9)).slope.round(1)
        array([6.3, 6.3, 6.3])
    """
    threads, y = whole_number("threads", threads, 1), _sparse.dense(y, "y")
    first = parts[0] if isinstance(parts, (list, tuple)) and parts else None
    count = first.model.n_labels if isinstance(first, HeldOut) and isinstance(first.model, ArrayModel) else 1
    n = len(y) if y.ndim == 1 else 0
    if not n or y.dtype.kind not in "iu" or not 0 <= y.min() <= y.max() < max(count, 2):
        raise ValueError(f"y: expected numbers of classes [n] from 0 to {max(count, 2) - 1}, found others")
    parts, weight = checked_parts(parts, n, count), checked_weight(weight, n)

    def scores(unit: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for rows, X, model in parts:
            size = max(1, _SCORES // max(2, count))
            for first in range(0, len(rows), size):
                some = slice(first, first + size)
                z = decision_function(model, X[some], threads=threads).astype(np.float64)  # type: ignore[index]
                if count == 1:
                    z = np.concatenate([-z / 2, z / 2], axis=1)
                place, w = y[rows[some]], weight[rows[some]]
                kept = np.isfinite(z[np.arange(len(z)), place]) & (np.isfinite(z).sum(axis=1) > 1) & (w > 0)
                yield np.ldexp(z[kept], -unit), place[kept], w[kept]

    a, unit = _scale(scores())
    least = _LEAST * a
    rest = 1 / (sum(float(weight[part.rows].sum()) for part in parts) + 2)
    f, g, h = _values(scores(unit), a, rest)
    for _ in range(_MOST_STEPS):
        step = -g / max(h, np.finfo(float).tiny)
        step = max(step, least - a)
        if -g * step <= _ENOUGH * f:
            break
        for _ in range(_MOST_HALVINGS):
            tried = _values(scores(unit), a + step, rest)
            if tried[0] <= f + 1e-4 * g * step:
                break
            step /= 2
        else:  # because of rounding no step lowers the loss any more
            break
        a, (f, g, h) = a + step, tried
    return Calibration(np.full(count, in_units(a, unit)), np.zeros(count), np.zeros(count, bool))


def _scale(blocks: Iterator) -> tuple[float, int]:
    """The inverse of the root mean square, over rows, of the standard deviation of the scores of a row.

    Returns:
        That inverse for scores divided by 2^u, and u, chosen so that no square of such a score overflows.
    """
    total = rows = 0.0
    unit = -2000  # below the exponent of any number
    for z, _, w in blocks:
        if not len(z):
            continue
        there = np.isfinite(z)
        before, own = unit, int(np.frexp(np.abs(z[there]).max())[1])
        unit = max(unit, own)
        variance = np.nanvar(np.where(there, np.ldexp(z, -own), np.nan), axis=1)
        total = float(np.ldexp(total, 2 * (before - unit)) + np.ldexp((w * variance).sum(), 2 * (own - unit)))
        rows += float(w.sum())
    if not rows:
        raise ValueError("calibration: expected rows whose class has a score, found none")
    return float(np.sqrt(rows / total)) if total > 0 else 1.0, unit


def _values(blocks: Iterator, a: float, rest: float) -> tuple[float, float, float]:
    """Σ_i w_i (log Σ_k e^{a z_ik} − a Σ_k t_ik z_ik) with its first and second derivative by a."""
    found = np.zeros(3)
    for z, y, w in blocks:
        there = np.isfinite(z)
        most = np.where(there, z, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
        z = np.where(there, z - most, 0.0)  # relative to the row's largest score
        own = z[np.arange(len(z)), y]
        others = (z.sum(axis=1) - own) / (there.sum(axis=1) - 1)
        target = (1 - rest) * own + rest * others
        e = np.where(there, np.exp(a * z), 0.0)
        total = e.sum(axis=1)
        mean, square = (e * z).sum(axis=1) / total, (e * z * z).sum(axis=1) / total
        found += [
            (w * (np.log(total) - a * target)).sum(),
            (w * (mean - target)).sum(),
            (w * (square - mean * mean)).sum(),
        ]
    return float(found[0]), float(found[1]), float(found[2])
