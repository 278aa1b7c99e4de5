"""Ranges of the hyperparameters of the solvers, by their names."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from xmcjax._options import Real, Values, Whole

_FROM_0 = Real(least=0)
_RANGES: dict[str, Values] = {
    "l2": Real(above=0),
    "tolerance": _FROM_0,
    "decrement": _FROM_0,
    "max_steps": Whole(0),
    "max_cg": Whole(0),
    "max_cg_gradient": Whole(0),
    "cg_progress": _FROM_0,
    "cg_tolerance": _FROM_0,
    "preconditioner": _FROM_0,
    "armijo": _FROM_0,
    "max_backtracks": Whole(0),
    "backtracking": _FROM_0,
}


def check_hparams(hp) -> None:
    """Checks the numbers of a named tuple that have a range, but for numbers that JAX traces.

    Raises:
        TypeError: no number, or no whole number where one is expected.
        ValueError: a number out of its range; the sentence names it.
    """
    for name, value in hp._asdict().items():
        if name in _RANGES and not isinstance(value, Tracer):
            several = isinstance(value, np.ndarray | jax.Array) and value.ndim
            for one in np.ravel(value).tolist() if several else [value]:
                _RANGES[name].check(name, one)


def nan_below_0(value):
    """The numbers, with NaN for those below 0: where these cannot be refused, no lane is to converge."""
    value = jnp.asarray(value)
    return jnp.where(value >= 0, value, jnp.nan)
