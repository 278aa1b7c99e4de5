"""The cross-validated negative log likelihood and its gradient in the hyperparameters.

Seeger 2006, eqs. 3 and 7 and section 6.3. Lane k is fitted without fold k and judged on it:

    Ψ = Σ_k Σ_{i in fold k} t_i ℓ_i(u_i),   u = K̃ α of lane k,

which costs nothing beyond the fits, because u is kept in all rows. With r = ∂Ψ/∂u and
dα = −(I + W K̃)⁻¹ W (dK̃) α,

    dΨ = Σ_k (r − x)ᵀ (dK̃) α,   x = (I + W K̃)⁻¹ W K̃ r :

one linear system per fold, whatever the number of hyperparameters, and one product with each dK̃.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax._pytrees import is_traced
from xmcjax.kernels import ClassKernels, Loadings
from xmcjax.solvers.kernel_multinomial._excess import run_to_excess
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem, without_lone_axis
from xmcjax.solvers.kernel_multinomial._run import run
from xmcjax.solvers.kernel_multinomial._state import State, init
from xmcjax.solvers.kernel_multinomial._systems import HParams, adjoint


class Hyperparameters(NamedTuple):
    """The hyperparameters of a :class:`xmcjax.kernels.ClassKernels`, or derivatives in them.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> h = Hyperparameters.of(class_kernels(gram(RBF(2.0), points([[0.0], [1.0]])), 1.5, 0.5, 3))
        >>> h.v.tolist(), float(h.sigma2), h.loadings
        ([1.5, 1.5, 1.5], 0.5, None)
    """

    v: Any  #: [P]
    kernel: Any  #: the kernel function of the base kernels, leaves [L]
    sigma2: Any  #: a number
    loadings: Any  #: B where there is one, else None

    @classmethod
    def of(cls, kernel: ClassKernels) -> Hyperparameters:
        """The hyperparameters of K̃."""
        loadings = kernel.mixing.B if isinstance(kernel.mixing, Loadings) else None
        return cls(kernel.v, kernel.gram.kernel, kernel.sigma2, loadings)

    def inside(self, kernel: ClassKernels) -> ClassKernels:
        """K̃ as a function of these numbers, for derivatives: matrices that are stored stay as they are."""
        gram = dataclasses.replace(kernel.gram, kernel=self.kernel)
        mixing = kernel.mixing if self.loadings is None else Loadings(self.loadings)
        return dataclasses.replace(kernel, gram=gram, v=self.v, sigma2=self.sigma2, mixing=mixing)


class Criterion(NamedTuple):
    """What :func:`cv_criterion` returns.

    Example:
        >>> import numpy as np
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import cv_criterion, fold_weights, kernel_problem
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0], [3.0]])), 1.0, 0.1, 2)
        >>> train = fold_weights([0, 1, 0, 1], 2, "float32")
        >>> found = cv_criterion(kernel_problem(family, [0, 0, 1, 1], train), 1 - train, HParams())
        >>> found.value.shape, found.gradient.v.shape, bool(found.gradient.v.sum() < 0)
        ((2,), (2,), True)
    """

    value: jax.Array  #: Ψ of each lane, [B]
    gradient: Hyperparameters  #: of their sum, in the hyperparameters themselves, not their logarithms
    state: State  #: of the fits


@needs_threads_of_jax
def cv_criterion(
    problem: KernelProblem, test_weight: jax.Array, hp: HParams, start: jax.Array | None = None
) -> Criterion:
    """Ψ and its gradient.

    Args:
        problem: lane k has weight 0 on fold k: see :func:`fold_weights`.
        test_weight: t, [n, B], 0 but on fold k.
        hp: limits and tolerances. Fits end as in :func:`run_to_excess`, and in jit and vmap as in
            :func:`run`; k₃ limits the CG steps of the gradient's system.
        start: α of an earlier call, [n, C, B], at other hyperparameters.

    Example:
        The smaller Ψ, the better the kernel; here of two clusters of points:

        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import fold_weights, kernel_problem
        >>> X, train = points([[0.0], [0.1], [5.0], [5.1]]), fold_weights([0, 1, 0, 1], 2, "float32")
        >>> def psi(scale):
        ...     family = class_kernels(gram(RBF(scale), X), 10.0, 0.1, 2)
        ...     problem = kernel_problem(family, [0, 0, 1, 1], train)
        ...     return float(cv_criterion(problem, 1 - train, HParams()).value.sum())
        >>> psi(1.0) < psi(1000.0)
        True
    """
    state = init(problem, start)
    traced = is_traced((problem, hp, state))
    # the excess of a fit over its minimum is looked at on the host
    state = (run if traced else run_to_excess)(problem, hp, state)
    value, s = _accumulated(problem.matrices_only(), test_weight, hp, state.u)
    return Criterion(value, _slopes(problem.kernel, state.alpha, s), state)


@jax.jit
@without_lone_axis
def _accumulated(problem: KernelProblem, test_weight, hp: HParams, u) -> tuple[jax.Array, jax.Array]:
    """Ψ of each lane, and s = r − x."""
    likelihood = problem.likelihood
    value = jnp.sum(test_weight * likelihood.losses(u), axis=0)
    pi = likelihood.probabilities(u)
    r = test_weight[:, None] * likelihood.slope(u, pi)
    return value, r - adjoint(problem, hp, u, pi, problem.kernel.matmat(r)).x


@jax.jit
def _slopes(kernel: ClassKernels, alpha, s) -> Hyperparameters:
    def bilinear(h: Hyperparameters):  # Σ_k αᵀ K̃(h) s
        return jnp.sum(alpha * h.inside(kernel).matmat(s))

    return jax.grad(bilinear)(Hyperparameters.of(kernel))
