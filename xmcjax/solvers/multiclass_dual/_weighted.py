"""Multi-class SVMs whose rows have different C, by methods for which no program is compiled.

The native ascent over classes has one bound of all dual variables. That of
:mod:`xmcjax.solvers.instance_dual` has one for each row, and the dual sets of Weston-Watkins and
Crammer-Singer. One against the rest with the hinge is a problem of two classes of Weston-Watkins for each
class, in which w_1 = −w_0 = w / 2, so that

    ½ ‖w_0‖² + ½ ‖w_1‖² + Σ_i ½ C_i φ(y_i (w_1 − w_0)·x_i) = ½ (½ ‖w‖² + Σ_i C_i φ(y_i w·x_i)).

The squared hinge has no bound but a ridge ρ_i = 1/2C_i. With ρ_0 the least of them, and a feature of value
√(ρ_i − ρ_0) that row i alone has, D = Σ α − ½ Σ ρ_i α_i² − ½ ‖W‖² is that of one C = 1/2ρ_0 for all rows.

Where features are dense, steps for all rows at once follow, which know the bounds too. What is not solved
then is left to proximal point steps.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from xmcjax import linops
from xmcjax.solvers import _admm_dense, instance_dual
from xmcjax.solvers._certified import Certified
from xmcjax.solvers._instance_start import started
from xmcjax.solvers._progress import Observe, Progress
from xmcjax.solvers._search import Ended, Search
from xmcjax.solvers.multiclass_dual import _native

#: What a method comes to, and its epochs.
Found = tuple[Ended, int]

# Dual sets of ascent over instances; k is 1.
_SETS = {"ww": "box", "cs": "topk_alpha"}
# Epochs after which steps for all rows at once take over, where there are such; so many of them count as one.
_PATIENCE, _STEPS = 50, 10
# Of Weston-Watkins and Crammer-Singer: weights up to which, and dual variables from which on, the proximal
# point steps that follow are faster than those for all rows at once, although a program is compiled for them.
_DIRECT, _MANY = 1200, 1 << 17
# Share of the epochs that is left to what follows, and of the entries of X from which on it counts as dense.
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
    """Native ascent over the rows, then steps for all of them at once, each where it suits.

    Args:
        search: for the best that is found; it has the tolerance.
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
    splits = dense and _admm_dense.fits(n, d, m)
    if formulation in _SETS:
        patience = min(_PATIENCE, most) if splits else max(1, int(_SHARE * most))
        lane = _Lane(X, y, _SETS[formulation], C, m)
        state, proof = lane.solved(search.tol, patience, seed, search.start, observe)
        made = int(state.epochs[0])
        search.keep(proof)
        splits &= d * m > _DIRECT or n * m < _MANY
    elif not splits and formulation in _SEPARATELY:

        def separately(target: float, alpha: sp.csr_array) -> Ended:
            nonlocal made
            found, epochs = _SEPARATELY[formulation](X, y, m, C, target, most - made, seed, alpha, observe)
            made += epochs
            return found

        search.attempt(separately, lambda: most - made)
    if search.unsolved and splits and made < most:

        def told(gap: float, count: int, alpha) -> None:
            if observe is not None:
                observe(Progress("steps for all rows at once", made + count / _STEPS, gap, alpha))

        steps = _admm_dense.Method(X, y, m, formulation, C, told=told)

        def admm(target: float, alpha: sp.csr_array) -> Ended:
            nonlocal made
            start = alpha if alpha.size else sp.csr_array((len(y), m))
            found = steps(start, target, _STEPS * (most - made))
            made += -(-found.steps // _STEPS)
            return Ended(found.alpha, found.gap, found.W)

        search.attempt(admm, lambda: most - made)
    return made


class _Lane:
    """One problem of ascent over instances.

    Args:
        X: features [n, d], or an operator.
        y: classes, [n].
        set_name: of its dual sets.
        bound: r, [n].
        classes: m.
    """

    def __init__(self, X: Any, y: np.ndarray, set_name: str, bound: np.ndarray, classes: int):
        op = linops.make(X) if isinstance(X, np.ndarray) or sp.issparse(X) else X
        self.problem = instance_dual.problem(op, y, set_name=set_name, bound=bound[None, :], classes=classes)

    def solved(
        self,
        tol: float,
        most: int,
        seed: int,
        start: sp.csr_array | None = None,
        observe: Observe | None = None,
    ) -> tuple[instance_dual.State, Certified]:
        """The state after epochs, `most` at most, with its proof."""
        state = started(self.problem, instance_dual.init(self.problem, jax.random.key(seed)), start)
        hp = instance_dual.HParams(tol=tol, max_epochs=most)
        state, proofs = instance_dual.proved(self.problem, hp, state, observe)
        return state, proofs[0] if proofs else instance_dual.proof(self.problem, state, 0, tol)


def _hinges(
    X: Any,
    y: np.ndarray,
    m: int,
    C: np.ndarray,
    tol: float,
    most: int,
    seed: int,
    start: sp.csr_array,
    observe: Observe | None,
) -> Found:
    """One against the rest with the hinge, class by class."""
    begin = sp.csc_array(start) if start.size else None
    op, columns, primal, gap, epochs = linops.make(X), [], 0.0, 0.0, 0
    for c in range(m):
        own = (y == c).astype(np.int32)
        of_class = None
        if begin is not None:
            half = begin[:, [c]].toarray()[:, 0] / 2
            of_class = sp.csr_array((half, (np.arange(len(y)), 1 - own)), shape=(len(y), 2))
        state, proof = _Lane(op, own, "box", C / 2, 2).solved(tol, most, seed, of_class)
        # the one variable of a row stands in the column of the class that is not its own
        columns.append(sp.csc_array(2 * np.asarray(proof.alpha.sum(axis=1)).reshape(-1, 1)))
        primal, gap = primal + proof.primal, gap + abs(proof.primal - proof.dual)
        epochs = max(epochs, int(state.epochs[0]))
        if observe is not None:
            observe(Progress("class by class", epochs, np.inf, functools.partial(_so_far, columns, begin, m)))
    alpha = sp.csr_array(sp.hstack(columns, format="csr"))
    return Ended(alpha, gap / primal if primal > 0 else 0.0), epochs


def _so_far(columns: list[sp.csc_array], begin: sp.csc_array | None, m: int) -> sp.csr_array:
    """Dual variables of the classes that are done, and of the others where they begin."""
    others = sp.csc_array((columns[0].shape[0], m)) if begin is None else begin
    return sp.csr_array(sp.hstack([*columns, others[:, len(columns) :]], format="csr"))


def _squared(
    X: Any,
    y: np.ndarray,
    m: int,
    C: np.ndarray,
    tol: float,
    most: int,
    seed: int,
    start: sp.csr_array,
    observe: Observe | None,
) -> Found:
    """One against the rest with the squared hinge, with a feature for each row."""
    rows, ridge = _native.canonical(X), 0.5 / C
    more = sp.diags_array(np.sqrt(ridge - ridge.min()).astype(rows.dtype), format="csr")
    rows = sp.csr_array(sp.hstack([rows, more], format="csr"))
    options = dict(tol=tol, max_epochs=most, seed=seed, shrinking=True, threads=1)
    options |= dict(start=start if start.size else None, observe=observe)
    found = _native.solved(rows, y, m, "ovr_squared", float(C.max()), **options)
    return Ended(found["alpha"], found["gap"]), max(1, found["epochs"] + found["newton_steps"])


# Methods of formulations whose classes are problems of their own.
_SEPARATELY = {"ovr": _hinges, "ovr_squared": _squared}
