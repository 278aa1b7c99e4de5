"""Checks of a user's own losses and penalties, by what they give at some points, before a solver runs.

With neighbouring scores a < b, a loss ℓ that is convex in its score and has the slope ℓ' satisfies

    ℓ'(a) (b − a)  ≤  ℓ(b) − ℓ(a)  ≤  ℓ'(b) (b − a),

which a jump of ℓ and a wrong ℓ' violate as well. A kink of ℓ does not violate it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from xmcjax._arguments import number
from xmcjax.losses import LaneLoss, MarginLoss
from xmcjax.penalties import Penalty

# The scores lie between the multiples of ⅛ from −16 to 16, so that a kink of a loss is at none of them.
_FIRST, _DISTANCE, _SCORES = -16 + 0.37 / 8, 1 / 8, 256
# The functions of a loss.
_PARTS = {"score_value": "value", "score_grad": "slope", "score_curv": "curvature"}
# _VALUE_ROUNDING: by how many units of rounding of the largest value a value may be below its bound.
# _CURVATURE_ROUNDING: by which part a curvature may be above `most_curvature`.
_VALUE_ROUNDING, _CURVATURE_ROUNDING = 4096, 1e-3


class _LookedAt(NamedTuple):
    """A loss at scores that rise; a loss of the margin for the target 1, others for 1 and −1, in columns."""

    scores: np.ndarray
    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray


def check_loss(loss: LaneLoss, dtype: Any, *, least: float = -np.inf) -> None:
    """Checks that a solver can minimise a smooth loss, as far as some scores tell.

    Losses of the C++ kernels are known. Others are evaluated from −16 to 16, once for each dtype.

    Args:
        loss: ℓ.
        dtype: of the scores, which the setting of ``jax_enable_x64`` allows.
        least: lower bound on the values of the loss.

    Raises:
        TypeError: a loss that cannot be hashed, or that cannot be worked out for arrays of any shape in this
            dtype, with its shape and dtype as the result; a `most_curvature` that is no number.
        ValueError: NaN, a value below `least`, a loss that is not convex, or a `most_curvature` that is
            less than a curvature.
    """
    if loss.native is not None:
        return
    check_hashable("loss", loss)
    _check(loss, np.dtype(dtype), least)


def check_penalty(penalty: Penalty, dtype: Any) -> None:
    """Checks that a user's own penalty can be compiled; arguments and TypeError as in :func:`check_loss`."""
    if penalty.native is not None:
        return
    check_hashable("penalty", penalty)
    name, w, one = f"penalty {_name(penalty)}", np.ones((3, 2), dtype), np.ones((), dtype)
    check_shape(name, "value", w, penalty.value)
    check_shape(name, "violation", w, penalty.violation, w, one)
    check_shape(name, "minimiser", w, penalty.minimiser, w, one)


def check_hashable(kind: str, part: Any) -> None:
    """Checks that JAX may compile for a user's own loss or penalty: equal objects behave alike.

    Args:
        kind: what it is, for the error.
        part: the object.

    Raises:
        TypeError: it cannot be hashed, or has attributes that its comparison does not see.
    """
    name = f"{kind} {_name(part)}"
    expected = f"{name}: expected a frozen dataclass with its parameters as fields, which can be hashed,"
    try:
        hash(part)
    except TypeError as error:
        raise TypeError(f"{expected} got {error}") from error
    kept = {
        name for name in vars(part) if isinstance(getattr(type(part), name, None), functools.cached_property)
    }
    unseen = vars(part).keys() - {field.name for field in dataclasses.fields(part)} - kept
    compares = next(kind for kind in type(part).__mro__ if "__eq__" in vars(kind))
    if unseen and compares.__module__.partition(".")[0] == "xmcjax":
        raise TypeError(f"{expected} got the attribute {min(unseen)} that is none")


def curvature_near_0(loss: MarginLoss) -> float:
    """The largest φ'' that was found at margins from −1 to 1."""
    seen = _looked_at(loss)
    near = seen.curvature[:, 0][np.abs(seen.scores[:, 0]) < 1]
    return float(np.max(near, initial=0.0, where=np.isfinite(near)))


@functools.lru_cache(maxsize=64)
def _check(loss: LaneLoss, dtype: np.dtype, least: float) -> None:
    most = number(f"loss {_name(loss)}: most_curvature", loss.most_curvature)
    _check_arrays(loss, dtype)
    seen = _looked_at(loss)
    _check_numbers(loss, seen, least)
    _check_convex(loss, seen)
    curvature = np.where(np.isfinite(seen.curvature), seen.curvature, 0.0)
    at = _largest(curvature)
    if not curvature[at] <= (1 + _CURVATURE_ROUNDING) * most:
        raise ValueError(
            f"loss {_name(loss)}: expected a most_curvature of at least {curvature[at]:g}, the curvature "
            f"{_place(loss, seen, *at)}, got {most:g}"
        )


def _check_numbers(loss: LaneLoss, seen: _LookedAt, least: float) -> None:
    # where the value is infinite, there are no derivatives
    inside = np.isfinite(seen.value)
    wrong = {
        "value": np.isnan(seen.value),
        "slope": inside & np.isnan(seen.slope),
        "curvature": inside & np.isnan(seen.curvature),
    }
    for part, places in wrong.items():
        if places.any():
            place = _place(loss, seen, *_largest(places))
            raise ValueError(f"loss {_name(loss)}: expected a number as the {part} {place}, got nan")
    at = _largest(-seen.value)
    most = np.max(np.abs(seen.value), where=inside, initial=0.0)
    if not seen.value[at] >= least - _VALUE_ROUNDING * np.finfo(seen.value.dtype).eps * most:
        raise ValueError(
            f"loss {_name(loss)}: expected values of at least {least:g}, got {seen.value[at]:g} "
            f"{_place(loss, seen, *at)}; a number that is added to a loss changes no optimum"
        )


