"""Kernel functions: pointwise mathematics in inner products and squared distances.

A kernel is a frozen dataclass and a pytree. Its leaves are its hyperparameters, every one of them above
0, so that a search may run in their logarithms. A leaf is a number, or an array [L]: then the object is
a stack of L kernels. A new kernel is one class here and one line in ``KERNELS``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from xmcjax import _sparse
from xmcjax._arguments import instance
from xmcjax._fork import methods_need_threads_of_jax, needs_threads_of_jax
from xmcjax._own_parts import check_shape
from xmcjax._pytrees import pytree
from xmcjax.linops import real_array


class Pairs(NamedTuple):
    """What a kernel function may use of the pairs of two sets of points.

    Example:
        >>> import numpy as np
        >>> points = jnp.array([[0.0, 0.0], [1.0, 2.0]])
        >>> inner = points @ points.T
        >>> norms = jnp.diag(inner)
        >>> pairs = Pairs(inner, norms[:, None] + norms[None] - 2 * inner, features=2.0)
        >>> (pairs.distance2 / pairs.features).tolist()
        [[0.0, 2.5], [2.5, 0.0]]
    """

    inner: jax.Array  #: x·x', [rows, columns]
    distance2: jax.Array  #: ‖x − x'‖² ≥ 0, [rows, columns]
    features: float  #: d, the divisor of distances; 1 where there are no features


@dataclasses.dataclass(frozen=True)
class Kernel:
    """Base of the kernel functions. ``a + b`` and ``a * b`` are kernels again.

    Example:
        >>> from xmcjax.kernels import KERNELS
        >>> sorted(KERNELS)
        ['linear', 'matern', 'rbf']
    """

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if "value" in vars(cls) and "linear_scale" not in vars(cls):  # another function than its base
            cls.linear_scale = Kernel.linear_scale  # type: ignore[misc]  # a property of the class, not of objects
        methods_need_threads_of_jax(cls)

    def value(self, pairs: Pairs) -> jax.Array:
        """k(x, x') of all pairs; the hyperparameters are numbers here, never stacks."""
        raise NotImplementedError(f"{type(self).__name__} has no value")

    @property
    def linear_scale(self) -> Any:
        """s of a kernel that is known to be s x·x', a number or an array [L]; None for others."""
        return None

    def __add__(self, other: Kernel) -> Kernel:
        return Sum(self, other)

    def __mul__(self, other: Kernel) -> Kernel:
        return Product(self, other)


@pytree(data_fields=[], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Linear(Kernel):
    """k(x, x') = x·x'. It has no hyperparameters; :class:`Scaled` gives it a variance.

    Example:
        >>> import numpy as np
        >>> from xmcjax.kernels import gram, points
        >>> product = gram(Linear(), points(np.float32([[-1], [1]])))
        >>> product.matmat(jnp.ones((2, 1, 1))).ravel().tolist()
        [0.0, 0.0]
    """

    def value(self, pairs: Pairs) -> jax.Array:
        return pairs.inner

    @property
    def linear_scale(self) -> float:
        return 1.0


@pytree(data_fields=["w"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class RBF(Kernel):
    """k(x, x') = exp(−w/(2d) ‖x − x'‖²), d features (Seeger, 2006, eq. 8).

    Args:
        w: inverse squared length, above 0.

    Example:
        >>> from xmcjax.kernels import gram, points
        >>> print(gram(RBF(2.0), points([[0.0], [1.0]])).matrices()[0].round(2))  # exp(−w/2 · 1)
        [[1.   0.37]
         [0.37 1.  ]]
    """

    w: Any

    def value(self, pairs: Pairs) -> jax.Array:
        return jnp.exp(-self.w / (2 * pairs.features) * pairs.distance2)


@pytree(data_fields=["w"], meta_fields=["nu"])
@dataclasses.dataclass(frozen=True)
class Matern(Kernel):
    """The Matern kernel of r = √(w/d) ‖x − x'‖.

    e^{−r} for ν = ½, (1 + √3 r) e^{−√3 r} for ν = 3/2, (1 + √5 r + 5r²/3) e^{−√5 r} for ν = 5/2.
    Rasmussen and Williams, "Gaussian processes for machine learning", 2006, section 4.2.1.

    Args:
        w: inverse squared length, above 0.
        nu: 0.5, 1.5 (default) or 2.5; no hyperparameter to be learnt.

    Raises:
        ValueError: another ν.

    Example:
        >>> from xmcjax.kernels import gram, points
        >>> print(gram(Matern(1.0, nu=0.5), points([[0.0], [1.0]])).matrices()[0].round(2))
        [[1.   0.37]
         [0.37 1.  ]]
    """

    w: Any
    nu: float = 1.5

    def __post_init__(self):
        if not isinstance(self.nu, float) or self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu: expected 0.5, 1.5 or 2.5, got {self.nu}")

    def value(self, pairs: Pairs) -> jax.Array:
        # √ has no derivative at 0, and two equal points need none
        apart = pairs.distance2 != 0
        distance = jnp.where(apart, jnp.sqrt(jnp.where(apart, pairs.distance2, 1) / pairs.features), 0)
        r = jnp.sqrt(2 * self.nu * self.w) * distance
        polynomial = {0.5: 1.0, 1.5: 1 + r, 2.5: 1 + r + r * r / 3}[self.nu]
        return polynomial * jnp.exp(-r)


@pytree(data_fields=["v", "kernel"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Scaled(Kernel):
    """v k(x, x'): the variance of one term of a sum.

    Args:
        v: above 0.
        kernel: k.

    Example:
        >>> from xmcjax.kernels import RBF, gram, points
        >>> print(gram(Scaled(2.0, RBF(1.0)), points([[0.0], [1.0]])).matrices()[0].round(3))
        [[2.    1.213]
         [1.213 2.   ]]
    """

    v: Any
    kernel: Kernel

    def value(self, pairs: Pairs) -> jax.Array:
        return self.v * self.kernel.value(pairs)

    @property
    def linear_scale(self) -> Any:
        scale = self.kernel.linear_scale
        return None if scale is None else self.v * scale


@pytree(data_fields=["first", "second"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Sum(Kernel):
    """k₁(x, x') + k₂(x, x').

    Example:
        >>> from xmcjax.kernels import RBF, Linear, gram, points
        >>> print(gram(RBF(1.0) + Linear(), points([[1.0], [2.0]])).matrices()[0].round(3))
        [[2.    2.607]
         [2.607 5.   ]]
    """

    first: Kernel
    second: Kernel

    def value(self, pairs: Pairs) -> jax.Array:
        return self.first.value(pairs) + self.second.value(pairs)

    @property
    def linear_scale(self) -> Any:
        first, second = self.first.linear_scale, self.second.linear_scale
        return None if first is None or second is None else first + second


@pytree(data_fields=["first", "second"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Product(Kernel):
    """k₁(x, x') k₂(x, x').

    Example:
        >>> from xmcjax.kernels import RBF, Linear, gram, points
        >>> print(gram(RBF(1.0) * Linear(), points([[1.0], [2.0]])).matrices()[0].round(3))
        [[1.    1.213]
         [1.213 4.   ]]
    """

    first: Kernel
    second: Kernel

    def value(self, pairs: Pairs) -> jax.Array:
        return self.first.value(pairs) * self.second.value(pairs)


def check_columns(S, n: int, count: int) -> None:
    """Raises TypeError where S is no array, and ValueError where it is no [n, L, k] of L kernels."""
    expected = f"S: expected columns [{n}, {count}, k], found"
    if not isinstance(S, jax.Array | np.ndarray):
        raise TypeError(f"{expected} {type(S).__name__}")
    if S.ndim != 3 or S.shape[:2] != (n, count):
        raise ValueError(f"{expected} shape {list(S.shape)}")


@needs_threads_of_jax
def stack(kernel: Kernel, dtype) -> tuple[Kernel, int]:
    """The kernel with all leaves as arrays [L], and L.

    Args:
        kernel: with leaves that are numbers or arrays [L].
        dtype: of the leaves.

    Raises:
        TypeError: no kernel, one whose class is no pytree, or a hyperparameter that is no number.
        ValueError: stacks of different lengths, or a hyperparameter that is known and not above 0.

    Example:
        >>> from xmcjax.kernels import RBF
        >>> kernel, length = stack(RBF([1.0, 2.0]), "float32")
        >>> kernel.w.tolist(), length
        ([1.0, 2.0], 2)
    """
    named, form = jax.tree_util.tree_flatten_with_path(
        instance("kernel", kernel, Kernel), is_leaf=lambda a: not isinstance(a, Kernel)
    )
    for _, leaf in named:
        if isinstance(leaf, Kernel):
            own = type(leaf).__name__
            raise TypeError(
                f"kernel: expected a pytree, whose leaves are the hyperparameters, got {own}: let JAX know "
                "the class as one, as docs/guide/own-parts.md does"
            )
    named = [
        (name, real_array(name, leaf))
        for name, leaf in ((jax.tree_util.keystr(path).lstrip("."), leaf) for path, leaf in named)
    ]
    shapes = {leaf.shape for _, leaf in named if leaf.ndim}
    if len(shapes) > 1 or any(len(shape) > 1 for shape in shapes):
        raise ValueError(
            f"expected hyperparameters that are numbers or arrays of one length, got shapes {sorted(shapes)}"
        )
    count = next(iter(shapes))[0] if shapes else 1
    if not count:
        raise ValueError("expected at least one value of each hyperparameter, got none")
    leaves = [positive(name, leaf, (count,), dtype) for name, leaf in named]
    made = jax.tree.unflatten(form, leaves)
    for part in _of_ones_own(made):
        _check_value(part, dtype)
    return made, count


def _of_ones_own(kernel: Kernel) -> Iterator[Kernel]:
    """The kernels from outside this package that a kernel is, or is made of."""
    if not type(kernel).__module__.startswith("xmcjax."):
        yield kernel
        return
    for field in dataclasses.fields(kernel):
        if isinstance(part := getattr(kernel, field.name), Kernel):
            yield from _of_ones_own(part)


def _check_value(stacked: Kernel, dtype) -> None:
    """Checks that a user's own kernel gives an array of the shape of its pairs; errors name the kernel."""
    leaves, form = jax.tree.flatten(stacked)

    def value(inner, distance2, leaves):  # a kernel is made of arrays, as its constructor may expect
        return jax.tree.unflatten(form, leaves).value(Pairs(inner, distance2, features=1.0))

    array = jax.ShapeDtypeStruct((2, 3), jax.dtypes.canonicalize_dtype(dtype))
    one = [jax.ShapeDtypeStruct((), leaf.dtype) for leaf in leaves]
    check_shape(f"kernel {type(stacked).__name__}", "value", array, value, array, one)


def positive(name: str, values, shape: tuple[int, ...], dtype, *, zero: bool = False) -> jax.Array:
    """An array of this shape from values of this shape, or from one number for all entries.

    Args:
        name: for errors.
        values: may be traced; then nothing is known of them.
        shape: of the result.
        dtype: of the result.
        zero: whether 0 is allowed, too.

    Raises:
        ValueError: a value that is not finite or not above 0.
    """
    if isinstance(values, Tracer):
        return jnp.broadcast_to(values.astype(dtype), shape)
    values = _sparse.dense(values, name).astype(dtype)  # with NumPy nothing has to be compiled
    wrong = values[~(np.isfinite(values) & ((values > 0) | (zero & (values == 0))))]
    if wrong.size:
        raise ValueError(f"{name}: expected a number {'from' if zero else 'above'} 0, got {wrong.ravel()[0]}")
    return jnp.asarray(np.broadcast_to(values, shape))
