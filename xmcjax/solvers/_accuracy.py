"""How accurate the steps of a dual ascent are, and when it ends."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

# First tolerance on projected gradients; native ascent leaves variables as they are below a tenth of it.
EPS = 0.01
# Passes in float32 without a fall of the gap by a tenth after which rounding is taken to be the reason, or
# half of all passes made where that is more.
_IDLE = 200.0


def closed(gap: jax.Array, most, size) -> jax.Array:
    """Whether gaps are at most `most`, and not below 0 by more than rounding.

    A gap that is further below 0 belongs to dual variables outside of the dual set, such as those of another
    C. The counterpart for native calls is in native/dual/simd_instance_dual.cc.

    Args:
        gap: P − D, or the relative gap.
        most: the largest gap that is small enough.
        size: P, or 1 for relative gaps.
    """
    return (gap <= most) & (gap >= -(float(jnp.finfo(gap.dtype).eps) ** 0.25) * size)


class Accuracy:
    """When a method ends, and how accurate its steps are until then.

    Args:
        dtype: of its numbers.
        tol: relative duality gap at which it ends.

    Attributes:
        eps: projected gradients up to which variables are left as they are: made smaller where the gap is too
            large although no projected gradient is above it.
    """

    def __init__(self, dtype, tol: float):
        self.eps = EPS
        self._least, self.tol = float(np.finfo(dtype).eps), tol
        self._idle = _IDLE if dtype == np.float32 else np.inf
        self._best, self._since = np.inf, 0.0

    def enough(self, gap: float, violation: float, work: float = 0.0) -> bool:
        """Whether the gap is small enough, or nothing is left to gain.

        Args:
            gap: relative, of all dual variables.
            violation: their largest projected gradient.
            work: passes made.
        """
        if not gap > self.tol:  # true of NaN too
            return True
        if violation <= self.eps:
            if self.eps <= self._least:
                return True
            part = violation * self.tol / gap
            self.eps = max(self._least, min(self.eps / 3, max(self.eps / 100, part)))
        if gap < 0.9 * self._best:
            self._best, self._since = gap, work
        return work - self._since > max(self._idle, work / 2)
