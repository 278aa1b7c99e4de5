"""The alternating direction method of multipliers for Lee-Lin-Wahba."""

from __future__ import annotations

import numpy as np

from xmcjax.native._dual_point import DualPoint


class Splitting(DualPoint):
    """An ADMM step for Lee-Lin-Wahba, in two halves.

    Between the halves the caller solves a dense system, S x = `right` or (I + ρ XXᵀ) x = `right`. ``weights``
    and ``alpha`` are those that were kept last; setting ``alpha`` sets the start of :meth:`begin`.

    Attributes:
        size: of the dense system.
        right: [size, m], in the dtype of X; the solution may take its place.
    """

    _method = 3
    size = 0
    right: np.ndarray

    def eliminate(self, most: int) -> int:
        """Orders the features for a factorisation of I + ρ XᵀX.

        Returns:
            The entries of the factor's sparse part, `most` or few more; ``size`` is that of the dense part.
        """
        dense, entries = np.zeros((), np.int64), np.zeros((), np.int64)
        self._call("eliminate", most=most, dense=dense, entries=entries)
        self.size = int(dense)
        return int(entries)

    def by_rows(self) -> None:
        """Chooses the form of the system with inner products of rows."""
        self._call("by_rows")
        self.size = self.shape[0]

    def factor(self, rho: float) -> np.ndarray:
        """Makes the factor; returns S [size, size], of which only the lower half counts."""
        S = np.zeros((self.size, self.size))
        self._call("factor", rho=rho, dense=S)
        return S

    def begin(self) -> tuple[float, float]:
        """‖α‖² and ‖X W‖² of W = weights(α)."""
        self.right = np.zeros((self.size, self.shape[1]), self.dtype)
        found = np.zeros(2)
        self._call("begin", found=found)
        variables, scores = found.tolist()
        return variables, scores

    def look(self, rho: float, relaxed: float, keep: bool) -> list[float]:
        """The first half of a step; fills ``right``.

        Returns:
            Σ max(0, gain), Σ α⁺, ‖W‖², ‖weights(α⁺)‖² and ‖α⁺ − α‖².
        """
        found = np.zeros(5)
        self._call("look", rho=rho, relaxed=relaxed, keep=keep, right=self.right, found=found)
        return found.tolist()

    def move(self, rho: float, relaxed: float, solution: np.ndarray) -> tuple[float, float]:
        """The second half of a step.

        Returns:
            ‖Δ‖², and what the sparse part of a factor adds to Δᵀ(I + ρ XᵀX) Δ.
        """
        found = np.zeros(2)
        self._call("move", rho=rho, relaxed=relaxed, solution=solution, found=found)
        step, curved = found.tolist()
        return step, curved

    def keep_weights(self) -> None:
        """Keeps the weights of the last :meth:`look`."""
        self._call("keep", which=0)

    def keep_alpha(self) -> None:
        """Keeps α⁺ of the last :meth:`look`, which must have been called with `keep`."""
        self._call("keep", which=1)
