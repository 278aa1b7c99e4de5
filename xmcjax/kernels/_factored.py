"""Base kernels as products of factors: M⁽ˡ⁾ ≈ F_lᵀ F_l + diag(c_l), with products in O(nr) for rank r.

The subclasses say how the factors are computed. Products use the stored factors; the derivative in the
hyperparameters computes them anew.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import methods_need_threads_of_jax
from xmcjax._pytrees import is_traced, pytree, unmarked
from xmcjax.kernels._functions import Kernel, check_columns, stack


class Factors(NamedTuple):
    """The factors of L kernels.

    Example:
        >>> import numpy as np
        >>> from xmcjax.kernels import RBF, low_rank, points
        >>> made = low_rank(RBF(1.0), points(np.float32([[0], [1], [2]])), rank=2)
        >>> F = made.factors.F[0]
        >>> F.shape, np.allclose(F.T @ F + np.diag(made.factors.c[0]), made.matrices()[0], atol=1e-5)
        ((2, 3), True)
    """

    F: tuple[jax.Array, ...]  #: [r_l, n] each
    c: tuple[jax.Array, ...] | None  #: [n] each


@functools.partial(methods_need_threads_of_jax, but=("matrices_only", "for_prediction"))
@dataclasses.dataclass(frozen=True)
class Factored:
    """Base of the approximations, which replace :class:`xmcjax.kernels.Gram`.

    Attributes:
        kernel: with leaves [L].
        points: the training points.
        factors: at that kernel.
        count: L.

    Example:
        >>> import numpy as np
        >>> from xmcjax.kernels import RBF, gram, low_rank, points
        >>> X, kernel = points(np.float32([[0], [1], [2]])), RBF(1.0)
        >>> full = low_rank(kernel, X, rank=3)
        >>> exact = gram(kernel, X).matrices()[0]
        >>> isinstance(full, Factored), np.allclose(full.matrices()[0], exact, atol=1e-3)
        (True, True)
    """

    kernel: Any
    points: Any
    factors: Factors
    count: int

    def made(self, kernel) -> Factors:
        """The factors as a function of the hyperparameters; their points or frequencies stay as they are."""
        raise NotImplementedError

    def with_derivatives(self) -> Factors:
        """The factors, made anew where hyperparameters are traced: those that are kept have no derivative."""
        return self.made(self.kernel) if is_traced(self.kernel) else self.factors

    @property
    def n(self) -> int:
        return self.factors.F[0].shape[1]

    @property
    def dtype(self) -> Any:
        return self.factors.F[0].dtype

    def at(self, kernel: Kernel):
        """The same approximation of a kernel with other hyperparameters, whose derivatives it has.

        Raises:
            ValueError: another number of kernels, or a hyperparameter that is not above 0.
        """
        kernel, count = stack(kernel, self.dtype)
        if count != self.count:
            raise ValueError(f"expected {self.count} kernels as before, got {count}")
        factors = jax.lax.stop_gradient(self.made(kernel))
        return dataclasses.replace(self, kernel=kernel, factors=factors)

    def matmat(self, S: jax.Array) -> jax.Array:
        """M⁽ˡ⁾ S_l for all l, [n, L, k], of S [n, L, k]; differentiable in S and the hyperparameters.

        Raises:
            TypeError: S that is no array.
            ValueError: S of another shape.
        """
        check_columns(S, self.n, self.count)
        return _product(self.kernel, self, S)

    def sandwich(self, S: jax.Array, between) -> jax.Array:
        """As :meth:`xmcjax.kernels.Gram.sandwich`."""
        check_columns(S, self.n, self.count)
        return self.matmat(between(S[:, 0])[:, None])

    def matrices(self) -> jax.Array:
        """The approximations of M⁽¹⁾ … M⁽ᴸ⁾, [L, n, n]; differentiable in the hyperparameters."""
        F, c = self.with_derivatives()
        full = [jnp.matmul(f.T, f, precision="highest") for f in F]
        return jnp.stack(full if c is None else [M + jnp.diag(d) for M, d in zip(full, c, strict=True)])

    def matrices_only(self):
        """The factors alone: as :meth:`xmcjax.kernels.Gram.matrices_only`."""
        return Factored(None, None, self.factors, self.count)

    def for_prediction(self):
        """The approximation without what only fits need."""
        return self


pytree(data_fields=["kernel", "points", "factors"], meta_fields=["count"])(Factored)


def applied(factors: Factors, S: jax.Array) -> jax.Array:
    """(FᵀF + diag(c)) S, [n, L, k]."""
    out = []
    for l, F in enumerate(factors.F):
        s = S[:, l]
        product = jnp.matmul(F.T, jnp.matmul(F, s, precision="highest"), precision="highest")
        out.append(product if factors.c is None else product + factors.c[l][:, None] * s)
    return jnp.stack(out, axis=1)


@jax.custom_vjp
def _product(kernel, approximation: Factored, S: jax.Array) -> jax.Array:
    return applied(approximation.factors, S)


def _forward(kernel, approximation, S):
    if unmarked(dataclasses.replace(approximation, kernel=None))[1]:
        raise TypeError("an approximation by factors has derivatives in hyperparameters only, not in points")
    (kernel, moving), (approximation, _), (S, _) = map(unmarked, (kernel, approximation, S))
    return applied(approximation.factors, S), (kernel, approximation, S, () if moving else None)


def _backward(residual, U):
    kernel, approximation, S, of_kernel = residual
    if isinstance(U, jax.custom_derivatives.SymbolicZero):
        U = jnp.zeros_like(S)
    kernel_bar = None
    if of_kernel is not None:
        pull = jax.vjp(lambda kernel: applied(approximation.made(kernel), S), kernel)[1]
        kernel_bar = pull(U)[0]
    return kernel_bar, None, applied(approximation.factors, U)


_product.defvjp(_forward, _backward, symbolic_zeros=True)
