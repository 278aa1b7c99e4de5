"""What is asked of a loss of one's own before a solver believes it: its values and derivatives at some scores.

With neighbouring scores a < b, a loss ℓ that is convex in its score and has the slope ℓ' satisfies

    ℓ'(a) (b − a)  ≤  ℓ(b) − ℓ(a)  ≤  ℓ'(b) (b − a),

which also a jump of ℓ and a wrong ℓ' violate. Losses with kinks do not.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._arguments import number
from xmcjax.losses import LaneLoss, MarginLoss

# The scores lie between the multiples of ⅛ from −16 to 16, so that a kink of a loss is at none of them.
_FIRST, _DISTANCE, _SCORES = -16 + 0.37 / 8, 1 / 8, 256
# Of the curvature, by which the largest that is known may be too small.
_CURVATURE_ROUNDING = 1e-3


class _LookedAt(NamedTuple):
    """A loss at scores that rise, [256], for the targets 1 and −1, of which each has a column."""

    scores: np.ndarray
    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray


def check_loss(loss: LaneLoss, dtype: Any, *, least: float = -np.inf) -> None:
    """Whether a smooth loss is one that a solver can minimise, as far as some scores tell.

    Those of the C++ kernels are known. Others are looked at from −16 to 16, once for each dtype.

    Args:
        loss: ℓ.
        dtype: of the scores, which the setting of ``jax_enable_x64`` allows.
        least: what values of the loss are to be at least.

    Raises:
        TypeError: a loss that cannot be hashed, or that cannot be worked out for arrays of any shape in this
            dtype, with its shape and dtype as the result; a `most_curvature` that is no number.
        ValueError: NaN, a value below `least`, one that is not convex, or a `most_curvature` that is less
            than a curvature.
    """
    if loss.native is not None:
        return
    try:
        hash(loss)
    except TypeError as error:
        raise TypeError(
            f"loss {_name(loss)}: expected a frozen dataclass whose fields can be hashed, got {error}"
        ) from error
    _check(loss, np.dtype(dtype), least)


def curvature_near_0(loss: MarginLoss) -> float:
    """The largest φ'' that was found at margins from −1 to 1."""
    seen = _looked_at(loss, np.dtype(np.float64))
    near = seen.curvature[:, 0][np.abs(seen.scores[:, 0]) < 1]
    return float(np.max(near, initial=0.0, where=np.isfinite(near)))


@functools.lru_cache(maxsize=64)
def _check(loss: LaneLoss, dtype: np.dtype, least: float) -> None:
    most = number(f"loss {_name(loss)}: most_curvature", loss.most_curvature)
    of_dtype = _looked_at(loss, dtype)
    _check_numbers(loss, of_dtype, least)
    exact = of_dtype if dtype == np.float64 else _looked_at(loss, np.dtype(np.float64))
    _check_convex(loss, exact)
    curvature = np.where(np.isfinite(exact.curvature), exact.curvature, 0.0)
    if not float(curvature.max()) <= (1 + _CURVATURE_ROUNDING) * most:
        at = np.unravel_index(np.argmax(curvature), curvature.shape)
        raise ValueError(
            f"loss {_name(loss)}: expected a most_curvature of at least {curvature[at]:g}, the curvature "
            f"{_place(loss, exact, *at)}, got {most:g}"
        )


def _check_numbers(loss: LaneLoss, seen: _LookedAt, least: float) -> None:
    # derivatives beside an infinite value are none
    inside = np.isfinite(seen.value)
    wrong = {
        "value": np.isnan(seen.value),
        "slope": inside & np.isnan(seen.slope),
        "curvature": inside & np.isnan(seen.curvature),
    }
    for part, places in wrong.items():
        if places.any():
            place = _place(loss, seen, *np.argwhere(places.T)[0][::-1])
            raise ValueError(f"loss {_name(loss)}: expected a number as the {part} {place}, got nan")
    if not float(seen.value.min()) >= least:
        at = np.unravel_index(np.argmin(seen.value), seen.value.shape)
        raise ValueError(
            f"loss {_name(loss)}: expected values of at least {least:g}, got {seen.value[at]:g} "
            f"{_place(loss, seen, *at)}; a number that is added to a loss changes no optimum"
        )


def _check_convex(loss: LaneLoss, seen: _LookedAt) -> None:
    value, slope, eps = seen.value, seen.slope, float(np.finfo(seen.value.dtype).eps)
    value, slope = value.astype(np.float64), slope.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        rises = np.diff(value, axis=0)
        steps = np.diff(seen.scores.astype(np.float64), axis=0) * np.stack([slope[:-1], slope[1:]])
        sizes = np.abs(value[:-1]) + np.abs(value[1:]) + np.abs(steps).sum(axis=0)
        rounding = np.sqrt(eps) * sizes + 1e3 * eps * np.max(sizes, where=np.isfinite(sizes), initial=0.0)
        wrong = np.argwhere(((steps[0] - rises > rounding) | (rises - steps[1] > rounding)).T)
    if not wrong.size:
        return
    column, row = wrong[0].tolist()
    first, second = (f"{value[k, column]:.6g} and {slope[k, column]:.6g}" for k in (row, row + 1))
    raise ValueError(
        f"loss {_name(loss)}: expected a convex loss and its slope, got the value and the slope {first} "
        f"{_place(loss, seen, row, column)}, {second} {_place(loss, seen, row + 1, column)}"
    )


@functools.lru_cache(maxsize=64)
def _looked_at(loss: LaneLoss, dtype: np.dtype) -> _LookedAt:
    rising = _FIRST + _DISTANCE * np.arange(_SCORES)
    scores = np.stack([rising, rising], axis=1).astype(dtype)
    targets = np.ones_like(scores) * np.array([1, -1], dtype)
    with jax.ensure_compile_time_eval(), jax.enable_x64(dtype == np.float64 or jax.config.jax_enable_x64):
        try:
            parts = _parts(loss, scores, targets)
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            raise TypeError(
                f"loss {_name(loss)}: expected functions of arrays of any shape that JAX traces, which "
                f"raised {type(error).__name__} for scores of shape {list(scores.shape)}: {first}"
            ) from error
        made = [np.asarray(part) for part in parts]
    for name, part in zip(("value", "slope", "curvature"), made, strict=True):
        if part.shape != scores.shape or part.dtype != dtype:
            raise TypeError(
                f"loss {_name(loss)}: expected a {name} of the shape and the dtype of the scores, {dtype} "
                f"{list(scores.shape)}, got {part.dtype} {list(part.shape)}"
            )
    return _LookedAt(scores, *made)


@functools.partial(jax.jit, static_argnames="loss")
def _parts(loss: LaneLoss, scores, targets) -> tuple[jax.Array, ...]:
    return tuple(
        jnp.asarray(part(scores, targets)) for part in (loss.score_value, loss.score_grad, loss.score_curv)
    )


def _name(loss: LaneLoss) -> str:
    return getattr(loss, "name", type(loss).__name__)


def _place(loss: LaneLoss, seen: _LookedAt, row: int, column: int) -> str:
    score = float(seen.scores[row, column])
    if isinstance(loss, MarginLoss):
        return f"at the margin {score if column == 0 else -score:.3g}"
    return f"at the score {score:.3g} for the target {1 if column == 0 else -1}"
