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
topk_entropy z_c − z_y    that of topk_alpha       log(1 + e^E), E of the top-k entropy       the same
llw          z_c          0 ≤ α ≤ r                Σ max{0, h}                        mean α − α_c
ovr          ∓ z_c        0 ≤ α ≤ r                Σ max{0, h}                        ± α_c, + for c = y
ovr_squared  ∓ z_c        0 ≤ α, ρ = 1/(2r)        Σ max{0, h}²                       the same

The sets in which scores are subtracted have a smoothing γ too, 0 mostly: with γ > 0, ρ = γ/r and φ is the
Moreau envelope max {⟨h, x⟩ − γ/2 ‖x‖² : x in the dual set of r = 1}.

The dual of the top-k entropy has −Σ r ψ(α/r) besides, ψ(x) = s + Σ x log x + (1 − s) log(1 − s), s = 1ᵀx.

Every method works on the dual variables of one row or of many through the row map, a projection:

    row_map(b, σ) = argmax over the dual set of bᵀa − ½ aᵀM a − ½ σ ρ ‖a‖²,    b = M α + σ h,

M = I + 11ᵀ where two scores are subtracted and I elsewhere. With σ = 1/‖x_i‖² it makes the variables of a
row optimal, the others being fixed (for llw it goes part of the way); with any σ for all rows at once it is a
step of the alternating direction method of multipliers.

Functions take arrays of NumPy and of JAX alike, the classes y of the rows, [...], and as C a number or an
array [..., 1] with one for each row.

Sources: Alber et al. 2017, eqs. (2) to (5); Keerthi et al., "A sequential dual method for large
scale multi-class linear SVMs", 2008, for Crammer-Singer; Lapin, Hein and Schiele 2015, eqs. (3)
and (5) and Proposition 4, for the top-k losses; Lapin, Hein and Schiele, "Loss Functions for Top-k Error:
Analysis and Insights", 2016, for the smoothed ones. The C++ twin is native/dual/formulations.h with
native/dual/instance_sets.h.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax._sizes import repeated, rows_behind
from xmcjax.losses import gains, topk_entropy
from xmcjax.native import awaited
from xmcjax.projections import simplex, topk_simplex
from xmcjax.solvers._entropic import entropic
from xmcjax.solvers._formulation_base import (
    Formulation,
    arrays_of,
    at_class,
    is_own,
    radius_of_rows,
    with_class,
    with_values,
)


@dataclasses.dataclass(frozen=True)
class _Pairs(Formulation):
    """The gains are 1 + z_c − z_y; γ is a number, or an array of JAX without axes."""

    sparse = True
    gamma: Any = 0.0

    @property
    def smooth(self):
        return not (isinstance(self.gamma, (int, float)) and self.gamma == 0)

    def smoothed(self, h, sharp, envelope) -> Any:
        """The loss: `sharp` gives it without γ, and `envelope` with a γ."""
        if not self.smooth:
            return sharp()
        if isinstance(self.gamma, (int, float)):
            return envelope(self.gamma)
        there = self.gamma > 0
        return jnp.where(there, envelope(jnp.where(there, self.gamma, 1)), sharp())

    def ridge(self, C):
        if not self.smooth:
            return 0.0
        # a row of r = 0 has α = 0
        numpy = isinstance(C, (int, float, np.ndarray, np.number))
        return self.gamma / (np if numpy else jnp).where(C > 0, C, 1)

    def dual_gain(self, alpha, C):
        return alpha.sum() - ((self.ridge(C) * alpha * alpha).sum() / 2 if self.smooth else 0)

    def penalty(self, alpha, C):
        return self.ridge(C) / 2 * (alpha * alpha).sum(axis=-1) if self.smooth else 0.0

    def row_map(self, b, y, sigma, C, k=1):
        # ½ aᵀM a + ½ σρ ‖a‖² − bᵀa is (1 + σρ) times ½ ‖a‖² + ½ s (1ᵀa)² − s bᵀa
        if not self.smooth:
            return self.nearest(b, C, k, 1.0)
        s = 1 / (1 + sigma * self.ridge(C))
        return self.nearest(s * b, C, k, radius_of_rows(s))

    def nearest(self, b, C, k: int, rho):
        """argmin over the dual set of ½ ‖a − b‖² + ½ ρ (1ᵀa)²."""
        raise NotImplementedError

    def unopposed(self, h, C, k: int = 1):
        hard = self._unopposed(h, C, k)
        if not self.smooth:
            return hard
        there = h > -jnp.inf
        alike = self.most_alike(C, jnp.sum(there, axis=-1, keepdims=True, dtype=h.dtype))
        soft = jnp.where(there, jnp.minimum(C / jnp.where(self.gamma > 0, self.gamma, 1), alike), 0)
        return jnp.where(self.gamma > 0, soft, hard)

    def most_alike(self, C, count):
        """The largest value that all `count` dual variables of a row can have at once."""
        return C / count

    def _unopposed(self, h, C, k: int):
        """:meth:`unopposed` without γ."""
        return super().unopposed(h, C, k)

    def linear(self, Z, y) -> Any:
        return Z - at_class(Z, y)

    def coefficients(self, alpha, y) -> Any:
        if sp.issparse(alpha):
            n = len(y)
            return sp.csr_array((alpha.sum(axis=1), (np.arange(n), y)), shape=alpha.shape) - alpha
        return with_class(-alpha, y, alpha.sum(axis=-1, keepdims=True))

    def metric(self, alpha):
        return alpha + alpha.sum(axis=-1, keepdims=True)


