"""The losses that a lane of newton_cg minimises: losses of the score, given the target ±1.

To add a loss, write a frozen dataclass with a ``name`` and its value. JAX gives slope and curvature where the
class does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp

from xmcjax._array_methods import methods_take_arrays
from xmcjax._fork import methods_need_threads_of_jax
from xmcjax.native import id_number


@methods_need_threads_of_jax
@methods_take_arrays
@dataclasses.dataclass(frozen=True)
class LaneLoss:
    """ℓ(s, y), convex in the score s, for a target y = ±1.

    Attributes:
        name: of the loss.
        smooth: ∂ℓ/∂s is continuous, as a Newton method needs.
        native: the number of the loss in the C++ kernels, or None. A class that says ``native=True`` has a
            line in native/interface/ids.def; one that is derived from it has none unless it says so too.

    Example:
        >>> import numpy as np
        >>> from xmcjax.losses import logistic
        >>> isinstance(logistic, LaneLoss), logistic.score_grad(np.float32(0), np.float32(1)).item()
        (True, -0.5)
    """

    name: ClassVar[str]
    smooth: ClassVar[bool] = True
    native: ClassVar[int | None] = None

    def __init_subclass__(cls, *, native: bool = False, **options):
        super().__init_subclass__(**options)
        cls.native = id_number("loss", cls.name) if native else None
        methods_need_threads_of_jax(methods_take_arrays(cls))

    @property
    def most_curvature(self) -> float:
        """The largest ∂²ℓ/∂s²; infinite, as here, where there is none or it is not known."""
        return float("inf")

    @property
    def parameter(self) -> float:
        """The parameter of the loss that the C++ kernel takes."""
        return 0.0

    def score_value(self, s: jax.Array, y: jax.Array) -> jax.Array:
        """ℓ(s, y), elementwise."""
        raise NotImplementedError(f"{type(self).__name__} has no value")

    def score_grad(self, s: jax.Array, y: jax.Array) -> jax.Array:
        """∂ℓ/∂s."""
        return slope(lambda s: self.score_value(s, y), s)

    def score_curv(self, s: jax.Array, y: jax.Array) -> jax.Array:
        """∂²ℓ/∂s²."""
        return slope(lambda s: self.score_grad(s, y), s)


def slope(f: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """f'(x) of an elementwise function, by JAX."""
    return jax.jvp(f, (x,), (jnp.ones_like(x),))[1]


@dataclasses.dataclass(frozen=True)
class Poisson(LaneLoss, native=True):
    """ℓ(s, y) = e^s − s for y = 1, e^s for y = −1: Poisson regression of counts 1 and 0.

    With s = z + log a it is the problem of one class in the log-concavity bound (Gopal and Yang, eq. 2),
    up to a constant.

    Example:
        >>> import numpy as np
        >>> Poisson().score_grad(np.float32([0, 0]), np.float32([1, -1])).tolist()
        [0.0, 1.0]
    """

    name: ClassVar[str] = "poisson"

    def score_value(self, s, y):
        return jnp.exp(s) - jnp.where(y > 0, s, 0)

    def score_grad(self, s, y):
        return jnp.where(y > 0, jnp.expm1(s), jnp.exp(s))

    def score_curv(self, s, y):
        return jnp.exp(s)
