"""Newton directions and their line search on the host, in float64, for certificates of optimality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np


class Valued(Protocol):
    """A point of a search."""

    @property
    def value(self) -> float:
        """The objective there."""
        ...


Point = TypeVar("Point", bound=Valued)


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray],
    right: np.ndarray,
    diagonal: np.ndarray,
    enough: Callable[[np.ndarray, float, float], bool],
    most: int,
) -> tuple[np.ndarray, float]:
    """(x, fall): A x = right by conjugate gradients from 0, and ½ rightᵀA⁻¹ right as far as it is known.

    Args:
        product: p ↦ A p, symmetric and positive semidefinite.
        right: of any shape.
        diagonal: of A, above 0, as the preconditioner.
        enough: ``(r, rᵀz, fall)`` -> whether to stop; r is the residual and z = r / diagonal.
        most: products.
    """
    x, r = np.zeros_like(right), right
    z = r / diagonal
    p, rz, fall = z, float(np.vdot(r, z)), 0.0
    for _ in range(most):
        if enough(r, rz, fall) or not rz > 0:
            break
        Ap = product(p)
        along = float(np.vdot(p, Ap))
        if not along > 0:
            break
        step = rz / along
        x, r = x + step * p, r - step * Ap
        # ½ rightᵀA⁻¹ right is the sum of these
        fall += step * rz / 2
        z = r / diagonal
        before, rz = rz, float(np.vdot(r, z))
        p = z + rz / before * p
    return x, fall


def halved(at: Callable[[float], Point], value: float, most: int) -> Point | None:
    """The first of the points at t = 1, ½, ¼, … that lies below a value; None where none of `most` does."""
    t = 1.0
    for _ in range(most):
        new = at(t)
        if new.value < value:
            return new
        t /= 2
    return None
