"""The projections as JAX functions: the calls for a CPU, and the kernels of xmcjax-cuda of the same names.

The latter read a vector once and write it once where it is short.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xmcjax.native import _ffi
from xmcjax.native._cuda import cuda_available, cuda_call
from xmcjax.native._partition import over_rows
from xmcjax.native._schema import CALLS

# A block reads a vector that is longer than its registers in each pass: with a few of them a device is idle.
_LONG, _FEW = 1 << 20, 32
# Entries are counted in float32.
_LONGEST = 1 << 24


def projections_by_kernel(shape: tuple[int, ...]) -> bool:
    """Whether vectors [..., m] are projected by those of xmcjax-cuda where this is traced for a GPU.

    A few very long ones are not, of which plain JAX gives each a whole device.
    """
    *batch, m = shape
    fits = m <= _LONG or (math.prod(batch) >= _FEW and m <= _LONGEST)
    return fits and cuda_available() and _ffi.allowed_here()


@functools.cache
def projection(name: str, platform: str, **options: Any) -> Callable:
    """(b [..., m], its numbers) -> the results of a projection, which XLA may split by rows.

    Args:
        name: of the call of ``interface/calls.def``.
        platform: "cpu" or "cuda".
        options: of the call.
    """
    numbers = [field for field in CALLS[name] if field.kind == "IN"][1:]
    results = sum(field.kind == "OUT" for field in CALLS[name]) - 1

    def made(b, *given):
        # in shard_map they have to vary over the axes of a mesh as b does
        heads = (b if number.ndim == b.ndim else b[..., 0] for number in given)
        arrays = b, *(jnp.where(head == head, a, a) for head, a in zip(heads, given, strict=True))
        how: dict[str, Any] = dict(vmap_method="broadcast_all", **options)
        if platform == "cpu":
            fields = dict(zip(("b", *(field.name for field in numbers)), arrays, strict=True))
            return tuple(_ffi.call(name, **fields, **how).values())
        one = jax.ShapeDtypeStruct(b.shape[:-1], b.dtype)
        out = _ffi.varying_results([jax.ShapeDtypeStruct(b.shape, b.dtype), *[one] * results], arrays)
        return tuple(cuda_call(name, out, *arrays, **how))

    return over_rows(made, entries=["m" in field.sizes for field in numbers], results=results)
