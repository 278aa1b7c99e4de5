"""Conjugate gradients for the Newton direction of lanes, by the kernels of xmcjax-cuda.

The systems are those of :func:`xmcjax.solvers.newton_cg.newton_direction`,

    S = λ I + Xᵀ(D − D 1 1ᵀD / h) X.

With s = X p, q = Σ D s / h and e = s − q it is S p = λ p + Xᵀ(D ∘ e), and, since h = λ_b + Σ D,

    pᵀS p = λ ‖p‖² + Σ D e² + λ_b q²,

whose terms are not negative. So the curvature is known from sums over the active rows, before Xᵀ is
multiplied, and the column u = XᵀD1 of the bias is not read. ‖p‖² is summed where p is written. The rest of a
step reads and writes nine arrays of [d, B]: r, p and the product in one kernel, x, p and r in another.
With :func:`._cg.cg`, whose product is any function, there are sixteen. Lanes that are solved are not read.
"""

from __future__ import annotations

from typing import TypeGuard

import jax
import jax.numpy as jnp

from xmcjax import native
from xmcjax.linops import Grouped, LinOp
from xmcjax.solvers._cg import CgResult, Progress, after_step, before_step


def has_cg_kernels(op: LinOp) -> TypeGuard[Grouped]:
    """Whether X is multiplied by the kernels of xmcjax-cuda, which make the steps too."""
    return isinstance(op, Grouped) and op.kernels == "cuda"


def lane_cg(
    op: Grouped,
    D,
    l2,
    l2_bias,
    of_bias,
    b,
    inverse,
    preconditioner,
    lanes,
    *,
    tolerance,
    max_steps,
    progress: Progress,
) -> CgResult:
    """Solves S x = b for the lanes where `lanes` is true, as :func:`._cg.cg` does.

    Args:
        op: X [n, d].
        D: [n, B].
        l2, l2_bias: λ, λ_b; [].
        of_bias: [B], 1/h; 0 where no bias is eliminated.
        b: [d, B].
        inverse: M⁻¹, [d, B].
        preconditioner: []; 0 where M = I, so that `inverse` is not read.
        lanes: bool [B].
        tolerance, max_steps, progress: see :func:`._cg.cg`.
    """
    rows, columns, dtype = op.rows.cuda, op.columns.cuda, b.dtype
    bits = native.cuda_lane_bits(D)
    scale, is_other = (jnp.reshape(jnp.asarray(a, dtype), 1) for a in (l2, preconditioner))
    p = jnp.where(lanes, inverse * b, 0)
    first = jnp.sum(b * p, axis=0)
    settled, counts = jnp.zeros_like(lanes), jnp.zeros(lanes.shape, jnp.int32)
    fall, square = before_step(progress, first), jnp.sum(p * p, axis=0)
    carry = jnp.zeros_like(b), b, p, square, first, fall, settled, lanes, counts

    def unfinished(carry):
        *_, open_, steps = carry
        return jnp.any(open_ & (steps < max_steps))

    def step(carry):
        x, r, p, square, rz, fall, settled, open_, steps = carry
        product, q, along = native.cuda_cg_product(rows, columns, D, bits, p, open_, of_bias)
        curvature = scale * square + along + l2_bias * q * q
        steps = steps + open_.astype(jnp.int32)
        open_ = open_ & (curvature > 0)
        alpha = jnp.where(open_, rz / jnp.where(open_, curvature, 1), 0)
        r, rz_next = native.cuda_cg_residual(r, p, product, inverse, alpha, scale, is_other)
        small = tolerance**2 * first
        fall, settled, open_ = after_step(progress, small, fall, settled, open_, alpha, rz, rz_next, steps)
        beta = jnp.where(open_, rz_next / jnp.where(open_, rz, 1), 0)
        x, p, square = native.cuda_cg_direction(x, p, r, inverse, alpha, beta, open_, is_other)
        return x, r, p, square, rz_next, fall, settled, open_, steps

    x, *_, settled, _, steps = jax.lax.while_loop(unfinished, step, carry)
    return CgResult(x, steps, settled)
