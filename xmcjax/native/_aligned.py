"""Arrays in which a tile of lanes lies in one line of the cache, not in two."""

from __future__ import annotations

import math

import numpy as np

ALIGNMENT = 64  # bytes: native/core/aligned.h


def aligned_zeros(shape: tuple[int, ...], dtype) -> np.ndarray:
    """Zeros that begin at a multiple of 64 bytes; NumPy's begin anywhere at a multiple of 16."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + size].view(dtype).reshape(shape)


def aligned_copy(a: np.ndarray, dtype) -> np.ndarray:
    """A copy of an array that begins there, of this type.

    JAX on a CPU takes it as it is, at once, where another array is copied once more and in JAX's threads.
    """
    copy = aligned_zeros(a.shape, dtype)
    np.copyto(copy, a, casting="unsafe")
    return copy
