"""Which of the methods runs when none is asked for, by measurement (docs/guide/multinomial.md).

On a CPU, Newton-CG with a preconditioner of a block per class, which compiles nothing. CSR features on the
native kernels with very many weights: dual ascent, and joint Newton-CG from where it stops gaining. Elsewhere
joint Newton-CG from the start.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from xmcjax.solvers.multinomial import block_newton
from xmcjax.solvers.multinomial._problem import Problem

# Weights from which dual ascent comes first.
MANY_WEIGHTS = 1 << 21
# Outer iterations in which dual ascent has to halve ‖∇G‖.
PATIENCE = 12


def first(problem: Problem, compiled: bool = False) -> str:
    """The method to begin with; `compiled`: among those whose steps JAX compiles."""
    many = problem.op.shape[1] * problem.classes >= MANY_WEIGHTS
    if problem.native and many:
        return "dual"
    on_host = block_newton.possible(problem) and block_newton.fits(problem) and not compiled
    return "block_newton" if on_host else "newton"


def reason(problem: Problem) -> str:
    """Why :func:`first` chooses as it does, in a sentence."""
    (n, d), K = problem.op.shape, problem.classes
    sizes = f"{d} features by {K} classes"
    match first(problem):
        case "dual":
            return f"dual ascent comes first: features are sparse, and {sizes} are many weights"
        case "block_newton":
            return f"Newton's method on the host: blocks of its preconditioner for {sizes} fit into memory"
        case _:
            return f"joint Newton-CG: {sizes} and {n} rows are no case of another method, or no CPU's"


def on_the_host(method: str) -> bool:
    """Whether nothing is compiled for a small problem on the default device."""
    return method in ("auto", "block_newton") and jax.default_backend() == "cpu"


def following(method: str, gradient_norms: Sequence[float]) -> str:
    """The method to go on with, by ‖∇G‖ after each iteration so far."""
    if method != "dual" or len(gradient_norms) <= PATIENCE:
        return method
    lately, before = gradient_norms[-PATIENCE:], gradient_norms[:-PATIENCE]
    return "newton" if min(lately) > 0.5 * min(before) else "dual"
