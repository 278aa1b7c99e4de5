"""The projections of xmcjax-cuda as JAX functions: a vector is read once and written once where it is short.

Arguments and results are those of the calls of the same names for a CPU in :mod:`xmcjax.native._ffi`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax

from xmcjax.native import _ffi
from xmcjax.native._cuda import cuda_available, cuda_call
from xmcjax.native._partition import over_rows

# A block reads a vector that is longer than its registers in each pass: with a few of them a device is idle.
_LONG, _FEW = 1 << 20, 32
# Entries are counted in float32.
_LONGEST = 1 << 24


def projections_by_kernel(shape: tuple[int, ...]) -> bool:
    """Whether vectors [..., m] are projected by these kernels where this is traced for a GPU.

    A few very long ones are not, of which plain JAX gives each a whole device.
    """
    *batch, m = shape
    fits = m <= _LONG or (math.prod(batch) >= _FEW and m <= _LONGEST)
    return fits and cuda_available() and _ffi.allowed_here()


def cuda_project_box(b, radius, lower, upper, rho, *, at_most: bool):
    """Projections between fixed bounds, of xmcjax/projections/_knapsack.py."""
    return _over_rows("project_box", (False,) * 4, 1, at_most=at_most)(b, radius, lower, upper, rho)


def cuda_project_weighted(b, radius, lower, upper, weights):
    """Projections between bounds of each entry, of xmcjax/projections/_weighted.py."""
    return _over_rows("project_weighted", (False, True, True, True), 1)(b, radius, lower, upper, weights)


def cuda_project_topk(b, radius, rho, *, k: int):
    """Projections with a bound of 1ᵀx/k, of xmcjax/projections/_topk.py."""
    return _over_rows("project_topk", (False,) * 2, 2, k=k)(b, radius, rho)


@functools.cache
def _over_rows(name: str, entries: tuple[bool, ...], results: int, **options: Any):
    """(b, its numbers) -> the results of a projection, which XLA may split by rows."""

    def made(b, *given):
        arrays = b, *_ffi.varying_as(b, given)
        one = jax.ShapeDtypeStruct(b.shape[:-1], b.dtype)
        out = _ffi.varying_results([jax.ShapeDtypeStruct(b.shape, b.dtype), *[one] * results], arrays)
        return tuple(cuda_call(name, out, *arrays, vmap_method="broadcast_all", **options))

    return over_rows(made, entries=entries, results=results)
