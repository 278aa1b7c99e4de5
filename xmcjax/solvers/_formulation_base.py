"""What a formulation of a multi-class SVM has; :mod:`xmcjax.solvers._formulations` has the formulations."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax.losses import gains


def arrays_of(a) -> Any:
    """The namespace of an array."""
    return np if isinstance(a, np.ndarray) else jnp


def at_class(a, y) -> Any:
    """a_y, [..., 1]."""
    return arrays_of(a).take_along_axis(a, y[..., None], -1)


def with_class(a, y, value) -> Any:
    """a with `value`, a number or [..., 1], for a_y; an array of NumPy is overwritten."""
    if not isinstance(a, np.ndarray):
        return jnp.where(is_own(a, y), value, a)
    np.put_along_axis(a, y[..., None], value, -1)
    return a


def radius_of_rows(C):
    """C as projections take a radius: a number, or [...] of [..., 1]."""
    return C[..., 0] if np.ndim(C) else C


def is_own(a, y):
    """Where c = y of an array [..., m]."""
    return y[..., None] == jnp.arange(a.shape[-1], dtype=y.dtype)


@dataclasses.dataclass(frozen=True)
class Formulation:
    """A formulation; subclasses replace what is different in theirs.

    Example:
        >>> from xmcjax.solvers.multiclass_dual import FORMULATIONS
        >>> sorted(FORMULATIONS)
        ['cs', 'llw', 'ovr', 'ovr_squared', 'ww']
    """

    name: str
    #: whether `coefficients` takes a sparse α too, and gives about as few nonzero numbers
    sparse: ClassVar[bool] = False
    #: whether there is a dual variable for c = y
    has_own: ClassVar[bool] = False

    @property
    def smooth(self) -> bool:
        """Whether the loss is smooth, by itself or by a smoothing γ that may be above 0."""
        return False

    def exists(self, a, y):
        """Where there is a dual variable, of an array [..., m] of JAX."""
        return self.has_own | ~is_own(a, y)

    def linear(self, Z, y) -> Any:
        """The linear part of the gains."""
        raise NotImplementedError

    def coefficients(self, alpha, y) -> Any:
        """a with W = Xᵀ a."""
        raise NotImplementedError

    def gains(self, Z, y) -> Any:
        """h of the scores."""
        h = 1 + self.linear(Z, y)
        return h if self.has_own else with_class(h, y, -np.inf)

    def losses(self, h, k=1) -> Any:
        """φ(h), [...]."""
        return gains.hinges(h)

    def losses_and_slopes(self, h: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """φ(h), [n], and ∇φ(h), which is α/C where h is best, [n, m], of gains [n, m] and a smooth φ."""
        raise NotImplementedError

    def kinks(self, h, within, k=1):
        """How many kinks of φ lie within a distance of the gains h of NumPy, [...]."""
        return (np.abs(h) <= within[..., None]).sum(axis=-1)

    def losses_of(self, Z, y, k=1) -> Any:
        """φ of scores of NumPy, [...]."""
        return self.losses(self.gains(self.centred(Z), y), k)

    def kinks_of(self, Z, y, within, k=1) -> Any:
        """How many kinks of φ lie within a distance of the scores of NumPy, [...]."""
        return self.kinks(self.gains(self.centred(Z), y), within, k)

    def ridge(self, C):
        """ρ."""
        return 0.0

    def upper(self, C, k=1):
        """The upper bound of a dual variable."""
        return C

    def dual_gain(self, alpha, C):
        """Σ α − ½ Σ ρ α², over all entries: D without −½ ‖W‖². C is a number or of the shape of alpha."""
        return alpha.sum()

    def penalty(self, alpha, C):
        """½ ρ Σ α² of each row, [...], with C of the same shape; r ψ(α/r) of an entropy."""
        return 0.0

    def dual_gain_of_rows(self, alpha: sp.csr_array, C) -> float:
        """`dual_gain` of dual variables [n, m]; C is a number, or one for each row, [n]."""
        return float(self.dual_gain(alpha.data, np.repeat(C, np.diff(alpha.indptr)) if np.ndim(C) else C))

    def metric(self, alpha):
        """M α."""
        return alpha

    def centred(self, V):
        """Scores or weights as exact sums would give them."""
        return V

    def row_map(self, b, y, sigma, C, k=1):
        """The projection that the module describes, of b that is −∞ where there is no dual variable."""
        return arrays_of(b).clip(b, 0, self.upper(C, k))

    def best(self, h, alpha, y, norm2, C, k: int = 1):
        """The dual variables that one visit of a row leaves, of JAX; ‖x‖² is `norm2`."""
        # what is multiplied by 1/‖x‖² stays finite; shorter rows are as good as zeros
        empty = norm2 <= 1e6 * float(jnp.finfo(norm2.dtype).tiny)
        sigma = 1 / jnp.where(empty, 1, norm2)
        moved = self.row_map(self.metric(alpha) + sigma * h, y, sigma, C, k)
        return jnp.where(empty, self.unopposed(h, C, k), moved)

    def unopposed(self, h, C, k: int = 1):
        """The best α of a row of zeros."""
        return jnp.where(h > -jnp.inf, self.upper(C, k), jnp.zeros_like(h))

    def violation(self, h, alpha, y, C):
        """|projected gradient| of each dual variable, [..., m]."""
        slope = jnp.where(h > -jnp.inf, h - self.ridge(C) * alpha, 0)
        slope = jnp.where(alpha <= 0, jnp.maximum(slope, 0), slope)
        return jnp.abs(jnp.where(alpha >= self.upper(C), jnp.minimum(slope, 0), slope))

    def prox(self, h, alpha, y, sigma, C):
        """argmax over the dual set of Σ (a h − ½ρ a²) − ‖a − α‖²/(2σ), and its derivative in h.

        Returns:
            The maximiser [n, m], and what `prox_slope` needs.
        """
        scale = 1 + sigma * self.ridge(C)
        free = (alpha + sigma * h) / scale
        inside = (free > 0) & (free < self.upper(C))
        return jnp.clip(free, 0, self.upper(C)), jnp.where(inside, sigma / scale, 0)

    def prox_slope(self, slope, change, y):
        """The change of the maximiser for a small change of the gains."""
        return slope * change

    def inside(self, alpha: sp.csr_array, C, k: int = 1) -> sp.csr_array:
        """Dual variables [n, m] without what rounding has put outside of the dual set.

        C is a number, or one for each row, [n].
        """
        most = np.repeat(np.broadcast_to(self.upper(C, k), alpha.shape[:1]), np.diff(alpha.indptr))
        return with_values(alpha, np.clip(alpha.data, 0, most))


def with_values(alpha: sp.csr_array, values: np.ndarray) -> sp.csr_array:
    return sp.csr_array((values, alpha.indices, alpha.indptr), shape=alpha.shape)
