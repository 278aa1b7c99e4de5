"""The problem that is solved, for one training set or for several folds of it as lanes.

Seeger 2006, eq. 1 and section 6.1:

    Φ(α) = Σ_i s_i ℓ_i(u_i) + ½ αᵀK̃α,   u = K̃α,   ℓ_i(u) = log Σ_c e^{u_c} − y_iᵀu.

symbol      variable            shape
K̃           problem.kernel      of [n, C, B]
ℓ           problem.likelihood  of [n, C, B], row by row
s           problem.weight      [n, B], ≥ 0; a row of weight 0 is not in the lane's training set
π           pi                  [n, C, B], softmax of u
W                               s ∂²ℓ/∂u²

At the optimum α + s ∂ℓ/∂u = 0: α = s (y − π), and Σ_c α_ic = 0.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import instance, name_of, whole_number
from xmcjax._fork import needs_threads_of_jax
from xmcjax._pytrees import pytree
from xmcjax.kernels import ClassKernels, Independent
from xmcjax.linops import computed_dtype, real_array
from xmcjax.solvers.kernel_multinomial._likelihoods import Likelihood, OneVsRest, Softmax
from xmcjax.solvers.kernel_multinomial._partial_labels import PartialLabels

# Classes from which nonlinear CG is faster than Newton's method.
_MANY_CLASSES = 30
# Range of the sizes of products in which single precision has its full digits.
_SINGLE_RANGE = 1e-25, 1e30
# Rounding that products in single precision may have, because u adds them up until it is multiplied out.
_SINGLE_ROUNDING = 10
# From targets y to a likelihood.
LIKELIHOODS = {"softmax": Softmax, "one_vs_rest": OneVsRest}


@pytree(
    data_fields=["kernel", "likelihood", "weight", "single"],
    meta_fields=["exact"],
)
@dataclasses.dataclass(frozen=True)
class KernelProblem:
    """B problems over one set of points; made by :func:`kernel_problem`.

    Attributes:
        kernel: K̃.
        likelihood: ℓ, with the targets.
        weight: s, [n, B].
        exact: whether linear systems are solved by Cholesky factors, O(n³C), and not by CG.
        single: K̃ in single precision, for directions alone; None where there is none.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import kernel_problem
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> problem = kernel_problem(family, [0, 1, 1])
        >>> problem.conjugate, problem.reason
        (False, "Newton's method: 2 classes are few, for which it needs the fewest products")
    """

    kernel: ClassKernels
    likelihood: Likelihood
    weight: jax.Array
    exact: bool
    single: ClassKernels | None = None

    @property
    def conjugate(self) -> bool:
        """Whether a fit begins with nonlinear CG: with few classes Newton's method needs fewer products."""
        return self.kernel.n_classes >= _MANY_CLASSES and not self.exact

    @property
    def reason(self) -> str:
        """Why a fit has the method that it has, in a sentence."""
        classes = self.kernel.n_classes
        if self.exact:
            return "Newton's method with Cholesky factors was asked for"
        if self.conjugate:
            return f"nonlinear CG, then Newton's method: {classes} classes are many ({_MANY_CLASSES} or more)"
        return f"Newton's method: {classes} classes are few, for which it needs the fewest products"

    def product(self, x: jax.Array) -> jax.Array:
        """K̃ x, in single precision where there is such a K̃: good enough for a direction."""
        if self.single is None:
            return self.kernel.matmat(x)
        return self.single.matmat(x.astype(self.single.dtype)).astype(x.dtype)

    def with_single(self) -> KernelProblem:
        """The problem with K̃ in single precision too, if K̃ is stored in double precision and in range.

        Matrices that are made anew for each product stay as they are: the distances behind them need their
        digits.
        """
        gram = self.kernel.gram
        stored = getattr(gram, "stored", True) is not None or gram.linear
        if self.kernel.dtype != jnp.float64 or self.exact or not stored:
            return self
        # K̃x is no larger than this, and its numbers that count are not much smaller
        n, C, _ = self.likelihood.shape
        # zeros as an argument: what follows from a constant the compiler would work out itself, for seconds
        kernel, size, rounding = _single(self, jnp.zeros((n, C, self.weight.shape[1]), self.kernel.dtype))
        low, high = _SINGLE_RANGE
        held = low < float(size) < high and float(rounding) < _SINGLE_ROUNDING
        return dataclasses.replace(self, single=kernel) if held else self

    def matrices_only(self) -> KernelProblem:
        """The problem without the points where their matrices are stored: a fit needs no more."""
        gram = self.kernel.gram.matrices_only()
        return dataclasses.replace(self, kernel=dataclasses.replace(self.kernel, gram=gram))


