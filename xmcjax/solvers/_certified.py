"""The weights that dual variables give, and a duality gap that is certain for them.

Whatever method made α, it is first brought into the dual set, W = Xᵀ coefficients(α) is worked out anew, and
both objectives are computed in float64. V are the weights in float64, and W, which the caller gets, are the
weights in the dtype of X:

    P(W) = ½ ‖W‖² + Σ_i loss_i(X W) ≥ min P = max D ≥ D(α) = Σ α − ½ ρ Σ α² − ½ ‖V‖²,

so that P(W) − D(α) bounds how far P(W) is from its minimum, whatever rounding did before. Where many gains
are 0 at the optimum, as with separable classes, rounding turns half of them into losses of weight C: rounding
to float32, or in float64 where C ‖x‖² is above 1e11. Weights that are longer by a few units of rounding have
none of these losses. The remaining error of a search whose α no longer changes makes losses of the same kind.

With two classes, one-vs-rest solves the same problem twice, the second time with the signs changed. A caller
who takes the weights of one class needs the gap of that class alone. So both classes get the better of the
two weights and the better dual variables: P and D are then twice those of one class, and the gap is its gap.
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

# _BYTES: size of a block of dense dual variables, or of rows of X, in float64. _SCORES: size of a block of
# scores, or of rows of X, that stays in the cache.
_BYTES, _SCORES = 64 << 20, 4 << 20
# Share of nonzero dual variables above which they are multiplied as a dense matrix.
_DENSE = 0.1
# The relative rounding error of the losses is ignored up to _NEGLIGIBLE or _UNSEEN times the tolerance. A
# gain counts as 0 but for rounding within _NEAR times its rounding error.
_NEGLIGIBLE, _UNSEEN, _NEAR = 1e-12, 1e-3, 8
#: How much weights of float32 are lengthened, in units of their relative rounding.
LONGER = (2, 8, 32, 128, 512, 2048)
# _WIDER: the same for float64, where gains still count as 0 after a smaller change. OF_TOLERANCE: further
# changes of length, in parts of the tolerance. _SUMS: relative error of objectives without losses, in
# units of the rounding of float64; gaps of lengthened weights may be as small.
_WIDER, OF_TOLERANCE, _SUMS = (128, 2048, 32768), (1 / 16, 1 / 8, 1 / 4, 3 / 8), 16
#: Factor below which weights are not shortened further.
_SHORTEST = 2.0**-40


class Share(NamedTuple):
    """The blocks of rows whose losses a process sums: every `count`-th from block `place` on."""

    place: int = 0
    count: int = 1
    total: Callable[[np.ndarray], np.ndarray] = np.asarray  #: adds up the sums of all shares


class Certified(NamedTuple):
    """Weights, dual variables inside the dual set, and what their objectives are."""

    W: np.ndarray  #: [d, m], in the dtype of X
    alpha: sp.csr_array  #: float64 [n, m]
    primal: float
    dual: float
    rounding: float  #: approximate error of the primal in float64, by gains that are 0 but for rounding

    @property
    def gap(self) -> float:
        """(|primal − dual| + rounding) / |primal|, infinite where that is not finite.

        A dual above the primal is rounding too, and counts as a gap.
        """
        difference = abs(self.primal - self.dual) + self.rounding
        gap = difference / abs(self.primal) if self.primal else 0.0
        return gap if np.isfinite(gap) else np.inf

    @property
    def rank(self) -> float:
        """The number that is least for the best of several weights of the same dual variables.

        It is the gap, or P where D is 0, because all gaps are then 1 but for rounding.
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
        W: weights, float64 [d, m], that may be better than those that the dual variables give; where the gap
            of `W` is larger than `tol`, the weights of the dual variables are tried too.
        tol: where the gap is larger than this, weights may be lengthened by up to 2,000 times their rounding,
            or in float64 by up to 33,000 times, or by 3/8 of `tol` where that is more.
        k: of the top-k losses.
        share: blocks of rows of this process, where several certify together; None for one alone.
        threads: sum the losses of blocks of rows; their number changes no bit of the result.
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
                    # P is convex: up to the last length it falls by half of this at most, but W is rounded
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
    """Halves the weights of an ascent that ended early, until their P is no larger than that of W = 0.

    Args:
        best: the weights.
        of_none: P(0), which P comes to where the weights are short enough.
        at: certifies the weights times a factor.
    """
    factor = 1.0
    while best.primal > of_none and factor > _SHORTEST:
        factor /= 2
        best = min(best, at(factor), key=lambda found: found.rank)
    return best


def _of_each(W: np.ndarray) -> list[np.ndarray]:
    """Two weights [d, 2] for both classes: made of the first class, signs changed, and of the second."""
    signs = np.array([1.0, -1.0])
    return [W[:, :1] * signs, W[:, 1:] * -signs]


def _of_the_better(
    alpha: sp.csr_array, weights: list[np.ndarray], form: Formulation, C
) -> tuple[sp.csr_array, np.ndarray]:
    """The dual variables of the class with the greater dual objective, for both [n, 2]; their weights."""
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
    """:func:`certified` where only inner products K [n, n] are known; W are coefficients of the rows, [n, m].

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
    """The losses of some scores, and the rounding error of gains that are 0 but for rounding in float64."""
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
        with np.errstate(over="ignore", invalid="ignore"):  # each thread has its own error state
            Z = product(_sparse.csr(some), wide) if sp.issparse(X) else some @ wide
            return _losses(Z, y[part], form, weight, tol, k)

    blocks = range(share.place * rows, X.shape[0], share.count * rows)
    if threads == 1 or len(blocks) < 2:
        found = list(map(losses, blocks))
    else:
        with ThreadPoolExecutor(threads, "xmcjax-certificate") as pool:
            found = list(pool.map(losses, blocks))
    total, rounding = sum(value for value, _ in found), sum(part for _, part in found)
    # a process may have no block: its sums are to be numbers of float64 then too
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
        transposed, rows = np.zeros((m, d)), _SCORES // (8 * max(d, 1)) + 1  # they stay in the cache
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
