"""Checks of arguments: each error is one sentence that names the argument."""

from __future__ import annotations

import functools
import numbers
import sys
from collections.abc import Iterable

import numpy as np

from xmcjax._cores import usable_cores

# The largest whole number that a compiled program takes.
_MOST = 2**31 - 1
# Most threads that may be asked for: no machine has more.
MOST_THREADS = 1 << 14


def whole_number(name: str, value, least: int, most: int = _MOST) -> int:
    """`value` as an int.

    Raises:
        TypeError: not a whole number, such as 2.5, "a" or True.
        ValueError: below `least`, or above `most`.
    """
    value = _without_axes(value)
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    whole = int(value)
    if whole < least:
        raise ValueError(f"{name}: expected at least {least}, got {whole}")
    if whole > most:
        raise ValueError(f"{name}: expected at most {most}, got {whole}")
    return whole


def number(name: str, value) -> float:
    """`value` as a float.

    Raises:
        TypeError: not a real number.
        ValueError: a whole number beyond the range of a float.
    """
    value = _without_axes(value)
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: expected a number within the range of float64, got {value}") from None


def number_from_0(name: str, value) -> float:
    """:func:`number` of a value that is not below 0; ValueError where it is, or is NaN."""
    if not (found := number(name, value)) >= 0:
        raise ValueError(f"{name}: expected a number from 0, got {found}")
    return found


def _without_axes(value):
    """The number in an array without axes, which `jax.tree.map` may make of one; else the value."""
    if not isinstance(value, np.ndarray):
        jax = sys.modules.get("jax")
        if jax is None or not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
            return value
    return value.item() if value.ndim == 0 else value


def flag(name: str, value) -> bool:
    """`value` as a bool; TypeError where it is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def thread_count(value) -> int:
    """A number of threads from 1, or None for as many as this process has cores."""
    return usable_cores() if value is None else whole_number("threads", value, 1, MOST_THREADS)


def job_count(value, name: str = "n_jobs") -> int:
    """Threads that scikit-learn's ``n_jobs`` asks for: None is 1, −1 one per core, −2 all cores but one.

    Raises:
        TypeError: not a whole number.
        ValueError: 0, or more than any machine has.
    """
    if value is None:
        return 1
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name}: expected a whole number of threads, or -1 for one per core, got {value!r}")
    count = int(value)
    if count < 0:
        return max(1, usable_cores() + 1 + count)
    if count == 0 or count > MOST_THREADS:
        raise ValueError(
            f"{name}: expected from 1 to {MOST_THREADS} threads, or -1 for one per core, got {count}"
        )
    return count


def refuse_renamed(function, names: dict[str, str], given: Iterable[str]) -> None:
    """Checks that no argument that was given to a function has an old name.

    Args:
        function: for the error; a constructor counts as its class.
        names: the new name of each old one, or a few words about it.
        given: names of arguments.

    Raises:
        TypeError: one has an old name; the message gives the new one.
    """
    given = set(given)
    if found := [f"the argument {old} is now {new}" for old, new in names.items() if old in given]:
        where = function.__qualname__.removesuffix(".__init__")
        raise TypeError(f"{where}: {', '.join(found)}")


def renamed(**names: str):
    """Decorates a function: an argument of an old name is refused in a sentence that gives the new one.

    Args:
        names: as for :func:`refuse_renamed`.
    """

    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            refuse_renamed(function, names, kwargs)
            return function(*args, **kwargs)

        call.renamed = names  # type: ignore[attr-defined]
        return call

    return decorate


def renamed_functions(module: str, **names: str):
    """The ``__getattr__`` of a module, some functions of which have other names now.

    Args:
        module: its name.
        names: the new name of each old one.
    """

    def attribute(name: str):
        if name in names:
            raise AttributeError(f"{module}.{name} is called {names[name]} now, with the same arguments")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return attribute


def name_of(name: str, value, names: Iterable[str]) -> str:
    """`value`, which is one of `names`.

    Raises:
        TypeError: not a text.
        ValueError: another text.
    """
    names = tuple(names)
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected one of {', '.join(names)}, got {value!r}")
    if value not in names:
        raise ValueError(f"{name}: expected one of {', '.join(names)}, got {value!r}")
    return value


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
    return table[name_of(name, value, table)]


def instance(name: str, value, base: type):
    """`value`; TypeError where it is no `base`."""
    if not isinstance(value, base):
        raise TypeError(f"{name}: expected an object of {base.__name__}, got {value!r}")
    return value


_KINDS = {"i": "numbers", "u": "numbers", "f": "numbers", "b": "truth values", "M": "dates", "m": "durations"}


def kind_of(classes: np.ndarray) -> str:
    """The kind of some classes; only classes of one kind may be compared: True is not 1, nor is "1"."""
    if classes.dtype == object:
        kinds = sorted({_kind_of_one(value) for value in classes})
        return " and ".join(kinds) if kinds else "texts"
    return _KINDS.get(classes.dtype.kind, "texts")


def _kind_of_one(value) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "truth values"
    if isinstance(value, numbers.Real):
        return "numbers"
    return "texts" if isinstance(value, (str, bytes)) else f"objects of type {type(value).__name__}"


def of_one_dtype(*classes: np.ndarray) -> list[np.ndarray]:
    """Classes that may be compared, in one dtype, which for whole numbers of two kinds is not float64."""
    dtype = np.concatenate([part[:0] for part in classes]).dtype
    if dtype.kind == "f" and all(part.dtype.kind in "iub" for part in classes):  # int64 beside uint64
        dtype = np.dtype(object)
        for whole in (np.int64, np.uint64):
            limits = np.iinfo(whole)
            filled = [part for part in classes if part.size]
            if all(limits.min <= int(part.min()) and int(part.max()) <= limits.max for part in filled):
                dtype = np.dtype(whole)
                break
    return [part.astype(dtype, copy=False) for part in classes]
