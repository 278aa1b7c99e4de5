"""The projections as JAX functions: the calls for a CPU, and the kernels of xmcjax-cuda of the same names.

The CUDA kernels read a short vector once and write it once.
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

# Fewer than _FEW vectors of more than _LONG entries are left to plain JAX: a CUDA block reads a vector that
# exceeds its registers in each pass, and with so few blocks the device would be mostly idle.
_LONG, _FEW = 1 << 20, 32
# The most entries of a vector: the kernels count entries in float32.
_LONGEST = 1 << 24


def projections_by_kernel(shape: tuple[int, ...]) -> bool:
    """Whether a program for a GPU projects vectors [..., m] by the kernels of xmcjax-cuda.

    It does not for a few very long vectors: plain JAX uses the whole device for each of them.
    """
    *batch, m = shape
    fits = m <= _LONG or (math.prod(batch) >= _FEW and m <= _LONGEST)
    return fits and cuda_available() and _ffi.allowed_here()


@functools.cache
def projection(name: str, platform: str, **options: Any) -> Callable:
    """The function (b [..., m], its numbers) -> the results of a projection, which XLA may split by rows.

    Args:
        name: of the call of ``interface/calls.def``.
        platform: "cpu" or "cuda".
        options: of the call.
    """
    numbers = [field for field in CALLS[name] if field.kind == "IN"][1:]
    results = sum(field.kind == "OUT" for field in CALLS[name]) - 1

    def made(b, *given):
        # in shard_map the numbers have to vary over the axes of a mesh as b does
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
