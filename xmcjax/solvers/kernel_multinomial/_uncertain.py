"""Targets of which only a set of possible classes is known, such as those below an inner node: EM.

Seeger 2006, section 7.3. A row's likelihood is Σ_{c in its set} π_c, whose logarithm is not concave. The E
step takes q_ic ∝ π_ic on the set, the M step is a fit with targets q. The penalised likelihood of what was
observed never falls.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import whole_number
from xmcjax._fork import needs_threads_of_jax
from xmcjax.kernels import ClassKernels
from xmcjax.solvers._lbfgs import check_limits
from xmcjax.solvers.kernel_multinomial._newton import State, init, run
from xmcjax.solvers.kernel_multinomial._problem import checked_weights, kernel_problem
from xmcjax.solvers.kernel_multinomial._systems import HParams


class Uncertain(NamedTuple):
    """Of :func:`fit_uncertain`."""

    state: State  #: of the last M step
    q: jax.Array  #: the targets of the last M step, [n, C, 1]
    values: np.ndarray  #: of the minimised objective before every M step, and after the last
    converged: bool


@needs_threads_of_jax
def fit_uncertain(
    kernel: ClassKernels, allowed, hp: HParams, *, weight=None, tolerance: float = 1e-6, max_iter: int = 200
) -> Uncertain:
    """α at a stationary point of Σ_i s_i (log Σ_c e^{u_ic} − log Σ_{c in set i} e^{u_ic}) + ½ αᵀK̃α.

    Args:
        kernel: K̃ of n points and C classes.
        allowed: whether class c may be that of point i, bool [n, C]; at least one per row.
        hp: limits and tolerances of the M steps.
        weight: s ≥ 0, [n]; 1 by default.
        tolerance: the run ends when an iteration gains no more than this, relative.
        max_iter: most M steps.

    Raises:
        ValueError: arrays of another shape, a row without a class, weights that are negative or not finite,
            a tolerance or a number of steps below 0.
        TypeError: arguments of another kind.
    """
    n, C, dtype = kernel.n, kernel.n_classes, kernel.dtype
    allowed = _sparse.array(allowed, "allowed")
    if allowed.shape != (n, C):
        raise ValueError(f"allowed: expected [{n}, {C}], got {list(allowed.shape)}")
    if allowed.dtype != bool:
        raise TypeError(f"allowed: expected a boolean matrix, got {allowed.dtype}")
    if not allowed.any(axis=1).all():
        row = int(np.argmin(allowed.any(axis=1)))
        raise ValueError(f"allowed: expected at least one class per row, found none in row {row}")
    check_limits(tolerance, whole_number("max_iter", max_iter, 1))
    weight = jnp.asarray(checked_weights(weight, n)[:, None], dtype)
    mask = jnp.asarray(allowed)[:, :, None]
    alpha = u = jnp.zeros((n, C, 1), dtype)
    values, state, q, converged = [], None, None, False
    for _ in range(max_iter):
        value, q = _expected(u, alpha, mask, weight)
        values.append(float(value))
        if len(values) > 1 and values[-2] - values[-1] <= tolerance * abs(values[-1]):
            converged = True
            break
        problem = kernel_problem(kernel, q, weight)
        state = run(problem, hp, init(problem, alpha))
        alpha, u = state.alpha, state.u
    else:
        values.append(float(_expected(u, alpha, mask, weight)[0]))
    assert state is not None and q is not None
    return Uncertain(state, q, np.array(values), converged)


@jax.jit
def _expected(u, alpha, mask, weight):
    """(The objective, q)."""
    inside = jnp.where(mask, u, -jnp.inf)
    losses = jax.nn.logsumexp(u, axis=1) - jax.nn.logsumexp(inside, axis=1)
    return jnp.sum(weight * losses) + jnp.sum(alpha * u) / 2, jax.nn.softmax(inside, axis=1)
