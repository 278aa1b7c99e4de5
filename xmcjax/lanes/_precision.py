"""The precision of a computation follows its data, not the settings of the process."""

from __future__ import annotations

import jax
import numpy as np


def precision(dtype):
    """A context in which JAX has 64-bit numbers exactly if `dtype` is float64.

    Results then do not depend on ``jax_enable_x64``, which is unchanged outside.

    Example:
        >>> import jax.numpy as jnp
        >>> from xmcjax.lanes import precision
        >>> with precision("float64"):
        ...     jnp.ones(2).dtype
        dtype('float64')
        >>> jnp.ones(2).dtype
        dtype('float32')
    """
    return jax.enable_x64(np.dtype(dtype) == np.float64)
