"""Arrays in which a tile of lanes occupies one cache line, not two."""

from __future__ import annotations

import math

import numpy as np

ALIGNMENT = 64  # bytes: native/core/aligned.h


def aligned_zeros(shape: tuple[int, ...], dtype) -> np.ndarray:
    """Zeros that begin at a multiple of 64 bytes; NumPy's arrays begin at any multiple of 16."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + size].view(dtype).reshape(shape)


def aligned_copy(a: np.ndarray, dtype) -> np.ndarray:
    """A copy of an array in that dtype, which begins at a multiple of 64 bytes.

    JAX on a CPU uses such an array at once, as it is; it would copy any other array again, in its threads.
    """
    copy = aligned_zeros(a.shape, dtype)
    np.copyto(copy, a, casting="unsafe")
    return copy
