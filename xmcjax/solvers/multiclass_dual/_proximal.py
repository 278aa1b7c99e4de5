"""Proximal point steps on the dual, each solved by a semismooth Newton method in the weights.

Coordinate ascent needs thousands of epochs on dense, badly scaled features. A proximal point step

    α⁺ = argmax D(a) − ‖a − α‖²/(2σ)   over the dual set

has the smooth and strongly convex dual

    min_W  ψ(W) = ½‖W‖² + Σ_i max_a { a·g_i(W) − ½ρ‖a‖² − ‖a − α_i‖²/(2σ) },

an augmented Lagrangian of the primal, whose inner maximiser is a projection, a(W). ∇ψ = W − Xᵀ
coefficients(a(W)) is piecewise linear; its generalised Hessian I + Σ_J b bᵀ takes in only the variables J
strictly inside the dual set, so that few instances count. At the minimum α⁺ = a(W), and no projected
gradient of the original dual is larger than |α⁺ − α|/σ ≤ C/σ: a few steps with growing σ suffice.

Rockafellar, "Augmented Lagrangians and applications of the proximal point algorithm in convex
programming", 1976; Yan and Li, "An efficient augmented Lagrangian method for support vector machine", 2020.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax.solvers._cg import cg
from xmcjax.solvers.multiclass_dual._epochs import certificate, weights
from xmcjax.solvers.multiclass_dual._problem import MulticlassProblem

MAX_NEWTON = 60
MAX_CG = 500
_MAX_SEARCH = 25
# σ, in units of the largest C, of a step that ends at the optimum of a row whose gains do not move.
_FAR = 1e3


class Proximal(NamedTuple):
    """The state after a proximal point step.

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers.multiclass_dual import multiclass_problem
        >>> problem = multiclass_problem(np.float32([[1, 0], [0, 1]]), [0, 1], formulation="ww")
        >>> before = start(problem, np.zeros((2, 2), np.float32))
        >>> after = step(problem, 1e-3, before)
        >>> bool(after.dual > before.dual), bool(after.violation < before.violation)
        (True, True)
    """

    W: jax.Array  #: [d, m], weights(alpha)
    alpha: jax.Array  #: [n, m]
    sigma: jax.Array  #: of the step to come
    newton_steps: jax.Array  #: int32, made so far
    cg_steps: jax.Array  #: int32, made so far
    violation: jax.Array  #: largest |projected gradient|
    dual: jax.Array
    failures: jax.Array  #: int32, steps in a row after which the dual was no larger


def start(problem: MulticlassProblem, alpha) -> Proximal:
    """The state at dual variables in the dual set; rows of zeros get their best ones, whatever W is."""
    form, y, C = problem.formulation, problem.y, problem.C_of_classes
    alpha = jnp.asarray(alpha)
    best, _ = form.prox(form.gains(jnp.zeros_like(alpha), y), alpha, y, _FAR * jnp.max(problem.C), C)
    alpha = jnp.where(problem.norms2[:, None] > 0, alpha, best)
    W = weights(problem, alpha)
    found = certificate(problem, W, alpha)
    violation = jnp.max(found.violation)
    zero = jnp.int32(0)
    # the first step is to bring the violation to a third of what it is, or of the margin 1 where it is larger
    sigma = 3 * jnp.max(problem.C) / jnp.clip(violation, jnp.finfo(W.dtype).eps, 1)
    return Proximal(W, alpha, sigma, zero, zero, violation, found.dual, zero)


def step(problem: MulticlassProblem, tol, state: Proximal, most=MAX_NEWTON) -> Proximal:
    """One proximal point step, of `most` Newton steps at most.

    α stays as it is where rounding leaves nothing to gain.
    """
    form, y, C, sigma = problem.formulation, problem.y, problem.C_of_classes, state.sigma
    op, dtype = problem.op, state.W.dtype
    tol = jnp.asarray(tol, dtype)
    longest = jnp.sqrt(2 * jnp.max(problem.norms2))

    def inner(gains):
        return form.prox(gains, state.alpha, y, sigma, C)

    def linear(V):
        Z = op.matmat(V)
        return jnp.where(form.exists(Z, y), form.linear(Z, y), 0)

    class Point(NamedTuple):
        W: jax.Array
        gains: jax.Array  #: [n, m]
        gradient: jax.Array  #: ∇ψ, [d, m]
        first: jax.Array  #: ‖∇ψ‖ at the start
        newton: jax.Array
        cg: jax.Array
        moved: jax.Array  #: whether the last line search found a step

    def at(W, gains):
        a, _ = inner(gains)
        return W - op.rmatmat(form.coefficients(a, y)), a

    def unfinished(point: Point):
        a, _ = inner(point.gains)
        # what the projected gradients will be if this is close enough to the minimum of ψ
        reached = jnp.max(jnp.abs(a - state.alpha)) / sigma
        norm = jnp.sqrt(jnp.sum(point.gradient**2))
        close = longest * norm <= 0.2 * jnp.maximum(reached, tol)
        return ~close & point.moved & (point.newton < jnp.minimum(most, MAX_NEWTON))

    def newton(point: Point) -> Point:
        slope = inner(point.gains)[1]

        def hessian(v):
            V = v.reshape(point.W.shape)
            change = form.prox_slope(slope, linear(V), y)
            return (V - op.rmatmat(form.coefficients(change, y))).reshape(v.shape)

        g = point.gradient
        norm = jnp.sqrt(jnp.sum(g * g))
        solved = cg(
            hessian,
            -g.reshape(-1, 1),
            jnp.ones((1, 1), dtype),
            jnp.ones(1, bool),
            tolerance=jnp.minimum(0.1, norm / point.first).astype(dtype) * 0.5,
            max_steps=MAX_CG,
        )
        D = solved.x.reshape(point.W.shape)
        # along D the gains change by t h, and ψ'(t) = ⟨W + t D, D⟩ + Σ a(W + t D) h is monotone
        h = linear(D)
        WD, DD = jnp.sum(point.W * D), jnp.sum(D * D)

        def derivative(t):
            return WD + t * DD + jnp.sum(inner(point.gains + t * h)[0] * h)

        t = _root(derivative, jnp.sum(g * D))
        W, gains = point.W + t * D, point.gains + t * h
        return Point(
            W, gains, at(W, gains)[0], point.first, point.newton + 1, point.cg + solved.steps[0], t > 0
        )

    gains = form.gains(op.matmat(state.W), y)
    gradient, _ = at(state.W, gains)
    first = jnp.sqrt(jnp.sum(gradient**2))
    zero = jnp.int32(0)
    point = Point(state.W, gains, gradient, first, zero, zero, jnp.bool_(True))
    point = jax.lax.while_loop(unfinished, newton, point)

    alpha = inner(point.gains)[0]
    W = weights(problem, alpha)
    found = certificate(problem, W, alpha)
    rounding = 8 * jnp.finfo(dtype).eps * jnp.abs(found.primal)
    better = found.dual >= state.dual - rounding
    growth = jnp.where(point.newton <= 8, 10, 4).astype(dtype)
    return Proximal(
        W=jnp.where(better, W, state.W),
        alpha=jnp.where(better, alpha, state.alpha),
        sigma=jnp.where(better, sigma * growth, sigma / 10),
        newton_steps=state.newton_steps + point.newton,
        cg_steps=state.cg_steps + point.cg,
        violation=jnp.where(better, jnp.max(found.violation), state.violation),
        dual=jnp.where(better, found.dual, state.dual),
        failures=jnp.where(found.dual > state.dual, 0, state.failures + 1).astype(jnp.int32),
    )


begin, advance = jax.jit(start), jax.jit(step)


def _root(derivative, slope):
    """t in (0, 1] where a monotone derivative, `slope` at t = 0, has half the absolute value of `slope`.

    1 if the derivative is still negative there; 0 if `slope` is not negative.
    """
    zero, one = jnp.zeros_like(slope), jnp.ones_like(slope)
    at_one = derivative(one)

    def unfinished(carry):
        *_, value, k = carry
        return (jnp.abs(value) > 0.5 * jnp.abs(slope)) & (at_one > 0) & (k < _MAX_SEARCH)

    def narrow(carry):
        low, low_value, high, high_value, _, _, k = carry
        # the secant through the ends of the bracket, kept away from them
        width = high - low
        t = low - low_value * width / (high_value - low_value)
        t = jnp.clip(t, low + width / 10, high - width / 10)
        value = derivative(t)
        up = value > 0
        low, low_value = jnp.where(up, low, t), jnp.where(up, low_value, value)
        high, high_value = jnp.where(up, t, high), jnp.where(up, value, high_value)
        return low, low_value, high, high_value, t, value, k + 1

    carry = (zero, slope, one, at_one, one, at_one, jnp.int32(0))
    low, _, _, _, t, _, k = jax.lax.while_loop(unfinished, narrow, carry)
    return jnp.where(slope < 0, jnp.where(k < _MAX_SEARCH, t, low), 0)
