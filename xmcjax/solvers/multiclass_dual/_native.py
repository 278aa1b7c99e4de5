"""Dual ascent in the native library: coordinate ascent first, Newton's method where that is slow."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax.native import Ascent, CentredAscent, Proximal
from xmcjax.solvers import _admm
from xmcjax.solvers._base import Status
from xmcjax.solvers._certified import Certified, certified
from xmcjax.solvers._formulations import NAMES
from xmcjax.solvers.multiclass_dual._accuracy import Accuracy

# Passes over all instances, the shares of shrunk ones added up, after which another method takes over: where
# ascent over instances comes to the end as fast mostly, and where it does not. The other method keeps a share
# of the passes that are allowed.
_LONG_PATIENCE, _PATIENCE = 1000.0, 25.0
_SHARE = 0.8
# Features of Lee-Lin-Wahba up to which its systems are factorised although the features are dense, and bytes
# that the factors of all classes may take.
_FEW, _FACTORS = 64, 1 << 30
# Share of the features that are not zero above which they are taken to be dense.
_DENSE = 0.25
# Steps of the alternating direction method that count as a pass.
_STEPS = 10
# Sweeps in a row between two passes over everything.
SWEEPS = 20
# Unknowns of a system that it pays to factorise.
_DIRECT = 1200
# Part of the tolerance at which a method ends: what is certified may be a little more.
MARGIN = 0.9
# How often a method begins again whose gap is not what it takes it to be.
ATTEMPTS = 4
# Proximal point steps in a row that may bring nothing before rounding is taken to be the reason.
FAILURES = 4


def ascend(X, y: np.ndarray, m: int, formulation: str, C: float, **options) -> dict:
    """Solves a problem; arguments as in ``run``, checked.

    Returns:
        The fields of ``Solution``.
    """
    return _Search(X, y, m, formulation, C, **options).solved()


class _Search:
    """Dual variables with a certified gap, by one method after another.

    A method ends where it takes the gap to be small enough, where it makes no more progress, or where its
    passes are over. Only what :func:`certified` says of its dual variables then counts.
    """

    def __init__(
        self,
        X,
        y: np.ndarray,
        m: int,
        formulation: str,
        C: float,
        *,
        tol: float,
        max_epochs: int,
        seed: int,
        shrinking: bool,
        threads: int,
    ):
        self._rows = canonical(X)
        # dense features are multiplied as such
        self._X = self._rows if sp.issparse(X) else np.asarray(X, self._rows.dtype)
        self._y, self._m, self._formulation, self._C = y, m, formulation, C
        self._tol, self._most, self._shrinking = tol, max_epochs, shrinking
        self._shared = dict(seed=seed, threads=threads)
        self._sweeps, self._visited, self._shrunk, self._newton_steps = 0, 0.0, 0.0, 0
        # before the first attempt: nothing is certain
        self._found = Certified(np.zeros((0, 0)), sp.csr_array((0, 0)), np.inf, -np.inf)
        self._violation = np.inf

    def solved(self) -> dict:
        """The fields of ``Solution``."""
        patience = self._patience()
        self._attempt(lambda tol, alpha: self._ascent(self._rows, tol, alpha, patience))
        if self._goes_on and self._direct:
            self._attempt(self._newton)
        if self._goes_on and self._splits:
            self._attempt(self._admm)
        if self._goes_on and self._rows.dtype != np.float64:
            rows = canonical(self._rows.astype(np.float64))
            self._attempt(lambda tol, alpha: self._ascent(rows, tol, alpha, np.inf))
        status = Status.CONVERGED
        if self._found.gap > self._tol:
            status = Status.STALLED if self._left > 0 else Status.MAX_STEPS
        counts = dict(epochs=self._sweeps, newton_steps=self._newton_steps, shrunk=self._shrunk)
        return counts | described(self._found, self._violation, status, self._formulation)

    @property
    def _left(self) -> float:
        """Passes and Newton steps that are still allowed."""
        return self._most - self._visited - self._newton_steps

    @property
    def _goes_on(self) -> bool:
        return self._found.gap > self._tol and self._left > 0 and np.isfinite(self._found.primal)

    def _attempt(self, method) -> None:
        """Runs a method until its gap is certified, or it ends above the gap that it was to reach."""
        target = MARGIN * self._tol
        for _ in range(ATTEMPTS):
            alpha, gap, W = method(target, self._found.alpha)
            found = certified(self._X, self._y, alpha, self._formulation, self._C, self._tol, W)
            if not self._found.W.size or not found.gap > self._found.gap:
                self._found = found
            if gap > target or not self._goes_on:
                return
            target /= 4  # it took its own rounding for progress

    def _ascent(self, rows, tol: float, alpha, patience: float) -> tuple[sp.csr_array, float, None]:
        """Coordinate ascent; returns dual variables and their gap as it takes it to be."""
        # with the mean fixed, dual variables of Lee-Lin-Wahba move an m-th of the way
        kind = CentredAscent if self._formulation == "llw" else Ascent
        point = kind(*self._problem(rows), **self._shared)
        if alpha.size:
            point.alpha = alpha
        accuracy, work = Accuracy(rows.dtype, tol), 0.0
        while True:
            found = point.assess(accuracy.eps)
            work += 1
            if accuracy.enough(found.gap, found.violation, work) or self._left <= 0 or work >= patience:
                self._violation = found.violation
                return point.alpha, found.gap, None
            # half of what is left, or below the tolerance: what was left out is then worth another look
            enough = max(accuracy.eps / 2, found.violation / 2)
            for _ in range(SWEEPS):
                violation, share = point.sweep(accuracy.eps, self._shrinking)
                self._sweeps, self._visited, work = self._sweeps + 1, self._visited + share, work + share
                self._shrunk = 1 - share
                if violation <= enough or self._left <= 0 or work >= patience:
                    break

    def _newton(self, tol: float, alpha: sp.csr_array) -> tuple[sp.csr_array, float, None]:
        """Proximal point steps by Newton's method."""
        point = Proximal(*self._problem(self._rows), **self._shared)
        point.alpha = alpha
        before, accuracy = self._newton_steps, Accuracy(np.dtype(np.float64), tol)
        while True:
            found = point.step(accuracy.eps)
            self._newton_steps = before + point.newton_steps
            if accuracy.enough(found.gap, found.violation) or self._left <= 0 or point.failures >= FAILURES:
                self._violation = found.violation
                return point.alpha, found.gap, None

    def _admm(self, tol: float, alpha: sp.csr_array) -> tuple[sp.csr_array, float, np.ndarray]:
        """The alternating direction method of multipliers."""
        most = int(_STEPS * self._left) + 1
        found = _admm.solve(self._X, self._y, alpha, self._formulation, self._C, tol, most)
        self._visited += found.steps / _STEPS
        self._sweeps += -(-found.steps // _STEPS)
        return found.alpha, found.gap, found.W

    @property
    def _direct(self) -> bool:
        """Whether the systems of Newton's method are small enough to factorise."""
        d = self._X.shape[1]
        if self._formulation in ("ww", "cs"):
            return d * self._m <= _DIRECT
        if self._formulation != "llw":
            return d <= _DIRECT
        # of Lee-Lin-Wahba the factors of all classes are kept
        return d <= _DIRECT and 8 * self._m * d * d <= _FACTORS and (d <= _FEW or not self._splits)

    def _patience(self) -> float:
        """Passes of coordinate ascent before another method takes over."""
        if not (self._direct or self._splits):
            return np.inf
        coupled = self._formulation in ("ww", "cs") and not self._direct
        return min(_LONG_PATIENCE, _SHARE * self._most) if coupled else _PATIENCE

    @property
    def _splits(self) -> bool:
        """Whether the features are dense, and few enough for one system of all classes."""
        (n, d), entries = self._X.shape, self._rows.nnz
        return entries >= _DENSE * n * d and _admm.fits(n, d, self._m)

    def _problem(self, rows) -> tuple:
        return rows, self._y, self._m, self._formulation, self._C


def described(found: Certified, violation: float, status: Status, formulation: str) -> dict:
    """The fields of ``Solution`` that follow from certified dual variables."""
    n, m = found.alpha.shape
    variables = n * (m - (not NAMES[formulation].has_own))
    return dict(
        W=found.W,
        alpha=found.alpha,
        primal=found.primal,
        dual=found.dual,
        gap=found.gap,
        violation=violation,
        status=status if np.isfinite(found.primal) else Status.NONFINITE,
        density_w=np.count_nonzero(found.W) / found.W.size,
        density_alpha=np.count_nonzero(found.alpha.data) / variables,
    )


def canonical(X) -> sp.csr_array:
    """X as CSR of float32 or float64, columns ascending in a row and none twice, without zeros."""
    X = X if sp.issparse(X) else sp.csr_array(X)
    X = X.astype(X.dtype if X.dtype in (np.float32, np.float64) else np.float32, copy=False)
    return _sparse.canonical_csr(X, zeros=False)
