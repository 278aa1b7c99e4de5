"""Losses of the margin m = y z of a binary problem, y = ±1, with slope, curvature and conjugate.

A Newton method needs value, slope and curvature (:attr:`MarginLoss.smooth` says whether the slope is
continuous), a dual method the conjugate.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import entr

from xmcjax._arguments import number
from xmcjax.losses._lane import LaneLoss, slope


@dataclasses.dataclass(frozen=True)
class MarginLoss(LaneLoss):
    """ℓ(s, y) = φ(m), m = y s, convex and falling: the base of the losses of this module.

    Attributes:
        name: in the table ``MARGIN_LOSSES`` and on the command line.
        smooth: φ' is continuous, as a Newton method needs.
        negative_mean_target: the default t of the mean-separating start (Schultheis and Babbar, 2022).

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Exponential(MarginLoss):
        ...     name = "exponential"
        ...     def value(self, m):
        ...         return jnp.exp(-m)
        >>> float(Exponential().grad(0.0)), float(Exponential().curv(0.0))
        (-1.0, 1.0)
    """

    negative_mean_target: ClassVar[float] = -2.0

    def score_value(self, s, y):
        s, y = _real_numbers(s, y)
        return self.value(y * s)

    def score_grad(self, s, y):
        s, y = _real_numbers(s, y)
        return y * self.grad(y * s)

    def score_curv(self, s, y):
        s, y = _real_numbers(s, y)
        return self.curv(y * s)

    def value(self, m: jax.Array) -> jax.Array:
        """φ(m), elementwise."""
        raise NotImplementedError(f"{type(self).__name__} has no value")

    def grad(self, m: jax.Array) -> jax.Array:
        """φ'(m); at a kink an element of the subdifferential. JAX derives it where the class does not."""
        return slope(self.value, m)

    def curv(self, m: jax.Array) -> jax.Array:
        """φ''(m); at a kink of the slope an element of its generalised derivative. JAX derives it, too."""
        return slope(self.grad, m)

    def conjugate(self, dual: jax.Array) -> jax.Array:
        """φ*(u) = max_m u m − φ(m), elementwise; +∞ where it is unbounded."""
        raise NotImplementedError(f"{type(self).__name__} has no conjugate")


def _real(m) -> Any:
    """Whole numbers as real ones: losses and conjugates have fractions, and squares beyond whole numbers."""
    if not hasattr(m, "dtype"):
        return float(m) if isinstance(m, int) else m
    return m.astype(float) if m.dtype.kind in "biu" else m


def _real_numbers(s, y) -> tuple[Any, Any]:
    """Scores and their targets, as real numbers where the scores are whole ones."""
    real = _real(s)
    return (s, y) if real is s else (real, _real(y))


@dataclasses.dataclass(frozen=True)
class SquaredHinge(MarginLoss, native=True):
    """φ(m) = max(0, 1−m)² (Schultheis and Babbar, 2022, eq. 5).

    Example:
        >>> import numpy as np
        >>> SquaredHinge().value(np.float32([-1, 0.5, 2])).tolist()
        [4.0, 0.25, 0.0]
    """

    name: ClassVar[str] = "squared_hinge"

    @property
    def most_curvature(self) -> float:
        return 2.0

    def value(self, m):
        return jnp.square(jnp.maximum(1 - _real(m), 0))

    def grad(self, m):
        return -2 * jnp.maximum(1 - _real(m), 0)

    def curv(self, m):
        return jnp.where(m < 1, 2.0, 0.0).astype(jnp.result_type(_real(m), float))

    def conjugate(self, dual):
        # φ*(u) = u + u²/4 for u ≤ 0
        dual = _real(dual)
        return jnp.where(dual > 0, jnp.inf, dual + dual * dual / 4)


