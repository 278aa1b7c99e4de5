"""Multi-class SVMs in the native library: coordinate ascent, then Newton's method or steps for all rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._cores import blas_threads
from xmcjax.native import Ascent, CentredAscent, Proximal, SeparateAscent, Splitting
from xmcjax.solvers import _admm, _admm_dense, _admm_sparse, _interior
from xmcjax.solvers._accuracy import Accuracy
from xmcjax.solvers._formulations import NAMES, Formulation
from xmcjax.solvers._formulations import formulation as formulation_of
from xmcjax.solvers._progress import ALL_ROWS, ASCENT, Observe, Progress
from xmcjax.solvers._search import Ended, Longer, Passes, Search, ascended

# Passes of ascent after which another method takes over; a pass that leaves out shrunk instances counts as
# its share. Where ascent over instances may converge first, because ADMM steps take longer the more classes
# there are: _CLASS_PATIENCE per class, _LONG_PATIENCE at most. Elsewhere: _PATIENCE. The other method keeps a
# share of the passes that are allowed.
_CLASS_PATIENCE, _LONG_PATIENCE, _PATIENCE = 10.0, 1000.0, 25.0
# For one-vs-rest: _SEPARATE_PATIENCE is the least number of such passes, _SEPARATE_FEW the number of features
# up to which the systems of Newton's method are small beside those of ADMM.
_SEPARATE_PATIENCE, _SEPARATE_FEW = 60.0, 128
# With dense features, ascent of these formulations ends after _EARLY passes and as many more as take
# _OF_SYSTEM times as long as making the system of the ADMM steps. ADMM steps follow, or Newton's method where
# one of its systems has at most _UNKNOWNS unknowns.
_EARLY = {"cs": 8.0, "ovr": 8.0, "ovr_squared": 8.0, "llw": 4.0}
_UNKNOWNS = {"cs": 80, "ovr": 32, "ovr_squared": 0}
_OF_SYSTEM = 3.0
# With many classes ascent of Crammer-Singer has the passes that take as long as _OF_STEPS ADMM steps, if
# these are at least _MANY passes, and rows and features are at least _LEAST. A pass is taken to cost n (d m +
# _ROW) multiplications, a step n m _VARIABLE. Where the gap is above _FAR after these passes, the dual
# variables are a worse start of the ADMM steps than 0.
_OF_STEPS, _MANY, _LEAST, _FAR = 250.0, 100.0, 32, 0.01
_ROW, _VARIABLE = 12_000.0, 140.0
# Passes of ADMM steps before Newton's method: _OF_CLASSES for one-vs-rest with dense features, where Newton's
# method takes about as long; else _BRIEF where Newton's method costs little or features are sparse; else the
# share _HALF of all passes. Ascent and ADMM of one-vs-rest with sparse features have this share together.
_BRIEF, _OF_CLASSES, _HALF = 200.0, 100.0, 0.5
# _FACTOR d³ / (entries of X) passes take as long as the Newton steps that follow, of which there are about
# twenty.
_FACTOR = 0.25
#: Share of all passes that ascent has at most where another method follows.
SHARE = 0.8
# For Lee-Lin-Wahba: _FEW is the number of features up to which a system per class is factorised, _FACTORS the
# bytes that the factors of all classes may take.
_FEW, _FACTORS = 64, 1 << 30
# Share of nonzero entries from which on features are taken to be dense.
_DENSE = 0.25
# ADMM steps that count as a pass, with sparse features.
_SPARSE_STEPS = 4
# _DIRECT: unknowns up to which a system is factorised. Where ADMM steps are possible too, Newton's method
# comes first if the square of its unknowns is at most _COUPLED_ROWS times the number of rows, or at most
# _COUPLED_SQUARE, where a factor costs next to nothing. _CENTRED_ROWS and _CENTRED_SQUARE: the counterparts
# for Lee-Lin-Wahba, with a system per class.
_DIRECT, _COUPLED_ROWS, _CENTRED_ROWS = 1200, 60, 1 / 20
_COUPLED_SQUARE, _CENTRED_SQUARE = 1 << 14, 1 << 10
# The counterpart of _COUPLED_ROWS for one label against the rest.
_LABEL_ROWS = 10
# With dense features the interior-point method serves _INSIDE_FORMULATIONS. ADMM steps, which come before it,
# have as many passes as are expected to take as long: per dual variable a pass is taken to cost _BESIDE + d,
# and the whole method _INSIDE times the sum of the multiplications of one of its steps and _OF_ENTRY. With
# fewer passes allowed than _ENOUGH there is no interior-point method, whose first steps bring nothing.
_INSIDE_FORMULATIONS = ("ww", "cs", "llw", "ovr")
_INSIDE, _OF_ENTRY, _BESIDE, _ENOUGH = 5.0, 3000.0, 80.0, 300
# What proximal point steps and those of the interior-point method are called.
_NEWTON, _INTERIOR = "Newton's method", "the interior-point method"
# Proximal point steps in a row without a gain after which rounding is taken to be the reason.
FAILURES = 4


class Methods:
    """The native methods of a problem, in the order in which they take over from each other.

    Args:
        X, y, m, formulation, C, tol, max_epochs, seed, shrinking, threads: of ``run``, checked; m classes.
        start, observe: of ``run``, made ready.
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
        start: sp.csr_array | None = None,
        observe: Observe | None = None,
    ):
        self._rows = canonical(X)
        # dense features are multiplied as such
        self._X = self._rows if sp.issparse(X) else np.asarray(X, self._rows.dtype)
        self._y, self._m, self._formulation, self._C = y, m, formulation, C
        self._most, self._shrinking = max_epochs, shrinking
        self._shared = dict(seed=seed, threads=threads)
        self._passes, self._newton_steps, self._violation = Passes(), 0, np.inf
        self._steps: _admm_dense.Method | None = None
        self._search = Search(self._X, y, formulation, C, tol, start=start, threads=threads)
        self._observe = observe

    def solved(self) -> dict:
        """The fields of ``Solution``."""
        patience, search = self._patience(), self._search
        self._attempt(lambda tol, alpha: self._ascent(self._rows, tol, alpha, patience))
        if self._goes_on and self._direct:
            self._second_order()
        if self._goes_on and (self._splits or self._splits_late):
            self._attempt_admm(self._before_newton() if self._followed else np.inf)
            if self._goes_on and self._followed:
                self._second_order()
        if self._goes_on and (self._followed or self._splits_last):
            self._attempt_admm()
        if self._goes_on and self._formulation == "llw":
            self._attempt(lambda tol, alpha: self._sparse_admm(self._rows, tol, alpha))
        if self._goes_on and self._rows.dtype != np.float64:
            rows = canonical(self._rows.astype(np.float64))
            if self._formulation == "llw":
                self._attempt(lambda tol, alpha: self._sparse_admm(rows, tol, alpha))
            else:
                self._attempt(lambda tol, alpha: self._ascent(rows, tol, alpha, np.inf))
        passes = self._passes
        counts = dict(
            epochs=math.ceil(round(passes.visited, 6)), newton_steps=self._newton_steps, shrunk=passes.shrunk
        )
        counts |= dict(reason=self._reason(patience))
        return counts | described(search, self._violation, self._left(), self._formulation)

    def _attempt(self, method) -> None:
        self._search.attempt(method, self._left)

    def _attempt_admm(self, most: float = np.inf) -> None:
        end = self._passes.visited + most
        self._attempt(lambda tol, alpha: self._admm(tol, alpha, end))

    def _second_order(self) -> None:
        """Newton's method, and the interior-point method where that does not end or is left out."""
        if not self._inside:
            self._attempt(self._newton)
        if self._goes_on and self._fits_inside:
            self._attempt(self._interior_point)

    def _left(self) -> float:
        """Passes and Newton steps that are still allowed."""
        return self._most - self._passes.visited - self._newton_steps

    def _made(self) -> float:
        """Passes and Newton steps that were made."""
        return self._most - self._left()

    def _reason(self, patience: float) -> str:
        """Why the methods come in their order."""
        (n, d), m = self._X.shape, self._m
        later = []
        second_order = _INTERIOR if self._inside else _NEWTON
        if self._direct:
            later.append(f"{second_order}, whose systems are small ({d} features, {m} classes)")
        if self._splits or self._splits_late:
            why = (
                "features are dense" if self._splits else f"rows or features are few ({n} rows, {d} features)"
            )
            limit = f", for {self._before_newton():.3g} passes at most" if self._followed else ""
            later.append(f"{ALL_ROWS}, because {why}{limit}")
        if self._followed:
            size = "small" if self._cheap else f"large for {n} rows"
            later.append(f"{second_order}, whose systems are {size} ({d} features, {m} classes)")
        if self._splits_last:
            later.append(f"{ALL_ROWS}, if that does not end")
        if self._formulation == "llw" and not self._splits:
            later.append(f"{ALL_ROWS}, whose systems are solved for sparse features")
        if not later:
            why = "sparse" if not multiplied_densely(self._rows) else f"too many ({n} rows, {d} features)"
            return f"{ASCENT} alone: features are {why}"
        longer = ", and some more where those end it" if self._ascent_goes_on else " at most"
        return f"{ASCENT} comes first, for {patience:.3g} passes{longer}, then {' and '.join(later)}"

    @property
    def _separate(self) -> bool:
        """Whether each class is a problem of its own."""
        return NAMES[self._formulation].has_own

    @property
    def _ascent_goes_on(self) -> bool:
        """Whether ascent goes on beyond its passes where its end is near.

        For Lee-Lin-Wahba with dense features it does not: its passes take about as long as those of ADMM.
        """
        return not (self._separate or (self._formulation == "llw" and self._splits))

    @property
    def _goes_on(self) -> bool:
        return self._search.unsolved and self._left() >= 1

    def _ascent(self, rows, tol: float, alpha, patience: float, longer: bool = False) -> Ended:
        """Coordinate ascent, which may look at longer weights too."""
        problem, longest = self._problem(rows), None
        if self._separate:
            point = SeparateAscent.of_classes(*problem, dense=multiplied_densely(rows), **self._shared)
        else:
            # with a fixed mean of the weights, dual variables of Lee-Lin-Wahba would move 1/m of the way
            point = (CentredAscent if self._formulation == "llw" else Ascent)(*problem, **self._shared)
            longest = Longer(point, rows, self._y, self._formulation, self._C, tol) if longer else None
        ended, self._violation = ascended(
            *(point, alpha, tol, self._passes, self._left),
            patience=patience,
            observe=self._observe,
            made=self._made,
            shrinking=self._shrinking,
            longest=longest,
            goes_on=self._ascent_goes_on,
        )
        return ended

    def _newton(self, tol: float, alpha: sp.csr_array) -> Ended:
        """Proximal point steps by Newton's method, which leave some to the interior-point method."""
        point = Proximal(*self._problem(self._rows), **self._shared)
        point.alpha = alpha
        before, accuracy = self._newton_steps, Accuracy(np.dtype(np.float64), tol)
        most = max(1, (_HALF if self._fits_inside else 1) * self._left())
        while True:
            found = point.step(accuracy.eps, int(most - point.newton_steps))
            self._newton_steps = before + point.newton_steps
            if self._observe is not None:
                self._observe(Progress(_NEWTON, self._made(), found.gap, lambda: point.alpha))
            over = most - point.newton_steps < 1 or point.failures >= FAILURES
            if accuracy.enough(found.gap, found.violation) or over:
                self._violation = found.violation
                return Ended(point.alpha, found.gap)

    def _interior_point(self, tol: float, alpha: sp.csr_array) -> Ended:
        """Steps of the interior-point method, which has a start of its own."""
        before = self._newton_steps

        def told(gap: float, steps: int, alpha: Callable[[], sp.csr_array]) -> None:
            self._newton_steps = before + steps
            if self._observe is not None:
                self._observe(Progress(_INTERIOR, self._made(), gap, alpha))

        X: Any = self._X
        X = X.toarray() if sp.issparse(X) else X
        with blas_threads(1):  # with others the bits of products are others
            found = _interior.Method(*self._problem(X)).run(tol, int(self._left()), told)
        return Ended(found.alpha, found.gap, found.W)

    def _admm(self, tol: float, alpha: sp.csr_array, end: float) -> Ended:
        """The alternating direction method of multipliers, until `end` passes are made at most."""
        if self._steps is None:
            if self._long_patience and self._search.gap > _FAR:
                alpha = sp.csr_array((0, 0))  # stands for 0
            more: dict[str, Any] = dict(threads=self._shared["threads"], observe=self._observe)
            self._steps = _admm_dense.Method(*self._problem(self._X), made=self._made, **more)
        ended, passes = self._steps.in_passes(alpha, tol, min(self._left(), end - self._passes.visited))
        self._passes.visited += passes
        return ended

    def _sparse_admm(self, rows: sp.csr_array, tol: float, alpha: sp.csr_array) -> Ended:
        """ADMM for Lee-Lin-Wahba with sparse features; ascent where the system does not fit into memory."""
        order = _admm_sparse.by_frequency(rows)
        ordered = canonical(rows[:, order])
        point = Splitting(*self._problem(ordered), **self._shared)
        system = _admm_sparse.system(point, ordered)
        if system is None:
            return self._ascent(rows, tol, alpha, np.inf, longer=True)
        if system.by_rows:
            ended = self._ascent(rows, tol, alpha, system.passes(rows, self._m), longer=True)
            if ended.gap <= tol or self._left() < 1:
                return ended
            alpha = ended.alpha
        point.alpha = alpha
        most = int(_SPARSE_STEPS * self._left())
        told = _admm.told_in_passes(self._observe, self._made, _SPARSE_STEPS)
        split = _admm_sparse.Sparse(
            *(point, ordered, self._C, system),
            lambda: CentredAscent(*self._problem(ordered), **self._shared),
        )
        try:
            found = _admm.steps(split, self._C, tol, most, told)
        except np.linalg.LinAlgError:  # there is no factor, by overflow or rounding
            return self._ascent(rows, tol, alpha, np.inf)
        self._passes.visited += found.steps / _SPARSE_STEPS
        W = np.empty_like(found.W)
        W[order] = found.W
        return Ended(found.alpha, found.gap, W)

    @property
    def _small(self) -> bool:
        """Whether the systems of Newton's method are small enough to factorise."""
        d = self._X.shape[1]
        if self._formulation in ("ww", "cs"):
            return d * self._m <= _DIRECT
        if self._separate:
            return factorised(self._rows)
        # for Lee-Lin-Wahba the factors of all classes are kept
        return d <= _FEW and 8 * self._m * d * d <= _FACTORS

    @property
    def _cheap(self) -> bool:
        """Whether the systems of Newton's method cost little beside steps for all rows at once."""
        n, d = self._X.shape
        if not self._small or not (self._splits or self._splits_late):
            return self._small
        if self._separate:
            return d <= _SEPARATE_FEW
        if self._formulation == "llw":
            return d * d <= max(_CENTRED_ROWS * n, _CENTRED_SQUARE)
        return (d * self._m) ** 2 <= max(_COUPLED_ROWS * n, _COUPLED_SQUARE)

    @property
    def _direct(self) -> bool:
        """Whether Newton's method comes before steps for all rows at once."""
        few = _UNKNOWNS.get(self._formulation, np.inf) if self._splits else np.inf
        return self._cheap and self._X.shape[1] * (1 if self._separate else self._m) <= few

    @property
    def _followed(self) -> bool:
        """Whether Newton's method, or the interior-point method, comes after steps for all rows at once."""
        return (self._small or self._inside) and not self._direct

    @property
    def _fits_inside(self) -> bool:
        """Whether the interior-point method serves the problem, with systems and passes that suffice."""
        (n, d), formulation = self._X.shape, self._formulation
        served = formulation in _INSIDE_FORMULATIONS and self._splits and self._most >= _ENOUGH
        return served and _interior.fits(n, d, self._m, formulation)

    @property
    def _inside(self) -> bool:
        """Whether the interior-point method takes the place of Newton's method.

        It does of Crammer-Singer, where that often goes far away, and where its systems are too large.
        """
        return self._fits_inside and (self._formulation == "cs" or not self._small)

    def _before_newton(self) -> float:
        """Passes that steps for all rows at once have before Newton's method or the interior-point method.

        They are few where Newton's method costs little, and where features are sparse, because sparse
        features of very different sizes need it.
        """
        if self._inside:
            (n, d), m = self._X.shape, self._m
            a_step = _interior.multiplications(n, d, m, self._formulation) / (n * m) + _OF_ENTRY
            return min(_INSIDE * a_step / (_BESIDE + d), math.ceil(_HALF * self._most))
        if self._separate and self._splits:
            return _OF_CLASSES
        brief = self._cheap or not self._splits
        return _BRIEF if brief else math.ceil(_HALF * self._most)

    def _patience(self) -> float:
        """Passes of coordinate ascent before another method takes over."""
        if not (self._direct or self._splits or self._splits_late or self._formulation == "llw"):
            return np.inf
        if self._splits_late and not self._small:
            return min(_LONG_PATIENCE, SHARE * self._most)
        if self._splits and self._formulation in _EARLY:
            # n d r + r³/3 multiplications of dense matrices; 25 take as long as one of the n d m of a pass
            (n, d), r = self._X.shape, min(self._X.shape)
            more = _OF_SYSTEM * (r + r**3 / max(3 * n * d, 1)) / (25 * self._m)
            return _EARLY[self._formulation] + max(min(more, SHARE * self._most), self._long_patience)
        if self._separate:
            most = _HALF * self._most - _BRIEF if self._splits_late else SHARE * self._most
            return passes_before_newton(self._rows, most)
        if self._small or self._formulation not in ("ww", "cs"):
            return _PATIENCE
        return min(_CLASS_PATIENCE * self._m, _LONG_PATIENCE, SHARE * self._most)

    @property
    def _long_patience(self) -> float:
        """Passes of Crammer-Singer that ascent has because steps for all rows at once take long; or 0."""
        if self._formulation != "cs" or not self._splits or min(self._X.shape) < _LEAST:
            return 0.0
        passes = _OF_STEPS * _VARIABLE * self._m / (self._m * self._X.shape[1] + _ROW)
        passes = min(passes, _HALF * self._most)  # the steps need some passes too
        # dual variables that are given may be near the optimum already
        return passes if passes >= _MANY and not self._search.start.size else 0.0

    @property
    def _splits(self) -> bool:
        """Whether the features are dense, and few enough for one system of all classes."""
        return multiplied_densely(self._rows) and self._fits

    @property
    def _splits_late(self) -> bool:
        """Whether ADMM steps follow with sparse features, few enough for one system; not for Lee-Lin-Wahba.

        Ascent mostly converges there, and has nearly all passes before where weights are many. For
        one-vs-rest Newton's method is faster where features are few for the number of rows.
        """
        if self._formulation == "llw" or multiplied_densely(self._rows) or not self._fits:
            return False
        n, d = self._X.shape
        return not self._separate or (self._small and d > _SEPARATE_FEW and d * d > _COUPLED_ROWS * n)

    @property
    def _splits_last(self) -> bool:
        """Whether ADMM steps come last: for one-vs-rest, where Newton's method may have ended too early."""
        late = self._splits or self._splits_late
        return self._separate and self._direct and not late and self._fits

    @property
    def _fits(self) -> bool:
        """Whether rows or features are few enough for one system of all classes."""
        n, d = self._X.shape
        return _admm_dense.fits(n, d, self._m)

    def _problem(self, rows) -> tuple:
        return rows, self._y, self._m, self._formulation, self._C


