"""The weights that dual variables give, and the duality gap that they are certain to have.

Whatever made α: it is brought into the dual set, W = Xᵀ coefficients(α) is worked out anew, and both
objectives are in float64. With V the weights in float64 and W those in the dtype of X, which the caller gets,

    P(W) = ½ ‖W‖² + Σ_i loss_i(X W) ≥ min P = max D ≥ D(α) = Σ α − ½ ρ Σ α² − ½ ‖V‖²,

so that P(W) − D(α) bounds how far P(W) is from its minimum, whatever rounding did before. Where many gains
are 0 at the optimum, as where the classes can be separated, rounding makes half of them losses of weight C,
to float32 or, where C ‖x‖² is above 1e11, in float64; weights longer by a few times the rounding have none of
them. What is left of a search, whose α may have come to its end before, is a loss in the same way.

One against the rest has with two classes one problem twice, the second time with the signs changed. Whoever
takes the weights of one class needs a gap of these alone. So both classes get the better of the two weights,
and the better dual variables: P and D are then twice those of each class, and the gap is that of each.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax.solvers._formulations import Formulation
from xmcjax.solvers._formulations import formulation as formulation_of
from xmcjax.solvers._products import product

# Bytes of the dual variables of some rows in float64; and of their scores, or of the rows, which stay in the
# cache.
_BYTES, _SCORES = 64 << 20, 4 << 20
# Share of the dual variables that are not zero, above which they are multiplied as a dense matrix.
_DENSE = 0.1
# Rounding of the losses that does not matter beside them, and beside the tolerance; rounding of a gain as a
# multiple of its own.
_NEGLIGIBLE, _UNSEEN, _NEAR = 1e-12, 1e-3, 8
#: Factors by which weights of float32 are lengthened, in units of their rounding.
LONGER = (2, 8, 32, 128, 512, 2048)
# And of float64, where gains that smaller ones move count as 0 all the same; further ones, in parts of the
# tolerance; and the rounding of objectives without losses in float64, relative to them, which gaps of such
# weights come near to.
_WIDER, OF_TOLERANCE, _SUMS = (128, 2048, 32768), (1 / 16, 1 / 8, 1 / 4, 3 / 8), 16
#: Part of weights below which they are not shortened further.
_SHORTEST = 2.0**-40


class Share(NamedTuple):
    """Of the blocks of rows whose losses are summed: every `count`-th from `place` on."""

    place: int = 0
    count: int = 1
    total: Callable[[np.ndarray], np.ndarray] = np.asarray  #: of sums over the shares


class Certified(NamedTuple):
    """Weights, dual variables inside the dual set, and what their objectives are."""

    W: np.ndarray  #: [d, m], in the dtype of X
    alpha: sp.csr_array  #: float64 [n, m]
    primal: float
    dual: float
    rounding: float  #: of the primal in float64, about, where gains are 0 but for rounding

    @property
    def gap(self) -> float:
        """|primal − dual| / |primal|: what is below 0 is rounding too; infinite where they are not finite.

        What rounding of the gains may hide is added.
        """
        difference = abs(self.primal - self.dual) + self.rounding
        gap = difference / abs(self.primal) if self.primal else 0.0
        return gap if np.isfinite(gap) else np.inf

    @property
    def rank(self) -> float:
        """What is least for the best weights of the same dual variables: the gap.

        Where D is 0, of which all gaps are 1 but for rounding, it is P.
        """
        if self.dual > 0:
            return self.gap
        return self.primal if np.isfinite(self.primal) else np.inf


def certified(
    X,
    y: np.ndarray,
    alpha: sp.csr_array,
    formulation: str | Formulation,
    C,
    tol: float,
    W: np.ndarray | None = None,
    k: int = 1,
    share: Share | None = None,
    threads: int = 1,
) -> Certified:
    """The weights of some dual variables with their duality gap.

    Args:
        X: [n, d], CSR or dense.
        y: the class of each row, [n].
        alpha: dual variables [n, m], in the dual set but for rounding.
        formulation: one of :mod:`xmcjax.solvers._formulations`, or its name.
        C: weight of the losses, a number, or one for each row, [n].
        W: weights that may be better than those of the dual variables, float64 [d, m]; the latter are
            looked at where the gap of these is larger than `tol`.
        tol: where the gap is larger, weights may be lengthened by up to 2,000 times their rounding, or in
            float64 by up to 33,000 times, or 3/8 of `tol` where that is more.
        k: of the top-k losses.
        share: of this process, where several certify the same together; None for one alone.
        threads: over which the blocks of rows whose losses are summed are divided. They change no bit.
    """
    form, share = formulation_of(formulation), share or Share()
    alpha = form.inside(alpha.astype(np.float64), C, k)
    V, twice = weights_of(X, y, alpha, form), form.has_own and alpha.shape[1] == 2
    of_variables = _of_each(V) if twice else [V]
    if twice:
        alpha, V = _of_the_better(alpha, of_variables, form, C)
    with np.errstate(over="ignore", invalid="ignore"):
        dual = form.dual_gain_of_rows(alpha, C) - float(np.vdot(V, V)) / 2
        if dual < 0:  # 0 is in every dual set
            alpha, dual = sp.csr_array(alpha.shape), 0.0

        def at(W: np.ndarray, factor: float) -> Certified:
            W = (factor * W if factor != 1 else W).astype(X.dtype, copy=False)
            primal, rounding = _primal(X, y, W, form, C, tol, k, share, threads)
            return Certified(W, alpha, primal, dual, rounding)

        def best_at(weights: list[np.ndarray]) -> tuple[Certified, np.ndarray]:
            return min(((at(W, 1.0), W) for W in weights), key=lambda found: found[0].rank)

        given = of_variables if W is None else _of_each(W) if twice else [W]
        best, exact = best_at(given)
        if W is not None and not best.gap <= tol:
            other = best_at(of_variables)
            if other[0].rank < best.rank:
                best, exact = other
        if best.gap > tol and np.isfinite(best.gap):
            first, eps = best.primal, float(np.finfo(best.W.dtype).eps)
            narrow = best.W.dtype == np.float32
            lengths = [units * eps for units in (LONGER if narrow else _WIDER)]
            if not narrow:
                lengths += [part * tol for part in OF_TOLERANCE if part * tol > max(lengths, default=0.0)]
            for number, longer in enumerate(lengths):
                other = at(exact, 1 + longer)
                if not narrow:
                    other = other._replace(rounding=other.rounding + _SUMS * eps * other.primal)
                best = min(best, other, key=lambda found: found.rank)
                if number == 1:
                    # P is convex: it falls by this at most, or by twice as much, as W is rounded
                    most = 2 * (first - best.primal) * lengths[-1] / longer
                    hopeless = not first - most - dual <= tol * abs(first)
                    # all processes go on, or none
                    if share.total(np.array(float(hopeless))) > 0:
                        break
            if best.gap > tol:
                of_none = at(np.zeros_like(exact), 1.0).primal
                best = _shortened(best, of_none, lambda factor: at(exact, factor))
    return best


def _shortened(best: Certified, of_none: float, at: Callable[[float], Certified]) -> Certified:
    """Weights whose P is no more than that of none, W = 0, as those of an ascent that was ended early may be.

    Args:
        best: the weights.
        of_none: P(0), which the weights come to where they are short enough.
        at: the weights, shortened by a factor.
    """
    factor = 1.0
    while best.primal > of_none and factor > _SHORTEST:
        factor /= 2
        best = min(best, at(factor), key=lambda found: found.rank)
    return best


def _of_each(W: np.ndarray) -> list[np.ndarray]:
    """Of two classes' weights [d, 2] those of the first for both, signs changed, and those of the second."""
    signs = np.array([1.0, -1.0])
    return [W[:, :1] * signs, W[:, 1:] * -signs]


