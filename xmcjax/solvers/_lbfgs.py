"""L-BFGS on few parameters, where each evaluation is a long computation that the host starts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from xmcjax._arguments import number_from_0, whole_number

# The farthest that an iteration moves any x.
_MAX_STEP = 2.0
# Weak Wolfe conditions: f falls by _ARMIJO of what its slope promises, and the slope to _CURVATURE of itself.
_ARMIJO, _CURVATURE = 1e-4, 0.9


class Iterate(NamedTuple):
    """One accepted point."""

    x: np.ndarray
    value: float
    gradient: np.ndarray
    evaluations: int  #: since the start


class Minimised(NamedTuple):
    """What :func:`minimise` ends with."""

    x: np.ndarray
    value: float
    history: list[Iterate]  #: from the starting point on
    converged: bool  #: whether the gradient or the progress was small, not the number of iterations large


def check_limits(tolerance: float, max_iter: int) -> None:
    """Raises TypeError or ValueError where an iteration could not end by these limits."""
    number_from_0("tolerance", tolerance)
    whole_number("max_iter", max_iter, 0)


def minimise(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    *,
    tolerance: float,
    max_iter: int,
    rounding: float,
    watch: Callable[[Iterate], None] | None = None,
) -> Minimised:
    """A minimum of a smooth function by L-BFGS (optax) with a weak Wolfe line search.

    It ends when ‖∇f‖∞ ≤ tolerance |f|, or when two iterations in a row gain less than tolerance/100 of |f|.

    Args:
        function: x ↦ (f, ∇f); what is not finite counts as too high.
        start: x, [p].
        tolerance: relative to |f|; for parameters that are logarithms.
        max_iter: most iterations.
        rounding: error of f, relative.
        watch: called with the start and with every accepted point.

    Raises:
        ValueError: f is not finite at the start, `tolerance` below 0 or NaN, or `max_iter` below 0.
        TypeError: `tolerance` or `max_iter` of another kind.
    """
    check_limits(tolerance, max_iter)
    x = np.asarray(start, np.float64)
    value, gradient = function(x)
    if not np.isfinite(value):
        raise ValueError(f"expected a finite value at the starting point, got {value}")
    history = [Iterate(x, value, gradient, 1)]
    if watch is not None:
        watch(history[-1])
    evaluations, slow, converged = 1, 0, False
    init, update = _lbfgs()
    memory = None
    for _ in range(max_iter):
        if np.max(np.abs(gradient)) <= tolerance * abs(value) or slow == 2:
            converged = True
            break
        fresh = memory is None
        with jax.numpy_dtype_promotion("standard"):  # optax mixes int32 and int64
            direction, memory = update(gradient, init(x) if fresh else memory, x)
        direction = -np.asarray(direction, np.float64)
        if not np.isfinite(direction).all() or direction @ gradient >= 0:
            # a pair of negative curvature: start anew from the gradient
            fresh, memory = True, None
            direction = -gradient / max(1.0, np.max(np.abs(gradient)))
        longest = _MAX_STEP / np.max(np.abs(direction))
        found, used = _weak_wolfe(function, x, value, gradient, direction, longest, rounding * abs(value))
        evaluations += used
        if found is None:
            if fresh:
                break
            memory = None
            continue
        slow = slow + 1 if value - found[1] <= tolerance / 100 * abs(value) else 0
        x, value, gradient = found
        history.append(Iterate(x, value, gradient, evaluations))
        if watch is not None:
            watch(history[-1])
    best = min(history, key=lambda iterate: iterate.value)
    return Minimised(best.x, best.value, history, converged)


def _weak_wolfe(function, x, value, gradient, direction, longest, rounding):
    """((x, f, ∇f) or None, evaluations) by bisection and doubling, no step longer than `longest`."""
    slope = direction @ gradient
    low, high, t, best = 0.0, np.inf, min(1.0, longest), None
    trials = 15
    for used in range(1, trials + 1):
        point = x + t * direction
        there, there_gradient = function(point)
        if not there <= value + _ARMIJO * t * slope + rounding:
            high = t
        else:
            best = (point, there, there_gradient)
            if there_gradient @ direction >= _CURVATURE * slope or t >= longest:
                return best, used
            low = t
        t = min(2 * low, longest) if np.isinf(high) else (low + high) / 2
    return best, trials


@functools.cache
def _lbfgs():
    import optax

    transform = optax.scale_by_lbfgs(memory_size=10)
    return jax.jit(transform.init), jax.jit(transform.update)
