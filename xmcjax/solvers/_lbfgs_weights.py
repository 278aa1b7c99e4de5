"""L-BFGS for the weights where the loss is smooth; the dual variables of a point come with its gradient.

    P(W) = ½ ‖W‖² + Σ_i C_i φ(h_i),   α_i = C_i ∇φ(h_i),   ∇P(W) = W − W(α),   W(α) = Xᵀ coefficients(α).

For these α the inequality of Fenchel and Young is an equality in each row, so that the duality gap is

    P(W) − D(α) = ½ ‖W − W(α)‖² = ½ ‖∇P(W)‖².

Features of different sizes, or far from 0, make L-BFGS slow. It works on U with W = S U, S² = 1/(1 + C λ/m²),
in the basis of the eigenvectors of XᵀX, whose eigenvalues are λ: the Hessian in U is far closer to I. Where
such a basis takes longer to make than some dozens of steps, the columns of X with their squared norms are
tried first. The factor C/m² of λ was found by measurement: C/m takes half as many steps more. Near the
optimum of separable classes curvatures are far smaller: where steps are many, the mean of C p (1 − p) over
rows and classes takes the place of the factor.

The steps are SciPy's: Byrd, Lu, Nocedal and Zhu, "A limited memory algorithm for bound constrained
optimization", 1995.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax._cores import blas_threads
from xmcjax.solvers import _admm_dense
from xmcjax.solvers._admm_blocks import Basis
from xmcjax.solvers._formulations import Formulation
from xmcjax.solvers._host_loop import abandonable
from xmcjax.solvers._progress import Observe, Progress
from xmcjax.solvers._search import Ended

# What the method is called.
_NAME = "L-BFGS for the weights"
# _PAIRS: pairs of steps and gradients that are kept. _BYTES: size that all arrays together may have.
_PAIRS, _BYTES = 10, 2 << 30
# _WORTH: number of evaluations that a basis of eigenvectors may cost. _PATIENCE: number of evaluations with
# columns before a basis is made in any case.
_WORTH, _PATIENCE = 50, 200
# After _LOOK evaluations, a mean of C p (1 − p) below _FALLEN times the factor of λ replaces that factor.
_LOOK, _FALLEN = 100, 0.25


def fits(n: int, d: int, m: int, entries: int | None = None) -> bool:
    """Whether the arrays are small enough, for features with `entries` stored entries; None for all."""
    stored = n * d if entries is None else entries
    return 8 * (2 * stored + 6 * n * m + (2 * _PAIRS + 6) * d * m) <= _BYTES


class _Point(NamedTuple):
    """Weights in the coordinates of the steps, and what belongs to them."""

    u: np.ndarray  #: U, flat
    primal: float  #: P
    gradient: np.ndarray  #: of P in U, flat
    gap: float  #: relative, (P − D) / P
    alpha: np.ndarray  #: [n, m]


class _Coordinates:
    """X S in a basis of the features.

    Args:
        X: [n, d], CSR or dense; None with a basis that has rows.
        basis: of eigenvectors; None for the columns of X.
        factor: of λ in 1/S².
        m: number of classes.
    """

    def __init__(self, X, basis: Basis | None, factor: float, m: int):
        self._m = m
        if basis is None:
            rows = X.astype(np.float64, copy=False)
            squares = (rows * rows if isinstance(rows, np.ndarray) else rows.multiply(rows)).sum(axis=0)
            self._rotation = None
        else:
            self._rotation, rows, squares = basis.rotation, basis.part(slice(None)), basis.eigenvalue
        self.scale = 1 / np.sqrt(1 + factor * np.asarray(squares).reshape(-1, 1))
        scale = self.scale.T
        self.rows: Any = rows * scale if isinstance(rows, np.ndarray) else rows.multiply(scale).tocsr()

    def columns(self, u: np.ndarray) -> np.ndarray:
        """U [r, m] of its numbers in a row; a basis of features that are all 0 is empty."""
        return u.reshape(len(self.scale), self._m)

    def weights(self, u: np.ndarray) -> np.ndarray:
        """W [d, m]."""
        W = self.scale * self.columns(u)
        return W if self._rotation is None else self._rotation @ W

    def of_weights(self, W: np.ndarray) -> np.ndarray:
        """U of W in the span of the basis, flat."""
        return ((W if self._rotation is None else self._rotation.T @ W) / self.scale).ravel()

    def of_coefficients(self, a: np.ndarray) -> np.ndarray:
        """U of W = Xᵀ a, flat."""
        return (self.rows.T @ a / self.scale**2).ravel()


class Method:
    """The steps.

    Args:
        X: [n, d], CSR or dense; or the basis of inner products, whose weights are coefficients of rows.
        y: the class of each row, [n].
        m: number of classes.
        form: the formulation.
        C: weight of the losses, a number, or one for each row, [n].
        k: of the top-k losses.
        observe: called after every step with the progress; or None.
        made: gives the passes that were made before, in other calls too.
    """

    def __init__(
        self,
        X,
        y: np.ndarray,
        m: int,
        form: Formulation,
        C,
        k: int,
        observe: Observe | None = None,
        made: Callable[[], float] = lambda: 0.0,
    ):
        self._X, self._y, self._m, self._form, self._k = X, y, m, form, k
        self._C = np.broadcast_to(np.asarray(C, np.float64), y.shape)[:, None]
        self._observe, self._made = observe, made
        self._factor = float(self._C.mean()) / m**2
        self._point: _Point | None = None
        #: evaluations of this call, and how many there were when the coordinates were made
        self._evaluations, self._since = 0, 0
        #: whether columns are tried before a basis
        self._columns_first = False
        self._basis: Basis | None = None
        if isinstance(X, Basis):
            self._basis = X
        else:
            n, d = X.shape
            possible = _admm_dense.fits(n, d, m)
            # an evaluation is 4 n d m multiplications; those of eigenvectors are slower
            cheap = not sp.issparse(X) and 27 * min(n, d) ** 3 <= _WORTH * 4 * n * d * m
            self._columns_first = possible and not cheap
            if possible and cheap:
                self._basis = self._eigenvectors()
        self._at = _Coordinates(X, self._basis, self._factor, m)

    def _eigenvectors(self) -> Basis:
        X = self._X.toarray() if sp.issparse(self._X) else self._X
        return abandonable(lambda: _admm_dense.basis_of(X))

    def in_passes(self, alpha: sp.csr_array, tol: float, most: float) -> tuple[Ended, float]:
        """Steps until the gap is small enough, and how many passes were made: an evaluation is one.

        Args:
            alpha: dual variables [n, m] to start from, of shape [0, 0] for 0; a later call goes on where the
                last one ended.
            tol: relative duality gap at which they end.
            most: passes at most.
        """
        self._evaluations = self._since = 0
        with blas_threads(1), np.errstate(over="ignore", invalid="ignore"):
            found = self._point
            if found is None:
                zeros = np.zeros(len(self._at.scale) * self._m)
                found = self._start(alpha, most) if alpha.size else self._evaluate(zeros)
            while found.gap > tol and self._evaluations < most:
                found = self._steps(found, tol, most)
                ended = found.gap <= tol or self._evaluations >= most
                if ended or not (self._columns_first or self._is_outdated(found)):
                    break
                found = self._elsewhere(found)
            self._point = found
            W = self._at.weights(found.u)
            return Ended(sp.csr_array(found.alpha), found.gap, W), self._evaluations

    def _curvature(self, point: _Point) -> float:
        """The mean of C p (1 − p)."""
        p = point.alpha / np.where(self._C > 0, self._C, 1)
        return float(np.mean(point.alpha * (1 - p)))

    def _is_outdated(self, point: _Point) -> bool:
        """Whether other coordinates serve better."""
        since = self._evaluations - self._since
        if self._columns_first:
            return since >= _PATIENCE
        return since >= _LOOK and self._curvature(point) < _FALLEN * self._factor

    def _elsewhere(self, point: _Point) -> _Point:
        """The point in the coordinates that serve."""
        W, curvature = self._at.weights(point.u), self._curvature(point)
        if self._columns_first:
            self._columns_first, self._basis = False, self._eigenvectors()
        self._factor, self._since = min(self._factor, curvature), self._evaluations
        self._at = _Coordinates(self._X, self._basis, self._factor, self._m)
        return self._evaluate(self._at.of_weights(W))

    def _start(self, alpha: sp.csr_array, most: float) -> _Point:
        """W(α), halved as long as P falls: it may be far beyond the weights whose gradient gave α."""
        a = self._form.coefficients(alpha.toarray(), self._y)
        point = self._evaluate(self._at.of_coefficients(a))
        while self._evaluations < most:
            shorter = self._evaluate(point.u / 2)
            if np.isfinite(point.primal) and not shorter.primal < point.primal:  # P is convex
                break
            point = shorter
        return point

    def _steps(self, point: _Point, tol: float, most: float) -> _Point:
        """The last point of steps that end where it is good enough, or other coordinates serve better."""
        import scipy.optimize as optimize  # here, because the import takes a tenth of a second

        stopped: StopIteration | None = None

        def function(u: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal point
            point = self._evaluate(u)
            return point.primal, point.gradient

        def accepted(u: np.ndarray) -> None:
            nonlocal stopped
            if not np.array_equal(u, point.u):
                function(u)
            if self._observe is not None:
                passes, alpha = min(self._evaluations, most), point.alpha
                try:
                    self._observe(
                        Progress(_NAME, self._made() + passes, point.gap, lambda: sp.csr_array(alpha))
                    )
                except StopIteration as error:  # SciPy would take it for the end of its steps
                    stopped = error
                    raise
            if point.gap <= tol or self._is_outdated(point):
                raise StopIteration

        left = int(min(most, np.iinfo(np.int32).max)) - self._evaluations
        ended = optimize.minimize(
            function,
            point.u,
            jac=True,
            method="L-BFGS-B",
            callback=accepted,
            options=dict(maxcor=_PAIRS, maxiter=left, maxfun=left, ftol=0.0, gtol=0.0),
        )
        if stopped is not None:
            raise stopped
        if not np.array_equal(ended.x, point.u):
            function(ended.x)
        return point

    def _evaluate(self, u: np.ndarray) -> _Point:
        self._evaluations += 1
        form, at, U = self._form, self._at, self._at.columns(u)
        losses, slopes = form.losses_and_slopes(form.gains(at.rows @ U, self._y), self._k)
        alpha, W = self._C * slopes, at.scale * U
        primal = float(np.vdot(W, W)) / 2 + float(np.vdot(self._C, losses))
        # the gradient in U is S ∇P(W), where S Xᵀ is the transpose of the scaled rows
        gradient = at.scale * W - at.rows.T @ form.coefficients(alpha, self._y)
        difference = gradient / at.scale
        distance = float(np.vdot(difference, difference)) / 2
        return _Point(u.copy(), primal, gradient.ravel(), distance / primal if distance else 0.0, alpha)
