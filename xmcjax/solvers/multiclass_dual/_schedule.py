"""Which pairs of classes are optimised side by side: a 1-factorization of the complete graph.

Alber et al., "Distributed optimization of multi-class SVMs", 2017, Algorithm 5, with classes
and rounds counted from 0. There, mod(2r − c, C − 1) must be taken modulo C where C is odd.
"""

from __future__ import annotations

import numpy as np


def round_count(classes: int) -> int:
    """Rounds in which every class meets every other once: C − 1, or C where C is odd."""
    return classes - 1 + classes % 2


def partner(classes: int, c, r):
    """The class that class c meets in round r; c itself where it rests (C odd).

    Args:
        classes: C ≥ 2.
        c: from 0 to C − 1; a number or an array.
        r: from 0 to ``round_count(classes) - 1``.
    """
    modulus = round_count(classes)
    met = (2 * r - c) % modulus
    # Where C is even the last class stands in the centre, beside the ring of the others, and meets class r.
    alone = c if classes % 2 else modulus
    met = np.where(met == c, alone, met)
    return np.where(np.equal(c, modulus), r, met)


def round_pairs(classes: int, r, xp=np):
    """The pairs of round r as two arrays [C // 2] of classes.

    Args:
        classes: C ≥ 2.
        r: the round; may be a traced number where `xp` is jax.numpy.
        xp: numpy or jax.numpy.
    """
    modulus = round_count(classes)
    j = xp.arange(1, (modulus + 1) // 2, dtype=np.int32)
    first, second = (r + j) % modulus, (r - j) % modulus
    if classes % 2 == 0:
        first = xp.concatenate([xp.full(1, modulus, np.int32), first])
        second = xp.concatenate([xp.full(1, r, np.int32), second])
    return first, second
