"""The problems of :mod:`xmcjax.solvers.admm`: features in a basis where the system is a diagonal."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.typing import ArrayLike

from xmcjax import _sparse
from xmcjax._arguments import name_of, whole_number
from xmcjax._finite import place_not_finite
from xmcjax._fork import check_threads_of_jax
from xmcjax._pytrees import is_traced, pytree
from xmcjax._range import check_range, check_squared_norms
from xmcjax.linops import LinOp, check_operator, host_features
from xmcjax.solvers._admm_dense import basis_of
from xmcjax.solvers._formulations import NAMES, Formulation
from xmcjax.solvers._host_loop import abandonable
from xmcjax.solvers._instance_problem import Gram, bounds_of_lanes, check_inner_products, checked_classes

#: Formulations that :func:`problem` takes.
LOSSES = ("ww", "cs", "llw", "ovr", "ovr_squared", "topk_alpha", "topk_beta")
# _MOST: number of rows or features, whichever are fewer, up to which there is a basis. _BYTES: size that the
# features may have as an array of float64.
_MOST, _BYTES = 8192, 4 << 30
# A negative eigenvalue of inner products counts as rounding up to this part of the largest eigenvalue.
_ASIDE = 1e-4


@pytree(
    data_fields=["op", "features", "eigenvalue", "rotation", "y", "bound", "members"],
    meta_fields=["classes", "name", "k"],
)
@dataclasses.dataclass(frozen=True)
class Problem:
    """Problems over one feature matrix; made by :func:`problem`.

    Attributes:
        op: the features or the inner products, as they were given.
        features: X̃ [n, r], of which X̃ᵀX̃ is a diagonal.
        eigenvalue: that diagonal, [r].
        rotation: W = rotation W̃, [d, r]; with inner products it gives coefficients of the rows, [n, r].
        y: the class of each row, int32 [lanes, n].
        bound: C s_i of the rows, 0 for those that are left out, [lanes, n].
        members: whether a lane has a class, [lanes, m]; None where every lane has every class.
        classes: m.
        name: of the formulation.
        k: of the top-k losses; 1 for the others.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> lanes = admm.problem(linops.make(np.eye(3, dtype=np.float32)), [0, 1, 2], C=[0.1, 1.0])
        >>> lanes.lanes, lanes.formulation.name
        (2, 'ww')
    """

    op: LinOp | Gram
    features: jax.Array
    eigenvalue: jax.Array
    rotation: jax.Array
    y: jax.Array
    bound: jax.Array
    members: jax.Array | None
    classes: int
    name: str
    k: int

    @property
    def formulation(self) -> Formulation:
        return NAMES[self.name]

    @property
    def lanes(self) -> int:
        return self.bound.shape[0]


def problem(
    op: LinOp | Gram,
    y,
    *,
    formulation: str = "ww",
    C: ArrayLike = 1.0,
    k: int = 1,
    weight=None,
    mask=None,
    members=None,
    classes: int | None = None,
) -> Problem:
    """Makes the problem whose lanes are a grid of C, the folds of a cross-validation, or sets of classes.

    Lane l solves, over the rows i of its mask whose class is one of its members,

    .. math:: \\min_W ½ ‖W‖² + C_l Σ_i s_i φ(1 + \\mathrm{linear}(Wᵀ x_i))

    with the gains and the loss φ of the formulation: eqs. (2) to (5) of Alber et al. 2017 and (3) and (5) of
    Lapin et al. 2015, as `MulticlassSVC` and `TopKSVC` have them. All lanes share
    one eigendecomposition, of XᵀX or of the inner products of the rows, whichever is smaller; it is worked
    out here, in float64 on the host, and therefore outside of jit, vmap and grad.

    Args:
        op: features of :func:`xmcjax.linops.make` [n, d], or inner products, as
            :class:`xmcjax.solvers.instance_dual.Gram`. Sparse ones are made dense.
        y: whole numbers from 0 below the number of classes, [n] or [lanes, n].
        formulation: "ww" (Weston-Watkins, default), "cs" (Crammer-Singer), "llw" (Lee-Lin-Wahba), "ovr" or
            "ovr_squared" (one against the rest with the hinge or its square), "topk_alpha" or "topk_beta".
        C: weight of the losses, above 0; a number or [lanes].
        k: of the top-k losses, one whole number for all lanes, from 1 to the number of classes less one.
        weight: s ≥ 0 of the rows, [n]; None for ones.
        mask: whether a row belongs to the problem, [n] or [lanes, n]; None takes all.
        members: whether a class belongs to the problem, [m] or [lanes, m]; None takes all. Classes that do
            not belong have weights of 0.
        classes: the number of classes m; None for the largest of y plus one.

    Raises:
        ValueError: an unknown formulation; C, k, weight, classes or members out of range; shapes that do not
            match; rows whose squares overflow; inner products that are not finite or have a negative
            eigenvalue; more than 8,192 rows and features, or more than 4 GiB of features in float64.
        TypeError: k or classes that are no whole numbers, masks that are not boolean, features that are no
            operator, or that JAX traces.

    Example:
        >>> from xmcjax import linops
        >>> op = linops.make(np.float32([[1, 0], [0, 1], [1, 1]]))
        >>> lanes = problem(op, [0, 1, 2], formulation="topk_beta", k=2, C=[0.1, 1.0])
        >>> lanes.features.shape, lanes.bound.shape
        ((3, 2), (2, 3))
    """
    if not isinstance(op, Gram):
        check_operator(op)
    check_threads_of_jax()
    name_of("formulation", formulation, LOSSES)
    check_inner_products(op)
    n = op.shape[0]
    y = _sparse.array(y, "y")
    y, m = checked_classes(y, (len(y), n) if y.ndim == 2 else (n,), classes)
    k = whole_number("k", k, 1, m - 1)
    if k > 1 and not formulation.startswith("topk"):
        raise ValueError(f"k: expected 1 with the formulation {formulation}, got {k}")
    bound = bounds_of_lanes(C, weight, mask, n)
    y, belongs = np.atleast_2d(y), _members(members, m, k)
    parts = (("y", y), ("C and mask", bound)) + (() if belongs is None else (("members", belongs),))
    lanes = max(len(part) for _, part in parts)
    for name, part in parts:
        if len(part) not in (1, lanes):
            raise ValueError(f"expected {name} for {lanes} lanes, or for one, got {len(part)}")
    if belongs is not None:
        belongs = np.broadcast_to(belongs, (lanes, m))
        bound = bound * np.take_along_axis(belongs, np.broadcast_to(y, (lanes, n)), axis=1)
    dtype = np.dtype(op.dtype)
    check_range("expected bounds of 0 or", bound[bound > 0], dtype)
    features, eigenvalue, rotation = _in_basis(op)
    return Problem(
        op=op,
        features=jnp.asarray(features, dtype),
        eigenvalue=jnp.asarray(eigenvalue, dtype),
        rotation=jnp.asarray(rotation, dtype),
        y=jnp.asarray(np.broadcast_to(y, (lanes, n)), jnp.int32),
        bound=jnp.asarray(np.broadcast_to(bound, (lanes, n)), dtype),
        members=None if belongs is None else jnp.asarray(belongs),
        classes=m,
        name=formulation,
        k=k,
    )


def _members(members, m: int, k: int) -> np.ndarray | None:
    """The classes of lanes, [lanes, m]; None for all."""
    if members is None:
        return None
    members = _sparse.array(members, "members")
    if members.dtype != bool:
        raise TypeError(f"members: expected a boolean mask, got {members.dtype}")
    if members.ndim not in (1, 2) or members.shape[-1] != m or not len(members):
        raise ValueError(f"members: expected [{m}] or [lanes, {m}], got {list(members.shape)}")
    members = np.atleast_2d(members)
    fewest = int(members.sum(axis=1).min())
    if fewest <= max(k, 1):
        raise ValueError(f"members: expected at least {max(k, 1) + 1} classes in a lane, got {fewest}")
    return members


def _in_basis(op: LinOp | Gram) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X̃, its diagonal and the rotation, in float64."""
    if is_traced(op):
        raise _sparse.traced("op")
    size = min(op.shape)
    if size > _MOST or 8 * op.shape[0] * op.shape[1] > _BYTES:
        raise ValueError(
            f"expected at most {_MOST} rows or features and {_BYTES >> 30} GiB of them in float64, got "
            f"{op.shape[0]} rows of {op.shape[1]}: take another solver"
        )
    if isinstance(op, Gram):
        K = np.asarray(op.K, np.float64)
        if (place := place_not_finite(K)) is not None:
            row, column, found = place
            raise ValueError(
                f"expected finite inner products, found {found} in row {row}, column {column} of K"
            )
        values, U = abandonable(lambda: np.linalg.eigh((K + K.T) / 2))
        rounding = max(_ASIDE, len(K) * float(np.finfo(op.dtype).eps)) * np.abs(values).max()
        if values[0] < -rounding:
            raise ValueError(
                f"expected positive semidefinite inner products, found the eigenvalue {values[0]:.3g}"
            )
        there = values > float(np.finfo(op.dtype).eps) * values[-1]  # smaller ones are rounding of K
        root, U = np.sqrt(values[there]), U[:, there]
        return U * root, root**2, U / root
    X = host_features(op)
    check_squared_norms(np.asarray(op.row_norms2()))
    dense = X.toarray() if sp.issparse(X) else X
    basis = abandonable(lambda: basis_of(dense))
    return basis.part(slice(None)), basis.eigenvalue, basis.rotation
