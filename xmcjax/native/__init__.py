"""The C++ kernels (``*.cc``), how they are found, and their twins in plain JAX.

``_library`` and ``_sources`` need no more than the standard library, ``_ffi`` and ``ref`` need jax.
"""

from xmcjax.native._library import PerformanceWarning

__all__ = ["PerformanceWarning"]
