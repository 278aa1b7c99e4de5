"""Weights of rows as users give them."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real

import numpy as np

from xmcjax import _sparse


def weight_numbers(weight) -> np.ndarray:
    """Sample weights as float64, those among objects too, as a column of a data frame may have them.

    Raises:
        TypeError: no array of real numbers, such as texts or None.
        ValueError: rows of different length; a number beyond the range of float64.
    """
    _sparse.refuse_no_array(weight, "sample_weight")
    array = _sparse.array(weight, "sample_weight")
    if array.dtype != object or (array.ndim == 0 and not isinstance(weight, np.ndarray)):
        return _sparse.numbers(weight, "sample_weight")
    others = (type(one).__name__ for one in array.flat if not _is_real(one))
    found = next(others, None)
    if found is not None:
        raise _sparse.no_numbers("sample_weight", f"values of type {found}", "an array")
    try:
        with np.errstate(over="raise"):
            return array.astype(np.float64)
    except (OverflowError, FloatingPointError):
        raise ValueError("sample_weight: expected numbers within the range of float64") from None
    except ValueError:  # of a signaling NaN, which no float is
        raise ValueError("sample_weight: expected numbers that float64 has, found sNaN") from None


def _is_real(one) -> bool:
    """Whether it is a real number; a time span of NumPy is a signed integer to Python."""
    return isinstance(one, (Real, np.bool_, Decimal)) and not isinstance(one, np.timedelta64)
