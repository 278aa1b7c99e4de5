"""The arguments of a native call in order, and calls on arrays of NumPy, which are changed in place.

A call releases the GIL and runs in the thread that makes it. Calls through XLA
(:func:`xmcjax.native._ffi.call`) from two host threads would wait for each other in XLA's pool of threads,
and run on cores whose caches lack the data. Both kinds of calls run the same C++, which compares the arrays
with the declaration.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from xmcjax.native import _interrupts, _library
from xmcjax.native._schema import ARRAYS, CALLS, Field


class Arranged(NamedTuple):
    """The arguments of a call, in the order of its declaration."""

    read: list[Any]
    written: list[Any]  #: arrays that are changed in place and results; None for a result that was not given
    aliases: dict[int, int]  #: for each array changed in place, its place in `read` and in `written`
    options: dict[str, np.int64]
    dtype: np.dtype  #: of the reals


def arranged(name: str, given: Mapping[str, Any], module: Any = np) -> Arranged:
    """Puts the fields of a call in order, and makes its numbers arrays.

    Args:
        name: of the call.
        given: its fields by name; a CSR matrix is given as the triple of values, columns and offsets.
        module: numpy or jax.numpy.

    Raises:
        TypeError: a field is missing, or is not declared.
    """
    fields, names, needed, real = _names(name)
    if not needed <= given.keys() <= names:
        missing = [f.name for f in fields if f.name in needed and f.name not in given]
        wrong = f"no {missing[0]}" if missing else f"{min(given.keys() - names)}, which there is not"
        raise TypeError(f"{name}: expected the fields {', '.join(f.name for f in fields)}, got {wrong}")
    dtype = np.dtype(np.float64)
    if real is not None:
        dtype = np.dtype((given[real.name][0] if real.kind == "CSR" else given[real.name]).dtype)
    read: list[Any] = []
    written: list[Any] = []
    aliases: dict[int, int] = {}
    options: dict[str, np.int64] = {}
    for field in fields:
        value: Any = given.get(field.name)
        if field.kind in ("OPTION", "ID"):
            options[field.name] = np.int64(value)
        elif field.kind == "CSR":
            read.extend(value)
        elif field.kind == "NUMBER":
            read.append(module.asarray(value, dtype_of(field, dtype)))
        elif field.kind in ARRAYS:
            read.append(value)
        if field.kind == "INOUT":
            aliases[len(read) - 1] = len(written)
        if field.kind in ("INOUT", "OUT"):
            written.append(value)
    return Arranged(read, written, aliases, options, dtype)


@functools.cache
def _names(name: str) -> tuple[list[Field], frozenset[str], frozenset[str], Field | None]:
    """The fields of a call; all their names; those that must be given; the first with reals in arrays."""
    fields = CALLS[name]
    needed = frozenset(f.name for f in fields if f.kind != "OUT")
    reals = (f for f in fields if f.type == "real" and f.kind in ("CSR", *ARRAYS))
    return fields, frozenset(f.name for f in fields), needed, next(reals, None)


def dtype_of(field: Field, real: np.dtype) -> np.dtype:
    """The dtype of a field of a call whose reals have the dtype `real`."""
    return real if field.type == "real" else np.dtype(field.type.removesuffix("_t"))


_Message = ctypes.c_char * 500


# The pointer in a capsule with a name. This object has argument types of its own, which no other user of
# ctypes can change.
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class InPlace:
    """A native call on arrays of NumPy, as a function without arguments.

    The arrays may be written to between calls; they must not be reallocated.

    Args:
        name: of the call.
        needs: what a MemoryError says that there was no room for.
        fields: all fields by name, including results; the arrays are C-contiguous.

    Raises:
        TypeError: a field is missing or not declared, or an array is no NumPy array.
        ValueError: an array that the declaration of the call does not allow, or a read-only array that the
            call would change.
    """

    def __init__(self, name: str, needs: str = "", /, **fields: Any):
        self._arrange(name, needs, fields)
        self._make(0)

    @classmethod
    def once(cls, name: str, needs: str = "", /, **fields: Any) -> None:
        """Makes a single call; arguments as of the class."""
        call = cls.__new__(cls)
        call._arrange(name, needs, fields)  # noqa: SLF001 - of its own class
        call()

    def _arrange(self, name: str, needs: str, fields: Mapping[str, Any]) -> None:
        library = _library.load_library()
        assert library is not None  # the caller has checked this
        read, written, _, options, _ = arranged(name, fields)
        arrays = [*read, *written]
        for array in arrays:
            if not isinstance(array, np.ndarray):
                raise TypeError(f"{name}: expected arrays of NumPy, results too, got {array!r:.50}")
        self._name, self._needs = name, needs or f"the working arrays of {name}"
        # NumPy's array interface: the capsules keep the shapes alive, the arrays keep the numbers alive.
        described = [array.__array_struct__ for array in arrays]
        self._alive = arrays, described
        self._message = _Message()
        self._arguments = (
            struct.pack(f"@{len(arrays)}P", *(_pointer(capsule, None) for capsule in described)),
            *(ctypes.c_int64(len(read)), ctypes.c_int64(len(written))),
            struct.pack(f"@{len(options)}q", *options.values()),
            *(self._message, ctypes.c_int64(len(self._message))),
        )
        self._call = library.xmcjax_in_place

    def __call__(self) -> None:
        """Makes the call.

        Raises:
            MemoryError: no room for its working arrays.
            Interrupted, KeyboardInterrupt: the call was ended, and the content of the arrays is undefined.
        """
        self._make(1)

    def _make(self, runs: int) -> None:
        ended = self._call(self._name.encode(), ctypes.c_int32(runs), *self._arguments)
        if ended:
            _interrupts.check(ended, self._needs, self._message.value.decode())
