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


def check_arrays(op, product: str, **arrays) -> None:
    """Raises ValueError where an array of a product is not in the dtype of the operator and of its rows.

    Args:
        op: X, [n, d].
        product: its name, for the sentence.
        arrays: V, of d rows; C or D, of n rows. All have the same number of columns.

    Raises:
        TypeError: something that is no array.

    Example:
        >>> from xmcjax import linops
        >>> try:
        ...     check_arrays(linops.make(np.eye(2, 3, dtype=np.float32)), "matmat", V=np.float32([1, 2, 3]))
        ... except ValueError as error:
        ...     print(error)
        matmat: expected V as float32 [3, lanes], found float32 [3]
    """
    lanes = None
    for name, a in arrays.items():
        rows = op.shape[1 if name == "V" else 0]
        expected = f"{product}: expected {name} as {op.dtype} [{rows}, {'lanes' if lanes is None else lanes}]"
        if not isinstance(a, jax.Array | np.ndarray):
            raise TypeError(f"{expected}, found {type(a).__name__}")
        dtype = jax.dtypes.canonicalize_dtype(a.dtype) if a.dtype == np.float64 else a.dtype
        # kernels would read beyond the end, and a gather in JAX repeat the last row
        if dtype != op.dtype or a.ndim != 2 or a.shape[0] != rows or lanes not in (None, a.shape[1]):
            raise ValueError(f"{expected}, found {a.dtype} {list(a.shape)}")
        lanes = a.shape[1]


def checked_places(op, places, other) -> jax.Array:
    """Places of rows of an operator, int32 [p], for their inner products with the rows of another one.

    Raises:
        TypeError: places that are no vector of whole numbers.
        ValueError: rows that have no inner products, or places without a row, unless JAX traces the places.
    """
    given, places = places, jnp.asarray(places)
    if places.ndim != 1 or not jnp.issubdtype(places.dtype, jnp.integer):
        found = f"{places.dtype} {list(places.shape)}"
        raise TypeError(f"inner: expected places of rows as whole numbers [p], found {found}")
    if (other.dtype, other.shape[1]) != (op.dtype, op.shape[1]):
        expected = f"inner: expected rows of {op.dtype} [m, {op.shape[1]}]"
        raise ValueError(f"{expected}, found {other.dtype} {list(other.shape)}")
    if not isinstance(places, Tracer):
        given = np.asarray(given)  # JAX may have cut 64 bits to 32
        outside = given[(given < 0) | (given >= op.shape[0])]
        if outside.size:
            expected = f"inner: expected places of rows from 0 to {op.shape[0] - 1}"
            raise ValueError(f"{expected}, found {outside[0]}")
    return places.astype(jnp.int32)


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
