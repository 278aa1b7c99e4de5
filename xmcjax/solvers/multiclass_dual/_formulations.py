"""What tells one multi-class SVM from another: its gains, its dual set and its weights.

All of them are

    min_W  ½ Σ_c ‖w_c‖² + loss(gains),       gains g_ic = 1 + linear(Z)_ic,  Z = X W,
    max_α  Σ α − ½ ρ Σ α² − ½ Σ_c ‖w_c‖²,    W = Xᵀ coefficients(α),

where α [n, m] has a column a class, α_ic = 0 where the pair (i, c) does not exist (c = y_i but for
one-vs-rest), and g_ic − ρ α_ic is the slope of the dual along α_ic. `own` is [n, m], true where
c = y_i; `coefficients` is the adjoint of −linear.

formulation  linear(Z)_ic      exists  dual set                    w_c = Σ_i a_ic x_i with a_ic =
ww           z_ic − z_i,y_i    c ≠ y   0 ≤ α ≤ C                   −α_ic;  a_i,y = Σ_c α_ic
cs           z_ic − z_i,y_i    c ≠ y   0 ≤ α, Σ_c α_ic ≤ C         the same
llw          z_ic              c ≠ y   0 ≤ α ≤ C                   −α_ic + mean_c α_ic
ovr          ∓ z_ic            all     0 ≤ α ≤ C                   ± α_ic, + for c = y
ovr_squared  ∓ z_ic            all     0 ≤ α, ρ = 1/(2C)           the same

Sources: Alber et al. 2017 (paper 001), eqs. (2) to (5); Keerthi et al., "A sequential dual method for
large scale multi-class linear SVMs", 2008, for Crammer-Singer.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from xmcjax.projections import simplex


@dataclasses.dataclass(frozen=True)
class Formulation:
    """A formulation whose dual set is a box; `CrammerSinger` replaces what is another set there."""

    name: str

    def exists(self, own):
        """Where there is a dual variable, [n, m]."""
        return ~own

    def linear(self, Z, own):
        """The linear part of the gains."""
        raise NotImplementedError

    def coefficients(self, alpha, own):
        """a with W = Xᵀ a."""
        raise NotImplementedError

    def ridge(self, C):
        """ρ."""
        return jnp.zeros_like(C)

    def upper(self, C):
        """The upper bound of a dual variable."""
        return C

    def gains(self, Z, own):
        """g, 0 where there is no dual variable."""
        return jnp.where(self.exists(own), 1 + self.linear(Z, own), 0)

    def losses(self, gains, C):
        """The loss of each instance, [n]."""
        # C Σ_c max(0, g_ic)
        return C * jnp.sum(jnp.maximum(gains, 0), axis=1)

    def violation(self, gains, alpha, own, C):
        """|projected gradient| of each dual variable, [n, m]."""
        slope = gains - self.ridge(C) * alpha
        slope = jnp.where(alpha <= 0, jnp.maximum(slope, 0), slope)
        slope = jnp.where(alpha >= self.upper(C), jnp.minimum(slope, 0), slope)
        return jnp.where(self.exists(own), jnp.abs(slope), 0)

    def prox(self, gains, alpha, own, sigma, C):
        """argmax over the dual set of Σ (a g − ½ρ a²) − ‖a − α‖²/(2σ), and its derivative in g.

        Returns:
            The maximiser [n, m], and what `prox_slope` needs.
        """
        curvature = 1 / sigma + self.ridge(C)
        free = (alpha / sigma + gains) / curvature
        inside = self.exists(own) & (free > 0) & (free < self.upper(C))
        new = jnp.where(self.exists(own), jnp.clip(free, 0, self.upper(C)), 0)
        return new, jnp.where(inside, 1 / curvature, 0)

    def prox_slope(self, slope, change, own):
        """The change of the maximiser for a small change of the gains."""
        return slope * change

    def distance(self, new, alpha, own, C):
        """‖a − α‖² of each instance, in the metric of `prox`."""
        return jnp.sum((new - alpha) ** 2, axis=1)


class WestonWatkins(Formulation):
    """Weston and Watkins 1999; paper 001, eqs. (3) and (5)."""

    def linear(self, Z, own):
        return jnp.where(own, 0, Z - jnp.sum(jnp.where(own, Z, 0), axis=1, keepdims=True))

    def coefficients(self, alpha, own):
        return jnp.where(own, jnp.sum(alpha, axis=1, keepdims=True), -alpha)


class LeeLinWahba(Formulation):
    """Lee, Lin and Wahba 2004; paper 001, eqs. (2) and (4), with w̄ at its best."""

    def linear(self, Z, own):
        return jnp.where(own, 0, Z)

    def coefficients(self, alpha, own):
        return jnp.mean(alpha, axis=1, keepdims=True) - alpha


class OneVsRest(Formulation):
    """A binary SVM with the hinge for each class."""

    def exists(self, own):
        return jnp.ones_like(own)

    def linear(self, Z, own):
        return jnp.where(own, -Z, Z)

    def coefficients(self, alpha, own):
        return jnp.where(own, alpha, -alpha)


class OneVsRestSquared(OneVsRest):
    """A binary SVM with the squared hinge for each class."""

    def ridge(self, C):
        return 0.5 / C

    def upper(self, C):
        return jnp.full_like(C, jnp.inf)

    def losses(self, gains, C):
        # C Σ_c max(0, g_ic)²
        return C * jnp.sum(jnp.maximum(gains, 0) ** 2, axis=1)


class CrammerSinger(WestonWatkins):
    """Crammer and Singer 2001, by the dual of Keerthi et al. 2008.

    With the slack p_iy = C − Σ_c α_ic in the place of the true class, whose gain is 0, the rows of p
    lie on the simplex of radius C.
    """

    def losses(self, gains, C):
        # C max(0, max_c g_ic): the entry of the true class is 0
        return C * jnp.max(gains, axis=1)

    def violation(self, gains, alpha, own, C):
        """max_c g_ic − min over c with p_ic > 0 of g_ic, of each instance, [n, 1]."""
        # What is zero but for rounding (the slack is a difference, and a projection subtracts) must not
        # pass for a variable that could fall. Where C is large the α of an instance are far below it.
        rounding = jnp.asarray(float(jnp.finfo(gains.dtype).eps) ** 0.6, gains.dtype)
        p = self.with_slack(alpha, own, C)
        least = rounding * jnp.where(own, C, jnp.sum(alpha, axis=1, keepdims=True))
        lowest = jnp.min(jnp.where(p > least, gains, jnp.inf), axis=1, keepdims=True)
        return jnp.max(gains, axis=1, keepdims=True) - lowest

    def with_slack(self, alpha, own, C):
        """p: α with C − Σ_c α_ic in the place of the true class."""
        return jnp.where(own, C - jnp.sum(alpha, axis=1, keepdims=True), alpha)

    def project(self, p, C):
        """The nearest point of the simplex of radius C."""
        return simplex(p, C)

    def prox(self, gains, alpha, own, sigma, C):
        p = self.project(self.with_slack(alpha, own, C) + sigma * gains, C)
        support = p > 0
        return jnp.where(own, 0, p), sigma * support.astype(gains.dtype)

    def prox_slope(self, slope, change, own):
        # on the support S: σ (I − 11ᵀ/|S|)
        count = jnp.sum(slope != 0, axis=1, keepdims=True).astype(slope.dtype)
        mean = jnp.sum(jnp.where(slope != 0, change, 0), axis=1, keepdims=True) / count
        return jnp.where(own, 0, slope * (change - mean))

    def distance(self, new, alpha, own, C):
        return jnp.sum((self.with_slack(new, own, C) - self.with_slack(alpha, own, C)) ** 2, axis=1)


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
