"""Multi-class SVMs whose rows have different C, as far as no program has to be compiled for them.

The native ascent over classes has one bound of all dual variables. That of
:mod:`xmcjax.solvers.instance_dual` has one for each row, and the dual sets of Weston-Watkins and
Crammer-Singer; where features are dense, steps for all rows at once follow, which know the bounds too.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from xmcjax import linops
from xmcjax.solvers import _admm_dense, instance_dual
from xmcjax.solvers._search import Ended, Search

# Dual sets of ascent over instances; k is 1.
_SETS = {"ww": "box", "cs": "topk_alpha"}
# Epochs after which steps for all rows at once take over, where there are such; so many of them count as one.
_PATIENCE, _STEPS = 50, 10
# Share of the epochs that is left to what follows, and of the entries of X from which on it counts as dense.
_SHARE, _DENSE = 0.8, 0.25


def attempt(
    search: Search, X: Any, y: np.ndarray, m: int, formulation: str, C: np.ndarray, most: int, seed: int
) -> int:
    """Ascent over the rows, then steps for all of them at once, each where it is to be had.

    Args:
        search: for the best that is found; it has the tolerance.
        X: features [n, d], CSR or an array.
        y: the class of each row, [n].
        m: classes.
        formulation: of ``FORMULATIONS``.
        C: of the rows, [n].
        most: epochs at most.
        seed: of the orders of the rows.

    Returns:
        Epochs made.
    """
    made = 0
    dense = not sp.issparse(X) or X.nnz >= _DENSE * X.shape[0] * X.shape[1]
    splits = dense and _admm_dense.fits(*X.shape, m)
    if formulation in _SETS and linops.native_ready():
        op = linops.make(X)
        problem = instance_dual.problem(op, y, set_name=_SETS[formulation], bound=C[None, :], classes=m)
        patience = min(_PATIENCE, most) if splits else max(1, int(_SHARE * most))
        hp = instance_dual.HParams(tol=search.tol, max_epochs=patience)
        state = instance_dual.init(problem, jax.random.key(seed))
        state, proofs = instance_dual.proved(problem, hp, state)
        made = int(state.epochs[0])
        search.keep(proofs[0] if proofs else instance_dual.proof(problem, state, 0, search.tol))
    if search.unsolved and splits and made < most:
        steps = _admm_dense.Method(X, y, m, formulation, C)

        def admm(target: float, alpha: sp.csr_array) -> Ended:
            nonlocal made
            start = alpha if alpha.size else sp.csr_array((len(y), m))
            found = steps(start, target, _STEPS * (most - made))
            made += -(-found.steps // _STEPS)
            return Ended(found.alpha, found.gap, found.W)

        search.attempt(admm, lambda: most - made)
    return made
