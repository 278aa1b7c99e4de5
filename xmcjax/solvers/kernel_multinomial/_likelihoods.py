"""Likelihoods of class functions: what a fit asks of the targets.

u is [n, C, B]. A likelihood gives its losses row by row, their slope in u, and products with their second
derivative W; the fit needs nothing else of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from xmcjax._fork import methods_need_threads_of_jax
from xmcjax._pytrees import pytree


@runtime_checkable
class Likelihood(Protocol):
    """A negative log likelihood; a pytree. One that is not convex in u is fitted to a stationary point.

    Example:
        >>> from xmcjax.solvers.kernel_multinomial import Likelihood, OneVsRest, Softmax
        >>> y = jnp.array([[1.0, 0.0, 0.0]])[..., None]  # one row of class 0
        >>> u = jnp.zeros((1, 3, 1))
        >>> for likelihood in (Softmax(y), OneVsRest(y)):
        ...     isinstance(likelihood, Likelihood), round(float(likelihood.losses(u).sum()), 3)
        (True, 1.099)
        (True, 2.079)
    """

    @property
    def shape(self) -> tuple[int, int, int]:
        """(n, C, lanes), lanes 1 where all have the same targets."""
        ...

    def losses(self, u: jax.Array) -> jax.Array:
        """ℓ_i(u_i), [n, B]."""
        ...

    def probabilities(self, u: jax.Array) -> jax.Array:
        """π, [n, C, B]."""
        ...

    def slope(self, u: jax.Array, pi: jax.Array) -> jax.Array:
        """∂ℓ/∂u, [n, C, B]."""
        ...

    def curvature(self, u: jax.Array, pi: jax.Array) -> Callable[[jax.Array], jax.Array]:
        """x ↦ (∂²ℓ/∂u²) x, [n, C, B]."""
        ...

    def in_range(self, alpha: jax.Array) -> jax.Array:
        """The nearest α in the range of the slopes."""
        ...


@runtime_checkable
class WithConjugate(Protocol):
    """A convex likelihood of which the conjugate is known.

    Example:
        >>> from xmcjax.solvers.kernel_multinomial import Softmax
        >>> isinstance(Softmax(jnp.array([[[True], [False]]])), WithConjugate)
        True
    """

    def fenchel_gap(self, u: jax.Array, alpha: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(ℓ_i(u_i) + ℓ*_i(−β_i) + β_iᵀu_i, [n, B]; β near α, in the range of −∂ℓ/∂u)."""
        ...


def _exponentials(u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(e^{u − m}, m), m the largest u of each row: one expression, which log Z and π have in common."""
    top = jax.lax.stop_gradient(jnp.max(u, axis=1, keepdims=True))
    return jnp.exp(u - top), top


def log_partition(u: jax.Array) -> jax.Array:
    """log Σ_c e^{u_c}, [n, B]; some u of a row may be −∞."""
    e, top = _exponentials(u)
    return jnp.log(jnp.sum(e, axis=1)) + jnp.squeeze(top, axis=1)


def softmax(u: jax.Array) -> jax.Array:
    """e^{u_c} / Σ_c e^{u_c}, [n, C, B]; some u of a row may be −∞."""
    e, _ = _exponentials(u)
    return e / jnp.sum(e, axis=1, keepdims=True)


def covariance(pi: jax.Array, x: jax.Array) -> jax.Array:
    """(D − D P_cls D) x with D = diag(π): the second derivative of log Σ_c e^{u_c} times x."""
    return pi * (x - jnp.sum(pi * x, axis=1, keepdims=True))


@methods_need_threads_of_jax
class OfTargets:
    """What likelihoods of targets y [n, C, 1 or B] have in common, unless a subclass has its own."""

    y: jax.Array

    @property
    def shape(self) -> tuple[int, int, int]:
        n, C, lanes = self.y.shape
        return n, C, lanes

    def slope(self, u: jax.Array, pi: jax.Array) -> jax.Array:
        return pi - self.y.astype(pi.dtype)

    def in_range(self, alpha: jax.Array) -> jax.Array:
        return alpha - jnp.mean(alpha, axis=1, keepdims=True)


@methods_need_threads_of_jax
@pytree(data_fields=["y"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Softmax(OfTargets):
    """ℓ_i = log Σ_c e^{u_ic} − y_iᵀu_i: one class per row (Seeger 2006, eq. 1).

    Attributes:
        y: rows of distributions, [n, C, 1 or B]; truth values, for known classes, take less memory.

    Example:
        >>> targets = Softmax(jnp.array([[[True], [False]]]))
        >>> targets.probabilities(jnp.zeros((1, 2, 1)))[0, :, 0].tolist()
        [0.5, 0.5]
    """

    y: jax.Array

    def losses(self, u: jax.Array) -> jax.Array:
        return log_partition(u) - jnp.sum(self.y.astype(u.dtype) * u, axis=1)

    def probabilities(self, u: jax.Array) -> jax.Array:
        return softmax(u)

    def curvature(self, u: jax.Array, pi: jax.Array) -> Callable[[jax.Array], jax.Array]:
        return lambda x: covariance(pi, x)

    def fenchel_gap(self, u: jax.Array, alpha: jax.Array) -> tuple[jax.Array, jax.Array]:
        # Σ_c q_c log(q_c / π_c) with β = y − q
        y = self.y.astype(u.dtype)
        q = jnp.maximum(y - alpha, 0)
        q = q / jnp.sum(q, axis=1, keepdims=True)
        log_pi = u - log_partition(u)[:, None]
        return jnp.sum(jax.scipy.special.xlogy(q, q) - q * log_pi, axis=1), y - q


@methods_need_threads_of_jax
@pytree(data_fields=["y"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class OneVsRest(OfTargets):
    """ℓ_i = Σ_c log(1 + e^{u_ic}) − y_iᵀu_i: every class a problem of its own, "1rest" of section 8.1.

    The paper solves each class as two classes that share the kernel K_c, so that their difference has the
    kernel 2 K_c. Here a class has a kernel of its own, which gives the same model at twice the variances.

    Attributes:
        y: 0 and 1, or truth values, [n, C, 1 or B].

    Example:
        >>> targets = OneVsRest(jnp.array([[[1.0], [0.0]]]))
        >>> targets.slope(jnp.zeros((1, 2, 1)), jnp.full((1, 2, 1), 0.5))[0, :, 0].tolist()  # π − y
        [-0.5, 0.5]
    """

    y: jax.Array

    def losses(self, u: jax.Array) -> jax.Array:
        return jnp.sum(jax.nn.softplus(u) - self.y.astype(u.dtype) * u, axis=1)

    def probabilities(self, u: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(u)

    def curvature(self, u: jax.Array, pi: jax.Array) -> Callable[[jax.Array], jax.Array]:
        return lambda x: pi * (1 - pi) * x

    def in_range(self, alpha: jax.Array) -> jax.Array:
        return alpha

    def fenchel_gap(self, u: jax.Array, alpha: jax.Array) -> tuple[jax.Array, jax.Array]:
        # the sum of Softmax for the two classes with q and 1 − q
        y, xlogy = self.y.astype(u.dtype), jax.scipy.special.xlogy
        q = jnp.clip(y - alpha, 0, 1)
        entropy = xlogy(q, q) + xlogy(1 - q, 1 - q)
        return jnp.sum(entropy + q * jax.nn.softplus(-u) + (1 - q) * jax.nn.softplus(u), axis=1), y - q
