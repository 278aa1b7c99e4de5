"""The problems of dual ascent over instances: features, classes, sets and their radii."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from xmcjax import _platform, _sparse
from xmcjax._arguments import name_of
from xmcjax._fork import check_threads_of_jax
from xmcjax._labels import row_weights
from xmcjax._platform import committed_to_host, host_bound
from xmcjax._pytrees import is_traced, pytree
from xmcjax._range import check_range, check_squared_norms
from xmcjax._sizes import repeated, rows_behind
from xmcjax.linops import NO_NATIVE, Csr, Dense, LinOp, check_operator, make, native_ready, put
from xmcjax.native import InPlace
from xmcjax.solvers import _instance_twin as twin
from xmcjax.solvers._formulations import SETS, Formulation, smoothed


@pytree(data_fields=["K"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Gram:
    """Features that are known by their inner products K [n, n] only, symmetric and semi-definite.

    Example:
        >>> K = jnp.array([[1.0, 0.5], [0.5, 1.0]])
        >>> problem(Gram(K), [0, 1], set_name="box", bound=np.ones((1, 2))).lanes
        1
    """

    K: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.K.shape

    @property
    def dtype(self):
        return self.K.dtype


@pytree(
    data_fields=["op", "y", "squared_norms", "bound", "k", "gamma", "rows"],
    meta_fields=["classes", "set_name", "known_k", "smooth"],
)
@dataclasses.dataclass(frozen=True)
class Problem:
    """Problems over one feature matrix and one vector of classes; made by :func:`problem`.

    Attributes:
        op: the features.
        y: the class of each instance, int32 [n].
        squared_norms: ‖x_i‖², [n].
        bound: r, [lanes, n].
        k: int32 [lanes].
        gamma: smoothing of the losses, [lanes]; 0 for none.
        rows: the features as rows for the twin; None where an epoch is a native call.
        classes: m.
        set_name: of :data:`xmcjax.solvers._formulations.SETS`.
        known_k: k of each lane when the twin is traced, whose projections need it; None for native calls.
        smooth: whether any gamma is above 0.

    Example:
        >>> from xmcjax import linops
        >>> op = linops.make(np.float32([[1, 0], [0, 1], [1, 1]]))
        >>> bounds = np.array([[1.0], [10.0]])  # two values of C, a lane each
        >>> made = problem(op, [0, 1, 2], set_name="topk_alpha", bound=bounds, k=[1, 2])
        >>> made.lanes, made.classes, made.k.tolist()
        (2, 3, [1, 2])
    """

    op: LinOp | Gram
    y: jax.Array
    squared_norms: jax.Array
    bound: jax.Array
    k: jax.Array
    gamma: jax.Array
    rows: Any  # of twin.Rows, or None
    classes: int
    set_name: str
    known_k: tuple[int, ...] | None
    smooth: bool

    @property
    def formulation(self) -> Formulation:
        """The formulation of all lanes, without a smoothing."""
        return SETS[self.set_name]

    def smoothed(self, gamma) -> Formulation:
        """The formulation of a lane with this smoothing."""
        return smoothed(self.set_name, gamma) if self.smooth else self.formulation

    @property
    def lanes(self) -> int:
        return self.bound.shape[0]


# Number of classes from which on blocks are longer.
_MANY_CLASSES = 64


@pytree(
    data_fields=["tol", "max_epochs"],
    meta_fields=["block", "sweeps", "threads"],
)
@dataclasses.dataclass(frozen=True)
class HParams:
    """Hyperparameters of the method.

    Attributes:
        tol: a lane has converged when P − D ≤ tol · P.
        max_epochs: of a lane.
        block: instances whose scores come from one product; None: 96, and 128 from 64 classes on, where
            products among rows cost little beside the scores.
        sweeps: visits to each instance of a block; 1 is Algorithm 1 as it stands.
        threads: of the native call, which gives whole lanes to threads.

    Raises:
        ValueError: block, sweeps or threads that are no whole numbers of at least 1, or max_epochs of
            2³¹ or more.

    The native call takes the rows of a sparse matrix one by one: block and sweeps are 1 there.

    Example:
        >>> HParams(tol=1e-4).max_epochs
        1000
    """

    tol: float = 1e-3
    max_epochs: int = 1000
    block: int | None = None
    sweeps: int = 4
    threads: int = 1

    def __post_init__(self):
        for name in ("block", "sweeps", "threads"):
            value = getattr(self, name)
            if name == "block" and value is None:
                continue
            if not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"expected {name} as a whole number of at least 1, got {value!r}")
        most = np.iinfo(np.int32).max
        if isinstance(self.max_epochs, int) and self.max_epochs > most:
            raise ValueError(f"expected max_epochs of at most {most}, got {self.max_epochs}")

    def block_for(self, classes: int) -> int:
        """Instances whose scores come from one product, with `classes` classes."""
        return self.block or (128 if classes >= _MANY_CLASSES else 96)

    def _replace(self, **changes) -> HParams:
        """With other numbers, as hyperparameters that are named tuples have it."""
        return dataclasses.replace(self, **changes)


@host_bound
def problem(
    op: LinOp | Gram,
    y,
    *,
    set_name: str,
    bound,
    k: np.typing.ArrayLike = 1,
    gamma: ArrayLike = 0.0,
    classes: int | None = None,
    backend: str = "auto",
) -> Problem:
    """Checks the parts of a :class:`Problem` and gives them their dtypes and shapes.

    Args:
        op: features of :func:`xmcjax.linops.make`, or a :class:`Gram`.
        y: whole numbers from 0 below the number of classes, [n].
        set_name: "topk_alpha", "topk_beta", "topk_entropy" or "box".
        bound: r ≥ 0, a number, [lanes, 1] or [lanes, n].
        k: a whole number or [lanes], from 1 to classes − 1.
        gamma: smoothing γ ≥ 0 of the losses, a number or [lanes]; 0 (default) for none. With γ > 0 the loss
            is max {⟨x, h⟩ − γ/2 ‖x‖²} over the set of radius 1.
        classes: the number of classes m; None for the largest of y plus one.
        backend: "native"; "jnp", epochs in plain JAX where the operator is; "auto", native where the library
            is built. Unless it is "jnp", the problem is on the CPU, whatever the default device.

    Raises:
        ValueError: an unknown set, shapes that do not match, classes or k out of range, a negative
            or infinite bound or gamma, or one outside of the range of the dtype, rows whose squares overflow,
            native calls asked for where there are none.
        TypeError: classes or k that are no whole numbers, inner products of another dtype, features that
            are no operator.

    Example:
        >>> from xmcjax import linops
        >>> op = linops.make(np.float32([[1, 0], [0, 1], [1, 1]]))
        >>> problem(op, [0, 1, 2], set_name="topk_alpha", bound=np.ones((1, 3)), k=2).classes
        3
    """
    if not isinstance(op, Gram):
        check_operator(op)
    check_threads_of_jax()
    name_of("set_name", set_name, SETS)
    check_inner_products(op)
    n = op.shape[0]
    y, m = checked_classes(y, (n,), classes)
    bound, k, gamma = _checked_lanes(bound, k, gamma, n, m, np.dtype(op.dtype), set_name)
    lanes = max(bound.shape[0], len(k), len(gamma))
    if is_traced(op):
        raise _sparse.traced("op")
    if backend != "jnp":
        op = _of_the_host(op)
    native = _native(op, backend)
    squared_norms = _squared_norms(op, native)
    check_squared_norms(squared_norms)
    rows = None
    if not native:
        rows = twin.GramRows(op.K) if isinstance(op, Gram) else twin.rows_of(op)
    made = Problem(
        op=op,
        y=put(y.astype(np.int32)),
        squared_norms=squared_norms,
        bound=put(np.broadcast_to(bound, (lanes, n)).astype(op.dtype)),
        k=put(np.broadcast_to(k, lanes).astype(np.int32)),
        gamma=put(np.broadcast_to(gamma, lanes).astype(op.dtype)),
        rows=rows,
        classes=m,
        set_name=set_name,
        known_k=None if native else tuple(np.broadcast_to(k, lanes).tolist()),
        smooth=bool(np.any(gamma > 0)),
    )
    return made if backend == "jnp" else committed_to_host(made)


def _checked_lanes(bound, k, gamma, n: int, m: int, dtype: np.dtype, set_name: str) -> tuple[np.ndarray, ...]:
    """The bounds [lanes or 1, n or 1] of :func:`problem`, and k and γ, [lanes or 1] each."""
    k = _sparse.array(k, "k")
    if not np.issubdtype(k.dtype, np.integer):
        raise TypeError(f"expected k as whole numbers, got {k.dtype}")
    bound = _sparse.numbers(bound, "bound")
    bound = bound.reshape(1, 1) if bound.ndim == 0 else bound
    k = k.reshape(1) if k.ndim == 0 else k
    if bound.ndim != 2 or k.ndim != 1 or bound.shape[1] not in (1, n):
        got = f"{list(bound.shape)} and {list(k.shape)}"
        raise ValueError(f"expected a bound [lanes, 1] or [lanes, {n}] and k [lanes], got {got}")
    gamma = _sparse.numbers(gamma, "gamma")
    gamma = gamma.reshape(1) if gamma.ndim == 0 else gamma
    if gamma.ndim != 1 or not np.all(np.isfinite(gamma) & (gamma >= 0)):
        raise ValueError(f"gamma: expected finite numbers of at least 0, one or [lanes], got {gamma}")
    lanes = max(bound.shape[0], len(k), len(gamma))
    if {bound.shape[0], len(k)} - {1, lanes}:
        raise ValueError(f"expected bound and k for the same lanes, got {bound.shape[0]} and {len(k)}")
    if SETS[set_name].smooth and np.any(gamma > 0):
        raise ValueError(f"gamma: expected 0 for {set_name}, which is smooth by itself, got {gamma.max()}")
    if len(gamma) not in (1, lanes):
        raise ValueError(f"gamma: expected one number or one for each of {lanes} lanes, got {len(gamma)}")
    if not np.all(np.isfinite(bound) & (bound >= 0)):
        raise ValueError(
            f"expected finite bounds of at least 0, found {bound[~(bound >= 0) | np.isinf(bound)][0]}"
        )
    if np.any(k < 1) or np.any(k >= m):
        raise ValueError(
            f"expected k from 1 to {m - 1}, the number of classes less one, got {k[(k < 1) | (k >= m)][0]}"
        )
    check_range("expected bounds of 0 or", bound[bound > 0], dtype)
    check_range("expected gamma of 0 or", gamma[gamma > 0], dtype)
    if np.any(gamma > 0):
        ridge = gamma[:, None] / np.where(bound > 0, bound, 1)
        check_range("expected gamma / bound of 0 or", ridge[ridge > 0], dtype)
    return bound, k, gamma


def _squared_norms(op: LinOp | Gram, native: bool) -> jax.Array:
    """‖x_i‖², [n]; on the host without a program for each size, unless there are many numbers."""
    if isinstance(op, Gram):
        return put(np.diagonal(np.asarray(op.K))) if native else jnp.diagonal(op.K)
    if native and isinstance(op, Csr):
        out, ones = np.zeros((op.shape[0], 1), op.dtype), np.ones((op.shape[1], 1), op.dtype)
        value, column, offset = (np.asarray(a) for a in op.arrays)
        squares = value * value, column, offset
        InPlace.once("csr_matmat", X=squares, V=ones, threads=op.threads, out=out)
        return put(out[:, 0])
    if native and isinstance(op, Dense) and (behind := rows_behind(op.shape)):
        filled = Dense(put(repeated(np.asarray(op.X), behind)))
        return put(np.asarray(filled.row_norms2())[: op.shape[0]])
    return op.row_norms2()


def _of_the_host(op: LinOp | Gram) -> LinOp | Gram:
    """Features or inner products where native calls take them: instances are visited one after another."""
    if _platform.default_backend() == "cpu" or not native_ready():
        return op
    if isinstance(op, Gram | Dense):
        return committed_to_host(op)
    return op if isinstance(op, Csr) and op.native else make(op.to_scipy(), backend="native")  # type: ignore[attr-defined]


def _native(op: LinOp | Gram, backend: str) -> bool:
    """Whether an epoch is a native call."""
    if backend not in ("auto", "native", "jnp"):
        raise ValueError(f"expected a backend of auto, native, jnp, got {backend!r}")
    ready = op.native if isinstance(op, Csr) else native_ready()
    if backend == "native" and not ready:
        raise ValueError(NO_NATIVE)
    return ready and backend != "jnp"


def check_inner_products(op: LinOp | Gram) -> None:
    """Raises where inner products are not square, or of another dtype; features pass."""
    if isinstance(op, Gram):
        if len(op.shape) != 2 or op.shape[0] != op.shape[1]:
            raise ValueError(f"expected a square matrix of inner products, got {list(op.shape)}")
        if op.dtype not in (np.float32, np.float64):
            raise TypeError(f"expected inner products of float32 or float64, got {op.dtype}")


def checked_classes(y, shape: tuple[int, ...], classes: int | None) -> tuple[np.ndarray, int]:
    """The classes of rows, whole numbers of this shape whose last axis is the rows, and how many there are.

    Raises:
        TypeError, ValueError: see :func:`problem`.
    """
    y = _sparse.array(y, "y")
    if not np.issubdtype(y.dtype, np.integer):
        raise TypeError(f"expected classes as whole numbers, got {y.dtype}")
    if y.shape != shape:
        raise ValueError(f"expected a class for each of {shape[-1]} rows, got {list(y.shape)}")
    if y.size == 0:
        raise ValueError("expected at least one row, got none")
    try:
        m = int(y.max()) + 1 if classes is None else operator.index(classes)
    except TypeError:
        raise TypeError(f"expected the number of classes as a whole number, got {classes!r}") from None
    if m < 2:
        raise ValueError(f"expected at least two classes, got {m}")
    if y.min() < 0 or y.max() >= m:
        wrong = tuple(np.argwhere((y < 0) | (y >= m))[0])
        raise ValueError(f"expected classes from 0 to {m - 1}, found {y[wrong]} for row {wrong[-1]}")
    return y, m


def bounds_of_lanes(C, weight, mask, n: int) -> np.ndarray:
    """C s_i of each row and lane, 0 for rows that are left out, [lanes, n] or [lanes, 1].

    Args:
        C: weight of the losses, above 0; a number or [lanes].
        weight: s ≥ 0 of the rows, [n]; None for ones.
        mask: whether a row belongs to the problem, [n] or [lanes, n]; None takes all.
        n: number of rows.

    Raises:
        ValueError, TypeError: other numbers or shapes.
    """
    C = _sparse.numbers(C, "C")
    if C.ndim > 1 or not np.all(np.isfinite(C) & (C > 0)):
        raise ValueError(f"expected C above 0 and finite, a number or [lanes], got {C}")
    bound = C.reshape(-1, 1)
    if weight is not None:
        bound = bound * row_weights(weight, n)
    if mask is not None:
        mask = _sparse.array(mask, "mask")
        if mask.dtype != bool:
            raise TypeError(f"expected a boolean mask, got {mask.dtype}")
        if mask.ndim not in (1, 2) or mask.shape[-1] != n:
            raise ValueError(f"expected a mask [{n}] or [lanes, {n}], got {list(mask.shape)}")
        mask = mask.reshape(-1, n)
        if len(mask) != len(bound) and 1 not in (len(mask), len(bound)):
            raise ValueError(f"expected C and mask for the same lanes, got {len(bound)} and {len(mask)}")
        bound = bound * mask
    return bound
