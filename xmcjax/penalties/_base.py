"""Penalties of weights, R(w) = λ Σ_j ρ(w_j), ρ convex with ρ(0) = 0 its minimum."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax

from xmcjax._array_methods import methods_take_arrays
from xmcjax._fork import methods_need_threads_of_jax
from xmcjax.native import id_number


@dataclasses.dataclass(frozen=True)
class Penalty:
    """ρ, and the functions that coordinate and proximal steps need of it; all are elementwise.

    Attributes:
        name: in the table ``PENALTIES`` and on the command line.
        native: its number in the C++ kernels, or None. A class names the line of native/interface/ids.def
            that it is, ``native="huber"``; one that is derived from it has none unless it does so too.

    Example:
        >>> from xmcjax.penalties import PENALTIES
        >>> sorted(PENALTIES), all(issubclass(kind, Penalty) for kind in PENALTIES.values())
        (['elastic_net', 'huber', 'l1', 'l2'], True)
    """

    name: ClassVar[str]
    native: ClassVar[int | None] = None

    def __init_subclass__(cls, *, native: str | None = None, **options):
        super().__init_subclass__(**options)
        cls.native = None if native is None else id_number("penalty", native)
        methods_need_threads_of_jax(methods_take_arrays(cls))

    @property
    def parameter(self) -> float:
        """The parameter of the penalty that the C++ kernel takes."""
        return 0.0

    def value(self, w: jax.Array) -> jax.Array:
        """ρ(w)."""
        raise NotImplementedError(f"{type(self).__name__} has no value")

    def violation(self, g: jax.Array, w: jax.Array, lam) -> jax.Array:
        """The distance of −g to λ ∂ρ(w): 0 exactly where w is optimal for a loss of slope g."""
        raise NotImplementedError(f"{type(self).__name__} has no subdifferential")

    def minimiser(self, h: jax.Array, hu: jax.Array, lam) -> jax.Array:
        """argmin_x ½ h (x − u)² + λ ρ(x), given h > 0 and h u: the proximal map."""
        raise NotImplementedError(f"{type(self).__name__} has no proximal map")

    def conjugate(self, v: jax.Array, lam) -> jax.Array:
        """max_w v w − λ ρ(w), elementwise; +∞ where it is unbounded.

        One-vs-all training certifies its optima with it; without one it believes its solver.
        """
        raise NotImplementedError(f"{type(self).__name__} has no conjugate")
