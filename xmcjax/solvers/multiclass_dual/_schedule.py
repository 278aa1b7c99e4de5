"""Bundles of classes for processes and places, and rounds in which classes meet in pairs.

The rounds are a 1-factorization of the complete graph: Alber et al., "Distributed optimization of multi-class
SVMs", 2017, Algorithm 5, with classes and rounds counted from 0: classes c and 2r − c meet in round r. Its
mod(2r − c, C − 1) must be taken modulo C where C is odd. In native ascent bundles of classes meet in the same
rounds, which native/dual/bundle_plan.h works out for itself.
"""

from __future__ import annotations

import itertools

import numpy as np


def round_count(classes: int) -> int:
    """Rounds in which every class meets every other once: C − 1, or C where C is odd.

    Example:
        >>> round_count(6), round_count(7)
        (5, 7)
    """
    return classes - 1 + classes % 2


def round_pairs(classes: int, r: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of round r as two arrays [C // 2] of classes.

    Args:
        classes: C ≥ 2.
        r: from 0 to ``round_count(classes) - 1``.

    Example:
        >>> [list(zip(*(side.tolist() for side in round_pairs(4, r)), strict=True)) for r in range(3)]
        [[(3, 0), (1, 2)], [(3, 1), (2, 0)], [(3, 2), (0, 1)]]
    """
    modulus = round_count(classes)
    j = np.arange(1, (modulus + 1) // 2, dtype=np.int32)
    first, second = (r + j) % modulus, (r - j) % modulus
    if classes % 2 == 0:
        # the last class stands in the centre, beside the ring of the others, and meets class r
        first, second = np.append(modulus, first), np.append(r, second)
    return first, second


def bundles_of(sizes: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Bundles of neighbouring classes, about as many instances in each, none of them empty."""
    m = len(sizes)
    if m < count:
        raise ValueError(f"expected at least {count} classes for this many processes, got {m}")
    after = np.concatenate([[0], np.cumsum(sizes)])
    cuts = np.searchsorted(after, after[-1] * np.arange(count + 1) / count)
    for b in range(1, count):
        cuts[b] = min(max(cuts[b], cuts[b - 1] + 1), m - (count - b))
    cuts[-1] = m
    return [(int(a), int(b)) for a, b in itertools.pairwise(cuts)]
