"""The native calls as JAX functions, through ``jax.ffi``.

Each has a twin in plain JAX: the twins of products are in :mod:`xmcjax.native.ref`, the others beside the
functions that use them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from xmcjax._platform import default_platform
from xmcjax._settings import twins_wanted
from xmcjax.native import _library
from xmcjax.native._calls import arranged, dtype_of
from xmcjax.native._schema import ARRAYS, CALLS, METHODS


def available() -> bool:
    """Whether the library is there and switched on; the first call registers its handlers with JAX.

    If the library is missing and the CPU is the default device, the first call warns
    (``PerformanceWarning``).

    Raises:
        ImportError: the library is there but cannot be used, or JAX refuses its handlers.
    """
    return not twins_wanted.value and _registered()


@functools.cache
def _registered() -> bool:
    library = _library.load_library()
    if library is None:
        if not _library.switched_off() and default_platform() == "cpu":
            _library.warn_of_twins()
        return False
    for name in (f"xmcjax_{call}" for call in CALLS if call not in METHODS):
        try:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
        except RuntimeError as error:
            raise ImportError(
                f"jax {jax.__version__} refuses the kernels of {_library.library_path()}, install the "
                f"package again: {str(error).splitlines()[0]}"
            ) from error
    return True


def available_here() -> bool:
    """Whether :func:`available` and :func:`allowed_here` are both true."""
    return available() and allowed_here()


def allowed_here() -> bool:
    """Whether JAX allows a native call in the present trace.

    JAX does not in a ``shard_map`` over some axes of a mesh while other axes are Auto.
    """
    return not {AxisType.Manual, AxisType.Auto} <= set(jax.sharding.get_abstract_mesh().axis_types)


def call(name: str, /, *, vmap_method: str = "sequential", sizes=None, **given: Any) -> dict[str, jax.Array]:
    """A native call of ``interface/calls.def`` in a function that JAX traces.

    Args:
        name: of the call.
        vmap_method: of ``jax.ffi.ffi_call``.
        sizes: sizes of the results, by name, that no given array has.
        given: the fields other than results, by name; a CSR matrix is values, columns and offsets.

    Returns:
        The arrays that are changed in place, and the results, by name.

    Raises:
        TypeError: a field is missing, or is not declared.
        jax.errors.JaxRuntimeError: the running call found an array that it does not allow.
    """
    read, written, aliases, options, real = arranged(name, given, jnp)
    fields = [f for f in CALLS[name] if f.kind in ("INOUT", "OUT")]
    known = _sizes(name, given) | (sizes or {})
    out = [
        jax.ShapeDtypeStruct(_shape(name, known, f.sizes), dtype_of(f, real))
        if a is None
        else jax.ShapeDtypeStruct(a.shape, a.dtype)
        for f, a in zip(fields, written, strict=True)
    ]
    out = varying_results(out, read)
    made = jax.ffi.ffi_call(f"xmcjax_{name}", out, vmap_method=vmap_method, input_output_aliases=aliases)(
        *read, **options
    )
    return {f.name: result for f, result in zip(fields, made, strict=True)}


def varying_like(tree: Any, given: Any) -> Any:
    """The arrays of a tree, made to vary over the axes of a mesh as those of `given` do in shard_map.

    The constants that a loop begins with vary over no axis, while the results of its steps do.
    """
    if not _in_shard_map():
        return tree
    one = sum(jnp.sum(jnp.asarray(a).ravel()[:1]).astype(jnp.float32) for a in jax.tree.leaves(given))
    return jax.tree.map(lambda a: jnp.where(one == one, a, a), tree)


def _in_shard_map() -> bool:
    return AxisType.Manual in jax.sharding.get_abstract_mesh().axis_types


def varying_results(out: list[jax.ShapeDtypeStruct], read: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    """The results of a call, made to vary in shard_map over the axes of the mesh as the arguments do."""
    if not _in_shard_map():
        return out
    return jax.eval_shape(
        lambda *a: [jnp.broadcast_to(sum(jnp.sum(one).astype(o.dtype) for one in a), o.shape) for o in out],
        *read,
    )


def _sizes(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The sizes that the arrays of a call have, by name; the kernel reports where arrays disagree."""
    known: dict[str, Any] = {}
    for field in CALLS[name]:
        if field.kind == "OPTION":
            known[field.name] = given[field.name]
        elif field.kind == "CSR":
            known.setdefault(field.sizes[0], given[field.name][2].shape[0] - 1)
        elif field.kind in ARRAYS and field.kind != "EACH":
            shape, named = given[field.name].shape, field.sizes
            if named[:1] == ("batch",):
                rest = len(named) - 1
                known.setdefault("batch", shape[: len(shape) - rest])
                shape, named = shape[len(shape) - rest :], named[1:]
            for size, length in zip(named, shape, strict=False):
                known.setdefault(size, length)
    return known


def _shape(name: str, known: dict[str, Any], sizes: Sequence[str]) -> tuple[int, ...]:
    shape: tuple[int, ...] = ()
    for size in sizes:
        if not size.isdigit() and size not in known:
            raise ValueError(f"{name}: expected arrays that tell the size {size}, got fewer axes")
        lengths = known.get(size, size)
        shape += lengths if size == "batch" else (int(lengths),)
    return shape