def _check_convex(loss: LaneLoss, seen: _LookedAt) -> None:
    value, slope = seen.value, seen.slope
    with np.errstate(invalid="ignore", over="ignore"):
        rises = np.diff(value, axis=0)
        steps = np.diff(seen.scores, axis=0) * np.stack([slope[:-1], slope[1:]])
        sizes = np.abs(value[:-1]) + np.abs(value[1:]) + np.abs(steps).sum(axis=0)
        # rounding of the numbers of a step, and of larger ones that a formula may be made of
        eps = float(np.finfo(value.dtype).eps)
        rounding = np.sqrt(eps) * sizes + 1e3 * eps * np.max(sizes, where=np.isfinite(sizes), initial=0.0)
        excess = np.maximum(steps[0] - rises, rises - steps[1]) - rounding
    excess = np.where(np.isnan(excess), 0.0, excess)  # beside values that are infinite
    row, column = _largest(excess)
    if not excess[row, column] > 0:
        return
    first, second = (
        f"{value[k, column]:.6g} and {slope[k, column]:.6g} {_place(loss, seen, k, column)}"
        for k in (row, row + 1)
    )
    raise ValueError(
        f"loss {_name(loss)}: expected a convex loss and its slope, got the value and the slope {first}, "
        f"{second}"
    )


@functools.lru_cache(maxsize=64)
def _looked_at(loss: LaneLoss) -> _LookedAt:
    """The loss in float64, in which formulas overflow only farther out; in float32 if its formula is that."""
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        try:
            seen = _looked_at_in(loss, np.float64)
        except TypeError:
            return _looked_at_in(loss, np.float32)
        with np.errstate(over="ignore"):
            narrow = np.array_equal(seen.value, seen.value.astype(np.float32), equal_nan=True)
        return _looked_at_in(loss, np.float32) if narrow else seen


def _looked_at_in(loss: LaneLoss, dtype: type[np.floating]) -> _LookedAt:
    scores, targets = _scores(loss, dtype)
    _check_arrays(loss, dtype)
    made = _of_own(f"loss {_name(loss)}", "curvature", functools.partial(_parts, loss), scores, targets)
    return _LookedAt(scores, *(np.asarray(part) for part in made))


def _scores(loss: LaneLoss, dtype) -> tuple[np.ndarray, np.ndarray]:
    """Scores that rise, for each target that is not known to be like another, and the targets."""
    targets = np.array([1] if isinstance(loss, MarginLoss) else [1, -1], dtype)
    rising = (_FIRST + _DISTANCE * np.arange(_SCORES)).astype(dtype)
    return np.repeat(rising[:, None], len(targets), axis=1), np.tile(targets, (_SCORES, 1))


@functools.partial(jax.jit, static_argnames="loss")
def _parts(loss: LaneLoss, scores, targets):
    return tuple(getattr(loss, name)(scores, targets) for name in _PARTS)


def _check_arrays(loss: LaneLoss, dtype) -> None:
    """Checks that a loss gives arrays like those of its scores."""
    scores, targets = _scores(loss, dtype)
    for name, part in _PARTS.items():
        check_shape(f"loss {_name(loss)}", part, scores, getattr(loss, name), targets)


def check_shape(name: str, part: str, like: Any, function: Callable, *more: Any) -> None:
    """Checks that a function of a user's own part gives an array like its first argument.

    Args:
        name: of the part.
        part: what the function gives, in a word.
        like: the first argument, or its shape and dtype.
        function: of arrays.
        *more: its other arguments.

    Raises:
        TypeError: another shape or dtype, or what JAX cannot work out.
    """
    made = _of_own(name, part, functools.partial(jax.eval_shape, function), like, *more)
    found = f"{getattr(made, 'dtype', type(made).__name__)} {list(getattr(made, 'shape', ()))}"
    expected = f"{like.dtype} {list(like.shape)}"
    if found != expected:
        raise TypeError(
            f"{name}: expected a {part} of the shape and the dtype of its argument, {expected}, got {found}"
        )


def _of_own(name: str, part: str, function: Callable, like: Any, *more: Any):
    """What a function of a user's own part gives; its errors name the part."""
    try:
        return function(like, *more)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise TypeError(
            f"{name}: expected a {part} that JAX works out for arrays of any shape, got "
            f"{type(error).__name__} for the shape {list(like.shape)}: {first}"
        ) from error


def _largest(a: np.ndarray) -> tuple[int, int]:
    """The place of the largest number; between equal ones, that of the first target."""
    column, row = divmod(int(np.argmax(a.T)), len(a))
    return row, column


def _name(part: Any) -> str:
    return getattr(part, "name", type(part).__name__)


def _place(loss: LaneLoss, seen: _LookedAt, row: int, column: int) -> str:
    score = float(seen.scores[row, column])
    if isinstance(loss, MarginLoss):
        return f"at the margin {score:.3g}"
    return f"at the score {score:.3g} for the target {1 if column == 0 else -1}"