def _of_the_better(
    alpha: sp.csr_array, weights: list[np.ndarray], form: Formulation, C
) -> tuple[sp.csr_array, np.ndarray]:
    """The dual variables [n, 2] of the class with the greater dual objective, for both, and their weights."""
    found = []
    for number, V in enumerate(weights):
        column = alpha[:, [number]]
        both = sp.csr_array(sp.hstack([column, column], format="csr"))
        found.append((form.dual_gain_of_rows(both, C) - float(np.vdot(V, V)) / 2, both, V))
    _, both, V = max(found, key=lambda of_one: of_one[0])
    return both, V


def certified_kernel(
    K: np.ndarray,
    y: np.ndarray,
    alpha: sp.csr_array,
    formulation: str | Formulation,
    C,
    k: int = 1,
    a: np.ndarray | None = None,
) -> Certified:
    """The same where inner products K [n, n] are known alone; W are then coefficients of the rows, [n, m].

    Args:
        K: inner products.
        y, alpha, formulation, C, k: of :func:`certified`.
        a: coefficients that may be better than those of the dual variables, float64 [n, m].
    """
    form = formulation_of(formulation)
    alpha = form.inside(alpha.astype(np.float64), C, k)
    wide, gain = K.astype(np.float64), form.dual_gain_of_rows(alpha, C)

    def at(a: np.ndarray, dual: float | None = None) -> Certified:
        a = a.astype(K.dtype)
        Z = wide @ a.astype(np.float64)
        half = float(np.vdot(a, Z)) / 2
        value, rounding = _losses(Z, y, form, C, 0.0, k)
        return Certified(a, alpha, half + value, gain - half if dual is None else dual, rounding)

    with np.errstate(over="ignore", invalid="ignore"):
        best = at(form.coefficients(alpha.toarray(), y))
        if best.dual < 0:  # 0 is in every dual set
            alpha = sp.csr_array(alpha.shape)
            best = best._replace(alpha=alpha, dual=0.0)
        if a is not None and (other := at(a, best.dual)).rank < best.rank:
            best = other
        if np.isfinite(best.gap):
            a, dual = best.W.astype(np.float64), best.dual
            of_none = _losses(np.zeros(a.shape), y, form, C, 0.0, k)[0]
            best = _shortened(best, of_none, lambda factor: at(factor * a, dual))
    return best


