"""Scores of new rows from kernels and coefficients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax._links import ONE_OF, SOFTMAX, log_probabilities, probabilities
from xmcjax._range import check_norms
from xmcjax.estimators._counted import LOWEST
from xmcjax.estimators._kernel_sizes import (
    LEAST_NEW,
    filled_features,
    filled_kernel,
    filled_points,
    filled_products,
)

# Most numbers of the scores that prediction makes at once.
_PART = 1 << 24
# The links of likelihoods that are no softmax: the votes of section 8.1.
_LINKS = {"one_vs_rest": ONE_OF}


def kernel_scores(kernel: Any, dual_coef: np.ndarray, X: Any) -> np.ndarray:
    """u, [m, C].

    Args:
        kernel: of the training rows, a :class:`xmcjax.kernels.ClassKernels`.
        dual_coef: [n, C].
        X: checked features [m, d], CSR or an array, or kernel values with the training rows [m, n].

    Raises:
        ValueError: a row whose squared norm is not finite in the dtype of the coefficients.
    """
    from xmcjax import _device_memory
    from xmcjax.kernels import GivenProducts
    from xmcjax.lanes import precision

    dtype, most = dual_coef.dtype, _PART
    if not isinstance(kernel.gram.points, GivenProducts):
        check_norms(X, dtype)
    if (free := _device_memory.free_memory()) is not None:  # rows, and tiles of as many numbers at most
        most = min(most, free // (4 * dtype.itemsize))
    rows = max(1, most // max(X.shape[1], dual_coef.size // 64))
    parts = []
    with precision(dtype), _device_memory.explained("a prediction", "fewer training rows, "):
        filled = most == _PART  # where memory is not short
        kernel, alpha = filled_kernel(kernel, dual_coef) if filled else (kernel, dual_coef)
        for first in range(0, X.shape[0], rows):
            part = X[first : first + rows].astype(dtype, copy=False)
            points = _points(kernel, part, filled=filled)
            parts.append(np.asarray(_cross()(kernel, points, alpha[..., None]))[: part.shape[0], :, 0])
    return np.concatenate(parts)


def probabilities_of(u: np.ndarray, likelihood: str) -> np.ndarray:
    """Probabilities of the classes, [m, C], from u, which they overwrite, and the likelihood of the fit."""
    return probabilities(_LINKS.get(likelihood, SOFTMAX), u)


def log_probabilities_of(u: np.ndarray, likelihood: str) -> np.ndarray:
    """Logarithms of the probabilities, which overwrite u, also where a probability is rounded to 0."""
    u[u <= LOWEST] = -np.inf
    return log_probabilities(_LINKS.get(likelihood, SOFTMAX), u)


def _points(kernel: Any, part: Any, filled: bool = False) -> Any:
    """Rows as the kernel takes them; with `filled`, further rows follow that fill up a common size."""
    from xmcjax import kernels
    from xmcjax.linops import Dense

    training = kernel.gram.points
    sparse = isinstance(training, kernels.Points) and not isinstance(training.op, Dense)
    if isinstance(part, np.ndarray) == sparse:
        part = sp.csr_array(part) if sparse else part.toarray()
    if isinstance(training, kernels.GivenProducts):
        return kernels.precomputed_test(filled_products(part, training.n) if filled else part, training)
    if not filled:
        return kernels.points(part, like=training)
    # subtracting the centre changes how many entries sparse rows have, so that points are filled up again
    return filled_points(kernels.points(filled_features(part), like=training), LEAST_NEW)


def check_parts(kernel: Any, dual_coef: np.ndarray, n_features: int) -> None:
    """Whether the arrays of a stored machine fit each other: the scores of one row, in shapes alone.

    Raises:
        TypeError, ValueError: they do not.
    """
    import jax

    count, gram = kernel.gram.count, kernel.gram.kernel
    # jax.vmap compares a given axis_size with the arrays from JAX 0.10 on
    if shapes := {np.shape(leaf) for leaf in jax.tree.leaves(gram)} - {(count,)}:
        raise ValueError(f"expected hyperparameters [{count}], found shapes {sorted(shapes)}")
    points = _points(kernel, np.zeros((1, n_features), dual_coef.dtype))
    u = jax.eval_shape(_cross(), kernel, points, dual_coef[..., None])
    if u.shape != (1, dual_coef.shape[1], 1):
        raise ValueError(f"expected scores [1, {dual_coef.shape[1]}] of a row, found {list(u.shape[:-1])}")


@functools.cache
def _cross():
    import jax

    return jax.jit(lambda kernel, points, alpha: kernel.cross(points, alpha))
