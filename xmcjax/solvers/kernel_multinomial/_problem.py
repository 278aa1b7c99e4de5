"""The problem that is solved, for one training set or for several folds of it as lanes.

Paper 003, eq. 1 and section 6.1:

    Φ(α) = Σ_i s_i (log Σ_c e^{u_ic} − y_iᵀu_i) + ½ αᵀK̃α,   u = K̃α.

symbol      variable            shape
K̃           problem.kernel      of [n, C, B]
y           problem.y           [n, C, 1 or B], rows of distributions
s           problem.weight      [n, B], ≥ 0; a row of weight 0 is not in the lane's training set
π           softmax of u        [n, C, B]
g           s (π − y)           ∂/∂u of the likelihood part
D           s π                 W = D − D P_cls D / s = V Vᵀ

At the optimum α + g = 0. Σ_c α_ic = 0 always, because that holds for g.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax.kernels import ClassKernels, Independent


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["kernel", "y", "weight"], meta_fields=["exact"]
)
@dataclasses.dataclass(frozen=True)
class KernelProblem:
    """B problems over one set of points; made by :func:`kernel_problem`.

    Attributes:
        kernel: K̃.
        y: target distributions, [n, C, 1 or B].
        weight: s, [n, B].
        exact: whether linear systems are solved by Cholesky factors, O(n³C), and not by CG.
    """

    kernel: ClassKernels
    y: jax.Array
    weight: jax.Array
    exact: bool


def kernel_problem(kernel: ClassKernels, y, weight=None, *, exact: bool = False) -> KernelProblem:
    """Checks the parts of a :class:`KernelProblem` and gives them their dtypes and shapes.

    Args:
        kernel: K̃ of n points and C classes.
        y: class numbers [n], or rows of distributions over the classes, [n, C] or [n, C, B].
        weight: s ≥ 0, [n] or [n, B]; 1 by default. For cross-validation 1 in the training part of a
            fold and 0 in the rest: see :func:`fold_weights`.
        exact: Cholesky factors instead of CG, for a flat model of few points.

    Raises:
        ValueError: shapes that do not match, or an exact solution asked of functions that are mixed.
    """
    n, C, dtype = kernel.n, kernel.n_classes, kernel.dtype
    if np.ndim(y) == 1:
        y = (np.asarray(y)[:, None] == np.arange(C)).astype(dtype)
    y = jnp.asarray(y, dtype)
    y = y[:, :, None] if y.ndim == 2 else y
    weight = jnp.ones((n, 1), dtype) if weight is None else jnp.asarray(weight, dtype)
    weight = weight[:, None] if weight.ndim == 1 else weight
    lanes = weight.shape[1]
    if y.ndim != 3 or y.shape[:2] != (n, C) or y.shape[2] not in (1, lanes):
        raise ValueError(f"expected targets [{n}], [{n}, {C}] or [{n}, {C}, {lanes}], got {list(y.shape)}")
    if weight.ndim != 2 or weight.shape[0] != n:
        raise ValueError(f"expected weights [{n}] or [{n}, lanes], got {list(weight.shape)}")
    if exact and not isinstance(kernel.mixing, Independent):
        raise ValueError(
            "expected functions that are independent: an exact solution is for flat classification"
        )
    return KernelProblem(kernel, y, weight, exact)


def fold_weights(folds, q: int, dtype) -> jax.Array:
    """Weights [n, q] of q lanes: lane k trains on the points that are not in fold k.

    Args:
        folds: fold of each point, [n], whole numbers below q.
        q: folds.
    """
    return jnp.asarray((np.asarray(folds)[:, None] != np.arange(q)).astype(dtype))
