"""The problem of :mod:`~xmcjax.solvers.newton_cg`: many binary problems over one feature matrix, checked."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from xmcjax._arguments import instance
from xmcjax._fork import needs_threads_of_jax
from xmcjax._own_parts import check_loss, check_penalty
from xmcjax._pytrees import pytree
from xmcjax.linops import LinOp, check_operator, real_array
from xmcjax.losses import LaneLoss
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers._hparams import nan_below_0


@pytree(
    data_fields=["op", "y", "weight", "shift", "tolerance"],
    meta_fields=["loss", "penalty"],
)
@dataclasses.dataclass(frozen=True)
class LaneProblem:
    """B binary problems over one feature matrix; made by :func:`lane_problem`.

    Attributes:
        op: the features, n rows of d.
        y: targets ±1, int8 [n, B].
        weight: c, [1 or n, 1 or B].
        shift: o, [1 or n, 1 or B].
        tolerance: [B]; a lane has converged when ‖∇f‖ ≤ tolerance.
        loss: ℓ.
        penalty: R.

    Example:
        >>> from xmcjax import linops, losses
        >>> from xmcjax.solvers.newton_cg import lane_problem
        >>> isinstance(lane_problem(linops.make([[1.0], [-1.0]]), [[1], [-1]], losses.logistic), LaneProblem)
        True
    """

    op: LinOp
    y: jax.Array
    weight: jax.Array
    shift: jax.Array
    tolerance: jax.Array
    loss: LaneLoss
    penalty: Penalty = L2()  # noqa: RUF009 – frozen


@needs_threads_of_jax
def lane_problem(
    op: LinOp,
    y,
    loss: LaneLoss,
    *,
    weight: ArrayLike = 1.0,
    shift: ArrayLike = 0.0,
    tolerance: ArrayLike = 0.0,
    penalty: Penalty | None = None,
) -> LaneProblem:
    """Checks the parts of a :class:`LaneProblem` and gives them their dtypes and shapes.

    Args:
        op: features [n, d].
        y: ±1, [n, B]. Under a transformation of JAX, where values are not known, a lane with other targets,
            or with a weight below 0, ends as NONFINITE.
        loss: a smooth loss, such as those of ``SMOOTH_LOSSES``. One of your own is checked at some scores.
        weight: c ≥ 0; a number, [n, 1], [1, B] or [n, B].
        shift: o; a number, [n, 1], [1, B] or [n, B].
        tolerance: on ‖∇f‖; a number or [B]. See :func:`gradient_tolerance`.
        penalty: R; None for ½ ‖w‖².

    Raises:
        TypeError: a loss without curvature, or that JAX cannot work out for arrays, features that are no
            operator, or a penalty that is no object of :class:`~xmcjax.penalties.Penalty`.
        ValueError: shapes that do not match, targets that are neither −1 nor 1, weights or tolerances below 0
            or that are no numbers, or a loss that is not convex.

    Example:
        >>> from xmcjax import linops, losses
        >>> problem = lane_problem(linops.make([[1.0], [-1.0]]), [[1], [-1]], losses.logistic, tolerance=1e-3)
        >>> problem.y.shape
        (2, 1)
    """
    check_operator(op)
    if not instance("loss", loss, LaneLoss).smooth:
        raise TypeError(
            f"newton_cg needs a loss with curvature, which {loss.name} has not; "
            f"take squared_hinge, huber_hinge or logistic"
        )
    penalty = L2() if penalty is None else instance("penalty", penalty, Penalty)
    check_loss(loss, op.dtype)
    check_penalty(penalty, op.dtype)
    y = jnp.asarray(real_array("y", y))
    if y.ndim != 2 or y.shape[0] != op.shape[0]:
        raise ValueError(f"expected targets [{op.shape[0]}, lanes], got {list(y.shape)}")
    traced = isinstance(y, Tracer)
    if not traced:
        _check_targets(np.asarray(y))

    def spread(name, a, least=-np.inf):
        a = jnp.asarray(real_array(name, a, finite=True, least=least), op.dtype)
        a = a.reshape(1, 1) if a.ndim == 0 else a
        if a.ndim != 2 or a.shape[0] not in (1, y.shape[0]) or a.shape[1] not in (1, y.shape[1]):
            raise ValueError(f"expected {name} that broadcasts to {list(y.shape)}, got {list(a.shape)}")
        return a

    tolerance = jnp.asarray(real_array("tolerance", tolerance, least=0), op.dtype)
    if tolerance.shape not in ((), (1,), y.shape[1:]):
        raise ValueError(
            f"expected tolerance as a number or one for each of {y.shape[1]} lanes, "
            f"got {list(tolerance.shape)}"
        )
    tolerance = jnp.broadcast_to(tolerance, y.shape[1:])
    weight = spread("weight", weight, 0)
    if isinstance(weight, Tracer):
        weight = nan_below_0(weight)
    if traced:
        weight = jnp.where(jnp.all(jnp.abs(y) == 1, axis=0, keepdims=True), weight, jnp.nan)
    return LaneProblem(
        op,
        y.astype(jnp.int8),
        weight,
        spread("shift", shift),
        tolerance,
        loss,
        penalty,
    )


def _check_targets(y: np.ndarray) -> None:
    wrong = np.argwhere((y != 1) & (y != -1))
    if wrong.size:
        row, lane = wrong[0].tolist()
        raise ValueError(f"expected targets of −1 and 1, found {y[row, lane]} for row {row} of lane {lane}")
