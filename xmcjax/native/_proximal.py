"""Proximal point steps by Newton's method."""

from __future__ import annotations

import numpy as np

from xmcjax.native._dual_point import Assessment, DualPoint


class Proximal(DualPoint):
    """Proximal point steps by Newton's method, in float64. Starts from the α that it is given.

    Attributes:
        newton_steps: how many were made so far.
        failures: how many of the last steps in a row did not increase the dual.
    """

    _method = 1
    newton_steps = failures = 0

    def step(self, tolerance: float, most: int = 60) -> Assessment:
        """One proximal point step of at most `most` Newton steps, and never more than 60.

        Raises:
            ValueError: `most` allows no step.
        """
        counts = np.zeros(2, np.int64)
        found = self._assessed("proximal_step", tolerance=tolerance, most=most, counts=counts)
        self.newton_steps, self.failures = counts.tolist()
        return found
