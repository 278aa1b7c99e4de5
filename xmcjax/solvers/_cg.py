"""Preconditioned conjugate gradients on many small systems at once, one per lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xmcjax.native import varying_like

# PART_OF_BOUND: part that counts of the bound on the unknown rest of the fall, because the bound lies far
# above. SURE: how many times `Progress.enough` the whole fall may be where progress is slow. The same numbers
# are in native/newton/conjugate_gradients.h.
PART_OF_BOUND = 1 / 3
SURE = 3.0


class Progress(NamedTuple):
    """Stops a lane by the fall of ½ xᵀA x − bᵀx, which is ½ bᵀA⁻¹b in the end.

    Attributes:
        part: progress is slow at a step i where i times the last fall is at most this part of the whole fall
            so far (Nash and Sofer 1990), and the lane stops; 0 leaves that to the tolerance.
        least: λ > 0, no more than any eigenvalue of A.
        enough: [B]; a lane stops where the whole fall is known to be at most this. Where progress is slow and
            the fall so far is at most this, the lane stops only once the whole fall is known to be at most
            ``SURE`` times this. The whole fall is taken to be the fall so far plus ``PART_OF_BOUND`` of the
            bound of Gauss and Radau on the rest, which takes M = I. 0 for never.
            G. Meurant, P. Tichý, "On computing quadrature-based bounds for the A-norm of the error in
            conjugate gradients", 2013.
    """

    part: jax.Array | float
    least: jax.Array | float
    enough: Any


class CgResult(NamedTuple):
    x: jax.Array  #: [d, B]
    steps: jax.Array  #: int32 [B], products made for the lane
    settled: jax.Array  #: bool [B], whether it ended by :attr:`Progress.enough`


def cg(
    product: Callable[[jax.Array], jax.Array],
    b: jax.Array,
    inverse_diagonal: jax.Array,
    lanes: jax.Array,
    *,
    tolerance,
    max_steps,
    progress: Progress | None = None,
    dot: Callable[[jax.Array, jax.Array], jax.Array] = lambda a, b: jnp.sum(a * b, axis=0),
) -> CgResult:
    """Solves A x = b for the lanes where `lanes` is true; x is 0 in the others.

    A lane stops when ‖r‖_{M⁻¹} ≤ tolerance ‖b‖_{M⁻¹}, r = b − A x, or as `progress` says, and where
    pᵀAp is not positive: what is solved so far stands. J. Shewchuk, "An introduction to the conjugate
    gradient method without the agonizing pain", 1994, section B3, with x₀ = 0.

    Args:
        product: V ↦ A V for all lanes, [d, B] to [d, B]; A symmetric, positive definite.
        b: [d, B].
        inverse_diagonal: M⁻¹, broadcasting to [d, B]; 1 for no preconditioner.
        lanes: bool [B].
        tolerance: relative, on the preconditioned norm.
        max_steps: most products per lane.
        progress: other reasons to stop; its part, where it is not 0, takes the place of the tolerance.
        dot: inner products of [d, B] with [d, B], [B]; another one where an array is a single
            system, B = 1, or lies on several devices.
    """
    z = inverse_diagonal * b
    first = dot(b, z)
    fall = before_step(progress, first)
    settled = jnp.zeros_like(lanes)
    carry = (jnp.zeros_like(b), b, z, first, fall, settled, lanes, jnp.zeros(lanes.shape, jnp.int32))
    carry = varying_like(carry, (b, z, lanes))

    def unfinished(carry):
        *_, open_, steps = carry
        return jnp.any(open_ & (steps < max_steps))

    def step(carry):
        x, r, p, rz, fall, settled, open_, steps = carry
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
        fall, settled, open_ = after_step(
            progress, tolerance**2 * first, fall, settled, open_, alpha, rz, rz_next, steps
        )
        # β = r₊ᵀz₊ / rᵀz
        # 0 in the lanes that are solved: a product that skips zeros is then for the others alone
        p = jnp.where(open_, z + jnp.where(open_, rz_next / jnp.where(open_, rz, 1), 0) * p, 0)
        return x, r, p, rz_next, fall, settled, open_, steps

    x, *_, settled, _, steps = jax.lax.while_loop(unfinished, step, carry)
    return CgResult(x, steps, settled)


def before_step(progress: Progress | None, first):
    """What :func:`after_step` has of each lane before the first step, bᵀM⁻¹b being `first`."""
    # the fall of the model so far, and a factor that, times ½ ‖r‖², bounds the rest of the fall
    return (jnp.zeros_like(first), jnp.full_like(first, 1) / progress.least) if progress is not None else ()


def after_step(progress: Progress | None, small, fall, settled, open_, alpha, rz, rz_next, steps):
    """(fall, settled, open) after a step of length α from ‖r‖² = rz to rz_next, which may be `small`."""
    accurate = rz_next <= small
    if progress is None:
        return fall, settled, open_ & ~accurate
    fall, enough, slow = _fallen(progress, fall, alpha, rz, rz_next, steps, accurate)
    return fall, settled | (open_ & enough), open_ & ~(enough | slow)


def _fallen(progress: Progress, fall, alpha, rz, rz_next, steps, accurate):
    """The fall of the model and the factor of the bound after a step; whether it is enough, and slow."""
    so_far, radau = fall
    last = alpha * rz / 2
    so_far = so_far + last
    above = radau - alpha
    ratio = rz_next / jnp.where(rz > 0, rz, 1)
    radau = jnp.where(above > 0, above / (progress.least * above + ratio), 1 / progress.least)
    asked = progress.enough > 0
    unknown = asked & (so_far <= progress.enough)  # whether it falls by more
    whole = so_far + PART_OF_BOUND / 2 * radau * rz_next
    part = jnp.asarray(progress.part, last.dtype)
    slow = jnp.where(part > 0, steps.astype(last.dtype) * last <= part * so_far, accurate)
    enough = asked & ((whole <= progress.enough) | (slow & unknown & (whole <= SURE * progress.enough)))
    return (so_far, radau), enough, (slow & ~unknown) | (rz_next == 0)
