"""Anderson's extrapolation of a fixed-point iteration, where its steps alone take thousands.

Rounds of steps begin at positions x_i and end at g_i, with residuals f_i = g_i − x_i. After round k the next
one begins at g_k − Σ γ_i (g_{i+1} − g_i), for the γ that makes ‖f_k − Σ γ_i (f_{i+1} − f_i)‖ least. Where the
residual of a round from there is much longer, the steps go back to g_k: far from the pieces of a map that is
linear only piece by piece they may stay for good.

Anderson, "Iterative procedures for nonlinear integral equations", 1965; Walker and Ni, "Anderson acceleration
for fixed-point iterations", 2011.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

# Rounds that are remembered; the weight of ‖γ‖², relative to the mean square of the differences.
_MEMORY, _REGULAR = 10, 1e-8
# A residual so many times as long as the one before: what was remembered is of other pieces, and the steps go
# back to where they were.
_WORSE = 2


class Iteration(Protocol):
    """Steps that are extrapolated."""

    def position(self) -> np.ndarray:
        """Where they are, in the metric in which residuals are measured, a vector of its own."""
        ...

    def state(self) -> list[np.ndarray]:
        """Copies of the arrays that they change."""
        ...

    def put(self, state: list[np.ndarray]) -> None:
        """Goes on from other numbers."""
        ...


class Extrapolation:
    """Of some steps, between two rounds of them.

    Args:
        steps: whose position is moved.
    """

    def __init__(self, steps: Iteration):
        self._steps = steps
        self.forget()

    def forget(self) -> None:
        """Before the steps become others."""
        self._seen: list[tuple[np.ndarray, list[np.ndarray]]] = []
        self._length = np.inf

    def begin(self) -> None:
        """Before a round."""
        self._from = self._steps.position()

    def end(self) -> None:
        """After a round: moves on, or back."""
        residual = self._steps.position() - self._from
        length = float(np.linalg.norm(residual))
        if self._seen and not length <= _WORSE * self._length:
            self._steps.put(self._seen[-1][1])
            self.forget()
            return
        self._length = length
        self._seen = [*self._seen[-_MEMORY:], (residual, self._steps.state())]
        if len(self._seen) < 2 or not np.isfinite(length):
            return
        pairs = list(zip(self._seen, self._seen[1:], strict=False))
        changes = np.array([later[0] - earlier[0] for earlier, later in pairs])
        size = float(np.abs(changes).max(initial=0))
        if not 0 < size < np.inf:
            return
        changes, residual = changes / size, residual / size  # whose squares are numbers
        gram = changes @ changes.T
        trace = float(np.trace(gram))
        gram.flat[:: len(gram) + 1] += _REGULAR * trace / len(gram)
        gamma = np.linalg.solve(gram, changes @ residual)
        state = [a.copy() for a in self._seen[-1][1]]
        for weight, (earlier, later) in zip(gamma, pairs, strict=True):
            for a, before, after in zip(state, earlier[1], later[1], strict=True):
                a -= weight * (after - before)
        self._steps.put(state)
