"""What a fit has reached, and where it starts."""

from __future__ import annotations

import enum
import functools
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers._base import Status
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem, without_lone_axis

# How many times the tolerance a residual may be where products with K̃ are not precise enough for less.
ROUNDED = 10
# u is multiplied out when the residual has fallen to this part of what it was when this was last done.
_DRIFT = 1e-4


class Phase(enum.IntEnum):
    """By which method a lane goes on; a method that stalls hands it to the next.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import init, kernel_problem
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> Phase(int(init(kernel_problem(family, [0, 1, 1])).phase[0])).name
        'PRECISE'
    """

    CONJUGATE = 0  #: nonlinear conjugate gradients
    NEWTON = 1  #: Newton's method, whose CG has products in single precision where the problem has them
    PRECISE = 2  #: Newton's method, with products in the precision of the problem


class State(NamedTuple):
    """The state of B lanes.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import init, kernel_problem
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> state = init(kernel_problem(family, [0, 1, 1]))
        >>> state.u.shape, state.running().tolist()
        ((3, 2, 1), [True])
    """

    alpha: jax.Array  #: [n, C, B]; 0 in rows of weight 0
    u: jax.Array  #: [n, C, B], K̃ α, of all rows: those of weight 0 are predictions
    value: jax.Array  #: [B], Φ
    residual: jax.Array  #: [B], ‖α + g‖∞ over the geometric mean of the weights above 0
    multiplier: jax.Array  #: [B], of the last Newton direction
    radius: jax.Array  #: [B], ‖·‖_K̃ of the longest direction asked for
    status: jax.Array  #: int32 [B], of :class:`xmcjax.solvers.Status`
    phase: jax.Array  #: int32 [B], of :class:`Phase`
    steps: jax.Array  #: int32 [B], Newton steps
    cg_steps: jax.Array  #: int32 [B], CG steps of both methods
    fresh: jax.Array  #: bool [B], whether u was multiplied out and not added up
    checks: jax.Array  #: int32 [B], how often u was multiplied out for a small residual
    checked: jax.Array  #: [B], the residual when u was last multiplied out
    direction: jax.Array  #: [n, C, B], the last direction p of nonlinear CG; [0, 0, B] without it
    K_direction: jax.Array  #: K̃ p, in the same shape
    gradient: jax.Array  #: α + g before the step along p, in the same shape
    energy: jax.Array  #: [B], rᵀK̃r where `window` begins; in Newton's method the residual
    window: jax.Array  #: int32 [B], steps since `energy` was taken

    def running(self, *phases: Phase) -> jax.Array:
        """bool [B], lanes that go on by one of these methods, or by any if none is given; NumPy or JAX."""
        running = self.status == Status.RUNNING
        of_phase = [self.phase == phase for phase in phases]
        return running & functools.reduce(operator.or_, of_phase) if of_phase else running

    def due(self, tolerance) -> jax.Array:
        """bool [B], whether the residual is so small that it should be seen with u multiplied out."""
        return self.residual <= jnp.maximum(tolerance, _DRIFT * self.checked)


@needs_threads_of_jax
def init(problem: KernelProblem, alpha=None) -> State:
    """The lanes at α, or at 0.

    Args:
        problem: of B lanes.
        alpha: where to start, [n, C, B] or [n, C, 1]; brought into the range of W first, and not
            taken by a lane for which 0 is better.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import init, kernel_problem
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> state = init(kernel_problem(family, [0, 1, 1]))
        >>> float(state.alpha.sum()), round(float(state.value[0]), 3)  # 3 log 2
        (0.0, 2.079)
    """
    n, C, _ = problem.likelihood.shape
    lanes, dtype = problem.weight.shape[1], problem.kernel.dtype
    # zeros as arguments: what follows from a constant the compiler would work out by itself
    zeros = jnp.zeros((n, C, lanes), dtype)
    directions = zeros if problem.conjugate else jnp.zeros((0, 0, lanes), dtype)
    return _init(problem.matrices_only(), zeros, directions, alpha)


@jax.jit
@without_lone_axis
def _init(problem: KernelProblem, zeros: jax.Array, directions: jax.Array, alpha) -> State:
    lanes, dtype = problem.weight.shape[1:], problem.kernel.dtype
    start = u = zeros
    value = objective(problem, start, u)
    if alpha is not None:
        alpha = jnp.broadcast_to(jnp.asarray(alpha, dtype), start.shape)
        alpha = jnp.where(problem.weight[:, None] > 0, problem.likelihood.in_range(alpha), 0)
        given_u = problem.kernel.matmat(alpha)
        given_value = objective(problem, alpha, given_u)
        better = given_value < value
        start, u = jnp.where(better, alpha, start), jnp.where(better, given_u, u)
        value = jnp.where(better, given_value, value)
    zero, count = jnp.zeros(lanes, dtype), jnp.zeros(lanes, jnp.int32)
    return State(
        alpha=start,
        u=u,
        value=value,
        residual=zero + jnp.inf,
        multiplier=zero,
        radius=zero + jnp.inf,
        status=count + Status.RUNNING,
        phase=count + (Phase.CONJUGATE if problem.conjugate else Phase.PRECISE),
        steps=count,
        cg_steps=count,
        fresh=jnp.ones(lanes, bool),
        checks=count,
        checked=zero + jnp.inf,
        direction=directions,
        K_direction=directions,
        gradient=directions,
        energy=zero,
        window=count,
    )


def objective(problem: KernelProblem, alpha: jax.Array, u: jax.Array) -> jax.Array:
    # Φ = Σ_i s_i ℓ_i(u_i) + ½ αᵀu
    return (
        jnp.sum(problem.weight * problem.likelihood.losses(u), axis=0) + jnp.sum(alpha * u, axis=(0, 1)) / 2
    )


def rounding_of(value: jax.Array, alpha: jax.Array, u: jax.Array) -> jax.Array:
    """By how much Φ of each lane may be rounded, [B]."""
    return 4 * jnp.finfo(u.dtype).eps * (jnp.abs(value) + jnp.sum(jnp.abs(alpha * u), axis=(0, 1)))


def residuals(problem: KernelProblem, alpha: jax.Array, u: jax.Array, pi: jax.Array) -> jax.Array:
    # r = α + g, g = s ∂ℓ/∂u
    return alpha + problem.weight[:, None] * problem.likelihood.slope(u, pi)


def residual_size(problem: KernelProblem, r: jax.Array) -> jax.Array:
    """‖r‖∞ of each lane over the geometric mean of its weights above 0, [B]: r is of their size, as α is.

    A few rows of large weight hardly change it, and so do not loosen the tolerance of the others.
    """
    weighted = problem.weight > 0
    counted = jnp.maximum(jnp.sum(weighted, axis=0), 1).astype(problem.weight.dtype)
    logarithms = jnp.where(weighted, jnp.log(jnp.where(weighted, problem.weight, 1)), 0)
    return jnp.max(jnp.abs(r), axis=(0, 1)) / jnp.exp(jnp.sum(logarithms, axis=0) / counted)
