"""A multi-class SVM to be solved."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import _sparse, linops
from xmcjax._arguments import MOST_THREADS, name_of, number, whole_number
from xmcjax._fork import needs_threads_of_jax
from xmcjax._platform import committed_to_host, on_host
from xmcjax._pytrees import pytree
from xmcjax._range import check_norms, check_range, check_squared_norms
from xmcjax.solvers._formulations import FORMULATIONS, Formulation
from xmcjax.solvers.multiclass_dual._row_slices import RowSlices, make_row_slices


@pytree(
    data_fields=["op", "rows", "y", "norms2", "C"],
    meta_fields=["classes", "formulation"],
)
@dataclasses.dataclass(frozen=True)
class MulticlassProblem:
    """One multi-class SVM over one feature matrix; made by :func:`multiclass_problem`.

    Attributes:
        op: the features as an operator, n rows of d.
        rows: the features row by row, which coordinate ascent needs; None without it.
        y: the class of each instance, int32 [n].
        norms2: ‖x_i‖², [n].
        C: weight of the losses, a number, or [n] with one for each row.
        classes: m.
        formulation: of ``FORMULATIONS``.

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers.multiclass_dual import multiclass_problem
        >>> isinstance(multiclass_problem(np.float32([[1, 0], [0, 1]]), [0, 1]), MulticlassProblem)
        True
    """

    op: linops.LinOp
    rows: RowSlices | None
    y: jax.Array
    norms2: jax.Array
    C: jax.Array
    classes: int
    formulation: Formulation

    @property
    def C_of_classes(self) -> jax.Array:
        """C as a number, or [n, 1]."""
        return self.C[:, None] if self.C.ndim else self.C


class Checked(NamedTuple):
    """The parts of a problem."""

    X: Any  #: CSR or an array, [n, d]
    y: np.ndarray  #: int32 [n]
    classes: int  #: m
    C: float | np.ndarray  #: a number, or float64 [n] where rows differ


def check_problem(X, y, formulation: str, C, classes: int | None = None) -> Checked:
    """Checks the parts of a problem, and returns them.

    Raises:
        ValueError: see :func:`multiclass_problem`.
    """
    name_of("formulation", formulation, FORMULATIONS)
    X, C = checked_features(X, C)
    y = _sparse.array(y, "y")
    if y.shape != (X.shape[0],):
        raise ValueError(f"expected {X.shape[0]} classes, one per row of X, got an array of shape {y.shape}")
    if not np.issubdtype(y.dtype, np.integer):
        raise ValueError(f"expected classes as whole numbers, got {y.dtype}")
    if y.min() < 0:
        row = int(np.argmax(y < 0))
        raise ValueError(f"expected classes 0 … m−1, found {y[row]} in row {row}")
    present = np.unique(y)
    if len(present) < 2 and classes is None:
        raise ValueError(f"expected at least two classes, found class {present[0]} alone")
    if classes is None:
        missing = present != np.arange(len(present))
        if missing.any():
            raise ValueError(
                f"expected classes 0 … {present[-1]}, found no row of class {np.argmax(missing)}"
            )
        classes = len(present)
    elif present[-1] >= whole_number("classes", classes, 2):
        raise ValueError(f"expected classes 0 … {classes - 1}, found {present[-1]}")
    return Checked(X, y.astype(np.int32), classes, C)


def checked_features(X, C, zeros: bool = False) -> tuple[Any, float | np.ndarray]:
    """Features, CSR or an array, and C, a number, or float64 [n] where the rows have different ones.

    Args:
        X, C: of :func:`multiclass_problem`.
        zeros: whether C may be 0 for some rows.

    Raises:
        TypeError, ValueError: see :func:`multiclass_problem`.
    """
    X = _sparse.matrix(X)
    if X.ndim != 2:
        raise ValueError(f"expected a matrix [n, d], got {X.ndim} dimensions")
    dtype = np.float64 if X.dtype == np.float64 else np.float32
    C = _checked_C(C, X.shape[0], dtype, zeros)
    linops.check_features(X)
    check_norms(X, dtype)
    return X, C


def _checked_C(C, n: int, dtype, zeros: bool) -> float | np.ndarray:
    """A number, or float64 [n] where the rows have different ones, of which some may be 0 if `zeros`."""
    if np.ndim(C if isinstance(C, (int, float)) else _sparse.array(C, "C")) == 0:
        if not 0 < number("C", C) < np.inf:
            raise ValueError(f"C: expected a finite number above 0, got {C}")
        check_range("C: expected a number", C, dtype)
        return float(C)
    of_rows = _sparse.numbers(C, "C")
    if of_rows.shape != (n,):
        raise ValueError(f"C: expected a number or one for each of {n} rows, got shape {list(of_rows.shape)}")
    wrong = np.flatnonzero(~(((of_rows > 0) | (zeros & (of_rows == 0))) & np.isfinite(of_rows)))
    if wrong.size:
        wanted = "finite numbers of at least 0" if zeros else "finite numbers above 0"
        further = "" if zeros else "; a row without a loss is left out"
        raise ValueError(f"C: expected {wanted}, found {of_rows[wrong[0]]} for row {wrong[0]}{further}")
    check_range("C: expected numbers", of_rows[of_rows > 0], dtype)
    return float(of_rows[0]) if np.all(of_rows == of_rows[0]) else of_rows


def check_limits(tol: float, max_epochs: int, threads: int = 1) -> None:
    """Checks when a solver stops, and on how many threads it runs.

    Raises:
        ValueError: `tol` not above 0, or less than one epoch or thread.
    """
    if not 0 < number("tol", tol) < np.inf:
        raise ValueError(f"tol: expected a finite number above 0, got {tol}")
    whole_number("max_epochs", max_epochs, 1)
    whole_number("threads", threads, 1, MOST_THREADS)


@needs_threads_of_jax
def multiclass_problem(
    X,
    y,
    *,
    formulation: str = "ww",
    C: float | np.ndarray = 1.0,
    classes: int | None = None,
    backend: str = "auto",
    threads: int = 1,
) -> MulticlassProblem:
    """Checks the parts of a :class:`MulticlassProblem` and puts them on the CPU, where there is one.

    Args:
        X: finite features [n, d], dense or scipy.sparse. Rows of zeros and equal rows are legal.
        y: the class of each row, whole numbers 0 … m−1, every one of them present where `classes` is None.
        formulation: "ww" (Weston-Watkins), "llw" (Lee-Lin-Wahba), "cs" (Crammer-Singer), "ovr" or
            "ovr_squared" (one against the rest with the hinge or its square).
        C: weight of the losses, above 0; a number, or one for each row, [n].
        classes: m, of which some may have no row; None for the number of those in y.
        backend, threads: of :func:`xmcjax.linops.make`.

    Raises:
        TypeError: X is no matrix of real numbers.
        ValueError: an unknown formulation; a malformed X; C not above 0, or outside the range of the dtype of
            X; a value of X that is not finite; rows whose squares overflow; classes that are not 0 … m−1, or
            fewer than two.

    Example:
        >>> multiclass_problem(np.float32([[1, 0], [0, 1]]), [0, 1], formulation="ww").classes
        2
    """
    X, y, classes, C = check_problem(X, y, formulation, C, classes)
    with on_host():  # because instances are visited one after another
        op = linops.make(X, backend=backend, threads=threads)
    norms2 = op.row_norms2()
    check_squared_norms(norms2)
    # an operator that is not dense is CSR
    found = op.X if isinstance(op, linops.Dense) else op.to_scipy()  # type: ignore[attr-defined]
    made = MulticlassProblem(
        op=op,
        rows=make_row_slices(found),
        y=jnp.asarray(y),
        norms2=norms2,
        C=jnp.asarray(C, op.dtype),
        classes=classes,
        formulation=FORMULATIONS[formulation],
    )
    return committed_to_host(made)
