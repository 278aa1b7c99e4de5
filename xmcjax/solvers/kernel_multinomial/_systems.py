"""The linear system behind every Newton step and every derivative: (I + W K̃) x = b.

Two ways to solve it: conjugate gradients, and the exact one of appendix B of Seeger 2006.

The matrix is not symmetric, but it is so in the inner product ⟨x, x'⟩ = xᵀK̃x', that of the functions
K̃x: ⟨x, (I + W K̃) x'⟩ = xᵀK̃x' + xᵀK̃ W K̃x'. CG in it is CG on the Newton model of Φ in function
space: every iterate is a minimum of that model over the space searched, so that it may be stopped after any
step. The paper's way to a symmetric system, W = V Vᵀ and unknowns D^{−½}α, divides by
probabilities that vanish (its appendix A), and its iterates, even with the diagonal as
preconditioner, took 1.2 to 3 times the products on satimage and gave no usable step when stopped early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax.native import varying_like
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem


class HParams(NamedTuple):
    """Numbers of the method; all are traced, so none costs a compilation.

    Attributes:
        tolerance: a lane has converged when ‖α + g‖∞ is at most this times the geometric mean of its weights,
            or ten times that where u, made anew, was off by rounding twice: α then holds the differences
            between targets and probabilities to that precision.
        max_steps: k₁ of the paper, Newton steps per lane.
        max_cg: k₂, CG steps per Newton step. Nonlinear CG makes k₁ k₂ steps at most.
        max_cg_gradient: k₃, CG steps of the system behind a gradient or an implicit derivative.
        cg_tolerance: CG of a Newton step stops at this, relative, and at the square root of ‖α + g‖∞.
        armijo: η of the sufficient decrease.
        max_backtracks: halvings of a step.

    Example:
        >>> HParams(tolerance=1e-4).tolerance
        0.0001
    """

    tolerance: float = 1e-5
    max_steps: int = 100
    max_cg: int = 200
    max_cg_gradient: int = 500
    cg_tolerance: float = 0.1
    armijo: float = 1e-4
    max_backtracks: int = 30


class Solved(NamedTuple):
    """What a linear system has ended with.

    Example:
        >>> from xmcjax.solvers.kernel_multinomial import cg_in_functions
        >>> b = jnp.ones((2, 1, 1))
        >>> options = dict(tolerance=1e-6, max_steps=10)
        >>> solved = cg_in_functions(lambda x: 2 * x, lambda x: x, b, 2 * b, jnp.array([True]), **options)
        >>> bool(jnp.allclose(solved.x, 1 / 3)), solved.steps.tolist(), solved.cut.tolist()
        (True, [1], [False])
    """

    x: jax.Array  #: [n, C, B]
    Kx: jax.Array  #: K̃ x
    steps: jax.Array  #: int32 [B], CG steps; 0 of an exact solution
    cut: jax.Array  #: bool [B], whether x was cut off at the radius


def hessian(problem: KernelProblem, u: jax.Array, pi: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """x ↦ W x of [n, C, B]; W = s ∂²ℓ/∂u²."""
    curvature, weight = problem.likelihood.curvature(u, pi), problem.weight[:, None]
    return lambda x: weight * curvature(x)


def solve_system(
    problem: KernelProblem,
    W,
    pi: jax.Array,
    b: jax.Array,
    Kb: jax.Array,
    lanes: jax.Array,
    *,
    tolerance,
    max_steps,
    radius: jax.Array | float = jnp.inf,
) -> Solved:
    """x of the lanes where `lanes` is true, 0 in the others.

    Args:
        problem: of B lanes.
        W: of :func:`hessian`.
        pi: π, [n, C, B], which W is made of.
        b: [n, C, B].
        Kb: K̃ b.
        lanes: bool [B].
        tolerance: of CG, relative; a number or [B].
        max_steps: of CG.
        radius: of CG, the longest x; a number or [B]. An exact solution has none.
    """
    if problem.exact:
        return _exact(problem, pi, b, Kb, lanes)
    product = problem.product
    return cg_in_functions(product, W, b, Kb, lanes, tolerance=tolerance, max_steps=max_steps, radius=radius)


def adjoint(problem: KernelProblem, hp: HParams, u: jax.Array, pi: jax.Array, t: jax.Array) -> Solved:
    """x = (I + W K̃)⁻¹ W t, which every derivative of a fit is made of, in at most k₃ steps."""
    W = hessian(problem, u, pi)
    b, lanes = W(t), jnp.ones(t.shape[2:], bool)
    Kb = problem.kernel.matmat(b)
    return solve_system(problem, W, pi, b, Kb, lanes, tolerance=hp.tolerance, max_steps=hp.max_cg_gradient)


@needs_threads_of_jax
def cg_in_functions(
    product,
    W,
    b: jax.Array,
    Kb: jax.Array,
    lanes: jax.Array,
    *,
    tolerance,
    max_steps,
    radius: jax.Array | float = jnp.inf,
) -> Solved:
    """CG on (I + W K̃) x = b in the inner product of K̃; one product with K̃ per step.

    A lane stops when ‖r‖_K̃ ≤ tolerance ‖b‖_K̃, r = b − (I + W K̃) x, or where rounding leaves no
    positive curvature; and where x reaches ‖x‖_K̃ = radius, which it does once, as it grows with every
    step (Steihaug, "The conjugate gradient method and trust regions in large scale optimization", 1983).

    Args:
        product: x ↦ K̃ x, symmetric and positive semidefinite.
        W: x ↦ W x, symmetric and positive semidefinite.
        b, Kb, lanes, tolerance, max_steps, radius: as for a system in the classes.

    Example:
        (I + W K̃) x = b with K̃ = 2 I and W = I, so that x = b/3:

        >>> b = jnp.array([[[3.0]], [[6.0]]])
        >>> options = dict(tolerance=1e-6, max_steps=10)
        >>> solved = cg_in_functions(lambda x: 2 * x, lambda x: x, b, 2 * b, jnp.array([True]), **options)
        >>> solved.x.ravel().round(4).tolist()
        [1.0, 2.0]
    """

    def inner(a, c):
        return jnp.sum(a * c, axis=(0, 1))

    zero = jnp.zeros_like(b)
    b, Kb = jnp.where(lanes, b, 0), jnp.where(lanes, Kb, 0)
    first = inner(b, Kb)
    open_ = lanes & (first > 0)
    none = jnp.zeros_like(first)
    # ⟨x, x⟩, ⟨x, p⟩ and ⟨p, p⟩, which need no further sums
    lengths = (none, none, first)
    counts = (jnp.zeros(lanes.shape, jnp.int32), jnp.int32(0))
    carry = (zero, zero, b, b, Kb, first, lengths, jnp.zeros(lanes.shape, bool), open_, *counts)
    carry = varying_like(carry, (b, Kb, lanes))

    def unfinished(carry):
        *_, open_, _, iteration = carry
        return jnp.any(open_) & (iteration < max_steps)

    def step(carry):
        x, Kx, r, p, Kp, rr, (xx, xp, pp), cut, open_, steps, iteration = carry
        Ap = p + W(Kp)
        curvature = inner(Kp, Ap)  # ⟨p, (I + W K̃) p⟩
        steps = steps + open_.astype(jnp.int32)
        open_ = open_ & (curvature > 0)
        alpha = jnp.where(open_, rr / jnp.where(open_, curvature, 1), 0)
        # ‖x + t p‖ = radius
        room = jnp.maximum(radius * radius - xx, 0)
        t = (jnp.sqrt(xp * xp + pp * room) - xp) / jnp.where(open_, pp, 1)
        cut = cut | (open_ & (alpha >= t))
        alpha = jnp.where(open_, jnp.minimum(alpha, t), 0)
        x, Kx, r = x + alpha * p, Kx + alpha * Kp, r - alpha * Ap
        Kr = product(r)
        rr_next = inner(r, Kr)
        open_ = open_ & (rr_next > tolerance**2 * first) & ~cut
        beta = jnp.where(open_, rr_next / jnp.where(open_, rr, 1), 0)
        xx, xp = xx + alpha * (2 * xp + alpha * pp), beta * (xp + alpha * pp)
        lengths = (xx, xp, rr_next + beta * beta * pp)
        p, Kp = r + beta * p, Kr + beta * Kp
        return x, Kx, r, p, Kp, rr_next, lengths, cut, open_, steps, iteration + 1

    x, Kx, *_, cut, _, steps, _ = jax.lax.while_loop(unfinished, step, carry)
    return Solved(x, Kx, steps, cut)


def _exact(problem, pi, b, Kb, lanes) -> Solved:
    # x = b − (K̃ + W⁻)⁻¹ K̃b with (K̃ + W⁻)⁻¹ = E − E R (RᵀER)⁻¹ RᵀE, E_c = D_c^½ (I + D_c^½ K̃_c D_c^½)⁻¹ D_c^½
    # and R the sum over classes: eq. 10 without its D^{−½}; Rasmussen and Williams, 2006, eqs. 3.46 and 3.47.
    kernel = problem.kernel
    K = kernel.matrices()  # [C, n, n]

    def lane(args):
        pi, t, weight = args  # [C, n], [C, n], [n]

        def factor(args):
            pi, K = args
            root = jnp.sqrt(weight * pi)
            A = jnp.eye(len(root), dtype=K.dtype) + root[:, None] * K * root
            # E = GᵀG with G = L⁻¹ D^½, A = LLᵀ
            return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(A), jnp.diag(root), lower=True)

        G = jax.lax.map(factor, (pi, K))

        def E(x):  # [C, n]
            return jnp.einsum(
                "cki,ck->ci", G, jnp.einsum("cki,ci->ck", G, x, precision="highest"), precision="highest"
            )

        total = jnp.einsum("cki,ckj->ij", G, G, precision="highest")
        # a point of weight 0 has no part in it
        total = total + jnp.diag((weight == 0).astype(total.dtype))
        Et = E(t)
        common = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(total), True), jnp.sum(Et, axis=0))
        return Et - E(jnp.broadcast_to(common, t.shape))

    lanes_first = [jnp.moveaxis(a, (2, 1), (0, 1)) for a in (pi, Kb)]
    q = jnp.moveaxis(jax.lax.map(lane, (*lanes_first, problem.weight.T)), (0, 1), (2, 1))
    x = jnp.where(lanes, b - q, 0)
    steps = jnp.zeros(lanes.shape, jnp.int32)
    return Solved(x, jnp.where(lanes, Kb - kernel.matmat(q), 0), steps, jnp.zeros(lanes.shape, bool))
