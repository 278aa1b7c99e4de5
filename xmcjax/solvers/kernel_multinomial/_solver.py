"""The fit as one of ``SOLVERS`` and as a differentiable function, so that it may stand inside a larger model.

At the fit F = α + s ∂ℓ/∂u(K̃α) = 0, whose derivative in α is I + W K̃ (Seeger 2006, section 6.3).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers._implicit import Conditions, fixed
from xmcjax.solvers._protocol import Solution, Solver, check_state
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem, kernel_problem
from xmcjax.solvers.kernel_multinomial._run import run, step
from xmcjax.solvers.kernel_multinomial._state import State, init, objective, residuals
from xmcjax.solvers.kernel_multinomial._systems import HParams, adjoint, hessian, solve_system


def _continued(problem: KernelProblem, state) -> State:
    """The start at the α of a state, whose u and directions may be those of another kernel."""
    lanes = problem.weight.shape[1]
    check_state(state, State, alpha=(*problem.likelihood.shape[:2], lanes), status=(lanes,))
    return init(problem, state.alpha)._replace(steps=state.steps, cg_steps=state.cg_steps)


def _ended(problem: KernelProblem, hp: HParams, state) -> Solution:
    state = run(problem, hp, init(problem) if state is None else _continued(problem, state))
    return Solution(state.alpha, state.value, state.status, state)


def _evaluated(parameters, alpha):
    """F, and Φ of each lane."""
    problem, _ = parameters
    u = problem.kernel.matmat(alpha)
    pi = problem.likelihood.probabilities(u)
    return residuals(problem, alpha, u, pi), objective(problem, alpha, u)


def _solve(parameters, alpha, right):
    """(I + W K̃)⁻¹ of a right side."""
    problem, hp = parameters
    problem = problem.matrices_only()
    u = problem.kernel.matmat(alpha)
    pi = problem.likelihood.probabilities(u)
    W, lanes = hessian(problem, u, pi), jnp.ones(right.shape[2:], bool)
    product, limits = problem.kernel.matmat(right), dict(tolerance=hp.tolerance, max_steps=hp.max_cg_gradient)
    return solve_system(problem, W, pi, right, product, lanes, **limits).x


def _transposed(parameters, alpha, right):
    """(I + K̃W)⁻¹ b = b − K̃x, x = (I + W K̃)⁻¹ W b."""
    problem, hp = parameters
    problem = problem.matrices_only()
    u = problem.kernel.matmat(alpha)
    return right - adjoint(problem, hp, u, problem.likelihood.probabilities(u), right).Kx


SOLVER = Solver(
    problem=kernel_problem,
    hparams=HParams,
    init=lambda problem, hp, **start: init(problem, **start),
    step=step,
    ended=_ended,
    derivative=Conditions(_evaluated, _solve, _transposed),
    pure=True,
)


@needs_threads_of_jax
def fit(problem: KernelProblem, hp: HParams, start: jax.Array | None = None) -> jax.Array:
    """α of every lane, [n, C, B], differentiable in all arrays of the problem: kernel, targets, weights.

    The derivative is that of the exact minimum, as good as the tolerances of the fit and of the
    system behind it (``hp.max_cg_gradient``, ``hp.tolerance``). How the fit ended is not told:
    ``SOLVERS["kernel_multinomial"].run`` tells it.

    Args:
        problem: of B lanes.
        hp: limits and tolerances.
        start: α to start from.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import kernel_problem
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> fit(kernel_problem(family, [0, 1, 1]), HParams()).shape
        (3, 2, 1)
    """
    state = None
    if start is not None:  # the run makes a start of α itself
        state = init(fixed(problem))
        alpha = jnp.broadcast_to(jnp.asarray(fixed(start), state.alpha.dtype), state.alpha.shape)
        state = state._replace(alpha=alpha)
    return SOLVER.run(problem, hp, state).weights
