"""Preconditioned conjugate gradients on many small systems at once, one a lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class CgResult(NamedTuple):
    x: jax.Array  #: [d, B]
    steps: jax.Array  #: int32 [B], products made for the lane


def cg(
    product: Callable[[jax.Array], jax.Array],
    b: jax.Array,
    inverse_diagonal: jax.Array,
    lanes: jax.Array,
    *,
    tolerance,
    max_steps,
    dot: Callable[[jax.Array, jax.Array], jax.Array] = lambda a, b: jnp.sum(a * b, axis=0),
) -> CgResult:
    """Solves A x = b for the lanes where `lanes` is true; x is 0 in the others.

    A lane stops when ‖r‖_{M⁻¹} ≤ tolerance ‖b‖_{M⁻¹}, r = b − A x, or where pᵀAp is not
    positive: what is solved so far stands. Shewchuk, "An introduction to the conjugate gradient
    method without the agonizing pain", 1994, section B3, with x₀ = 0.

    Args:
        product: V ↦ A V for all lanes, [d, B] to [d, B]; A symmetric, positive definite.
        b: [d, B].
        inverse_diagonal: M⁻¹, broadcasting to [d, B]; 1 for no preconditioner.
        lanes: bool [B].
        tolerance: relative, on the preconditioned norm.
        max_steps: most products a lane.
        dot: inner products of [d, B] with [d, B], [B]; another one where an array is a single
            system, B = 1, or lies on several devices.
    """
    z = inverse_diagonal * b
    first = dot(b, z)
    carry = (jnp.zeros_like(b), b, z, first, lanes, jnp.zeros(lanes.shape, jnp.int32))

    def unfinished(carry):
        *_, open_, steps = carry
        return jnp.any(open_ & (steps < max_steps))

    def step(carry):
        x, r, p, rz, open_, steps = carry
        Ap = product(p)
        curvature = dot(p, Ap)
        steps = steps + open_.astype(jnp.int32)
        open_ = open_ & (curvature > 0)
        # α = rᵀz / pᵀAp
        alpha = jnp.where(open_, rz / jnp.where(open_, curvature, 1), 0)
        x = x + alpha * p
        r = r - alpha * Ap
        z = inverse_diagonal * r
        rz_next = dot(r, z)
        open_ = open_ & (rz_next > tolerance**2 * first)
        # β = r₊ᵀz₊ / rᵀz
        # 0 in the lanes that are solved: a product that skips zeros is then for the others alone
        p = jnp.where(open_, z + jnp.where(open_, rz_next / jnp.where(open_, rz, 1), 0) * p, 0)
        return x, r, p, rz_next, open_, steps

    x, _, _, _, _, steps = jax.lax.while_loop(unfinished, step, carry)
    return CgResult(x, steps)
