"""Multi-class SVMs whose rows have different C, by methods for which no program is compiled.

The native ascent of Weston-Watkins and Crammer-Singer over classes has one bound for all dual variables. The
ascent of :mod:`xmcjax.solvers.instance_dual` has a bound per row, and the dual sets of both formulations. The
ascent of Lee-Lin-Wahba over instances, and that of one-vs-rest, take the C of each row.

Where features are dense, or weights few, steps for all rows at once follow, which have a bound per row too.
For Weston-Watkins and Crammer-Singer they also follow where features are sparse, and rows or features few.
What is not solved then is left to proximal point steps, early where these have few unknowns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import linops
from xmcjax.native import CentredAscent, SeparateAscent
from xmcjax.solvers import _admm_dense, instance_dual
from xmcjax.solvers._formulations import NAMES
from xmcjax.solvers._progress import Observe
from xmcjax.solvers._search import Ended, Passes, Search, ascended
from xmcjax.solvers.multiclass_dual import _native

# Dual sets of ascent over instances; k is 1.
_SETS = {"ww": "box", "cs": "topk_alpha"}
# Epochs after which another method takes over: _NATIVE_PATIENCE before native steps for all rows at once,
# _LATE at most before them where features are sparse and weights many, and _PATIENCE before other methods.
_NATIVE_PATIENCE, _PATIENCE, _LATE = 5, 50, 1000
# For Weston-Watkins and Crammer-Singer with at most _DIRECT weights and at least _MANY dual variables,
# proximal point steps are faster than NumPy's steps for all rows at once, although a program is compiled for
# them. For one-vs-rest with at most _DIRECT features and fewer than _MANY dual variables, they follow ascent
# early.
_DIRECT, _MANY = 1200, 1 << 17
# _SHARE: share of the epochs that is used before another method takes over, at most. _DENSE: share of nonzero
# entries from which on X counts as dense.
_SHARE, _DENSE = 0.8, 0.25


def attempt(
    search: Search,
    X: Any,
    y: np.ndarray,
    m: int,
    formulation: str,
    C: np.ndarray,
    most: int,
    seed: int,
    observe: Observe | None = None,
) -> int:
    """Native ascent over the rows, then steps for all rows at once, each where it suits.

    Args:
        search: keeps the best solution that is found, and has the tolerance.
        X: features [n, d], CSR or an array.
        y: the class of each row, [n].
        m: classes.
        formulation: of ``FORMULATIONS``.
        C: of the rows, [n].
        most: epochs at most.
        seed: of the orders of the rows.
        observe: of ``run``.

    Returns:
        Epochs made.
    """
    dense = not sp.issparse(X) or X.nnz >= _DENSE * X.shape[0] * X.shape[1]
    (n, d), made = X.shape, 0
    fits, native = _admm_dense.fits(n, d, m), linops.native_ready()
    splits, late = dense and fits, not dense and fits and native
    few = late and d * m <= _DIRECT
    early = _NATIVE_PATIENCE if splits and native else _PATIENCE
    if few:
        early = max(1, min(early, int(_SHARE * most)))
    if formulation in _SETS:
        patience = min(early, most)
        if not (splits or few):
            patience = max(1, int(min(_SHARE * most, _LATE if late else np.inf)))
        lane = instance_dual.problem(
            linops.make(X), y, set_name=_SETS[formulation], bound=C[None, :], classes=m
        )
        hp = instance_dual.HParams(tol=search.tol, max_epochs=patience)
        state, proof = instance_dual.solved(lane, hp, seed, search.start, observe)
        made = int(state.epochs[0])
        search.keep(proof)
        splits = late or (splits and (native or d * m > _DIRECT or n * m < _MANY))
    elif NAMES[formulation].has_own or not splits:
        own, passes = NAMES[formulation].has_own, Passes()
        alone = own and d <= _DIRECT and n * m < _MANY
        patience = early if splits or few or alone else max(1, int(_SHARE * most))
        rows = _native.canonical(X)

        def ascent(target: float, alpha: sp.csr_array) -> Ended:
            if own:
                point = SeparateAscent.of_classes(rows, y, m, formulation, C, dense=dense, seed=seed)
            else:
                point = CentredAscent(rows, y, m, formulation, C, seed=seed)
            how: Any = dict(patience=patience, observe=observe, made=lambda: passes.visited)
            return ascended(point, alpha, target, passes, left, **how)[0]

        def left() -> float:
            return most - passes.visited

        search.attempt(ascent, left)
        made, splits = math.ceil(passes.visited), splits or few
    if search.unsolved and splits and made < most:
        steps = _admm_dense.Method(X, y, m, formulation, C, observe=observe, made=lambda: made)

        def admm(target: float, alpha: sp.csr_array) -> Ended:
            nonlocal made
            # where weights are few, proximal point steps in float64 keep a share of the passes
            left = (_SHARE if few else 1) * most - made
            ended, passes = steps.in_passes(alpha, target, max(left, 1))
            made += math.ceil(passes)
            return ended

        search.attempt(admm, lambda: most - made)
    return made
