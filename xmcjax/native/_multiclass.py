"""Dual ascent of a multi-class SVM in the native library, on NumPy arrays.

The twins of what :mod:`xmcjax.solvers.multiclass_dual` does in plain JAX: `Ascent` of its epochs, with α kept
as lists of the classes that matter to each instance, and `Proximal` of its proximal point steps. A call
leaves the GIL.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax.native import _library


class Assessment(NamedTuple):
    """At W and α, over all dual variables."""

    primal: float
    dual: float
    violation: float  #: largest |projected gradient|

    @property
    def gap(self) -> float:
        """(primal − dual) / |primal|."""
        return (self.primal - self.dual) / abs(self.primal)


class _Point:
    """W and α of one problem.

    Args:
        X: CSR of float32 or float64, canonical.
        y: classes 0 … m−1, int32 [n].
        m: number of classes.
        formulation: its place in ``FORMULATIONS``.
        C: weight of the losses.
        seed: of the random orders.
        threads: that a call may use.

    Raises:
        MemoryError: no room for the weights.
    """

    _proximal: bool

    def __init__(self, X, y, m: int, formulation: int, C: float, *, seed: int = 0, threads: int = 1):
        assert X.dtype in (np.float32, np.float64) and y.dtype == np.int32 and y.shape == X.shape[:1]
        self.shape = X.shape[0], m
        self._d = X.shape[1]
        library = _library.load()
        assert library is not None  # the caller has seen that it is there
        self._library = library
        # kept alive, because the library keeps their addresses
        self._arrays = (
            np.ascontiguousarray(X.data),
            np.ascontiguousarray(X.indices, np.int32),
            np.ascontiguousarray(X.indptr, np.int64),
            np.ascontiguousarray(y),
        )
        size = (ctypes.c_int64 * 6)(*X.shape, m, formulation, seed, threads)
        arrays = (ctypes.c_void_p * 4)(*(a.ctypes.data for a in self._arrays))
        new = library.xmcjax_multiclass_new
        new.restype = ctypes.c_void_p
        kind = ctypes.c_int32(self._proximal), ctypes.c_int32(X.dtype == np.float64)
        self._handle = ctypes.c_void_p(new(*kind, size, ctypes.c_double(C), arrays))
        if not self._handle:
            raise MemoryError(f"no memory for the weights of {m} classes and {self._d} features")

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.xmcjax_multiclass_free(self._handle)

    @property
    def alpha(self) -> sp.csr_array:
        """The dual variables, [n, m]."""
        count = self._library.xmcjax_multiclass_alpha_count
        count.restype = ctypes.c_int64
        size = count(self._handle)
        offset, index, value = np.zeros(self.shape[0] + 1, np.int64), np.zeros(size, np.int32), np.zeros(size)
        self._library.xmcjax_multiclass_get_alpha(self._handle, *map(_pointer, (offset, index, value)))
        return sp.csr_array((value, index, offset), shape=self.shape)

    @alpha.setter
    def alpha(self, alpha: sp.csr_array) -> None:
        assert alpha.shape == self.shape and alpha.has_sorted_indices
        self._checked(
            self._library.xmcjax_multiclass_set_alpha,
            np.ascontiguousarray(alpha.indptr, np.int64),
            np.ascontiguousarray(alpha.indices, np.int32),
            np.ascontiguousarray(alpha.data, np.float64),
        )

    @property
    def weights(self) -> np.ndarray:
        """W in the dtype of X, [d, m]."""
        W = np.zeros((self._d, self.shape[1]), self._arrays[0].dtype)
        self._library.xmcjax_multiclass_weights(self._handle, _pointer(W))
        return W

    def _checked(self, function, *arguments) -> None:
        failed = function(self._handle, *(_pointer(a) if isinstance(a, np.ndarray) else a for a in arguments))
        if failed:
            raise MemoryError("no memory for the dual variables")


class Ascent(_Point):
    """Coordinate ascent."""

    _proximal = False

    def assess(self, tolerance: float) -> Assessment:
        """Passes over everything; shrunk variables that `tolerance` would change come back."""
        out = np.zeros(3)
        self._checked(self._library.xmcjax_multiclass_assess, ctypes.c_double(tolerance), out)
        return Assessment(*out.tolist())

    def sweep(self, tolerance: float, shrink: bool = True) -> tuple[float, float]:
        """One pass over what is not shrunk.

        Returns:
            The largest violation that it met, and the share of the instances that it visited.
        """
        violation, visited = np.zeros(1), np.zeros(1)
        options = ctypes.c_double(tolerance), ctypes.c_int32(shrink)
        self._checked(self._library.xmcjax_multiclass_sweep, *options, violation, visited)
        return float(violation[0]), float(visited[0])


class Proximal(_Point):
    """Proximal point steps by Newton's method, in float64. Starts from the α that it is given.

    Attributes:
        newton_steps: made so far.
        failures: steps in a row after which the dual was no larger.
    """

    _proximal = True
    newton_steps = failures = 0

    def step(self, tolerance: float) -> Assessment:
        """One proximal point step."""
        out, count = np.zeros(3), np.zeros(2, np.int64)
        self._checked(self._library.xmcjax_multiclass_proximal_step, ctypes.c_double(tolerance), out, count)
        self.newton_steps, self.failures = count.tolist()
        return Assessment(*out.tolist())


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
