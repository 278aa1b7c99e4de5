"""The native Newton step on NumPy arrays, changed in place.

The same C++ as the FFI handler behind :func:`xmcjax.native._ffi.newton_step`. A call leaves the GIL
and runs in the thread that makes it: through XLA the steps of two host threads would wait for
each other in its pool of threads, and find another core's cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from xmcjax.native import _interrupts, _library


class InPlaceStep:
    """One Newton step of a block of lanes as a call without arguments.

    Args:
        problem: value, column, offset, targets, weight, shift, tolerance, numbers, counts: the
            arguments of native/interface/ffi_newton.cc in their order, all C-contiguous.
        state: the fields of :class:`xmcjax.solvers.newton_cg.State` in their order.
        d: columns of the matrix.
        loss: number of the loss in the C++ kernels.

    The arrays may be written to between calls; they must not be reallocated.
    """

    def __init__(self, problem: Sequence[np.ndarray], state: Sequence[np.ndarray], *, d: int, loss: int):
        value, column, offset, y, weight, shift, tolerance, numbers, counts = problem
        w, z, direction, *per_lane = state
        lanes = tolerance.shape[0]
        n = offset.shape[0] - 1
        real, integer = value.dtype, np.dtype(np.int32)
        expected = [
            (value, real, column.shape),
            (column, integer, value.shape),
            (offset, integer, (n + 1, 2)),
            (y, np.dtype(np.int8), (n, lanes)),
            (weight, real, weight.shape),
            (shift, real, shift.shape),
            (tolerance, real, (lanes,)),
            (numbers, real, (9,)),
            (counts, integer, (4,)),
            (w, real, (d, lanes)),
            (z, real, (n, lanes)),
            (direction, real, (d, lanes)),
            *((field, real, (lanes,)) for field in per_lane[:6]),
            *((field, integer, (lanes,)) for field in per_lane[6:]),
        ]
        for array, dtype, shape in expected:
            if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
                got = f"{array.dtype} {list(array.shape)}"
                raise ValueError(f"expected a contiguous array of {dtype} {list(shape)}, got {got}")
        for a in (weight, shift):
            if a.ndim != 2 or a.shape[0] not in (1, n) or a.shape[1] not in (1, lanes):
                raise ValueError(f"expected an array that broadcasts to {[n, lanes]}, got {list(a.shape)}")
        library = _library.load()
        assert library is not None  # the caller has seen that it is there
        self._call = library.xmcjax_newton_step_in_place
        self._call.restype = ctypes.c_int32
        self._arrays = *problem, *state  # kept alive
        self._float64 = ctypes.c_int32(real == np.float64)
        self._sizes = (ctypes.c_int64 * 7)(n, d, lanes, *weight.shape, *shift.shape)
        self._problem = _pointers(problem)
        self._state = _pointers(state)
        self._loss = ctypes.c_int64(loss)

    def __call__(self) -> None:
        """Makes the step.

        Raises:
            MemoryError: no room for the working arrays.
            Interrupted, KeyboardInterrupt: the call was ended; the arrays are of no use any more.
        """
        ended = self._call(self._float64, self._sizes, self._problem, self._state, self._loss)
        if ended:
            _interrupts.check(ended, "the working arrays of a Newton step")


def _pointers(arrays: Sequence[np.ndarray]):
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
