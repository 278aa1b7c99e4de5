"""What a top-k SVM is expected to cost: by epochs, and by steps for all rows at once, which take X as dense.

Fitted to usps, letter, satimage and the silhouettes at C from 0.1 to 10 on one core with AVX-512. With
s = C · mean ‖x‖², both need more where s is large, and epochs need more still; an epoch costs more for each
dual variable, and a step more for each feature.
"""

from __future__ import annotations

from typing import NamedTuple

# Seconds: _PRODUCT of a multiplication in a matrix product, _VISITED and _MAPPED of a dual variable in an
# epoch and in a step.
_PRODUCT, _VISITED, _MAPPED = 3e-11, 5e-8, 1.3e-9
# Rows of a block of an epoch, whose inner products are worked out.
_BLOCK = 96
# _EIGEN: multiplications that eigenvectors cost, divided by the cube of the size of their matrix. _BEFORE:
# seconds before the first step.
_EIGEN, _BEFORE = 25, 2e-3


class Costs(NamedTuple):
    """Expected seconds on one core."""

    epoch: float
    epochs: float  #: all epochs
    steps: float  #: all steps, with what comes before them

    @property
    def reason(self) -> str:
        """Which come first and why, in a sentence."""
        both = sorted([(self.steps, "steps for all rows"), (self.epochs, "epochs")])
        (least, first), (most, other) = both
        return f"{first} come first: they are expected to take {least:.2g} s, {other} {most:.2g} s"


def expected(n: int, d: int, m: int, size: float, tol: float, entries: int | None = None) -> Costs:
    """The costs for features [n, d].

    Args:
        n: rows.
        d: features.
        m: classes.
        size: C · mean ‖x‖².
        tol: of the relative duality gap.
        entries: of sparse features; None for dense ones.
    """
    r = min(n, d)
    harder = (1e-3 / tol) ** 0.25
    epochs, steps = harder * 12 * size**0.75, harder * 80 * size**0.45
    products = (_BLOCK + 2 * m) * n * d if entries is None else 2 * m * entries
    epoch = n * m * _VISITED + products * _PRODUCT
    before = _BEFORE + (2 * n * d * r + _EIGEN * r**3) * _PRODUCT
    return Costs(epoch, max(epochs, 1) * epoch, before + max(steps, 1) * n * m * (2 * r * _PRODUCT + _MAPPED))
