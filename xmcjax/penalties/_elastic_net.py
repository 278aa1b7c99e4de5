"""The l1 norm, and its mixture with the squared norm.

H. Zou, T. Hastie, "Regularization and variable selection via the elastic net", 2005; the weights are those
of scikit-learn's ``l1_ratio``.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from xmcjax._arguments import number
from xmcjax.penalties._base import Penalty


class _Mixture(Penalty):
    """ρ(w) = α |w| + (1 − α) ½ w², α = ``parameter``."""

    def value(self, w):
        a = self.parameter
        # |w| as w sign w, whose derivative at 0 is 0: that of JAX's abs is 1, which would push every weight
        return a * (w * jnp.sign(w)) + (1 - a) / 2 * w * w

    def violation(self, g, w, lam):
        a = self.parameter
        smooth = g + lam * (1 - a) * w
        # ∂|w| is sign w, and [−1, 1] at 0
        at_zero = jnp.maximum(jnp.abs(smooth) - lam * a, 0)
        return jnp.where(w == 0, at_zero, jnp.abs(smooth + lam * a * jnp.sign(w)))

    def minimiser(self, h, hu, lam):
        a = self.parameter
        # soft thresholding
        return jnp.sign(hu) * jnp.maximum(jnp.abs(hu) - lam * a, 0) / (h + lam * (1 - a))

    def conjugate(self, v, lam):
        a = self.parameter
        beyond = jnp.maximum(jnp.abs(v) - lam * a, 0)
        if a == 1:
            return jnp.where(beyond > 0, jnp.inf, 0.0)
        return beyond * beyond / (2 * lam * (1 - a))


@dataclasses.dataclass(frozen=True)
class L1(_Mixture, native="elastic_net"):
    """ρ(w) = |w|.

    Example:
        >>> import numpy as np
        >>> L1().value(np.float32([-2, 0.5])).tolist()
        [2.0, 0.5]
    """

    name: ClassVar[str] = "l1"

    @property
    def parameter(self) -> float:
        return 1.0


@dataclasses.dataclass(frozen=True)
class ElasticNet(_Mixture, native="elastic_net"):
    """ρ(w) = α |w| + (1 − α) ½ w².

    Attributes:
        l1_ratio: α, above 0 and at most 1.

    Example:
        >>> import numpy as np
        >>> ElasticNet(l1_ratio=0.5).value(np.float32([-2, 0])).tolist()
        [2.0, 0.0]
    """

    l1_ratio: float = 0.5

    name: ClassVar[str] = "elastic_net"

    def __post_init__(self):
        if not 0 < number("l1_ratio", self.l1_ratio) <= 1:
            raise ValueError(f"expected 0 < l1_ratio <= 1, got {self.l1_ratio}")

    @property
    def parameter(self) -> float:
        return self.l1_ratio
