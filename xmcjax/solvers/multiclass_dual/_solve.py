"""A multi-class SVM solved to a tolerance, by whichever of the methods suits it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse, linops
from xmcjax._arguments import number, whole_number
from xmcjax.native import awaited
from xmcjax.solvers._base import Status
from xmcjax.solvers._certified import certified
from xmcjax.solvers.multiclass_dual import _native, _proximal
from xmcjax.solvers.multiclass_dual._accuracy import Accuracy
from xmcjax.solvers.multiclass_dual._epochs import HParams, certificate, init, run_epochs
from xmcjax.solvers.multiclass_dual._problem import (
    MulticlassProblem,
    check_limits,
    check_problem,
    multiclass_problem,
)

# Epochs of coordinate ascent in plain JAX before proximal point steps take over: an epoch is a chain of n
# small operations there, a Newton step a few large ones.
_EPOCHS = 30


class Solution(NamedTuple):
    """What came out."""

    W: np.ndarray  #: [d, m], in the dtype of X
    alpha: sp.csr_array  #: dual variables, [n, m]
    primal: float
    dual: float
    gap: float  #: |primal − dual| / |primal|, of W and alpha in float64
    violation: float  #: largest |projected gradient| that ascent or Newton's method found last
    epochs: int  #: of coordinate ascent
    newton_steps: int  #: of the proximal point method
    status: Status
    density_w: float  #: share of the weights that are not zero
    density_alpha: float  #: share of the dual variables that are not zero
    shrunk: float  #: share of the dual variables that the last epoch left out


def run(
    X,
    y,
    *,
    formulation: str = "ww",
    C: float = 1.0,
    tol: float = 1e-3,
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
        tol: relative duality gap (P − D)/P at which training ends, 1e-3 by default: P is then above its
            minimum by no more than that part of it. The gap that counts is worked out in float64 from the
            dual variables and the weights that are returned. Where their rounding to float32 keeps it above
            `tol`, the status is STALLED.
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
    seed, C = whole_number("seed", seed, 0), number("C", C)
    X = _sparse.matrix(X)
    if backend in ("auto", "native") and linops.native_ready():
        X, y, m = check_problem(X, y, formulation, C)
        options = dict(tol=tol, max_epochs=max_epochs, seed=seed, shrinking=shrinking, threads=threads)
        return Solution(**_native.ascend(X, y, m, formulation, C, **options))
    problem = multiclass_problem(X, y, formulation=formulation, C=C, backend=backend, threads=threads)
    X = _native.canonical(X) if sp.issparse(X) else np.asarray(X, problem.op.dtype)
    y, target = np.asarray(problem.y), _native.MARGIN * tol
    state = run_epochs(
        problem, HParams(target, min(max_epochs, _EPOCHS), shrinking), init(problem, jax.random.key(seed))
    )
    status, violation, alpha, newton_steps = Status(int(state.status)), state.violation, state.alpha, 0
    found = certified(X, y, sp.csr_array(np.asarray(alpha)), formulation, C, tol)
    if found.gap > tol and status != Status.NONFINITE and max_epochs > int(state.epoch):
        status, violation, alpha, newton_steps = _polish(
            problem, target, alpha, max_epochs - int(state.epoch)
        )
        found = min(
            found,
            certified(X, y, sp.csr_array(np.asarray(alpha)), formulation, C, tol),
            key=lambda one: one.gap,
        )
    if found.gap <= tol:
        status = Status.CONVERGED
    elif status == Status.CONVERGED:
        status = Status.STALLED
    counts = dict(epochs=int(state.epoch), newton_steps=newton_steps, shrunk=float(state.shrunk))
    return Solution(**counts, **_native.described(found, float(violation), status, formulation))


def _polish(
    problem: MulticlassProblem, tol: float, alpha, most: int
) -> tuple[Status, jax.Array, jax.Array, int]:
    """Proximal point steps in float64 from some dual variables.

    Returns:
        How it ended, the largest violation, the dual variables, and the Newton steps made.
    """
    with jax.enable_x64(True):
        wide, accuracy = jax.tree.map(_wide, problem), Accuracy(np.dtype(np.float64), tol)
        point = _proximal.start(wide, _wide(alpha))
        while True:
            point = awaited(_proximal.advance, wide, accuracy.eps, point)
            found = certificate(wide, point.W, point.alpha)
            if not found.gap > tol:
                status = Status.CONVERGED
            elif (
                accuracy.enough(float(found.gap), float(point.violation))
                or int(point.failures) >= _native.FAILURES
            ):
                status = Status.STALLED
            elif int(point.newton_steps) >= most:
                status = Status.MAX_STEPS
            else:
                continue
            return status, point.violation, point.alpha, int(point.newton_steps)


def _wide(a):
    return a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a