def multiplied_densely(rows: sp.csr_array) -> bool:
    """Whether products with whole rows are cheaper than products with their nonzero features alone."""
    return rows.nnz >= _DENSE * rows.shape[0] * rows.shape[1]


def factorised(rows: sp.csr_array) -> bool:
    """Whether a system of Newton's method of one class is small enough to factorise."""
    return rows.shape[1] <= _DIRECT


def passes_before_newton(rows: sp.csr_array, most: float) -> float:
    """Passes of ascent, about `most` at most, before Newton's method of one against the rest."""
    # a Newton step makes d³/3 multiplications per class, several times as fast as a pass reads entries of X
    passes = _FACTOR * rows.shape[1] ** 3 / max(rows.nnz, 1)
    return max(_SEPARATE_PATIENCE, min(passes, _LONG_PATIENCE, most))


def more_than_ascent(rows: sp.csr_array) -> bool:
    """Whether another method takes over from ascent where one class stands against the rest."""
    n, d = rows.shape
    return factorised(rows) or (multiplied_densely(rows) and _admm_dense.fits(n, d, 2))


def passes_of_steps(rows: sp.csr_array) -> float:
    """Passes at most that steps for all rows at once have for one label against the rest.

    There are none where features are sparse or too many, or where the systems of Newton's method are so small
    that it comes first. There is a limit where Newton's method follows.
    """
    n, d = rows.shape
    if not (multiplied_densely(rows) and _admm_dense.fits(n, d, 1)):
        return 0.0
    if d**2 <= max(_LABEL_ROWS * n, _UNKNOWNS["ovr"] ** 2):
        return 0.0
    return _OF_CLASSES if factorised(rows) else math.inf


def described(search: Search, violation: float, left: float, formulation: str | Formulation) -> dict:
    """The fields of ``Solution`` that follow from a search that has ended with `left` passes left."""
    found = search.found
    n, m = found.alpha.shape
    variables = n * (m - (not formulation_of(formulation).has_own))
    return dict(
        W=found.W,
        alpha=found.alpha,
        primal=found.primal,
        dual=found.dual,
        gap=found.gap,
        violation=violation,
        status=search.status(left),
        density_w=np.count_nonzero(found.W) / max(found.W.size, 1),
        density_alpha=np.count_nonzero(found.alpha.data) / variables,
    )


def canonical(X) -> sp.csr_array:
    """X as CSR of float32 or float64, columns ascending in a row and none twice, without zeros."""
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float32)
    X = X.astype(dtype, copy=False) if sp.issparse(X) else _sparse.of_dense(np.asarray(X), dtype)
    return _sparse.canonical_csr(X, zeros=False)
