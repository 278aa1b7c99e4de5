"""The multi-label SVM, solved to a tolerance.

Native coordinate ascent comes first (native/dual/simd_ranking_ascent.cc), or its twin in plain JAX, which
visits the rows in random order too, and all labels of each. Where features are dense or few, and ascent is
slow, steps for all rows at once follow.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse, linops
from xmcjax._arguments import name_of, whole_number
from xmcjax._labels import label_matrix
from xmcjax._platform import host_bound
from xmcjax.native import RankingAscent, awaited
from xmcjax.solvers import _admm_dense
from xmcjax.solvers._instance_twin import Rows, rows_of
from xmcjax.solvers._progress import ALL_ROWS, ASCENT, Observe, Progress, checked_start, observed
from xmcjax.solvers._ranking import Ranking, nearest
from xmcjax.solvers._search import Ended, Passes, Search, ascended
from xmcjax.solvers.multiclass_dual._native import canonical, described, multiplied_densely
from xmcjax.solvers.multiclass_dual._problem import check_limits, checked_features
from xmcjax.solvers.multiclass_dual._solve import Solution

_FORM = Ranking()
# Passes of ascent after which steps for all rows at once take over: _PATIENCE with dense features,
# _LONG_PATIENCE with sparse ones, of which passes cost little, where rows or features are at most _FEW.
# _EPOCHS: epochs in plain JAX before these steps. _CALL: epochs of one compiled call.
_PATIENCE, _LONG_PATIENCE, _FEW = 50, 300, 200
_EPOCHS, _CALL = 30, 5


@host_bound
def run_multilabel(
    X,
    Y,
    *,
    C: float | np.ndarray = 1.0,
    tol: float = 1e-3,
    max_epochs: int = 1000,
    seed: int = 0,
    backend: str = "auto",
    threads: int = 1,
    start=None,
    observe: Observe | None = None,
) -> Solution:
    """Trains the multi-label SVM: every label of a row is to stand above all others by a margin of 1,

        min_W  P = ½ ‖W‖² + Σ_i C_i [1 + max_{N_i} z_i − min_{Y_i} z_i]₊,   z_i = Wᵀ x_i,

    Y_i the labels of row i and N_i the others (Lapin, Hein and Schiele 2018, SVM^ML). With one label per row
    it is the SVM of Crammer and Singer. Rows without a label, or with all, have no loss.

    Args:
        X: finite features [n, d], dense or scipy.sparse. Rows of zeros and equal rows are legal.
        Y: labels [n, L], dense or scipy.sparse; an entry that is not 0 is a label.
        C: weight of the losses, above 0; a number, or one for each row, [n], from 0 then.
        tol: relative duality gap (P − D)/P at which training ends, 1e-3 by default; worked out in float64
            from the dual variables and the weights that are returned. Where their rounding to float32 keeps
            it above `tol`, the status is STALLED.
        max_epochs: epochs at most. A native epoch that leaves out rows counts as its share. Ten steps for all
            rows at once, which dense or few features may need, count as one epoch.
        seed: of the random orders.
        backend: "native", the C++ kernels; "jnp", plain JAX; "auto", native where the library is built and
            the default device is a CPU.
        threads: of the native kernels. Their number changes no bit of the result.
        start: dual variables [n, L] to start from, of an earlier solution; what does not fit the labels or C
            is left out or shortened. None for 0.
        observe: called with the progress every few passes, as by :func:`run`; or None.

    Returns:
        As of :func:`run`. Dual variables are ≥ 0 for the labels of a row and ≤ 0 for others: W = Xᵀ α.

    Raises:
        ValueError: values of X that are not finite, rows whose squares overflow; Y of another
            shape, or without a row that has a label and lacks one; C, `tol`, `max_epochs`, `threads` or start
            out of range; native kernels asked for where there are none.
        TypeError: arguments of another kind.

    Example:
        >>> solution = run_multilabel(np.float32([[1, 0], [0, 1]]), np.array([[1, 1, 0], [0, 1, 0]]), C=1.0)
        >>> solution.W.shape
        (2, 3)
    """
    check_limits(tol, max_epochs, threads)
    seed, observe = whole_number("seed", seed, 0), observed(observe)
    name_of("backend", backend, ("auto", "native", "jnp"))
    X, C = checked_features(X, C, zeros=True)
    n = X.shape[0]
    costs = np.broadcast_to(np.asarray(C, np.float64), n)
    labels = _checked_labels(Y, n)
    counts = np.diff(labels.indptr)
    if not np.any((counts > 0) & (counts < labels.shape[1]) & (costs > 0)):
        raise ValueError("Y: expected a row that has a label and lacks another, found none")
    native = linops.native_ready()
    if backend == "native" and not native:
        raise ValueError(f"backend: {linops.NO_NATIVE}")
    X = canonical(X) if sp.issparse(X) else np.asarray(X, np.float64 if X.dtype == np.float64 else np.float32)
    begin = None if start is None else _feasible(start, labels, costs)
    methods = _Methods(X, labels, costs, tol, max_epochs, seed, threads, begin, observe)
    return methods.solved(native and backend != "jnp")


def _checked_labels(Y, n: int) -> sp.csr_array:
    """CSR of labels, each stored once, ascending in a row."""
    Y = _sparse.canonical_csr(sp.csr_array(label_matrix(Y)), "Y", zeros=False)
    if Y.shape[0] != n:
        raise ValueError(f"Y: expected labels of {n} rows, as X has, got shape {list(Y.shape)}")
    return Y


def _feasible(start, labels: sp.csr_array, costs: np.ndarray) -> sp.csr_array:
    """Dual variables to start from, in the dual set of these labels and this C."""
    alpha = checked_start(start, labels.shape)
    ones = sp.csr_array((np.ones(labels.nnz), labels.indices, labels.indptr), shape=labels.shape)
    own = alpha.multiply(ones)
    others = sp.csr_array(alpha - own).minimum(0)
    right = _sparse.canonical_csr(sp.csr_array(own.maximum(0) + others), "start", zeros=False)
    return _sparse.canonical_csr(_FORM.inside(right, costs), "start", zeros=False)


class _Methods:
    """The methods of a problem, in the order in which they take over from each other."""

    def __init__(self, X, labels: sp.csr_array, costs, tol, most, seed, threads, start, observe):
        self._X, self._labels, self._costs, self._most = X, labels, costs, most
        self._seed, self._threads, self._observe = seed, threads, observe
        self._rows, self._passes, self._violation = canonical(X), Passes(), np.inf
        n, d = X.shape
        dense = multiplied_densely(self._rows)
        self._splits = (dense or min(n, d) <= _FEW) and _admm_dense.fits(n, d, labels.shape[1])
        self._patience = _PATIENCE if dense else _LONG_PATIENCE
        self._search = Search(X, labels, _FORM, costs, tol, start=start, threads=threads)

    def solved(self, native: bool) -> Solution:
        search, ascent = self._search, self._ascent if native else self._in_jax
        patience = min(self._patience if native else _EPOCHS, self._most) if self._splits else self._most
        search.attempt(lambda tol, alpha: ascent(self._rows, tol, alpha, patience), self._left)
        if search.unsolved and self._splits and self._left() >= 1:
            own, L = self._labels.toarray() != 0, self._labels.shape[1]
            how: dict[str, Any] = dict(observe=self._observe, made=lambda: self._passes.visited)
            steps = _admm_dense.Method(self._X, own, L, _FORM, self._costs, **how)
            search.attempt(functools.partial(self._all_rows, steps), self._left)
        if native and search.unsolved and self._rows.dtype != np.float64 and self._left() >= 1:
            wide = canonical(self._rows.astype(np.float64))  # rounding to float32 may be the reason
            search.attempt(lambda tol, alpha: self._ascent(wide, tol, alpha, np.inf), self._left)
        passes = self._passes
        reason = f"{ASCENT} alone: features are sparse and many, or there are too many numbers"
        if self._splits:
            reason = f"{ASCENT} comes first, for {patience:g} passes at most, then {ALL_ROWS}"
        if not native:
            reason += "; in plain JAX: there is no native library, or another device"
        counts = dict(epochs=math.ceil(passes.visited), newton_steps=0, shrunk=passes.shrunk, reason=reason)
        return Solution(**counts, **described(search, self._violation, self._left(), _FORM))

    def _left(self) -> float:
        """Passes that are still allowed."""
        return self._most - self._passes.visited

    def _ascent(self, rows: sp.csr_array, tol: float, alpha: sp.csr_array, patience: float) -> Ended:
        """Native coordinate ascent."""
        given: dict[str, Any] = dict(seed=self._seed, threads=self._threads)
        point = RankingAscent(rows, self._labels, self._costs, dense=multiplied_densely(rows), **given)
        how: Any = dict(patience=patience, observe=self._observe, made=lambda: self._passes.visited)
        ended, self._violation = ascended(point, alpha, tol, self._passes, self._left, **how)
        return ended

    def _all_rows(self, steps: _admm_dense.Method, tol: float, alpha: sp.csr_array) -> Ended:
        """The alternating direction method of multipliers."""
        ended, passes = steps.in_passes(alpha, tol, self._left())
        self._passes.visited += passes
        return ended

    def _in_jax(self, rows: sp.csr_array, tol: float, alpha: sp.csr_array, patience: float) -> Ended:
        """Coordinate ascent in plain JAX."""
        with jax.enable_x64(rows.dtype == np.float64):
            op = linops.make(rows, backend="jnp")
            problem = (
                rows_of(op),
                jnp.asarray(self._labels.toarray() != 0),
                jnp.asarray(self._costs, op.dtype),
                op.row_norms2(),
            )
            dense = alpha.toarray() if alpha.size else np.zeros(self._labels.shape)
            variables = jnp.asarray(dense, op.dtype)
            weights = op.rmatmat(variables)
            key, made = jax.random.key(self._seed), 0.0
            while True:
                count = int(max(1, min(_CALL, self._left(), patience - made)))
                key, now = jax.random.split(key)
                variables, weights, gap = awaited(_epochs, *problem, variables, weights, now, count)
                self._passes.visited, made = self._passes.visited + count, made + count
                self._passes.sweeps += count
                found = sp.csr_array(np.asarray(variables, np.float64))
                if self._observe is not None:
                    told = Progress(ASCENT, self._passes.visited, float(gap), lambda found=found: found)
                    self._observe(told)
                if not gap > tol or self._left() < 1 or made >= patience:
                    return Ended(found, float(gap))


@jax.jit
def _epochs(rows: Rows, own, costs, norms2, alpha, weights, key, count):
    """Epochs over all rows in random orders; dual variables, weights and the relative gap after them."""
    n = len(alpha)

    def visit(carry, i):
        alpha, weights = carry
        block = rows.take(i[None])
        z = rows.scores(block, weights)[0]
        q = jnp.where(norms2[i] > 0, norms2[i], 1)
        least, most = jnp.min(jnp.where(own[i], z, jnp.inf)), jnp.max(jnp.where(own[i], -jnp.inf, z))
        # b = α + h / ‖x‖², less (1/2 − least)/‖x‖² for labels of Y and (−1/2 − most)/‖x‖² for those of N
        b = alpha[i] + (jnp.where(own[i], least, most) - z) / q
        # for a row of zeros any α with s = C is best
        apart = jnp.where(norms2[i] > 0, (1 + most - least) / q, 4 * costs[i])
        new = nearest(b, own[i], costs[i], apart)
        return (alpha.at[i].set(new), rows.add(block, weights, (new - alpha[i])[None])), None

    def epoch(k, carry):
        order = jax.random.permutation(jax.random.fold_in(key, k), n)
        return jax.lax.scan(visit, carry, order)[0]

    alpha, weights = jax.lax.fori_loop(0, count, epoch, (alpha, weights))

    def judge(i):
        z = rows.scores(rows.take(i[None]), weights)[0]
        best = jnp.max(jnp.where(own[i], -jnp.inf, z))
        loss = costs[i] * jnp.maximum(1 + best - jnp.min(jnp.where(own[i], z, jnp.inf)), 0)
        return jnp.where(costs[i] > 0, loss, 0), jnp.sum(alpha[i] * z), jnp.sum(jnp.abs(alpha[i])) / 2

    loss, square, gain = (jnp.sum(a) for a in jax.lax.map(judge, jnp.arange(n)))
    primal = square / 2 + loss
    return alpha, weights, (primal - (gain - square / 2)) / jnp.abs(primal)
