"""Which of the methods runs when none is asked for, by measurement (docs/guide/multinomial.md).

On a CPU Newton-CG with a preconditioner of a block per class runs, which compiles nothing. CSR features on
the native kernels with very many weights have dual ascent, and joint Newton-CG once that stops gaining.
Elsewhere, and over a mesh, joint Newton-CG runs from the start.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from xmcjax._device_memory import free_memory
from xmcjax._platform import default_platform, on_host
from xmcjax.linops import gpu_ready
from xmcjax.solvers.multinomial import block_newton
from xmcjax.solvers.multinomial._problem import Problem

# Number of weights from which on dual ascent comes first.
MANY_WEIGHTS = 1 << 21
# Outer iterations in which dual ascent has to halve ‖∇G‖.
PATIENCE = 12
# Multiplications in one pass over dense features (_OF_THE_HOST) or sparse ones (_SPARSE_OF_THE_HOST) up to
# which compiling for a GPU would take longer than the fit on the host.
_OF_THE_HOST, _SPARSE_OF_THE_HOST = 1 << 30, 1 << 26
# Number of arrays of scores and of weights that joint Newton-CG may hold on a device.
_ARRAYS = 12
#: Why :func:`placed` chose the host.
WHY = "the method is the host's, the problem is small, or its sparse features have no kernels or room there"


def first(problem: Problem, compiled: bool = False) -> str:
    """The method to begin with; `compiled`: among those whose steps JAX compiles."""
    many = problem.op.shape[1] * problem.classes >= MANY_WEIGHTS
    if problem.native and many and problem.axis is None:  # dual ascent has no parts over a mesh
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
            return f"Newton's method on the host, a block per class: {n} rows and {sizes} fit into memory"
        case _:
            return f"joint Newton-CG: {sizes} and {n} rows are no case of another method, or no CPU's"


def placed(method: str, sparse: bool, size: int, held: int = 0) -> contextlib.AbstractContextManager:
    """The context in which a problem is made and solved: of the default device, or of the host.

    Dual ascent and Newton's method with blocks are always made on the host. With "auto" so are problems that
    are solved before a program for a GPU is compiled, and sparse features for which the GPU has no kernels,
    where products in plain JAX give other bits in each run, or no room for joint Newton-CG. On a CPU it makes
    no difference.

    Args:
        method: the method that was asked for.
        sparse: whether the features are sparse.
        size: numbers of X that are stored, times classes.
        held: bytes of the scores and of the weights.
    """
    if method in ("dual", "block_newton"):
        return on_host()
    if method == "auto":
        of_host = size <= _OF_THE_HOST
        if sparse:
            of_host = size <= _SPARSE_OF_THE_HOST or not gpu_ready() or _ARRAYS * held > (free_memory() or 0)
        if of_host:
            return on_host()
    return contextlib.nullcontext()


def on_the_host(method: str) -> bool:
    """Whether nothing is compiled for a small problem on the default device."""
    return method in ("auto", "block_newton") and default_platform() == "cpu"


def following(method: str, gradient_norms: Sequence[float]) -> str:
    """The method to go on with, by ‖∇G‖ after each iteration so far."""
    if method != "dual" or len(gradient_norms) <= PATIENCE:
        return method
    lately, before = gradient_norms[-PATIENCE:], gradient_norms[:-PATIENCE]
    return "newton" if min(lately) > 0.5 * min(before) else "dual"
