"""A likelihood of some of the classes: the others are no part of the problem, with coefficients of 0."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xmcjax._fork import methods_need_threads_of_jax
from xmcjax._pytrees import pytree
from xmcjax.solvers.kernel_multinomial._likelihoods import Likelihood


@methods_need_threads_of_jax
@pytree(data_fields=["likelihood", "places"], meta_fields=["n_classes"])
@dataclasses.dataclass(frozen=True)
class SomeClasses:
    """ℓ_i of the functions of C' of the C classes, as if the others were not there.

    Attributes:
        likelihood: of C' classes.
        places: the numbers of the C' classes among all, int32 [C', 1].
        n_classes: C.

    Example:
        >>> from xmcjax.solvers.kernel_multinomial import Softmax, SomeClasses
        >>> targets = Softmax(jnp.array([[[True], [False]]]))
        >>> of_three = SomeClasses(targets, jnp.array([[0], [2]]), n_classes=3)
        >>> of_three.probabilities(jnp.zeros((1, 3, 1)))[0, :, 0].tolist()
        [0.5, 0.0, 0.5]
    """

    likelihood: Likelihood
    places: jax.Array
    n_classes: int

    @property
    def shape(self) -> tuple[int, int, int]:
        n, _, lanes = self.likelihood.shape
        return n, self.n_classes, lanes

    def _of(self, a: jax.Array) -> jax.Array:
        """The columns of these classes, [n, C', B]."""
        return a[:, self.places.reshape(-1)]

    def _among_all(self, a: jax.Array) -> jax.Array:
        """`a` with columns of 0 for the other classes, [n, C, B]."""
        n, _, lanes = a.shape
        return jnp.zeros((n, self.n_classes, lanes), a.dtype).at[:, self.places.reshape(-1)].set(a)

    def losses(self, u: jax.Array) -> jax.Array:
        return self.likelihood.losses(self._of(u))

    def probabilities(self, u: jax.Array) -> jax.Array:
        return self._among_all(self.likelihood.probabilities(self._of(u)))

    def slope(self, u: jax.Array, pi: jax.Array) -> jax.Array:
        return self._among_all(self.likelihood.slope(self._of(u), self._of(pi)))

    def curvature(self, u: jax.Array, pi: jax.Array) -> Callable[[jax.Array], jax.Array]:
        product = self.likelihood.curvature(self._of(u), self._of(pi))
        return lambda x: self._among_all(product(self._of(x)))

    def in_range(self, alpha: jax.Array) -> jax.Array:
        return self._among_all(self.likelihood.in_range(self._of(alpha)))

    def fenchel_gap(self, u: jax.Array, alpha: jax.Array) -> tuple[jax.Array, jax.Array]:
        likelihood: Any = self.likelihood
        gaps, beta = likelihood.fenchel_gap(self._of(u), self._of(alpha))
        return gaps, self._among_all(beta)
