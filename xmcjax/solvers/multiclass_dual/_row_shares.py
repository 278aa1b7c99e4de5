"""Crammer-Singer over several processes, each with the dual variables of some of the rows.

The variables of an instance are bound together over all classes, so that classes cannot be split. Every
process has W whole and makes a sweep over its own rows, as if the others stood still. Then the changes of W
are added up, and all processes go from W and α the part γ of the way on which the dual is largest,

    D(γ) = D(0) + γ (gain − ⟨W, Δ⟩) − ½ γ² ‖Δ‖²,    γ = min{1, (gain − ⟨W, Δ⟩) / ‖Δ‖²},

with Δ the sum of the changes and gain that of Σ α. The mean of p changes each of which does not lower the
dual does not lower it either, so γ = 1/p never does, and the best γ gains as much at least (Yang, "Trading
computation for communication: distributed stochastic dual coordinate ascent", 2013, has 1/p).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax._sparse import canonical_csr
from xmcjax.native import Ascent, Assessment
from xmcjax.solvers._formulations import formulation as formulation_of
from xmcjax.solvers.multiclass_dual._wire import Wire


class RowShares:
    """Every process has some of the rows.

    Args:
        wire: between the processes.
        problem: X, y, m, formulation and C of all rows.
        seed: of the random orders.
        threads: of the passes over everything.

    Raises:
        ValueError: fewer rows than processes.
    """

    def __init__(self, wire: Wire, problem: tuple, seed: int, threads: int):
        X, y, self._m, formulation, self._C = problem
        self._wire, self._n, self._formulation = wire, X.shape[0], formulation_of(formulation)
        if self._n < wire.count:
            raise ValueError(f"expected at least {wire.count} rows for this many processes, got {self._n}")
        # neighbours may be alike: every process gets some of each kind
        self._own = np.arange(wire.place, self._n, wire.count)
        own = canonical_csr(X[self._own])
        rows = own, np.ascontiguousarray(y[self._own])
        self.point = Ascent(*rows, self._m, formulation, self._C, seed=seed, threads=threads)
        self.point.assess(1.0)  # gives every instance its first classes
        self._W = self.point.weights
        self._alpha = self.point.alpha

    def assess(self, tol: float) -> Assessment:
        # its ½‖W‖² is that of its rows, ½ ⟨W, Σᵢ xᵢ (…)ᵀ⟩, which add up to that of all
        found = self.point.assess(tol)
        primal, dual = self._wire.total(np.array([found.primal, found.dual])).tolist()
        return Assessment(primal, dual, float(self._wire.largest(np.array(found.violation))))

    def sweep(self, tol: float, shrinking: bool) -> tuple[float, float]:
        violation, visited = self.point.sweep(tol, shrinking)
        alpha, before = self.point.alpha, self._alpha
        change = self._added(self.point.weights - self._W)
        gain = self._gain(alpha) - self._gain(before)
        rise = float(self._wire.total(np.array(gain))) - float(np.vdot(self._W, change))
        square = float(np.vdot(change, change))
        part = 1.0 if rise >= square else max(rise / square, 1 / self._wire.count)
        if part < 1:
            alpha = before + part * (alpha - before)
            alpha.sort_indices()
            self.point.alpha = alpha
        self._alpha = alpha
        self._W += (part * change).astype(self._W.dtype)
        self.point.set_weights(self._W)
        if part < 1:
            self.point.assess(tol)  # which classes matter to each row, at the W that stands now
        violation = float(self._wire.largest(np.array(violation)))
        visited = float(self._wire.total(np.array(visited * len(self._own)))) / self._n
        return violation, visited

    def alpha(self) -> sp.csr_array:
        """The dual variables of the rows of this process, among those of all."""
        indptr = np.zeros(self._n + 1, np.int64)
        indptr[self._own + 1] = np.diff(self._alpha.indptr)
        np.cumsum(indptr, out=indptr)
        return sp.csr_array((self._alpha.data, self._alpha.indices, indptr), shape=(self._n, self._m))

    def _gain(self, alpha: sp.csr_array) -> float:
        return self._formulation.dual_gain_of_rows(alpha, self._C)

    def _added(self, change: np.ndarray) -> np.ndarray:
        """The sum of the changes of all processes in float64; what is not zero is sent, with its place."""
        place = np.flatnonzero(change)
        length = int(self._wire.largest(np.array(len(place))))
        places = self._wire.gather(np.pad(place, (0, length - len(place))))
        values = self._wire.gather(np.pad(change.ravel()[place], (0, length - len(place))))
        total = np.zeros(change.size)
        for some, value in zip(places, values, strict=True):
            total += np.bincount(some, value, change.size)
        return total.reshape(change.shape)
