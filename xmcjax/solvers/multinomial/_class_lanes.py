"""Class problems as lanes of newton_cg.

A bound of the loss that splits into one term for each class leaves, with its variational parameter
fixed, a binary problem for each: ½λ‖w_k‖² + Σ_i c_i ℓ(z_ik + o_i, y_ik).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax.losses import LaneLoss
from xmcjax.solvers import newton_cg
from xmcjax.solvers.multinomial._blocks import Block, columns, with_columns
from xmcjax.solvers.multinomial._problem import Problem

MOST_NEWTON_STEPS = 20
CG_TOLERANCE = 0.1


def tolerances(problem: Problem, accuracy: float, tolerance, scale, norms):
    """Tolerances on the gradients of the classes, [K].

    Args:
        problem: of the classes.
        accuracy: the part of its first gradient to which a lane is solved.
        tolerance, scale: of the stopping rule; a class rests once its gradient is within its share of it.
        norms: norms of the gradients now, [K].
    """
    share = 0.3 * jnp.asarray(tolerance, norms.dtype) * scale / problem.classes**0.5
    return jnp.maximum(accuracy * norms, share)


class Solved(NamedTuple):
    """What the class problems of a block end with."""

    W: jax.Array  #: [d, K], with the new columns of the block
    bias: jax.Array  #: [K]
    Z: jax.Array  #: [n, lanes]
    newton_steps: jax.Array


def solve_lanes(problem: Problem, loss: LaneLoss, offset, W, bias, tolerance, seen: Block) -> Solved:
    """Solves the class problems of a block.

    Args:
        problem: of the classes.
        loss: ℓ.
        offset: o, [n].
        W, bias: of all classes of this device, [d, K] and [K].
        tolerance: on the norms of their gradients, [K].
        seen: the block.
    """
    lanes = newton_cg.LaneProblem(
        op=problem.op,
        y=jnp.where(seen.targets, 1, -1).astype(jnp.int8),
        weight=problem.weight[:, None],
        shift=offset[:, None],
        # columns that are not open are given up at once
        tolerance=jnp.where(seen.open, columns(tolerance, seen), jnp.inf),
        loss=loss,
    )
    hp = newton_cg.HParams(
        l2=problem.l2,  # type: ignore[arg-type]
        l2_bias=0.0 if problem.intercept else -1.0,
        max_steps=MOST_NEWTON_STEPS,
        cg_progress=0.0,
        cg_tolerance=CG_TOLERANCE,
        decrement=1e30,  # the gradient alone decides
    )
    begin = newton_cg.init(lanes, columns(W, seen), columns(bias, seen))  # type: ignore[arg-type]
    state = newton_cg.run(lanes, hp, begin)
    return Solved(
        with_columns(W, seen, state.w),
        with_columns(bias, seen, state.bias),
        state.z,
        jnp.sum(jnp.where(seen.open, state.steps, 0), dtype=jnp.int32),
    )