@jax.jit
def _single(problem: KernelProblem, zeros: jax.Array) -> tuple[ClassKernels, jax.Array, jax.Array]:
    """(K̃ in single precision, a bound of K̃x by the largest numbers of its parts, the rounding of K̃r).

    r is the residual at α = 0, where u is `zeros`.
    """
    kernel, likelihood = problem.kernel, problem.likelihood

    def largest(tree):
        real = [a for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.inexact)]
        return functools.reduce(jnp.maximum, [jnp.max(jnp.abs(a), initial=0) for a in real])

    def narrow(a):
        return a.astype(jnp.float32) if jnp.issubdtype(a.dtype, jnp.inexact) else a

    base = jnp.maximum(largest(kernel.gram), 1)
    size = base * base * jnp.maximum(jnp.max(kernel.v), kernel.sigma2) * jnp.max(problem.weight)
    if getattr(kernel.gram, "linear", False):
        size = size * jnp.max(jnp.asarray(kernel.gram.kernel.linear_scale, kernel.dtype))
    single = jax.tree.map(narrow, kernel)
    r = problem.weight[:, None] * likelihood.slope(zeros, likelihood.probabilities(zeros))
    rounding = jnp.max(jnp.abs(kernel.matmat(r) - single.matmat(narrow(r)).astype(r.dtype)), initial=0)
    return single, size * kernel.n * kernel.n_functions, rounding


def without_lone_axis(function):
    """Wraps a function of a problem and of arrays of its lanes: one lane comes without the last axis.

    XLA's loops over the classes of [n, C, 1] are scalar: a softmax of 5,000 x 926 took 280 ms there and
    takes 4 ms of [n, C]. What is written for [n, C, B], with sums over the first two axes, holds for both.
    """

    @functools.wraps(function)
    def of_lanes(problem: KernelProblem, *arrays):
        lone = problem.weight.shape[1] == 1 and not problem.exact
        if not (lone and isinstance(problem.likelihood, (Softmax, OneVsRest, PartialLabels))):
            return function(problem, *arrays)

        def strip(tree):
            return jax.tree.map(lambda a: a[..., 0] if jnp.ndim(a) else a, tree)

        likelihood, weight, arrays = strip((problem.likelihood, problem.weight, arrays))
        out = function(dataclasses.replace(problem, likelihood=likelihood, weight=weight), *arrays)
        return jax.tree.map(lambda a: a[..., None], out)

    return of_lanes


@needs_threads_of_jax
def kernel_problem(
    kernel: ClassKernels, y, weight=None, *, likelihood: str | Likelihood = "softmax", exact: bool = False
) -> KernelProblem:
    """Checks the parts of a :class:`KernelProblem` and gives them their dtypes and shapes.

    Args:
        kernel: K̃ of n points and C classes.
        y: class numbers [n], or rows of distributions over the classes, [n, C] or [n, C, B]; None
            where the likelihood is an object, which has its own.
        weight: s ≥ 0, [n] or [n, B]; 1 by default. For cross-validation 1 in the training part of a
            fold and 0 in the rest: see :func:`fold_weights`.
        likelihood: a name of ``LIKELIHOODS``, or an object.
        exact: Cholesky factors instead of CG, for a flat model of few points.

    Raises:
        ValueError: an unknown likelihood, shapes that do not match, weights below 0, or an exact solution
            asked of functions that are mixed or of another likelihood than softmax.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> kernel_problem(family, [0, 1, 1]).weight.shape
        (3, 1)
    """
    n, C, dtype = kernel.n, kernel.n_classes, kernel.dtype
    if isinstance(likelihood, str):
        name_of("likelihood", likelihood, LIKELIHOODS)
        y = real_array("y", y)
        if y.ndim == 1:
            numbers = _sparse.array(y, "y")
            if numbers.dtype.kind not in "iu" or ((numbers < 0) | (numbers >= C)).any():
                raise ValueError(f"y: expected classes as whole numbers from 0 to {C - 1}, got others")
            y = (numbers[:, None] == np.arange(C)).astype(dtype)
        y = jnp.asarray(y, dtype)
        if y.ndim not in (2, 3):
            raise ValueError(f"y: expected [{n}], [{n}, {C}] or [{n}, {C}, lanes], got {list(y.shape)}")
        target: Likelihood = LIKELIHOODS[likelihood](y[:, :, None] if y.ndim == 2 else y)
    else:
        target = instance("likelihood", likelihood, Likelihood)
    weight = (
        jnp.ones((n, 1), dtype)
        if weight is None
        else jnp.asarray(real_array("weight", weight, finite=True, least=0), dtype)
    )
    weight = weight[:, None] if weight.ndim == 1 else weight
    if weight.ndim != 2 or weight.shape[0] != n:
        raise ValueError(f"expected weights [{n}] or [{n}, lanes], got {list(weight.shape)}")
    lanes, shape = weight.shape[1], target.shape
    if shape not in ((n, C, 1), (n, C, lanes)):
        raise ValueError(f"expected targets [{n}], [{n}, {C}] or [{n}, {C}, {lanes}], got {list(shape)}")
    if exact and not (isinstance(kernel.mixing, Independent) and isinstance(target, Softmax)):
        raise ValueError("expected independent functions and softmax: an exact solution is for flat models")
    return KernelProblem(kernel, target, weight, exact)


