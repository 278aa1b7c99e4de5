"""Projections of the top-k SVM (Lapin, Hein, Schiele, 2015), with the bias ρ of its dual steps.

Their upper bound is a part of the unknown: u = 1ᵀx/k. With h(τ) = kτ + Σ max(0, b_j − τ), whose
minimum T is the sum of the k largest (Lemma 1), the threshold t and v = t + u, the system (7) of
the paper's Lemma 3 reads h(t) = h(v) = c = (k + ρk²) u: t and v are the ends of a level set of the
convex h, whose width w(c) is concave. The solution is the smallest level with w(c) = c/(k + ρk²)
(the cone) or w(c) = r/k (the radius holds, Lemma 5). From the tangents of h at t and v, and so from
the sets U and M that they bound, Newton's method goes up to this level from c = T and ends after finitely
many steps; no search over all pairs of sets is needed. On a CPU with the native library that is
native/projections/projection_math.h, on a GPU with xmcjax-cuda cuda/src/topk_rows.h, elsewhere
`_jnp_project`, for all vectors at once.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from xmcjax import native
from xmcjax.projections import _arguments, _devices, _knapsack, _threshold

_MAX_STEPS = 128
# Largest k for which the k largest are kept as they are met; beyond, b_[k] is searched for like a threshold.
_FEW = 16


def _heads(b, k: int):
    """b_[k], the next b_[k+1] (−inf for k = m) and the sum of the k largest, [...], without sorting."""
    m = b.shape[-1]
    if k <= _FEW:
        head = native.topk_values(b, min(k + 1, m))
        following = head[..., k] if k < m else jnp.full_like(b[..., 0], -jnp.inf)
        return head[..., k - 1], following, head[..., :k].sum(-1)

    def body(carry):
        low, high = carry
        middle = _threshold.between(low, high)
        enough = _threshold.count(b >= middle[..., None], middle) >= k
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    def more(carry):
        low, high = carry
        return (_threshold.between(low, high) > low).any()

    # By halving the floats that are left: at least k entries are >= low, fewer >= high.
    low = jnp.full_like(b[..., 0], -jnp.inf)
    high = _threshold.next_above(b.max(-1))
    kth = jax.lax.while_loop(more, body, (low, high))[0]
    ties = (b >= kth[..., None]).sum(-1, dtype=jnp.int32) > k
    below = jnp.where(b < kth[..., None], b, -jnp.inf).max(-1)
    # Lemma 1 at t = b_[k]
    return kth, jnp.where(ties, kth, below), jnp.maximum(b - kth[..., None], 0).sum(-1) + k * kth


class _Step:
    """The sets and sums of one (t, v), and the linear system of a Newton step from there; u = v − t.

    v is kept and not u: at the start v is an entry of b, which t + u would equal only up to rounding.

    F: Σ min(max(b − t, 0), u) = k u and G: Σ_U (b − t − u) + k t = ρk² u, of Lemma 3 in t and s.
    """

    def __init__(self, b, t, v, k: int, rho):
        # The four passes share no array, or XLA for CPUs would write one of the size of b between them; zeros
        # that are made from different numbers are not shared.
        u = v - t
        clipped = jnp.clip(b - t[..., None], (0 * u)[..., None], u[..., None]).sum(-1)
        excess = jnp.maximum(b - v[..., None], (0 * v)[..., None]).sum(-1)
        self.above = _threshold.count(b > v[..., None], v)
        self.n = _threshold.count(b >= t[..., None], t) - self.above
        self.q = k - self.above
        self.residual_f = clipped - k * u
        self.residual_g = excess + k * t - rho * k * k * u
        self.slope = self.above + rho * k * k
        self.level = excess + k * v

    def cone(self):
        """(δt, δu) of both equations; D of (7)."""
        d = self.q * self.q + self.slope * self.n
        du = (self.n * self.residual_g + self.q * self.residual_f) / jnp.where(d > 0, d, 1)
        return self.at_width(du), du

    def at_width(self, du):
        """δt of F alone."""
        return (self.residual_f - self.q * du) / jnp.maximum(self.n, 1)

    def multiplier(self, dt, du):
        """kλ after a step; λ >= 0 of Lemma 5."""
        return self.residual_g - self.slope * du + self.q * dt


def _jnp_project(b, radius, rho, *, k: int):
    bad = ~(b.max(-1) < jnp.inf) | ~((radius >= 0) & (rho >= 0))
    kappa = k + rho * k * k
    kth, following, top = _heads(b, k)
    cap = radius / k
    flat = jnp.minimum(cap, top / kappa)
    # zero: by Lemma 4. constant: the k largest are at the upper bound, and no entry is between the bounds.
    zero = ~(top > 0) | (radius == 0)
    constant = ~zero & (flat <= kth - following)
    skip = bad | zero | constant

    def body(carry):
        steps, t, v, tight, level, sets, done = carry
        step = _Step(b, t, v, k, rho)
        du_cap = cap - (v - t)
        dt_cap = step.at_width(du_cap)
        dt, du = step.cone()
        now_tight = (cap < jnp.inf) & (step.multiplier(dt_cap, du_cap) >= 0)
        dt, du = jnp.where(now_tight, dt_cap, dt), jnp.where(now_tight, du_cap, du)
        # The level that the tangent at v has at the new v.
        new_level = step.level + step.q * (dt + du)
        new_sets = (step.n, step.above)
        same = (sets[0] == new_sets[0]) & (sets[1] == new_sets[1])
        stop = done | same | ~(new_level > level)
        return (
            steps + 1,
            jnp.where(stop, t, t + dt),
            jnp.where(stop, v, v + (dt + du)),
            jnp.where(stop, tight, now_tight),
            jnp.where(stop, level, new_level),
            new_sets,
            stop,
        )

    def more(carry):
        return ((carry[0] < _MAX_STEPS) & ~carry[-1]).any()

    none = jnp.full_like(kth, -1)
    start = jnp.where(skip, 0, following), jnp.where(skip, 1, kth)
    steps = jnp.zeros_like(kth, jnp.int32)  # one count per vector, as in _threshold.search
    carry = (steps, *start, jnp.zeros_like(kth, bool), jnp.full_like(kth, -jnp.inf), (none, none), skip)
    _, t, v, tight, *_ = jax.lax.while_loop(more, body, carry)

    # A last correction for rounding: by the knapsack problem where the radius holds, else by one more step
    # from the values found.
    held, _ = _threshold.refine(b, t, radius, jnp.zeros_like(t), cap, rho, skip | ~tight, at_most=False)
    step = _Step(b, t, v, k, rho)
    dt, du = step.cone()
    width = jnp.where(constant, flat, jnp.where(tight, cap, (v - t) + du))
    middle = jnp.where(following > -jnp.inf, (kth - following - flat) / 2, -2 * flat)
    base = jnp.where(constant, jnp.where(following > -jnp.inf, following, kth), t)
    x = jnp.clip((b - base[..., None]) - jnp.where(constant, middle, dt)[..., None], 0, width[..., None])
    x = jnp.where((tight & ~constant)[..., None], held, x)
    x, width = jnp.where(zero[..., None], 0, x), jnp.where(zero, 0, width)
    tight = jnp.where(zero, radius == 0, jnp.where(constant, flat == cap, tight))
    return jnp.where(bad[..., None], jnp.nan, x), jnp.where(bad, jnp.nan, width), tight.astype(b.dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def topk_projection(b, radius, rho, k):
    """min ½‖x − b‖² + ½ρ(1ᵀx)² with 1ᵀx <= r and 0 <= x_j <= 1ᵀx/k.

    Args:
        b: [..., m], float32 or float64; radius (inf: the cone) and rho are [...], of the same dtype.

    Returns:
        x, [..., m], NaN for vectors without a solution; u = 1ᵀx/k, and 1 where 1ᵀx is held by r, else 0,
        both [...].
    """
    return _devices.on_device((b, radius, rho), twin=_jnp_project, kernel="project_topk", k=k)


@topk_projection.defjvp
def _topk_projection_jvp(k, primals, tangents):
    b, radius, rho = primals
    db, dradius, drho = tangents
    x, u, tight = topk_projection(b, radius, rho, k)
    # x = 0 has u = 0: its entries count as below the bounds, and its derivative is zero.
    full = (x >= u[..., None]) & (x > 0)
    free = (x > 0) & ~full
    above = full.sum(-1).astype(b.dtype)
    n = free.sum(-1).astype(b.dtype)
    q = k - above
    free_sum, full_sum = jnp.where(free, db, 0).sum(-1), jnp.where(full, db, 0).sum(-1)
    # F: |M| dt + (k − |U|) du = Σ_M db and G: (ρk² + |U|) du − (k − |U|) dt = Σ_U db − k²u dρ; without
    # free entries F says |U| = k, and G alone is left.
    slope = above + rho * k * k
    right = full_sum - k * (k * u) * drho  # k² of whole numbers may exceed 32 bits
    d = jnp.where(n > 0, q * q + slope * n, slope)
    du = jnp.where(n > 0, n * right + q * free_sum, right) / jnp.where(d > 0, d, 1)
    du = jnp.where(tight > 0, dradius / k, jnp.where(u > 0, du, 0))
    dt = (free_sum - q * du) / jnp.maximum(n, 1)
    dx = jnp.where(full, du[..., None], jnp.where(free, db - dt[..., None], 0))
    return (x, u, tight), (_threshold.of_points(x, dx, db), du, jnp.zeros_like(tight))


@functools.partial(jax.jit, static_argnames="k")
def project(b, radius, rho, *, k: int):
    """x of :func:`topk_projection`, compiled once for each shape."""
    return native.by_rows(lambda *row: topk_projection(*row, k)[0], b, radius, rho)


def topk_cone(x, k: int, rho: ArrayLike = 0.0) -> jax.Array:
    """Projects vectors onto the top-k cone: no entry negative, and none above 1/k of the sum.

    .. math:: \\arg\\min_p \\|p - x\\|^2 + \\rho (1^T p)^2 \\quad\\text{with}\\quad 0 \\le p_j \\le 1^T p / k

    The solution is p = min(max(x − t, 0), u) with u = 1ᵀp/k (Lemma 3). It is 0 where the k largest entries
    have a sum of at most 0, and nowhere else (Lemma 4, which holds in both directions for every ρ: along
    those k entries the objective falls at 0 if their sum is positive). The derivative is that of the
    system (7) with its sets U = {p_j = u} and M = {0 < p_j < u} held.

    Args:
        x: [..., m], of a floating dtype; the last axis is projected, the others are a batch. float16
            and bfloat16 are computed in float32. Entries of −inf are left out and become 0.
        k: 1 <= k <= m, an int. k = 1 gives max(x, 0) for ρ = 0.
        rho: ρ >= 0, the weight of the bias; a scalar or of a shape that broadcasts to x.shape[:-1].

    Returns:
        p, shape and dtype of x. A vector with NaN or +inf, or with a ρ below 0 that was not known when the
        function was traced, is NaN as a whole.

    Raises:
        TypeError: x is not of a floating dtype, k is no int.
        ValueError: x has no last axis or an empty one; k is out of range; ρ has another shape, or is
            negative or NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> topk_cone(jnp.array([3.0, 1.0, -3.0]), k=2).tolist()
        [2.0, 2.0, 0.0]

    References:
        Lapin, Hein, Schiele (2015), Top-k multiclass SVM, Lemmas 3 and 4.
    """
    x = _arguments.vectors(x)
    k = _arguments.count(k, x)
    bias = _arguments.number(rho, "rho", x, finite=True)
    b = x.astype(_arguments.working_dtype(x.dtype))
    return project(b, jnp.full_like(bias, jnp.inf), bias, k=k).astype(x.dtype)


def topk_simplex(
    x, k: int, radius: ArrayLike = 1.0, rho: ArrayLike = 0.0, variant: str = "alpha"
) -> jax.Array:
    """Projects vectors onto the top-k simplex, with the bias of a dual step of the top-k SVM.

    .. math:: \\arg\\min_p \\|p - x\\|^2 + \\rho (1^T p)^2 \\quad\\text{with}\\quad p \\in \\Delta_k(r)

    alpha: Δ = {p >= 0, 1ᵀp <= r, p_j <= 1ᵀp/k} (Definition 1), the domain of the conjugate of the top-k
    hinge loss. The solution is the knapsack problem's with u = r/k where the radius holds, else the
    cone's (Lemma 5).
    beta: Δ = {p >= 0, 1ᵀp <= r, p_j <= r/k} (Proposition 5, where r/k is misprinted as 1/k), that of
    Usunier's loss. For k = 1 both are the simplex with 1ᵀp <= r.

    The derivative is that of the equations which hold with the sets U = {p_j = u} and M = {0 < p_j < u}
    held, in x, the radius and ρ.

    Args:
        x: [..., m], of a floating dtype; the last axis is projected, the others are a batch. float16
            and bfloat16 are computed in float32. Entries of −inf are left out and become 0.
        k: 1 <= k <= m, an int.
        radius: r >= 0, a scalar or of a shape that broadcasts to x.shape[:-1].
        rho: ρ >= 0, likewise; 1 in the dual step (Proposition 4).
        variant: "alpha" or "beta".

    Returns:
        p, shape and dtype of x. A vector with NaN or +inf, or with a radius or ρ below 0 that was not known
        when the function was traced, is NaN as a whole.

    Raises:
        TypeError: x is not of a floating dtype, k is no int.
        ValueError: x has no last axis or an empty one; k is out of range; radius or ρ have another shape,
            are negative, infinite or NaN; another variant.

    Example:
        >>> import jax.numpy as jnp
        >>> topk_simplex(jnp.array([0.75, 0.25, -1.0]), k=2).tolist()
        [0.5, 0.5, 0.0]
        >>> topk_simplex(jnp.array([0.75, 0.25, -1.0]), k=2, variant="beta").tolist()
        [0.5, 0.25, 0.0]

    References:
        Lapin, Hein, Schiele (2015), Top-k multiclass SVM, Lemmas 3 to 5 and section 5.
    """
    if variant not in ("alpha", "beta"):
        raise ValueError(f"expected a variant of alpha, beta, got {variant!r}")
    x = _arguments.vectors(x)
    k = _arguments.count(k, x)
    r = _arguments.number(radius, "radius", x, finite=True)
    bias = _arguments.number(rho, "rho", x, finite=True)
    b = x.astype(_arguments.working_dtype(x.dtype))
    if variant == "alpha":
        return project(b, r, bias, k=k).astype(x.dtype)
    count = jnp.full_like(r, k)  # an operand, so that a program of a shape serves all k
    zero = jnp.zeros_like(r)
    return _knapsack.project(b, r, zero, r / k, bias, count, at_most=True, by_k=True).astype(x.dtype)
