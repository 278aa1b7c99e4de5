"""The precision of a computation follows its data, not the settings of the process."""

from __future__ import annotations

import jax
import numpy as np


def precision(dtype):
    """A context in which JAX has 64-bit numbers exactly if `dtype` is float64.

    Results then do not depend on ``jax_enable_x64``, which is unchanged outside.
    """
    return jax.enable_x64(np.dtype(dtype) == np.float64)


def check_range(what: str, values, dtype) -> None:
    """Raises ValueError, `what` and the limits, where a value is not a positive normal number of `dtype`."""
    values, low, high = np.asarray(values), np.finfo(dtype).tiny, np.finfo(dtype).max
    outside = values[~((values >= low) & (values <= high))]
    if outside.size:
        raise ValueError(
            f"{what} from {low:.3g} to {high:.3g}, the range of {np.dtype(dtype)}, got {outside.flat[0]}"
        )
