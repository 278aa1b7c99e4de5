"""What is seen of a dual solver from outside: where it starts, and how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax.solvers._formulation_base import with_values
from xmcjax.solvers._formulations import Formulation
from xmcjax.solvers._formulations import formulation as formulation_of

#: What native coordinate ascent is called, and steps of the alternating direction method.
ASCENT, ALL_ROWS = "coordinate ascent", "steps for all rows at once"


class Progress(NamedTuple):
    """How far a solver is that is under way."""

    method: str  #: the method that makes the passes
    passes: float  #: passes made so far, by all methods
    gap: float  #: relative duality gap, as the method estimates it; infinite where it is not known yet
    alpha: Callable[[], sp.csr_array]  #: gives the dual variables of this call [n, m], to start another run


#: What is called every few passes.
Observe = Callable[[Progress], None]


def observed(observe: Any) -> Any:
    """A function that is called with :class:`Progress`, or None.

    Raises:
        TypeError: anything else.
    """
    if observe is not None and not callable(observe):
        raise TypeError(f"observe: expected a function of the progress, got {type(observe).__name__}")
    return observe


def starting_point(
    start: Any, y: np.ndarray, m: int, formulation: str | Formulation, C, k: int = 1
) -> sp.csr_array:
    """Dual variables to start from, brought into the dual set of this C.

    They may be those of another C, of other features, or of rows that had another class: whatever they are,
    the result is feasible, so that nothing but the number of passes depends on them.

    Args:
        start: [n, m], sparse or dense, or None for none.
        y: the class of each row, [n].
        m: classes.
        formulation: of :mod:`xmcjax.solvers._formulations`, or its name.
        C: a number, or one for each row, [n]; above 0, but for rows that are left out.
        k: of the top-k losses.

    Returns:
        CSR [n, m] of float64; [0, 0] for no start.

    Raises:
        TypeError: no matrix of real numbers.
        ValueError: another shape, or numbers that are not finite.
    """
    if start is None:
        return sp.csr_array((0, 0))
    alpha = checked_start(start, (len(y), m))
    form = formulation_of(formulation)
    if not form.has_own:  # the class of a row has no variable
        own = np.repeat(y, np.diff(alpha.indptr)) == alpha.indices
        alpha = with_values(alpha, np.where(own, 0, alpha.data))
    return _sparse.canonical_csr(form.inside(alpha, C, k), "start", zeros=False)


def checked_start(start: Any, shape: tuple[int, int]) -> sp.csr_array:
    """Dual variables of this shape as CSR of float64, whatever set they are in.

    Raises:
        TypeError: no matrix of real numbers.
        ValueError: another shape, or numbers that are not finite.
    """
    alpha = _sparse.matrix(start, "start")
    if alpha.shape != shape:
        raise ValueError(f"start: expected dual variables {list(shape)}, got shape {list(alpha.shape)}")
    alpha = sp.csr_array(alpha).astype(np.float64)
    if not np.isfinite(alpha.data).all():
        raise ValueError("start: expected finite dual variables, found others")
    return _sparse.canonical_csr(alpha, "start", zeros=False)