def _losses(Z: np.ndarray, y: np.ndarray, form: Formulation, C, tol: float, k: int) -> tuple[float, float]:
    """The losses of some scores, and their rounding, by gains that are 0 but for rounding in float64."""
    value = float(np.sum(C * form.losses_of(Z, y, k)))
    size = float(np.finfo(np.float64).eps) * (1 + np.maximum(Z.max(axis=1), -Z.min(axis=1)))
    most = Z.shape[1] * float(np.sum(C * size))
    if most <= max(_NEGLIGIBLE, _UNSEEN * tol) * value:
        return value, most
    return value, float(np.sum(C * size * form.kinks_of(Z, y, _NEAR * size, k)))


def _primal(
    X, y: np.ndarray, W: np.ndarray, form: Formulation, C, tol: float, k: int, share: Share, threads: int
) -> tuple[float, float]:
    """P(W) in float64, and its rounding."""
    m = W.shape[1]
    rows = max(1, _SCORES // (8 * m))
    wide = np.ascontiguousarray(W, np.float64)

    def losses(first: int) -> tuple[float, float]:
        part = slice(first, first + rows)
        weight = C[part] if np.ndim(C) else C
        some = X[part].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # a thread has its own
            Z = product(_sparse.csr(some), wide) if sp.issparse(X) else some @ wide
            return _losses(Z, y[part], form, weight, tol, k)

    blocks = range(share.place * rows, X.shape[0], share.count * rows)
    if threads == 1 or len(blocks) < 2:
        found = list(map(losses, blocks))
    else:
        with ThreadPoolExecutor(threads, "xmcjax-certificate") as pool:
            found = list(pool.map(losses, blocks))
    total, rounding = sum(value for value, _ in found), sum(part for _, part in found)
    # a process may have no block, and its sums are numbers of float64 all the same
    total, rounding = share.total(np.array([total, rounding], np.float64)).tolist()
    flat = wide.ravel()
    return float(flat @ flat / 2 + total), rounding


def weights_of(X, y: np.ndarray, alpha: sp.csr_array, formulation: Formulation) -> np.ndarray:
    """Xᵀ coefficients(α) in float64, [d, m]."""
    (n, m), d = alpha.shape, X.shape[1]
    few = formulation.sparse and alpha.nnz < _DENSE * n * m
    if few and sp.issparse(X):
        return (X.T.astype(np.float64) @ formulation.coefficients(alpha, y)).toarray(order="C")
    if few:
        transposed, rows = np.zeros((m, d)), _SCORES // (8 * max(d, 1)) + 1  # so many stay in the cache
        for first in range(0, n, rows):
            part = slice(first, first + rows)
            a = formulation.coefficients(alpha[part], y[part])
            transposed += a.T @ X[part].astype(np.float64)
        return np.ascontiguousarray(transposed.T)
    V = np.zeros((d, m))
    rows = max(1, _BYTES // (8 * max(m, 1 if sp.issparse(X) else d)))
    for first in range(0, n, rows):
        part = slice(first, first + rows)
        some = alpha[part] if formulation.has_own else alpha[part].toarray()
        a = formulation.coefficients(some, y[part])
        V += X[part].astype(np.float64).T @ (a.toarray() if sp.issparse(a) else a)
    return formulation.centred(V)