def random_folds(n: int, q: int, seed) -> np.ndarray:
    """Fold of each of n points, [n]: q parts of equal size, give or take one, drawn at random.

    Args:
        n: points.
        q: folds, from 2 to n.
        seed: of :func:`numpy.random.default_rng`.

    Raises:
        ValueError: q out of range.

    Example:
        >>> np.bincount(random_folds(10, 3, seed=0)).tolist()
        [4, 3, 3]
    """
    whole_number("n", n, 2)
    whole_number("seed", seed, 0, 2**64 - 1)
    if whole_number("folds", q, 2) > n:
        raise ValueError(f"folds: expected from 2 to {n}, the number of points, got {q}")
    return np.random.default_rng(seed).permutation(n) % q


@needs_threads_of_jax
def fold_weights(folds, q: int, dtype) -> jax.Array:
    """Weights [n, q] of q lanes: lane k trains on the points that are not in fold k.

    Args:
        folds: fold of each point, [n], whole numbers below q.
        q: folds.
        dtype: of the weights, float32 or float64.

    Raises:
        TypeError: folds that are no whole numbers, or another dtype.
        ValueError: folds of another shape, or less than one.

    Example:
        >>> fold_weights([0, 1, 1], 2, "float32").tolist()
        [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]
    """
    folds, dtype = _sparse.array(folds, "folds"), computed_dtype(dtype)
    if folds.ndim != 1 or folds.dtype.kind not in "iu":
        raise TypeError(f"folds: expected whole numbers [n], got {folds.dtype} {list(folds.shape)}")
    whole_number("q", q, 1)
    return jnp.asarray((folds[:, None] != np.arange(q)).astype(dtype))


def check_folds(folds, numbers: np.ndarray) -> np.ndarray:
    """Folds given by a caller, [n], whole numbers from 0; −1 for points that are never judged.

    Args:
        folds: fold of each point, [n]; −1 for points that are never judged.
        numbers: class of each point, [n]; −1 where it is not known.

    Raises:
        ValueError: another shape or kind, a fold without points, or one whose training part has
            fewer than two classes.

    Example:
        >>> check_folds([0, 1, 0, 1], np.array([0, 0, 1, 1])).tolist()
        [0, 1, 0, 1]
    """
    folds = _sparse.array(folds, "folds")
    if folds.shape != numbers.shape or folds.dtype.kind not in "iu" or folds.min() < -1 or folds.max() < 1:
        raise ValueError(f"folds: expected a fold 0, 1, … (or −1) for each of {len(numbers)} points")
    for fold in range(folds.max() + 1):
        if not (folds == fold).any():
            raise ValueError(
                f"folds: expected points in each of {folds.max() + 1} folds, found none in {fold}"
            )
        left = np.unique(numbers[(folds != fold) & (numbers >= 0)])
        if len(left) < 2:
            raise ValueError(
                f"folds: expected two classes or more in every training part, that of fold {fold} has "
                f"{len(left)}"
            )
    return folds
