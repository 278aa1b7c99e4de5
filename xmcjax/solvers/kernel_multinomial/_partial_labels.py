"""Rows of which only a set of possible classes is known, such as those below an inner node of a tree.

Seeger 2006, section 7.3, which takes EM; here the likelihood of what was observed is minimised as it is:

    ℓ_i(u) = log Σ_c e^{u_c} − log Σ_{c in set i} e^{u_c} = −log Σ_{c in set i} π_c,
    ∂ℓ/∂u = π − q,   ∂²ℓ/∂u² = W_π − W_q,

with q = softmax of u on the set, 0 elsewhere, and W_p = diag(p) − p pᵀ. It is not convex where a set has
several classes; a fit ends at a stationary point.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import _sparse
from xmcjax._fork import methods_need_threads_of_jax, needs_threads_of_jax
from xmcjax._pytrees import pytree
from xmcjax.solvers.kernel_multinomial._likelihoods import OfTargets, covariance, log_partition, softmax


@methods_need_threads_of_jax
@pytree(data_fields=["y", "rows", "allowed"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class PartialLabels(OfTargets):
    """The likelihood of sets of classes, made by :func:`partial_labels`.

    Attributes:
        y: whether c is the only class of a row, bool [n, C, 1].
        rows: the m rows with several classes, int32 [m, 1].
        allowed: the classes of these rows, bool [m, C, 1].

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers.kernel_multinomial import partial_labels
        >>> targets = partial_labels([[True, False, False], [True, True, False]])
        >>> u = jnp.zeros((2, 3, 1))
        >>> [round(float(p), 3) for p in np.exp(-targets.losses(u))[:, 0]]  # 1/3 of its class, 2/3 of two
        [0.333, 0.667]
    """

    y: jax.Array
    rows: jax.Array
    allowed: jax.Array

    @property
    def _several(self) -> jax.Array:
        return self.rows.reshape(-1)

    def _within(self, u: jax.Array) -> jax.Array:
        """u of the rows with several classes, −∞ outside their sets, [m, C, B]."""
        return jnp.where(self.allowed, u[self._several], -jnp.inf)

    def losses(self, u: jax.Array) -> jax.Array:
        known = jnp.sum(self.y.astype(u.dtype) * u, axis=1)
        return log_partition(u) - known.at[self._several].set(log_partition(self._within(u)))

    def probabilities(self, u: jax.Array) -> jax.Array:
        return softmax(u)

    def slope(self, u: jax.Array, pi: jax.Array) -> jax.Array:
        return (pi - self.y.astype(pi.dtype)).at[self._several].add(-softmax(self._within(u)))

    def curvature(self, u: jax.Array, pi: jax.Array) -> Callable[[jax.Array], jax.Array]:
        q = softmax(self._within(u))
        # W_π − W_q
        return lambda x: covariance(pi, x).at[self._several].add(-covariance(q, x[self._several]))


@needs_threads_of_jax
def partial_labels(allowed) -> PartialLabels:
    """The likelihood of rows whose class is one of a set.

    Args:
        allowed: whether class c may be that of row i, bool [n, C]; at least one per row.

    Raises:
        ValueError: an array of another shape, or a row without a class.
        TypeError: no matrix of truth values.

    Example:
        >>> partial_labels([[True, True, False], [False, False, True]]).allowed.shape
        (1, 3, 1)
    """
    allowed = _sparse.array(allowed, "allowed")
    if allowed.dtype != bool:
        raise TypeError(f"allowed: expected a boolean matrix, got {allowed.dtype}")
    if allowed.ndim != 2:
        raise ValueError(f"allowed: expected a matrix [rows, classes], got shape {list(allowed.shape)}")
    counts = allowed.sum(axis=1)
    if not counts.all():
        raise ValueError(
            f"allowed: expected at least one class per row, found none in row {int(np.argmin(counts))}"
        )
    several = np.flatnonzero(counts > 1)
    y = jnp.asarray((allowed & (counts == 1)[:, None])[..., None])
    return PartialLabels(y, jnp.asarray(several[:, None], jnp.int32), jnp.asarray(allowed[several, :, None]))
