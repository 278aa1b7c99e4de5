"""The C++ kernels (``*.cc``), how they are found, and their twins in plain JAX.

Nothing is imported here: ``_library`` needs ctypes alone, ``_ffi`` and ``ref`` need jax.
"""
