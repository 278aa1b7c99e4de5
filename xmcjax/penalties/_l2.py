"""The squared Euclidean norm."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from xmcjax.penalties._base import Penalty


@dataclasses.dataclass(frozen=True)
class L2(Penalty, native="l2"):
    """ρ(w) = ½ w².

    Example:
        >>> import numpy as np
        >>> L2().value(np.float32([-2, 0.5])).tolist()
        [2.0, 0.125]
    """

    name: ClassVar[str] = "l2"

    def value(self, w):
        return w * w / 2

    def violation(self, g, w, lam):
        return jnp.abs(g + lam * w)

    def minimiser(self, h, hu, lam):
        return hu / (h + lam)

    def conjugate(self, v, lam):
        return v * v / (2 * lam)