@dataclasses.dataclass(frozen=True)
class Logistic(MarginLoss, native=True):
    """φ(m) = log(1 + e^{−m}), without overflow for any m.

    Example:
        >>> import numpy as np
        >>> Logistic().grad(np.float32([0.0])).tolist()
        [-0.5]
    """

    name: ClassVar[str] = "logistic"
    negative_mean_target: ClassVar[float] = -3.0

    @property
    def most_curvature(self) -> float:
        return 0.25

    def value(self, m):
        return jax.nn.softplus(-_real(m))

    def grad(self, m):
        return -jax.nn.sigmoid(-_real(m))

    def curv(self, m):
        # e^{−|m|} / (1 + e^{−|m|})²
        e = jnp.exp(-jnp.abs(_real(m)))
        return e / jnp.square(1 + e)

    def conjugate(self, dual):
        # φ*(−p) = p log p + (1 − p) log(1 − p) for 0 ≤ p ≤ 1
        dual = _real(dual)
        inside = jnp.clip(-dual, 0, 1)
        value = -entr(inside) - entr(1 - inside)
        return jnp.where((dual < -1) | (dual > 0), jnp.inf, value)


@dataclasses.dataclass(frozen=True)
class HuberHinge(MarginLoss, native=True):
    """φ(m) = 0 for m ≥ 1, (1−m)²/2δ for 1−δ ≤ m ≤ 1, (1−m) − δ/2 below.

    Attributes:
        delta: δ > 0, the width of the quadratic part.

    Example:
        >>> import numpy as np
        >>> HuberHinge(delta=1.0).value(np.float32([-1, 0.5, 2])).tolist()
        [1.5, 0.125, 0.0]
    """

    delta: float = 1.0

    name: ClassVar[str] = "huber_hinge"

    def __post_init__(self):
        if not number("delta", self.delta) > 0:
            raise ValueError(f"expected delta > 0, got {self.delta}")
        if not 1e-30 <= self.delta <= 1e30:  # in float32 the loss would be 0, or its curvature infinite
            raise ValueError(f"expected delta from 1e-30 to 1e30, got {self.delta}")
        object.__setattr__(self, "delta", float(self.delta))  # JAX would make an int32 of a whole number

    @property
    def parameter(self) -> float:
        return self.delta

    @property
    def most_curvature(self) -> float:
        return 1 / self.delta

    def value(self, m):
        s = jnp.maximum(1 - _real(m), 0)
        q = jnp.minimum(s, self.delta)
        # q²/2δ + (s − q): no product of two margins, which could overflow
        return q * (q / self.delta) / 2 + (s - q)

    def grad(self, m):
        return -jnp.clip(1 - _real(m), 0, self.delta) / self.delta

    def curv(self, m):
        s = 1 - _real(m)
        return jnp.where((s > 0) & (s < self.delta), 1 / self.delta, 0.0).astype(
            jnp.result_type(_real(m), float)
        )

    def conjugate(self, dual):
        # φ*(u) = u + δu²/2 for −1 ≤ u ≤ 0
        dual = _real(dual)
        return jnp.where((dual < -1) | (dual > 0), jnp.inf, dual + self.delta * dual * dual / 2)


@dataclasses.dataclass(frozen=True)
class Hinge(MarginLoss):
    """φ(m) = max(0, 1−m). It has no curvature: dual solvers use it, Newton's method cannot.

    Example:
        >>> import numpy as np
        >>> Hinge().value(np.float32([-1, 0.5, 2])).tolist()
        [2.0, 0.5, 0.0]
    """

    name: ClassVar[str] = "hinge"
    smooth: ClassVar[bool] = False

    def value(self, m):
        return jax.nn.relu(1 - _real(m))  # its derivative at the bend is 0, as that of `grad`

    def grad(self, m):
        slope = jnp.where(m < 1, -1.0, jnp.where(m >= 1, 0.0, jnp.nan))
        return slope.astype(jnp.result_type(_real(m), float))

    def curv(self, m):
        return jnp.zeros_like(_real(m))

    def conjugate(self, dual):
        # φ*(u) = u for −1 ≤ u ≤ 0
        dual = _real(dual)
        return jnp.where((dual < -1) | (dual > 0), jnp.inf, dual)


#: The losses of the margin, by name.
MARGIN_LOSSES: dict[str, MarginLoss] = {
    loss.name: loss for loss in (SquaredHinge(), Logistic(), HuberHinge(), Hinge())
}
#: The losses with which Newton's method trains one-vs-all classifiers.
SMOOTH_LOSSES = {name: loss for name, loss in MARGIN_LOSSES.items() if loss.smooth}
