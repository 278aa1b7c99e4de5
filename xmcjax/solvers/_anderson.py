"""Anderson's extrapolation of a fixed-point iteration, where its steps alone take thousands.

Rounds of steps begin at positions x_i and end at g_i, with residuals f_i = g_i − x_i. After round k the next
one begins at g_k − Σ γ_i (g_{i+1} − g_i), for the γ that makes ‖f_k − Σ γ_i (f_{i+1} − f_i)‖ least. Where the
residual of a round from there is much longer, the steps go back to g_k: where the map is linear only piece by
piece, they might stay for good far from the pieces at hand.

Anderson, "Iterative procedures for nonlinear integral equations", 1965; Walker and Ni, "Anderson acceleration
for fixed-point iterations", 2011.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

# _MEMORY: rounds that are remembered. _REGULAR: weight of ‖γ‖², relative to the mean square of differences.
_MEMORY, _REGULAR = 10, 1e-8
# If a residual is more than this many times as long as the one before, what is remembered is of other pieces
# of the map, and the steps go back to where they were.
_WORSE = 2


class Iteration(Protocol):
    """Steps that are extrapolated."""

    def position(self) -> np.ndarray:
        """Where the steps are, in the metric in which residuals are measured, as a new vector."""
        ...

    def state(self) -> list[np.ndarray]:
        """Copies of the arrays that the steps change."""
        ...

    def put(self, state: list[np.ndarray]) -> None:
        """Goes on from other numbers."""
        ...


class Extrapolation:
    """Extrapolates steps between two rounds of them.

    Args:
        steps: the steps whose position is moved.
    """

    def __init__(self, steps: Iteration):
        self._steps = steps
        self._changes: np.ndarray | None = None
        self.forget()

    def forget(self) -> None:
        """Forgets all rounds; to be called where the steps become others."""
        self._last: tuple[np.ndarray, list[np.ndarray]] | None = None
        self._length, self._rounds = np.inf, 0

    def begin(self) -> None:
        """To be called before a round."""
        self._from = self._steps.position()

    def end(self) -> None:
        """To be called after a round: moves the steps on, or back."""
        residual = self._steps.position()
        residual -= self._from
        length = float(np.linalg.norm(residual))
        if self._last is not None and not length <= _WORSE * self._length:
            self._steps.put(self._last[1])
            self.forget()
            return
        before, self._last = self._last, (residual, self._steps.state())
        self._length = length
        if before is not None and np.isfinite(length):
            self._extrapolate(*before, *self._last)

    def _extrapolate(self, before: np.ndarray, old: list[np.ndarray], residual: np.ndarray, state) -> None:
        """Moves on from a residual f and a state g, with f and g of the round before."""
        if self._changes is None:
            self._changes = np.empty((_MEMORY, residual.size))
            self._moves = [np.empty((_MEMORY, a.size)) for a in state]
            self._gram = np.empty((_MEMORY, _MEMORY))
        if not self._rounds:
            self._scale = float(np.abs(residual - before).max(initial=0))  # a unit, for finite squares
        if not 0 < self._scale < np.inf:
            return
        # f_k − f_{k−1} and g_k − g_{k−1} take the place of the oldest
        place, self._rounds = self._rounds % _MEMORY, self._rounds + 1
        change = self._changes[place]
        np.subtract(residual, before, out=change)
        change /= self._scale
        for moves, now, then in zip(self._moves, state, old, strict=True):
            np.subtract(now.ravel(), then.ravel(), out=moves[place])
        kept = min(self._rounds, _MEMORY)
        products = self._changes[:kept] @ np.stack([change, residual / self._scale]).T
        self._gram[place, :kept] = self._gram[:kept, place] = products[:, 0]
        gram = self._gram[:kept, :kept].copy()
        trace = float(np.trace(gram))
        if not (np.isfinite(products).all() and trace > 0):
            return
        gram.flat[:: kept + 1] += _REGULAR * trace / kept
        gamma = np.linalg.solve(gram, products[:, 1])
        moved = zip(state, self._moves, strict=True)
        self._steps.put([now - (gamma @ moves[:kept]).reshape(now.shape) for now, moves in moved])
