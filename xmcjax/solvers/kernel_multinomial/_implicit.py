"""The fit as a differentiable function, so that it may stand inside a larger model.

At the fit F = α + s ∂ℓ/∂u(K̃α) = 0. A cotangent ᾱ of α therefore is −λᵀ dF in all that F depends on,
where (I + K̃W) λ = ᾱ: one more linear system, whatever the number of parameters (paper 003, section 6.3).
"""

from __future__ import annotations

import jax

from xmcjax.solvers.kernel_multinomial._newton import init, run
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem
from xmcjax.solvers.kernel_multinomial._systems import HParams, adjoint


@jax.custom_vjp
def fit(problem: KernelProblem, hp: HParams, start: jax.Array | None = None) -> jax.Array:
    """α of every lane, [n, C, B], differentiable in all arrays of the problem: kernel, targets, weights.

    The derivative is that of the exact minimum, as good as the tolerances of the fit and of the
    system behind it (``hp.max_cg_gradient``, ``hp.tolerance``). How the fit ended is not told:
    :func:`run` tells it.

    Args:
        problem: of B lanes.
        hp: limits and tolerances.
        start: α to start from.
    """
    return run(problem, hp, init(problem, start)).alpha


def _forward(problem, hp, start):
    def is_leaf(x):
        return hasattr(x, "perturbed")

    leaves = jax.tree.leaves(problem, is_leaf=is_leaf)
    problem, hp, start = jax.tree.map(lambda leaf: leaf.value, (problem, hp, start), is_leaf=is_leaf)
    state = run(problem, hp, init(problem, start))
    moving = tuple(() if leaf.perturbed else None for leaf in leaves)  # known while tracing
    return state.alpha, (problem, hp, state.alpha, state.u, moving)


def _backward(residual, cotangent):
    problem, hp, alpha, u, moving = residual
    leaves, form = jax.tree.flatten(problem)
    places = [i for i, flag in enumerate(moving) if flag is not None]

    def optimality(*some):
        changed = list(leaves)
        for place, leaf in zip(places, some, strict=True):
            changed[place] = leaf
        problem = jax.tree.unflatten(form, changed)
        pi = problem.likelihood.probabilities(problem.kernel.matmat(alpha))
        return problem.weight[:, None] * problem.likelihood.slope(pi)

    pi = problem.likelihood.probabilities(u)
    # (I + K̃W)⁻¹ ᾱ = ᾱ − K̃x, x = (I + W K̃)⁻¹ W ᾱ
    multipliers = cotangent - adjoint(problem, hp, u, pi, cotangent).Kx
    _, pull = jax.vjp(optimality, *(leaves[i] for i in places))
    cotangents = [None] * len(leaves)
    for place, c in zip(places, pull(-multipliers), strict=True):
        cotangents[place] = c
    return jax.tree.unflatten(form, cotangents), None, None


fit.defvjp(_forward, _backward, symbolic_zeros=True)
