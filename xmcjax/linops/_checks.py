"""Checks of a matrix of features before it reaches a solver."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from xmcjax import _sparse
from xmcjax._finite import place_not_finite


def check_features(X) -> None:
    """Raises ValueError naming the first value of X that is not finite, or what is malformed in X.

    Example:
        >>> check_features(np.ones((2, 3)))
        >>> try:
        ...     check_features(np.array([[1.0, np.inf]]))
        ... except ValueError as error:
        ...     print(error)
        expected finite features, found inf in row 0, column 1 of X
    """
    X = _sparse.matrix(X)
    if X.ndim != 2:
        raise ValueError(f"X: expected a matrix [n, d], found {X.ndim} dimension(s)")
    place = place_not_finite(X)
    if place is not None:
        row, column, value = place
        found = "NaN" if np.isnan(value) else value
        raise ValueError(f"expected finite features, found {found} in row {row}, column {column} of X")


def real_array(name: str, value, *, finite: bool = False, least: float = -np.inf) -> jax.Array | np.ndarray:
    """`value` itself where it is an array of JAX, which may be traced, else an array of real numbers.

    Args:
        name: of the argument, for the sentence.
        value: numbers in any form.
        finite: whether the numbers are looked at. Those of an array that is traced, or that other processes
            hold in part, are not known here and pass.
        least: of the numbers, where it is given; likewise.

    Raises:
        TypeError: values that are no real numbers, or a masked array.
        ValueError: rows of different length; where `finite`, numbers that are not; numbers below `least`.

    Example:
        >>> real_array("C", [1.0, 2.0]).tolist()
        [1.0, 2.0]
    """
    if isinstance(value, jax.Array):
        array = value
        if not (jnp.issubdtype(value.dtype, jnp.number) or value.dtype == bool) or jnp.iscomplexobj(value):
            raise _sparse.no_numbers(name, f"values of type {value.dtype}", "an array")
        known = None if isinstance(value, Tracer) or not value.is_fully_addressable else value
    else:
        array = known = _sparse.dense(value, name)
    # as an array of NumPy: within a transformation, an operation of JAX on known numbers is traced too
    if finite and known is not None and not np.isfinite(np.asarray(known)).all():
        raise ValueError(f"{name}: expected finite numbers, found NaN or infinity")
    if least > -np.inf and known is not None:
        wrong = (values := np.asarray(known))[~(values >= least)]
        if wrong.size:
            raise ValueError(f"{name}: expected numbers from {least:g}, found {wrong[0]}")
    return array


def computed_dtype(dtype) -> np.dtype:
    """float32 or float64; float32 in place of float64 where JAX has no 64-bit numbers.

    Raises:
        TypeError: another dtype.

    Example:
        >>> computed_dtype("float32")
        dtype('float32')
    """
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found is None or found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype: expected float32 or float64, got {dtype!r}")
    return np.dtype(jax.dtypes.canonicalize_dtype(found))


def check_operator(op) -> None:
    """Raises TypeError where features are not an operator, such as a matrix that has not been checked.

    Example:
        >>> try:
        ...     check_operator(np.eye(2))
        ... except TypeError as error:
        ...     print(error)
        expected features of xmcjax.linops.make, got ndarray
    """
    if not hasattr(op, "matmat"):
        raise TypeError(f"expected features of xmcjax.linops.make, got {type(op).__name__}")


def canonical_csr(X):
    """A matrix of scipy.sparse, of any kind, as checked CSR whose rows have each column once, in order.

    Raises:
        TypeError, ValueError: as :func:`xmcjax._sparse.csr`; more rows or columns than 32 bits number.
    """
    X = _sparse.canonical_csr(X)  # the squares of duplicates are not the square of their sum
    for many, what in zip(X.shape, ("rows", "columns"), strict=True):
        if many > np.iinfo(np.int32).max:
            raise ValueError(f"expected at most 2^31-1 {what}, got {many}")
    return X