class WestonWatkins(_Pairs):
    """Weston and Watkins 1999; Alber et al. 2017, eqs. (3) and (5)."""

    def losses(self, h, k=1):
        return self.smoothed(h, lambda: gains.hinges(h), lambda gamma: gains.smooth_hinges(h, gamma))

    def nearest(self, b, C, k, rho):
        # α = clip(b − t, 0, C) with t = ρ Σ α: the sum is bounded by the number of classes alone
        count = b.shape[-1] - 1
        return topk_simplex(b, count, count * radius_of_rows(C), rho, variant="beta")

    def most_alike(self, C, count):
        return C


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
            return with_values(alpha, np.where(own, alpha.data, -alpha.data))
        return with_class(-alpha, y, at_class(alpha, y))


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
        # max{0, b}/(1 + σρ), where σρ would overflow for short rows
        return arrays_of(b).maximum(b, 0) / sigma / (1 / sigma + self.ridge(C))

    def unopposed(self, h, C, k: int = 1):
        return jnp.full_like(h, 1 / self.ridge(C))


class TopKBeta(_Pairs):
    """Lapin et al. 2015, eq. (5); Usunier et al. 2009."""

    variant: ClassVar[gains.Variant] = "beta"

    def losses(self, h, k=1):
        return self.smoothed(
            h,
            lambda: gains.topk_hinge(h, k, self.variant),
            lambda gamma: gains.smooth_topk_hinge(h, k, gamma, self.variant),
        )

    def upper(self, C, k=1):
        return C / k

    def nearest(self, b, C, k, rho):
        return topk_simplex(b, k, radius_of_rows(C), rho, variant=self.variant)

    def _unopposed(self, h, C, k: int):
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
        return with_values(alpha, alpha.data * np.repeat(shorter, counts))


class TopKAlpha(TopKBeta):
    """Lapin et al. 2015, eq. (3)."""

    variant = "alpha"

    def upper(self, C, k=1):
        return C

    def kinks(self, h, within, k=1):
        if k == 1:
            return super().kinks(h, within)
        within = within[..., None]  # the mean of the k largest is near 0, although none of them need be
        loss = functools.partial(gains.topk_hinge, k=k, variant=self.variant)
        return (loss(h + within) > 0) & (loss(h - within) == 0)

    def inside(self, alpha: sp.csr_array, C, k: int = 1) -> sp.csr_array:
        alpha = super().inside(alpha, C, k)
        return alpha if k == 1 else _below_mean(alpha, k)


def _below_mean(alpha: sp.csr_array, k: int) -> sp.csr_array:
    """min(α, τ) with the largest τ of each row for which τ ≤ Σ_c min(α_c, τ) / k.

    Where the p < k largest variables are above τ, (k − p) τ is the sum of the others, 0 if there are none.
    """
    rows = np.repeat(np.arange(alpha.shape[0]), np.diff(alpha.indptr))
    sums, most = np.asarray(alpha.sum(axis=1)), np.full(alpha.shape[0], np.inf)
    outside = np.unique(rows[k * alpha.data > sums[rows]])
    some, rest = alpha[outside], sums[outside]
    counts, number = np.diff(some.indptr), np.arange(len(outside))
    falling = some.data[np.lexsort((-some.data, np.repeat(number, counts)))]
    for p in range(k):
        there = counts > p
        largest = np.zeros(len(number))  # of the others
        largest[there] = falling[some.indptr[:-1][there] + p]
        ended = np.isinf(most[outside]) & (p > 0) & ((p == k - 1) | ((k - p) * largest <= rest))
        most[outside[ended]] = rest[ended] / (k - p)
        rest = np.where(counts > p + 1, np.maximum(rest - largest, 0), 0)
    return with_values(alpha, np.minimum(alpha.data, most[rows]))


