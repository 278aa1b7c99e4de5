"""Quadratic near zero, linear beyond: large weights cost less than with the squared norm."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from xmcjax._arguments import number
from xmcjax.penalties._base import Penalty


@dataclasses.dataclass(frozen=True)
class HuberPenalty(Penalty, native="huber"):
    """ρ(w) = w²/2ε for |w| ≤ ε, |w| − ε/2 beyond (dismecpp's; with a small ε a smooth l1 norm).

    Attributes:
        huber_width: ε > 0.

    Example:
        >>> import numpy as np
        >>> HuberPenalty(huber_width=1.0).value(np.float32([-2, 0.5])).tolist()
        [1.5, 0.125]
    """

    huber_width: float = 1.0

    name: ClassVar[str] = "huber"

    def __post_init__(self):
        if not 1e-6 <= number("huber_width", self.huber_width) <= 1e6:
            raise ValueError(f"expected 1e-6 <= huber_width <= 1e6, got {self.huber_width}")

    @property
    def parameter(self) -> float:
        return self.huber_width

    def value(self, w):
        a, e = jnp.abs(w), self.huber_width
        return jnp.where(a <= e, a * a / (2 * e), a - e / 2)

    def violation(self, g, w, lam):
        return jnp.abs(g + lam * jnp.clip(w / self.huber_width, -1, 1))

    def minimiser(self, h, hu, lam):
        inside = hu / (h + lam / self.huber_width)
        outside = (hu - lam * jnp.sign(hu)) / jnp.where(h > 0, h, 1)
        return jnp.where(jnp.abs(inside) <= self.huber_width, inside, outside)

    def conjugate(self, v, lam):
        return jnp.where(jnp.abs(v) > lam, jnp.inf, self.huber_width / 2 * v * v / lam)
