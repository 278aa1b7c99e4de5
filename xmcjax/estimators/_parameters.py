"""Checks of arguments: each error is one sentence that names the argument."""

from __future__ import annotations

import numbers

from xmcjax._cores import usable_cores


def whole_number(name: str, value, least: int) -> int:
    """`value` as an int.

    Raises:
        TypeError: not a whole number, such as 2.5, "a" or True.
        ValueError: below `least`.
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")
    return int(value)


def number(name: str, value) -> float:
    """`value` as a float; TypeError where it is not a real number."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    return float(value)


def thread_count(value) -> int:
    """Argument ``threads``: from 1, or None for as many as this process has cores."""
    return usable_cores() if value is None else whole_number("threads", value, 1)


def chosen(name: str, value, table: dict, base: type):
    """The entry of `table` with that name, or `value` itself where it is a `base`.

    Raises:
        ValueError: a name that is not in the table.
        TypeError: neither a name nor a `base`.
    """
    if isinstance(value, base):
        return value
    if not isinstance(value, str):
        raise TypeError(
            f"{name}: expected one of {', '.join(table)}, or an object of {base.__name__}, got {value!r}"
        )
    if value not in table:
        raise ValueError(f"{name}: expected one of {', '.join(table)}, got {value!r}")
    return table[value]
