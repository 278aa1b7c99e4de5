"""The C++ kernels and their twins in plain JAX (``ref``): all names that other packages import.

``PerformanceWarning`` and ``twins`` are public, the other names are for the packages of xmcjax. Modules that
need NumPy or JAX are imported on first use, because readers of files and the command line need neither.
"""

import importlib
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from xmcjax.native._ids import number as id_number  # noqa: F401 – for other packages
from xmcjax.native._interrupts import Interrupted as Interrupted
from xmcjax.native._interrupts import StopFlag as StopFlag
from xmcjax.native._library import SLOWER as SLOWER
from xmcjax.native._library import PerformanceWarning
from xmcjax.native._library import absence as absence
from xmcjax.native._library import isa as isa
from xmcjax.native._library import library_path as library_path
from xmcjax.native._library import load_library as load_library
from xmcjax.native._library import sources as sources
from xmcjax.native._library import switched_off as switched_off
from xmcjax.native._library import warn_of_twins as warn_of_twins

if TYPE_CHECKING:
    from xmcjax.native._abort_note import noted_at_abort as noted_at_abort
    from xmcjax.native._aligned import aligned_copy as aligned_copy
    from xmcjax.native._aligned import aligned_zeros as aligned_zeros
    from xmcjax.native._ascent import Ascent as Ascent
    from xmcjax.native._ascent import CentredAscent as CentredAscent
    from xmcjax.native._ascent import shared_panel as shared_panel
    from xmcjax.native._ascent import shared_room as shared_room
    from xmcjax.native._awaited import awaited as awaited
    from xmcjax.native._calls import InPlace as InPlace
    from xmcjax.native._columns import put_columns as put_columns
    from xmcjax.native._columns import take_columns as take_columns
    from xmcjax.native._csr import csr_arrays as csr_arrays
    from xmcjax.native._cuda import CudaRows as CudaRows
    from xmcjax.native._cuda import cuda_absence as cuda_absence
    from xmcjax.native._cuda import cuda_available as cuda_available
    from xmcjax.native._cuda import cuda_cg_direction as cuda_cg_direction
    from xmcjax.native._cuda import cuda_cg_product as cuda_cg_product
    from xmcjax.native._cuda import cuda_cg_residual as cuda_cg_residual
    from xmcjax.native._cuda import cuda_gram_matmat as cuda_gram_matmat
    from xmcjax.native._cuda import cuda_lane_bits as cuda_lane_bits
    from xmcjax.native._cuda import cuda_matmat as cuda_matmat
    from xmcjax.native._cuda import cuda_pairs as cuda_pairs
    from xmcjax.native._cuda import cuda_plane_sums as cuda_plane_sums
    from xmcjax.native._cuda import cuda_rmatmat as cuda_rmatmat
    from xmcjax.native._dual_point import Assessment as Assessment
    from xmcjax.native._ffi import available as available
    from xmcjax.native._ffi import available_here as available_here
    from xmcjax.native._ffi import call as call
    from xmcjax.native._ffi import varying_like as varying_like
    from xmcjax.native._ffi import varying_results as varying_results
    from xmcjax.native._gate import Gate as Gate
    from xmcjax.native._partition import by_rows as by_rows
    from xmcjax.native._projections import projection as projection
    from xmcjax.native._projections import projections_by_kernel as projections_by_kernel
    from xmcjax.native._proximal import Proximal as Proximal
    from xmcjax.native._ranking_ascent import RankingAscent as RankingAscent
    from xmcjax.native._separate_ascent import Advanced as Advanced
    from xmcjax.native._separate_ascent import SeparateAscent as SeparateAscent
    from xmcjax.native._splitting import Splitting as Splitting
    from xmcjax.native._topk import topk as topk
    from xmcjax.native._topk import topk_by_kernel as topk_by_kernel
    from xmcjax.native._topk import topk_values as topk_values

_LATE = {
    "_abort_note": ("noted_at_abort",),
    "_aligned": ("aligned_copy", "aligned_zeros"),
    "_ascent": ("Ascent", "CentredAscent", "shared_panel", "shared_room"),
    "_awaited": ("awaited",),
    "_calls": ("InPlace",),
    "_columns": ("put_columns", "take_columns"),
    "_csr": ("csr_arrays",),
    "_cuda": (
        "CudaRows",
        "cuda_absence",
        "cuda_available",
        "cuda_cg_direction",
        "cuda_cg_product",
        "cuda_cg_residual",
        "cuda_gram_matmat",
        "cuda_lane_bits",
        "cuda_matmat",
        "cuda_pairs",
        "cuda_plane_sums",
        "cuda_rmatmat",
    ),
    "_dual_point": ("Assessment",),
    "_ffi": ("available", "available_here", "call", "varying_like", "varying_results"),
    "_gate": ("Gate",),
    "_partition": ("by_rows",),
    "_projections": ("projection", "projections_by_kernel"),
    "_proximal": ("Proximal",),
    "_ranking_ascent": ("RankingAscent",),
    "_separate_ascent": ("Advanced", "SeparateAscent"),
    "_splitting": ("Splitting",),
    "_topk": ("topk", "topk_by_kernel", "topk_values"),
}
_MODULES = {name: module for module, names in _LATE.items() for name in names}

__all__ = ["PerformanceWarning", "twins"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def twins() -> AbstractContextManager:
    """A context in which the twins in plain JAX are used, without a warning: programs have no native calls.

    ``jax.export`` refuses programs with native calls, which run only where xmcjax is installed and loaded.
    Programs exported in this context run on their platforms without xmcjax. Functions that were traced or
    compiled before are traced again in it.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax import export
        >>> from xmcjax import projections
        >>> from xmcjax.native import twins
        >>> with twins():
        ...     program = export.export(jax.jit(projections.simplex), platforms=["cpu", "cuda"])(jnp.zeros(3))
        >>> program.platforms
        ('cpu', 'cuda')
    """
    from xmcjax import _settings

    return _settings.twins_wanted(True)
