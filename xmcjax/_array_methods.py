"""Formulas that are methods of a class, and take what NumPy makes an array of."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from xmcjax import _sparse
from xmcjax._fork import wrap_methods

C = TypeVar("C", bound=type)


def methods_take_arrays(cls: C) -> C:
    """The class, whose public methods get arrays for lists, and all arrays in the byte order of this machine.

    Args:
        cls: the methods that it defines itself count, not those that it inherits.
    """
    return wrap_methods(cls, _taking_arrays)


def _taking_arrays(method: Callable) -> Callable:
    _, *names = inspect.signature(method).parameters

    @functools.wraps(method)
    def taking(self: Any, *values: Any, **options: Any) -> Any:
        values = (*map(_array, values[: len(names)], names), *values[len(names) :])
        return method(self, *values, **{name: _array(value, name) for name, value in options.items()})

    return taking


def _array(value: Any, name: str) -> Any:
    """An array of real numbers where a list is given; a traced or a single number is left as it is.

    Raises:
        TypeError, ValueError: a list of anything else, or of rows of different length.
    """
    return _sparse.dense(value, name) if isinstance(value, (list, tuple)) else _sparse.in_byte_order(value)
