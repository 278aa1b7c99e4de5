"""The memory of a device: what is free, what a program takes, and the error where it is too little."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from xmcjax._memory import size
from xmcjax._settings import settings_of_programs

# Bytes that programs were found to take: XLA would work them out anew, which takes milliseconds.
_COUNTED: dict[tuple, int | None] = {}
# How the text of XLA's error begins; JAX has one class for everything that happens on a device.
_FULL = "RESOURCE_EXHAUSTED: "


class DeviceMemoryError(MemoryError):
    """What was asked for does not fit into the memory of the device; the text says how much it takes.

    Example:
        >>> issubclass(DeviceMemoryError, MemoryError)
        True
    """


def used_device(device: Any = None) -> Any:
    """The device of new arrays, where no other is given."""
    chosen = device or jax.config.jax_default_device  # type: ignore[attr-defined]
    if isinstance(chosen, str):
        return jax.local_devices(backend=chosen.split(":")[0])[0]
    return chosen or jax.local_devices()[0]


def free_memory(device: Any = None) -> int | None:
    """Bytes that JAX may still take of a device; None for a CPU, and where the device does not tell.

    Args:
        device: None for the device of new arrays.
    """
    device = used_device(device)
    if device.platform == "cpu":
        return None
    told = device.memory_stats() or {}
    if "bytes_limit" not in told:
        return None
    return max(0, told["bytes_limit"] - told.get("bytes_in_use", 0))


def counted(function: Callable, *args: Any, **options: Any) -> int | None:
    """Bytes that a call takes, its arguments included, by XLA's count of the program; None where it has none.

    The program is compiled for it. A call with such arguments finds it compiled.

    Args:
        function: jitted.
        args: arrays, or their shapes and types as ``jax.ShapeDtypeStruct``.
        options: static arguments.
    """
    key = (function, *_kind(args), *sorted(options.items()), *settings_of_programs())
    if key not in _COUNTED:
        _COUNTED[key] = of_program(jitted(function).lower(*args, **options).compile())
    return _COUNTED[key]


def jitted(function: Callable) -> Any:
    """What ``jax.jit`` made, of a function that checks something first."""
    return inspect.unwrap(function, stop=lambda f: hasattr(f, "lower"))


def _kind(args: Any) -> tuple:
    """The key under which a call was counted: the tree of its arguments, their shapes and places."""
    leaves, tree = jax.tree.flatten(args)

    def of_leaf(a: Any) -> tuple:
        dtype = getattr(a, "dtype", type(a))
        return np.shape(a), dtype, getattr(a, "weak_type", None), getattr(a, "sharding", None)

    return tree, *map(of_leaf, leaves)


def device_of(tree: Any) -> Any:
    """The device of the first array of JAX in a tree; where there is none, the device of new arrays."""
    arrays = (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array))
    found = next(arrays, None)
    return used_device() if found is None else next(iter(found.devices()))


def check_program(what: str, function: Callable, *args: Any, remedy: str = "", **options: Any) -> None:
    """Checks that a call fits beside the arrays that are there, where their device tells its memory.

    Args:
        what: takes the memory, such as "a step of lbfgs for 7 classes".
        function, args, options: see :func:`counted`; shapes stand for arrays that are not there yet.
        remedy: what would take less, with a comma behind it.

    Raises:
        DeviceMemoryError: it does not fit.
    """
    arrays = [leaf for leaf in jax.tree.leaves(args) if isinstance(leaf, jax.Array)]
    device = device_of(arrays)
    free = free_memory(device)
    if free is None or (needs := counted(function, *args, **options)) is None:
        return
    needs -= held(arrays)
    if needs > free:
        wide = np.float64 if any(a.dtype == np.float64 for a in arrays) else np.float32
        raise DeviceMemoryError(
            f"expected a problem that fits into the memory of {device}: {what} needs {size(needs)} beside "
            f"the arrays that are there, by XLA's count, and {size(free)} are free: {remedy}{smaller(wide)}"
        )


@contextlib.contextmanager
def explained(what: str, remedy: str = "") -> Iterator[None]:
    """A context in which a full device, which no count foresaw, raises an error of one sentence.

    Args:
        what: takes the memory, such as "the fit".
        remedy: what would take less, with a comma behind it.

    Raises:
        DeviceMemoryError: a device is full.
        MemoryError: the memory of the CPU is full.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError, MemoryError) as error:
        cause = error.__cause__ if type(error) is MemoryError else error
        if cause is None or not ran_out(cause):
            raise
        device = used_device()
        if (free := free_memory(device)) is None:
            raise MemoryError(without_status(cause)) from error
        raise DeviceMemoryError(
            f"{device} ran out of memory during {what}: {without_status(cause).rstrip('.')}, and "
            f"{size(free)} are free now: {remedy}{smaller(np.float32)}"
        ) from error


def of_program(compiled: Any) -> int | None:
    """What :func:`counted` says, for a program that is compiled."""
    count = compiled.memory_analysis()
    if count is None:
        return None
    # a result in the place of an argument is counted in both
    total = count.argument_size_in_bytes + count.output_size_in_bytes + count.temp_size_in_bytes
    return total - count.alias_size_in_bytes


def described(tree: Any) -> Any:
    """Shapes and types in the place of the arrays of a tree, which take no memory."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a), a.dtype), tree)


def held(tree: Any) -> int:
    """Bytes of the arrays of a tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def ran_out(error: BaseException) -> bool:
    """Whether XLA found too little memory; which of two errors it raises depends on when it fails."""
    return isinstance(error, jax.errors.JaxRuntimeError | ValueError) and str(error).startswith(_FULL)


def without_status(error: BaseException) -> str:
    """The words of XLA's error, without its status."""
    return str(error).removeprefix(_FULL)


def smaller(dtype: Any) -> str:
    """What takes less memory, whatever is solved."""
    half = "float32 in place of float64, " if np.dtype(dtype) == np.float64 else ""
    return f"{half}fewer rows or features, or the CPU (JAX_PLATFORMS=cpu), would take less of it"
