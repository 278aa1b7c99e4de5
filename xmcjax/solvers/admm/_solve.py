"""One problem from beginning to end, as an estimator has it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import linops
from xmcjax._arguments import number, whole_number
from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers._base import Status
from xmcjax.solvers._instance_problem import Gram
from xmcjax.solvers._progress import Observe, observed
from xmcjax.solvers.admm._problem import problem
from xmcjax.solvers.admm._run import proof, proved
from xmcjax.solvers.admm._starts import init
from xmcjax.solvers.admm._steps import HParams

# Number of steps that count as an epoch.
_STEPS = 10


class Solved(NamedTuple):
    """What :func:`solve` ends with.

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers import admm
        >>> admm.solve(np.float32([[1, 0], [0, 1]]), [0, 1], formulation="cs").status.name
        'CONVERGED'
    """

    #: the weights [d, m] for which the gap holds, in the dtype that JAX has for X, float32 without
    #: jax_enable_x64; where X are inner products, coefficients of the rows, [n, m]
    W: np.ndarray
    alpha: sp.csr_array  #: dual variables, float64 [n, m]
    primal: float
    gap: float  #: relative duality gap of the weights, in float64
    epochs: int  #: a tenth of the steps
    newton_steps: int  #: 0
    status: Status
    reason: str  #: why these steps were made


@needs_threads_of_jax
def solve(
    X,
    y,
    *,
    formulation: str = "ww",
    C: float | np.ndarray = 1.0,
    k: int = 1,
    classes: int | None = None,
    tol: float = 1e-3,
    max_epochs: int = 1000,
    start=None,
    observe: Observe | None = None,
) -> Solved:
    """Trains one multi-class SVM on the default device.

    Args:
        X: features [n, d], dense, or sparse and made dense, or inner products, as `instance_dual.Gram`.
        y, formulation, k, classes: of :func:`xmcjax.solvers.admm.problem`.
        C: weight of the losses, a number, or one for each row, [n].
        tol: relative duality gap (P − D)/P at which training ends; the one that counts is worked out in
            float64 for the weights that are returned.
        max_epochs: epochs at most, each of ten steps.
        start: dual variables [n, m] to start from; None for none.
        observe: called with the progress every few steps, as by `multiclass_dual.run`; or None.

    Raises:
        ValueError, TypeError: as :func:`xmcjax.solvers.admm.problem`; a start of another shape.

    Example:
        >>> solved = solve(np.float32([[1, 0], [0, 1], [1, 1]]), [0, 1, 2], formulation="topk_beta", k=2)
        >>> solved.W.shape, solved.gap < 1e-3
        ((2, 3), True)
    """
    most, watch = whole_number("max_epochs", max_epochs, 1), observed(observe)
    op = X if isinstance(X, Gram) else linops.make(X)
    weights: dict[str, Any] = dict(C=1.0, weight=C) if np.ndim(C) else dict(C=C)
    lane = problem(op, y, formulation=formulation, k=k, classes=classes, **weights)
    hp = HParams(number("tol", tol), min(_STEPS * most, np.iinfo(np.int32).max))

    def told(progress) -> None:
        watch(progress._replace(passes=progress.passes / _STEPS))

    state, proofs = proved(lane, hp, init(lane, start), None if watch is None else told)
    found = proofs[0] if proofs else proof(lane, state, 0, tol)
    status = Status(int(state.status[0]))
    if status != Status.NONFINITE and found.gap <= tol:  # the certificate sees more than the steps
        status = Status.CONVERGED
    elif status == Status.CONVERGED:
        status = Status.STALLED
    device = next(iter(state.rho.devices()))
    return Solved(
        W=found.W,
        alpha=found.alpha,
        primal=found.primal,
        gap=found.gap,
        epochs=-(-int(state.steps[0]) // _STEPS),
        newton_steps=0,
        status=status,
        reason=f"steps for all rows at once, which were asked for, on the {device.platform}",
    )
