"""What tells one multi-class SVM from another: its gains, its dual set and its weights, written once.

With a weight r_i of the loss of each row, C mostly, all of them are

    min_W  P = ½ ‖W‖² + Σ_i r_i φ(h_i),            h_i = 1 + linear(z_i),  z_i = Wᵀ x_i,
    max_α  D = Σ α − ½ ρ Σ α² − ½ ‖W‖²,            W = Xᵀ coefficients(α),  α_i in the dual set.

h and α are [..., m], a column per class. Where there is no dual variable (c = y but for one against
the rest) h is −∞ and α is 0. `coefficients` is the adjoint of −linear, and h − ρ α is the slope of D along α.

formulation  linear(z)_c  dual set                 φ(h)                               a_c = coefficients(α)_c
ww           z_c − z_y    0 ≤ α ≤ r                Σ max{0, h}                        −α_c, and Σ α for c = y
cs           z_c − z_y    0 ≤ α, Σ α ≤ r           max{0, max h}                      the same
topk_alpha   z_c − z_y    0 ≤ α ≤ Σ α/k, Σ α ≤ r   max{0, mean of the k largest h}    the same
topk_beta    z_c − z_y    0 ≤ α ≤ r/k, Σ α ≤ r     mean of the k largest max{0, h}    the same
llw          z_c          0 ≤ α ≤ r                Σ max{0, h}                        mean α − α_c
ovr          ∓ z_c        0 ≤ α ≤ r                Σ max{0, h}                        ± α_c, + for c = y
ovr_squared  ∓ z_c        0 ≤ α, ρ = 1/(2r)        Σ max{0, h}²                       the same

Every method works on the dual variables of one row or of many through the row map, a projection:

    row_map(b, σ) = argmax over the dual set of bᵀa − ½ aᵀM a − ½ σ ρ ‖a‖²,    b = M α + σ h,

M = I + 11ᵀ where two scores are subtracted and I elsewhere. With σ = 1/‖x_i‖² it makes the variables of a
row optimal, the others being fixed (for llw it goes part of the way); with any σ for all rows at once it is a
step of the alternating direction method of multipliers.

Functions take arrays of NumPy and of JAX alike, the classes y of the rows, [...], and as C a number or an
array [..., 1] with one for each row.

Sources: Alber et al. 2017, eqs. (2) to (5); Keerthi et al., "A sequential dual method for large
scale multi-class linear SVMs", 2008, for Crammer-Singer; Lapin, Hein and Schiele 2015, eqs. (3)
and (5) and Proposition 4, for the top-k losses. The C++ twin is native/dual/formulations.h with
native/dual/instance_sets.h.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax.losses import gains
from xmcjax.projections import simplex, topk_simplex

# How often dual variables of "topk_alpha" are brought below their mean.
_CLIPS = 10


def _arrays(a) -> Any:
    """The namespace of an array."""
    return np if isinstance(a, np.ndarray) else jnp


def _at_class(a, y) -> Any:
    """a_y, [..., 1]."""
    return _arrays(a).take_along_axis(a, y[..., None], -1)


def _with_class(a, y, value) -> Any:
    """a with `value`, a number or [..., 1], for a_y; an array of NumPy is written over."""
    if not isinstance(a, np.ndarray):
        return jnp.where(_own(a, y), value, a)
    np.put_along_axis(a, y[..., None], value, -1)
    return a


def _of_rows(C):
    """C as projections take a radius: a number, or [...] of [..., 1]."""
    return C[..., 0] if np.ndim(C) else C


def _own(a, y):
    """Where c = y of an array [..., m]."""
    return y[..., None] == jnp.arange(a.shape[-1], dtype=y.dtype)


@dataclasses.dataclass(frozen=True)
class Formulation:
    """A formulation; those below replace what is another in theirs."""

    name: str
    #: whether `coefficients` takes a sparse α too, and gives as few that are not zero
    sparse: ClassVar[bool] = False
    #: whether there is a dual variable for c = y
    has_own: ClassVar[bool] = False

    def exists(self, a, y):
        """Where there is a dual variable, of an array [..., m] of JAX."""
        return self.has_own | ~_own(a, y)

    def linear(self, Z, y) -> Any:
        """The linear part of the gains."""
        raise NotImplementedError

    def coefficients(self, alpha, y) -> Any:
        """a with W = Xᵀ a."""
        raise NotImplementedError

    def gains(self, Z, y) -> Any:
        """h of the scores."""
        h = 1 + self.linear(Z, y)
        return h if self.has_own else _with_class(h, y, -np.inf)

    def losses(self, h, k=1) -> Any:
        """φ(h), [...]."""
        return gains.hinges(h)

    def kinks(self, h, within, k=1):
        """How many kinks of φ the gains h of NumPy have within a distance of them, [...]."""
        return (np.abs(h) <= within[..., None]).sum(axis=-1)

    def ridge(self, C):
        """ρ."""
        return 0.0

    def upper(self, C, k=1):
        """The upper bound of a dual variable."""
        return C

    def dual_gain(self, alpha, C):
        """Σ α − ½ Σ ρ α², over all entries: D without −½ ‖W‖². C is a number or of the shape of alpha."""
        return alpha.sum()

    def metric(self, alpha):
        """M α."""
        return alpha

    def centred(self, V):
        """Scores or weights as exact sums would give them."""
        return V

    def row_map(self, b, y, sigma, C, k=1):
        """The projection that the module describes, of b that is −∞ where there is no dual variable."""
        return _arrays(b).clip(b, 0, self.upper(C, k))

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
        return _with_values(alpha, np.clip(alpha.data, 0, most))


class _Pairs(Formulation):
    """The gains are 1 + z_c − z_y."""

    sparse = True

    def linear(self, Z, y) -> Any:
        return Z - _at_class(Z, y)

    def coefficients(self, alpha, y) -> Any:
        if sp.issparse(alpha):
            n = len(y)
            return sp.csr_array((alpha.sum(axis=1), (np.arange(n), y)), shape=alpha.shape) - alpha
        return _with_class(-alpha, y, alpha.sum(axis=-1, keepdims=True))

    def metric(self, alpha):
        return alpha + alpha.sum(axis=-1, keepdims=True)


class WestonWatkins(_Pairs):
    """Weston and Watkins 1999; Alber et al. 2017, eqs. (3) and (5)."""

    def row_map(self, b, y, sigma, C, k=1):
        # α = clip(b − t, 0, C) with t = Σ α: the sum is bounded by the number of classes alone
        count = b.shape[-1] - 1
        return topk_simplex(b, count, count * _of_rows(C), 1.0, variant="beta")


class LeeLinWahba(Formulation):
    """Lee, Lin and Wahba 2004; Alber et al. 2017, eqs. (2) and (4), with w̄ at its best."""

    def linear(self, Z, y) -> Any:
        return Z

    def coefficients(self, alpha, y) -> Any:
        return alpha.mean(axis=-1, keepdims=True) - alpha

    def centred(self, V):
        return V - V.mean(axis=-1, keepdims=True)  # Σ_c w_c = 0


class OneVsRest(Formulation):
    """A binary SVM with the hinge for each class."""

    has_own = True

    def linear(self, Z, y) -> Any:
        return -self.coefficients(Z, y)

    def coefficients(self, alpha, y) -> Any:
        if sp.issparse(alpha):
            own = alpha.indices == np.repeat(y, np.diff(alpha.indptr))
            return _with_values(alpha, np.where(own, alpha.data, -alpha.data))
        return _with_class(-alpha, y, _at_class(alpha, y))


class OneVsRestSquared(OneVsRest):
    """A binary SVM with the squared hinge for each class."""

    def losses(self, h, k=1):
        return gains.squared_hinges(h)

    def ridge(self, C):
        return 0.5 / C

    def dual_gain(self, alpha, C):
        return alpha.sum() - (self.ridge(C) * alpha * alpha).sum() / 2

    def upper(self, C, k=1):
        return np.inf + 0.0 * C

    def row_map(self, b, y, sigma, C, k=1):
        # max{0, b}/(1 + σρ), of which σρ overflows for short rows
        return _arrays(b).maximum(b, 0) / sigma / (1 / sigma + self.ridge(C))

    def unopposed(self, h, C, k: int = 1):
        return jnp.full_like(h, 1 / self.ridge(C))


class TopKBeta(_Pairs):
    """Lapin et al. 2015, eq. (5); Usunier et al. 2009."""

    variant: ClassVar[gains.Variant] = "beta"

    def losses(self, h, k=1):
        return gains.topk_hinge(h, k, self.variant)

    def upper(self, C, k=1):
        return C / k

    def row_map(self, b, y, sigma, C, k=1):
        return topk_simplex(b, k, _of_rows(C), 1.0, variant=self.variant)

    def unopposed(self, h, C, k: int = 1):
        there = h > -jnp.inf
        return jnp.where(there & (jnp.cumsum(there, axis=-1) <= k), C / k, jnp.zeros_like(h))

    def violation(self, h, alpha, y, C):
        raise NotImplementedError(f"{self.name} ends by its duality gap")

    def prox(self, h, alpha, y, sigma, C):
        raise NotImplementedError(f"{self.name} has no proximal point steps")

    def inside(self, alpha: sp.csr_array, C, k: int = 1) -> sp.csr_array:
        alpha = super().inside(alpha, C, k)
        counts, sums = np.diff(alpha.indptr), np.asarray(alpha.sum(axis=1))
        shorter = np.where(sums > C, C / np.where(sums > 0, sums, 1), 1)
        return _with_values(alpha, alpha.data * np.repeat(shorter, counts))


class TopKAlpha(TopKBeta):
    """Lapin et al. 2015, eq. (3)."""

    variant = "alpha"

    def upper(self, C, k=1):
        return C

    def kinks(self, h, within, k=1):
        if k == 1:
            return super().kinks(h, within)
        within = within[..., None]  # the mean of the k largest is near 0, which none of them need be
        return (self.losses(h + within, k) > 0) & (self.losses(h - within, k) == 0)

    def inside(self, alpha: sp.csr_array, C, k: int = 1) -> sp.csr_array:
        alpha = super().inside(alpha, C, k)
        for _ in range(_CLIPS if k > 1 else 0):  # every time Σ α falls by a part of what is too much
            most = np.repeat(np.asarray(alpha.sum(axis=1)) / k, np.diff(alpha.indptr))
            alpha = _with_values(alpha, np.minimum(alpha.data, most))
        return alpha


class CrammerSinger(TopKBeta):
    """Crammer and Singer 2001, the top-k losses with k = 1, by the dual of Keerthi et al. 2008.

    With the slack p_y = C − Σ α in the place of the true class, whose gain is 0, the rows of p lie on the
    simplex of radius C.
    """

    def violation(self, h, alpha, y, C):
        """max_c h_c − min over c with p_c > 0 of h_c, of each row, [..., 1]."""
        # What is zero but for rounding (the slack is a difference, and a projection subtracts) must not
        # pass for a variable that could fall. Where C is large the α of a row are far below it.
        rounding = jnp.asarray(float(jnp.finfo(h.dtype).eps) ** 0.6, h.dtype)
        own, sums = _own(h, y), jnp.sum(alpha, axis=-1, keepdims=True)
        h, p = jnp.where(own, 0, h), jnp.where(own, C - sums, alpha)
        least = rounding * jnp.where(own, C, sums)
        lowest = jnp.min(jnp.where(p > least, h, jnp.inf), axis=-1, keepdims=True)
        return jnp.max(h, axis=-1, keepdims=True) - lowest

    def prox(self, h, alpha, y, sigma, C):
        # in the metric of p, where it is the projection on the simplex
        own = _own(h, y)
        p = jnp.where(own, C - jnp.sum(alpha, axis=-1, keepdims=True), alpha + sigma * h)
        p = simplex(p, _of_rows(C))
        return jnp.where(own, 0, p), sigma * (p > 0).astype(h.dtype)

    def prox_slope(self, slope, change, y):
        # on the support S: σ (I − 11ᵀ/|S|)
        count = jnp.sum(slope != 0, axis=-1, keepdims=True).astype(slope.dtype)
        mean = jnp.sum(jnp.where(slope != 0, change, 0), axis=-1, keepdims=True) / count
        return jnp.where(_own(slope, y), 0, slope * (change - mean))


def _with_values(alpha: sp.csr_array, values: np.ndarray) -> sp.csr_array:
    return sp.csr_array((values, alpha.indices, alpha.indptr), shape=alpha.shape)


#: Those of a fit over all classes, by name.
FORMULATIONS: dict[str, Formulation] = {
    formulation.name: formulation
    for formulation in (
        WestonWatkins("ww"),
        LeeLinWahba("llw"),
        CrammerSinger("cs"),
        OneVsRest("ovr"),
        OneVsRestSquared("ovr_squared"),
    )
}
#: Those of :mod:`xmcjax.solvers.instance_dual`, by the name of their dual set.
SETS: dict[str, Formulation] = {
    "topk_alpha": TopKAlpha("topk_alpha"),
    "topk_beta": TopKBeta("topk_beta"),
    "box": FORMULATIONS["ww"],
}
#: All, by either name.
NAMES = FORMULATIONS | SETS
