"""The step of :mod:`._splitting` for the risk of Prec@k.

The worst labelling calls the a best of the right and the b best of the wrong pairs right, so that

    R(Z) = max_{a, b} n (1 − a/(a + b)) + S_a(z_right) + S_b(z_wrong) − Σ z_right,   a + b ≥ least,

with the sums S_j of the j largest. Its convex hull of labellings is that of mixtures π of such pairs of
numbers, of which R has the loss of the mean. For one π, with v_i = Σ π (a ≥ i) and likewise u_i,

    argmin ½‖Z − V‖² + t R_π(Z):   z_right = the nearest falling sequence to v_right − t (v_i − 1),

with the scores in the order of V, and z_wrong likewise to v_wrong − t u_i. These are isotonic regressions.
The best π is found by exchanges: weight moves from the pair of numbers with the least value at Z to the pair
of the worst labelling, until the difference of their values falls to 0. For any π, (V − Z)/t is a mixture of
labellings less the right one, which gives :mod:`._splitting` its lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.optimize import isotonic_regression

EXCHANGES = 4  # exchanges per step; the next step continues with the mixture of the last one
HALVINGS = 7  # bisections for the weight that is exchanged
ENOUGH = 1e-4  # tolerance of the best value, divided by the number of right pairs
LEAST = 1e-12  # the least weight that is kept

#: The weight of each pair (a, b), the numbers of right and of wrong pairs called right; the weights sum to 1.
Mixture = dict[tuple[int, int], float]


def loss(n: int, a: np.ndarray | int, b: np.ndarray | int):
    """Δ of a right and b wrong pairs, n (1 − a/(a + b))."""
    return n * (1 - a / np.maximum(np.add(a, b), 1))


def numbers(right: np.ndarray, wrong: np.ndarray, least: int) -> tuple[np.ndarray, np.ndarray]:
    """The best b for each a of 0 … n, and R + Σ z_right at them.

    Args:
        right: scores of the right pairs, falling.
        wrong: the largest scores of the wrong pairs, falling; b is at most their number.
        least: lower bound of a + b.
    """
    n, known = len(right), len(wrong)
    a = np.arange(n + 1)
    # for a given a, one more wrong pair pays while n a / ((a+b) (a+b+1)) + z_(b+1) > 0, which falls in b
    low, high = np.minimum(np.maximum(least - a, 0), known), np.full(n + 1, known)
    while (open_ := low < high).any():
        b = (low + high) // 2
        pays = n * a / np.maximum((a + b) * (a + b + 1.0), 1) + wrong[np.minimum(b, known - 1)] > 0
        low, high = np.where(open_ & pays, b + 1, low), np.where(open_ & ~pays, b, high)
    return low, loss(n, a, low) + _sums(right) + _sums(wrong)[low]


def nearest(
    right: np.ndarray, wrong: np.ndarray, t: float, least: int, mixture: Mixture
) -> tuple[np.ndarray, np.ndarray, Mixture]:
    """argmin ½‖Z − V‖² + t R(Z), as far as a few exchanges lead.

    Args:
        right: V of the right pairs, falling, float64.
        wrong: V of the wrong pairs, falling, float64.
        t: weight of R.
        least: lower bound of a + b.
        mixture: the start.

    Returns:
        Z of the right and of the wrong pairs in the same order, and the mixture.
    """
    n, above = len(right), right + t

    def at(mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
        pairs, weights = np.array(list(mixture)), np.array(list(mixture.values()))
        v, u = (_tails(numbers, weights) for numbers in pairs.T)
        return _lowered(above, t * v), _lowered(wrong, t * u)

    Z = at(mixture)
    for _ in range(EXCHANGES):
        b, values = numbers(*Z, least)
        best = int(values.argmax())
        new = best, int(b[best])
        found = _values(Z, mixture)
        old = min(found, key=lambda pair: found[pair])
        mean = sum(weight * found[pair] for pair, weight in mixture.items())
        if new == old or values[best] - mean <= ENOUGH * n:
            break

        def exchanged(weight: float, old=old, new=new, before: Mixture = mixture) -> Mixture:
            return {**before, old: before[old] - weight, new: before.get(new, 0.0) + weight}

        def ahead(Z, old=old, new=new) -> float:
            found = _values(Z, (old, new))
            return found[new] - found[old]

        low, high = 0.0, mixture[old]
        weight, Z = high, at(exchanged(high))
        if ahead(Z) < 0:
            for _ in range(HALVINGS):
                weight = (low + high) / 2
                Z = at(exchanged(weight))
                low, high = (weight, high) if ahead(Z) > 0 else (low, weight)
        kept: Mixture = {pair: part for pair, part in exchanged(weight).items() if part > LEAST}
        total = sum(kept.values())
        mixture = {pair: part / total for pair, part in kept.items()}
    return *Z, mixture


def _values(Z: tuple[np.ndarray, np.ndarray], pairs: Iterable[tuple[int, int]]) -> dict:
    """R + Σ z_right for the labellings with each of some pairs of numbers (a, b)."""
    pairs = list(pairs)
    called = np.array(pairs)
    right, wrong = (_sums(z[:most]) for z, most in zip(Z, called.max(axis=0), strict=True))
    a, b = called.T
    return dict(zip(pairs, (loss(len(Z[0]), a, b) + right[a] + wrong[b]).tolist(), strict=True))


def _lowered(values: np.ndarray, by: np.ndarray) -> np.ndarray:
    """The nearest falling sequence to falling values whose first entries are lowered."""
    known = max(2 * len(by), 1)
    while True:
        first = values[:known].copy()
        first[: len(by)] -= by
        first = isotonic_regression(first, increasing=False).x
        # later values fall already, and are averaged with earlier ones only where above the last of these
        if known >= len(values) or first[-1] >= values[known]:
            return np.concatenate([first, values[known:]])
        known *= 2


def _sums(values: np.ndarray) -> np.ndarray:
    """The sums of no value, of the first, of the first two …"""
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])


def _tails(numbers: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """For each i from 1 to the largest number, the total weight of the numbers that are at least i."""
    return np.cumsum(np.bincount(numbers, weights)[::-1])[::-1][1:]