class TopKEntropy(TopKAlpha):
    """Lapin et al. 2016, top-k Ent; k = 1 is the cross-entropy of the softmax."""

    @property
    def smooth(self):
        return True

    def losses(self, h, k=1):
        if not isinstance(h, np.ndarray):
            return _topk_entropy(h, k)
        # the slopes are made too: a program for the losses alone would take longer to compile
        return self.losses_and_slopes(h.reshape(-1, h.shape[-1]), k)[0].reshape(h.shape[:-1])

    def losses_and_slopes(self, h: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        behind = rows_behind(h.shape)
        with jax.enable_x64(True):
            losses, slopes = awaited(_compiled_entropy, repeated(h, behind), k)
        return np.asarray(losses)[: len(h)], np.asarray(slopes)[: len(h)]

    def kinks(self, h, within, k=1):
        return np.zeros(h.shape[:-1])

    def ridge(self, C):
        return 0.0

    def penalty(self, alpha, C):
        s = alpha.sum(axis=-1)
        return s + _plogp(alpha, C[..., None] if np.ndim(C) else C).sum(axis=-1) + _plogp(C - s, C)

    def dual_gain(self, alpha, C):
        return alpha.sum() - self.penalty(alpha, radius_of_rows(C)).sum()

    def dual_gain_of_rows(self, alpha, C):
        s, of_rows = np.asarray(alpha.sum(axis=1)), np.broadcast_to(C, alpha.shape[:1])
        terms = _plogp(alpha.data, np.repeat(of_rows, np.diff(alpha.indptr)))
        return -float(terms.sum() + _plogp(of_rows - s, of_rows).sum())

    def row_map(self, b, y, sigma, C, k=1):
        # in u = a/r, divided by σ r; a row of r = 0 has no dual variables
        r = jnp.broadcast_to(jnp.asarray(C, b.dtype), (*b.shape[:-1], 1))
        u = entropic(b / sigma - 1, jnp.where(r > 0, r, 1) / sigma, k)
        return r * u

    def unopposed(self, h, C, k: int = 1):
        # E = log(m − 1)
        return jnp.where(h > -jnp.inf, C / h.shape[-1], jnp.zeros_like(h))


def _topk_entropy(h, k: int):
    """The top-k entropy of gains h, which are −∞ for the own class."""
    own = jnp.isneginf(h)
    return topk_entropy(jnp.where(own, 0, h - 1), jnp.argmax(own, axis=-1), k)


@functools.partial(jax.jit, static_argnums=1)
def _compiled_entropy(h, k: int):
    losses, pulled = jax.vjp(functools.partial(_topk_entropy, k=k), h)
    return losses, pulled(jnp.ones_like(losses))[0]


def _plogp(p, r) -> Any:
    """p log(p/r), 0 where p is 0 or rounding has put it below."""
    arrays = np if isinstance(p, np.ndarray | np.number) else jnp
    there = p > 0
    return arrays.where(there, p * arrays.log(arrays.where(there, p, 1) / arrays.where(there, r, 1)), 0)


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
        own, sums = is_own(h, y), jnp.sum(alpha, axis=-1, keepdims=True)
        h, p = jnp.where(own, 0, h), jnp.where(own, C - sums, alpha)
        least = rounding * jnp.where(own, C, sums)
        lowest = jnp.min(jnp.where(p > least, h, jnp.inf), axis=-1, keepdims=True)
        return jnp.max(h, axis=-1, keepdims=True) - lowest

    def prox(self, h, alpha, y, sigma, C):
        # in the metric of p, where it is the projection on the simplex
        own = is_own(h, y)
        p = jnp.where(own, C - jnp.sum(alpha, axis=-1, keepdims=True), alpha + sigma * h)
        p = simplex(p, radius_of_rows(C))
        return jnp.where(own, 0, p), sigma * (p > 0).astype(h.dtype)

    def prox_slope(self, slope, change, y):
        # on the support S: σ (I − 11ᵀ/|S|)
        count = jnp.sum(slope != 0, axis=-1, keepdims=True).astype(slope.dtype)
        mean = jnp.sum(jnp.where(slope != 0, change, 0), axis=-1, keepdims=True) / count
        return jnp.where(is_own(slope, y), 0, slope * (change - mean))


#: Formulations of a fit over all classes, by name.
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
#: Formulations of :mod:`xmcjax.solvers.instance_dual`, by the name of their dual set.
SETS: dict[str, Formulation] = {
    "topk_alpha": TopKAlpha("topk_alpha"),
    "topk_beta": TopKBeta("topk_beta"),
    "topk_entropy": TopKEntropy("topk_entropy"),
    "box": FORMULATIONS["ww"],
}
#: All formulations, by either name.
NAMES = FORMULATIONS | SETS


def formulation(of: str | Formulation) -> Formulation:
    """The formulation of a name, or the one that is given."""
    return NAMES[of] if isinstance(of, str) else of


def smoothed(name: str, gamma) -> Formulation:
    """One of ``SETS`` with a smoothing γ ≥ 0."""
    return dataclasses.replace(SETS[name], gamma=gamma)
