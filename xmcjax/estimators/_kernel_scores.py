"""Scores of new rows from kernels and coefficients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import scipy.sparse as sp

# Numbers of a part of the scores that prediction makes at once.
_PART = 1 << 24


def kernel_scores(kernel: Any, dual_coef: np.ndarray, X: Any) -> np.ndarray:
    """u, [m, C].

    Args:
        kernel: of the training rows, a :class:`xmcjax.kernels.ClassKernels`.
        dual_coef: [n, C].
        X: checked features [m, d], CSR or an array, or kernel values with the training rows [m, n].
    """
    from xmcjax import kernels
    from xmcjax.lanes import precision
    from xmcjax.linops import Dense

    training, dtype = kernel.gram.points, dual_coef.dtype
    rows = max(1, _PART // max(X.shape[1], dual_coef.size // 64))
    sparse = isinstance(training, kernels.Points) and not isinstance(training.op, Dense)
    parts = []
    with precision(dtype):
        for first in range(0, X.shape[0], rows):
            part = X[first : first + rows].astype(dtype, copy=False)
            if isinstance(part, np.ndarray) == sparse:
                part = sp.csr_array(part) if sparse else part.toarray()
            points = (
                kernels.precomputed_test(part, training)
                if isinstance(training, kernels.GivenProducts)
                else kernels.points(part, like=training)
            )
            parts.append(np.asarray(_cross()(kernel, points, dual_coef[..., None]))[..., 0])
    return np.concatenate(parts)


@functools.cache
def _cross():
    import jax

    return jax.jit(lambda kernel, points, alpha: kernel.cross(points, alpha))
