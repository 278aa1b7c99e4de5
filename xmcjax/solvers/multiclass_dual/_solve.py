"""A multi-class SVM solved to a tolerance, by whichever of the methods suits it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax import linops
from xmcjax.solvers._base import Status
from xmcjax.solvers.multiclass_dual import _native, _proximal
from xmcjax.solvers.multiclass_dual._epochs import HParams, State, certificate, init, run
from xmcjax.solvers.multiclass_dual._problem import (
    MulticlassProblem,
    check_limits,
    check_problem,
    multiclass_problem,
)

# Epochs of coordinate ascent in plain JAX before proximal point steps take over: an epoch is a chain of n
# small operations there, a Newton step a few large ones.
_EPOCHS = 30
# Proximal point steps in a row that may bring nothing before rounding is taken to be the reason.
_FAILURES = 4


class Solution(NamedTuple):
    """What came out."""

    W: np.ndarray  #: [d, m], in the dtype of X
    alpha: sp.csr_array  #: dual variables, [n, m]
    primal: float
    dual: float
    gap: float  #: (primal − dual) / |primal|
    violation: float  #: largest |projected gradient|
    epochs: int  #: of coordinate ascent
    newton_steps: int  #: of the proximal point method
    status: Status
    density_w: float  #: share of the weights that are not zero
    density_alpha: float  #: share of the dual variables that are not zero
    shrunk: float  #: share of the dual variables that the last epoch left out


def solve(
    X,
    y,
    *,
    formulation: str = "ww",
    C: float = 1.0,
    tol: float = 0.01,
    max_epochs: int = 1000,
    seed: int = 0,
    shrinking: bool = True,
    backend: str = "auto",
    threads: int = 1,
) -> Solution:
    """Trains one multi-class SVM.

    Coordinate ascent comes first. What it has not solved after a number of epochs, as happens where
    features are dense and badly scaled, goes to proximal point steps by Newton's method, in float64.

    Args:
        X, y, formulation, C: of :func:`multiclass_problem`.
        backend: "native", the C++ kernels, in which the numbers of JAX's settings do not matter; "dense"
            or "jnp", plain JAX, of :func:`xmcjax.linops.make`; "auto" takes native where it is built and
            the default device is a CPU, else what suits X.
        threads: of one solution in the native kernels. It changes no sum of one against the rest and of
            Lee-Lin-Wahba, which come out equal to the bit.
        tol: no |projected gradient| is larger in the end; 0.01 by default.
        max_epochs: epochs and Newton steps at most, together; in the native kernels, an epoch that leaves
            out shrunk instances counts for its share.
        seed: of the random orders.
        shrinking: whether coordinate ascent leaves out what has not changed for three epochs.

    Returns:
        Weights and dual variables, with objectives and duality gap; ``status`` says whether `tol` was
        reached.

    Raises:
        ValueError: as :func:`multiclass_problem`; `tol` not above 0; `max_epochs` or `threads` below 1.
    """
    check_limits(tol, max_epochs, threads)
    if backend in ("auto", "native") and linops.native_ready():
        y, m = check_problem(X, y, formulation, C)
        options = dict(tol=tol, max_epochs=max_epochs, seed=seed, shrinking=shrinking, threads=threads)
        return Solution(**_native.ascend(_native.canonical(X), y, m, formulation, C, **options))
    problem = multiclass_problem(X, y, formulation=formulation, C=C, backend=backend, threads=threads)
    hp = HParams(tol, min(max_epochs, _EPOCHS), shrinking)
    state = run(problem, hp, init(problem, jax.random.key(seed)))
    newton_steps = 0
    if state.status == Status.MAX_STEPS and max_epochs > _EPOCHS:
        state, newton_steps = _polish(problem, tol, state, max_epochs - _EPOCHS)
    exists = np.asarray(problem.formulation.exists(problem.own))
    alpha = sp.csr_array(np.asarray(state.alpha))
    return Solution(
        W=np.asarray(state.W, X.dtype if X.dtype in (np.float32, np.float64) else np.float32),
        alpha=alpha,
        primal=float(state.primal),
        dual=float(state.dual),
        gap=float(state.gap),
        violation=float(state.violation),
        epochs=int(state.epoch),
        newton_steps=newton_steps,
        status=Status(int(state.status)),
        density_w=float(state.density_w),
        density_alpha=alpha.nnz / int(exists.sum()),
        shrunk=float(state.shrunk),
    )


def _polish(problem: MulticlassProblem, tol: float, state: State, most: int) -> tuple[State, int]:
    """Proximal point steps in float64 from the dual variables of `state`; also how many Newton steps."""
    with jax.enable_x64(True):
        wide = jax.tree.map(_wide, problem)
        point = _proximal.start(wide, _wide(state.alpha))
        while point.violation > tol and point.newton_steps < most and point.failures < _FAILURES:
            point = _proximal.advance(wide, tol, point)
        found = certificate(wide, point.W, point.alpha)
        status = Status.CONVERGED if point.violation <= tol else Status.MAX_STEPS
        finished = state._replace(
            W=point.W,
            alpha=point.alpha,
            primal=found.primal,
            dual=found.dual,
            gap=found.gap,
            violation=point.violation,
            density_w=jnp.mean(point.W != 0),
            status=jnp.int32(status if jnp.isfinite(found.primal) else Status.NONFINITE),
        )
        return finished, int(point.newton_steps)


def _wide(a):
    return a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a
