"""Projections between two fixed bounds: simplex, capped simplex, continuous quadratic knapsack.

All of them are x = min(max(b − t, l), u) with one threshold t per vector. The sum s(t) of x falls
as t rises, and t is where s(t) equals the sum that is allowed. On a CPU with the native library the search is
native/projections/projection_math.h, variable fixing of Kiwiel (2008, Algorithm 3.1); on a GPU with
xmcjax-cuda it is that of cuda/src/box_rows.h; elsewhere it is `_threshold.search`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from xmcjax import native
from xmcjax.projections import _arguments, _devices, _threshold, _weighted


def _jnp_project(b, radius, lower, upper, rho, k, *, at_most: bool, by_k: bool):
    m = b.shape[-1]
    top = b.max(-1)
    n = (b > -jnp.inf).sum(-1, dtype=jnp.int32).astype(b.dtype)
    fixed = jnp.where(n < m, lower * (m - n), 0)
    if at_most:
        empty = ~((radius >= 0) & (upper >= 0) & (rho >= 0))
    else:
        # Up to the rounding of the bounds
        slack = 4 * jnp.finfo(b.dtype).eps * m
        most = jnp.where(n > 0, n * upper, 0) + fixed + jnp.where(upper < jnp.inf, slack * jnp.abs(upper), 0)
        reached = (radius >= m * lower - slack * jnp.abs(lower)) & (radius <= most)
        empty = ~(reached & (lower <= upper) & ((n == m) | (lower > -jnp.inf)))
    # A maximum of NaN or +inf shows such an entry.
    bad = empty | ~(top < jnp.inf)
    # Where the largest entry cannot reach its upper bound, what the others leave of the sum bounds it.
    spare = jnp.maximum(radius - jnp.where(lower > -jnp.inf, m * lower, 0), 0)
    least = jnp.where(upper - lower >= spare, top - lower - spare, -jnp.inf)
    mean = (jnp.where(b >= jnp.finfo(b.dtype).min, b, 0).sum(-1) + fixed - radius) / n
    start = jnp.maximum(mean, least)
    if at_most:
        start = jnp.maximum(jnp.maximum(least, 0), jnp.minimum(mean, top))
    start = jnp.where(jnp.abs(start) < jnp.inf, start, 0)
    high = jnp.where(lower > -jnp.inf, top - lower, jnp.inf)
    zero = jnp.zeros_like(start)
    numbers, kind = (radius, lower, upper, rho), {"at_most": at_most, "k": k if by_k else None}
    center, _ = _threshold.search(b, [zero], start, high, *numbers, bad, **kind)
    x, tight = _threshold.refine(b, center, *numbers, bad, **kind)
    return jnp.where(bad[..., None], jnp.nan, x), tight.astype(b.dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(6, 7))
def box_projection(b, radius, lower, upper, rho, k, at_most, by_k):
    """min ½‖x − b‖² + ½ρ(1ᵀx)² with l <= x <= u and 1ᵀx = r or, if `at_most` (then l = 0), 1ᵀx <= r.

    Args:
        b: [..., m], float32 or float64; the numbers are [...], of the same dtype.
        k: where `by_k`, the k of u = r/k, of which `upper` is the rounded value. Above 2^24, float32 rounds k
            itself, and r/k with it.
        by_k: whether u = r/k, with `at_most`; else k is not used.

    Returns:
        x, [..., m], NaN for vectors without a solution, and 1 where 1ᵀx is held by r, else 0, [...].
    """
    return _devices.on_device(
        (b, radius, lower, upper, rho, k),
        twin=_jnp_project,
        kernel="project_box",
        at_most=at_most,
        by_k=by_k,
    )


@functools.partial(box_projection.defjvp, symbolic_zeros=True)
def _box_projection_jvp(at_most, by_k, primals, tangents):
    b, radius, lower, upper, rho, k = primals
    sum_moves = not all(isinstance(tangent, SymbolicZero) for tangent in tangents[1:4])
    db, dradius, dlower, dupper, drho = map(_threshold.dense, primals[:5], tangents[:5])
    x, tight = box_projection(b, radius, lower, upper, rho, k, at_most, by_k)
    at_lower = x <= lower[..., None]
    at_upper = (x >= upper[..., None]) & ~at_lower
    # where the radius leaves a single point, b − t differs from the bound by rounding
    m, rounding = b.shape[-1], 4 * jnp.finfo(b.dtype).eps
    all_upper = (tight > 0) & (upper < jnp.inf) & (m * upper - radius <= m * rounding * jnp.abs(upper))
    all_lower = (tight > 0) & (lower > -jnp.inf) & (radius - m * lower <= m * rounding * jnp.abs(lower))
    at_lower |= all_lower[..., None]
    at_upper = (at_upper | all_upper[..., None]) & ~at_lower
    free = ~(at_lower | at_upper)
    if sum_moves:  # else an entry that is freed at a vertex stays where it is
        first = _first_to_move(b, radius, lower, upper, rho, at_lower, at_upper, at_most)
        first &= ((tight > 0) & ~free.any(-1))[..., None]
        free, db = free | first, jnp.where(first, 0, db)
    n = free.sum(-1).astype(b.dtype)
    # Σ of dx without the −dt of the free entries
    total = jnp.where(free, db, jnp.where(at_upper, dupper[..., None], dlower[..., None])).sum(-1)
    # 1ᵀx = r: Σ_M db + |L| dl + |U| du − n dt = dr
    dt = (total - dradius) / jnp.maximum(n, 1)
    if at_most:
        # t = ρ 1ᵀx: dt = ρ (Σ_M db + |U| du − n dt) + 1ᵀx dρ
        biased = (rho * total + x.sum(-1) * drho) / (1 + rho * n)
        dt = jnp.where(tight > 0, dt, biased)
    dx = jnp.where(free, db - dt[..., None], jnp.where(at_upper, dupper[..., None], dlower[..., None]))
    return (x, tight), (_threshold.of_points(x, dx, db), jnp.zeros_like(tight))


def _first_to_move(b, radius, lower, upper, rho, at_lower, at_upper, at_most: bool):
    """At a vertex the entries that move first as the sum rises, or as it falls where it cannot rise.

    If `at_most`, t is ρ r at least: entries up to ρ r stay at 0 as r rises, and the sum does not change.
    """
    inside = (lower < upper)[..., None] & (b > -jnp.inf)
    rising = inside & at_lower
    if at_most:
        rising &= b > (rho * radius)[..., None]
    next_up = jnp.max(jnp.where(rising, b, -jnp.inf), axis=-1, keepdims=True)
    first = rising & (b == next_up)
    if at_most:
        return first
    falling = inside & at_upper & ~rising.any(-1, keepdims=True)
    next_down = jnp.min(jnp.where(falling, b, jnp.inf), axis=-1, keepdims=True)
    return first | falling & (b == next_down)


@functools.partial(jax.jit, static_argnames=("at_most", "by_k"))
def project(b, radius, lower, upper, rho, k, *, at_most: bool, by_k: bool = False):
    """x of :func:`box_projection`, compiled once for each shape."""
    return native.by_rows(
        lambda *row: box_projection(*row, at_most, by_k)[0], b, radius, lower, upper, rho, k
    )


def _solve(x, radius, lower, upper, *, at_most: bool):
    b = x.astype(_arguments.working_dtype(x.dtype))
    zero = jnp.zeros_like(radius)
    return project(b, radius, lower, upper, zero, zero, at_most=at_most).astype(x.dtype)


def simplex(x, radius: ArrayLike = 1.0) -> jax.Array:
    """Projects vectors onto the simplex of points without negative entries whose sum is the radius.

    .. math:: \\arg\\min_p \\tfrac12\\|p - x\\|^2 \\quad\\text{with}\\quad 1^T p = r,\\; p \\ge 0

    The solution is p = max(x − t, 0). The derivative is exact: with the support M of p,
    dp = dx − mean_M(dx) + dr/|M| on M and 0 elsewhere.

    Args:
        x: [..., m], of a floating dtype; the last axis is projected, the others are a batch. float16
            and bfloat16 are computed in float32. Entries of −inf are left out and become 0.
        radius: r >= 0, a scalar or of a shape that broadcasts to x.shape[:-1].

    Returns:
        p, shape and dtype of x. A vector with NaN or +inf, with a radius below 0 that was not known when
        the function was traced, or with nothing but −inf and r > 0 is NaN as a whole.

    Raises:
        TypeError: x is not of a floating dtype.
        ValueError: x has no last axis or an empty one, the radius has another shape, or is negative,
            infinite or NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> simplex(jnp.array([0.5, 1.25, -1.0])).tolist()
        [0.125, 0.875, 0.0]

    References:
        Michelot (1986), A finite algorithm for finding the projection of a point onto the canonical
        simplex of R^n; Kiwiel (2008), Variable fixing algorithms for the continuous quadratic knapsack
        problem, Algorithm 3.1.
    """
    x = _arguments.vectors(x)
    r = _arguments.number(radius, "radius", x, finite=True)
    return _solve(x, r, jnp.zeros_like(r), jnp.full_like(r, jnp.inf), at_most=False)


def capped_simplex(x, radius, upper) -> jax.Array:
    """Projects vectors onto the points between 0 and an upper bound whose sum is at most the radius.

    .. math:: \\arg\\min_p \\tfrac12\\|p - x\\|^2 \\quad\\text{with}\\quad 1^T p \\le r,\\; 0 \\le p \\le u

    The solution is p = min(max(x − t, 0), u) with t >= 0, and t = 0 where the sum is below r. On the
    entries M strictly between the bounds dp = dx − dt, with dt = 0 for t = 0 and else
    dt = (Σ_M dx + |U| du − dr)/|M|; the entries U at the upper bound follow it.

    Args:
        x: [..., m], of a floating dtype; the last axis is projected, the others are a batch. float16
            and bfloat16 are computed in float32. Entries of −inf become 0.
        radius: r >= 0, a scalar or of a shape that broadcasts to x.shape[:-1]; infinity leaves the box.
        upper: u >= 0, likewise.

    Returns:
        p, shape and dtype of x. A vector with NaN or +inf, or with a radius or bound below 0 that was not
        known when the function was traced, is NaN as a whole.

    Raises:
        TypeError: x is not of a floating dtype.
        ValueError: x has no last axis or an empty one; radius or bound have another shape, are negative
            or NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> capped_simplex(jnp.array([2.0, 1.0, -1.0]), radius=1.0, upper=0.75).tolist()
        [0.75, 0.25, 0.0]

    References:
        Lapin, Hein, Schiele (2015), Top-k multiclass SVM, section 4.1; Kiwiel (2008), Variable fixing
        algorithms for the continuous quadratic knapsack problem.
    """
    x = _arguments.vectors(x)
    r = _arguments.number(radius, "radius", x)
    u = _arguments.number(upper, "upper bound", x)
    return _solve(x, r, jnp.zeros_like(r), u, at_most=True)


def knapsack(x, radius, lower, upper, weights=None) -> jax.Array:
    """Projects vectors onto the points between two bounds whose sum, or weighted sum, is the radius.

    The continuous quadratic knapsack problem:

    .. math:: \\arg\\min_p \\tfrac12\\|p - x\\|^2 \\quad\\text{with}\\quad w^T p = r,\\; l \\le p \\le u

    The solution is p = min(max(x − t w, l), u). With equal weights dp = dx − dt on the entries M
    strictly between the bounds, with dt = (Σ_M dx + |L| dl + |U| du − dr)/|M|; the entries L and U at a bound
    follow it. docs/guide/projections.md has the derivatives with weights.

    Args:
        x: [..., m], of a floating dtype; the last axis is projected, the others are a batch. float16
            and bfloat16 are computed in float32. Entries of −inf get the lower bound.
        radius: r, a scalar or of a shape that broadcasts to x.shape[:-1], between the least and the largest
            wᵀp of the bounds: m l <= r <= m u where all are equal.
        lower: l, likewise, or a bound for each entry, with as many axes as x; −inf for none.
        upper: u >= l, likewise; inf for none.
        weights: w, finite, of any sign, likewise; 1 by default.

    Returns:
        p, shape and dtype of x. A vector with NaN or +inf, or whose bounds and radius leave no point and
        were not all known when the function was traced, is NaN as a whole.

    Raises:
        TypeError: x is not of a floating dtype.
        ValueError: x has no last axis or an empty one; radius or bounds have another shape, are NaN, or
            leave no point.

    Example:
        >>> import jax.numpy as jnp
        >>> knapsack(jnp.array([2.0, 0.5, -3.0]), radius=0.0, lower=-1.0, upper=1.0).tolist()
        [1.0, 0.0, -1.0]
        >>> knapsack(jnp.zeros(3), 0.5, -1.0, 1.0, weights=jnp.array([1.0, -1.0, 0.0])).tolist()
        [0.25, -0.25, 0.0]

    References:
        Kiwiel (2008), Variable fixing algorithms for the continuous quadratic knapsack problem,
        Algorithm 3.1.
    """
    x = _arguments.vectors(x)
    lower, upper = _arguments.given(lower, "lower"), _arguments.given(upper, "upper")
    weights = None if weights is None else _arguments.given(weights, "weights")
    r = _arguments.number(radius, "radius", x, least=None, finite=True)
    l, u = (
        _arguments.number(value, name, x, least=None, entries=True)
        for value, name in ((lower, "lower bound"), (upper, "upper bound"))
    )
    if weights is None and not (_arguments.per_entry(l, x) or _arguments.per_entry(u, x)):
        _arguments.feasible(x, radius, lower, upper)
        return _solve(x, r, l, u, at_most=False)
    weights = 1.0 if weights is None else weights
    w = _arguments.number(weights, "weights", x, least=None, finite=True, entries=True)
    _arguments.feasible(x, radius, lower, upper, weights)
    l, u, w = (_arguments.for_entries(value, x) for value in (l, u, w))
    return _weighted.project(x.astype(r.dtype), r, l, u, w).astype(x.dtype)
