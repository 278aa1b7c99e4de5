"""Dual ascent of a multi-class SVM in the native library, on NumPy arrays.

The twins of what :mod:`xmcjax.solvers.multiclass_dual` does in plain JAX: `Ascent` of its epochs, with α kept
as lists of the classes that matter to each instance, and `Proximal` of its proximal point steps. A call
leaves the GIL. One that is interrupted raises KeyboardInterrupt, or what else a signal handler raised, and
leaves an object that is of no use any more.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax._sparse import require_checked
from xmcjax.native import _ids, _interrupts, _library


class Assessment(NamedTuple):
    """At W and α, over all dual variables."""

    primal: float
    dual: float
    violation: float  #: largest |projected gradient|

    @property
    def gap(self) -> float:
        """(primal − dual) / |primal|."""
        return (self.primal - self.dual) / abs(self.primal)


class Match(NamedTuple):
    """Two bundles of classes, first and last + 1 of each."""

    a: tuple[int, int]
    b: tuple[int, int]
    inner: bool  #: whether each plays against itself as well

    @property
    def numbers(self) -> np.ndarray:
        return np.array([*self.a, *self.b, self.inner], np.int64)


class _Point:
    """W and α of one problem.

    Args:
        X: CSR of float32 or float64 from :func:`xmcjax._sparse.canonical_csr`.
        y: classes 0 … m−1, int32 [n].
        m: number of classes.
        formulation: one of native/interface/ids.def.
        C: weight of the losses.
        seed: of the random orders.
        threads: that a call may use.
        classes: first and last + 1 of those that this process of several has; None for all.

    Raises:
        MemoryError: no room for the weights.
    """

    _method: int  # of ctypes_multiclass.cc

    def __init__(
        self,
        X,
        y,
        m: int,
        formulation: str,
        C: float,
        *,
        seed: int = 0,
        threads: int = 1,
        classes: tuple[int, int] | None = None,
    ):
        require_checked(X)
        assert X.dtype in (np.float32, np.float64) and y.dtype == np.int32 and y.shape == X.shape[:1]
        self.shape = X.shape[0], m
        self._d = X.shape[1]
        library = _library.load_library()
        assert library is not None  # the caller has seen that it is there
        self._library = library
        # kept alive, because the library keeps their addresses
        self._arrays = (
            np.ascontiguousarray(X.data),
            np.ascontiguousarray(X.indices, np.int32),
            np.ascontiguousarray(X.indptr, np.int64),
            np.ascontiguousarray(y),
        )
        self._classes = classes or (0, m)
        size = (ctypes.c_int64 * 8)(
            *X.shape, m, _ids.number("formulation", formulation), seed, threads, *self._classes
        )
        arrays = (ctypes.c_void_p * 4)(*(a.ctypes.data for a in self._arrays))
        kind = ctypes.c_int32(self._method), ctypes.c_int32(X.dtype == np.float64)
        self._handle = ctypes.c_void_p()
        new = library.xmcjax_multiclass_new
        ended = new(*kind, size, ctypes.c_double(C), arrays, ctypes.byref(self._handle))
        _interrupts.check(ended, f"the weights of {m} classes and {self._d} features")

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.xmcjax_multiclass_free(self._handle)

    @property
    def alpha(self) -> sp.csr_array:
        """The dual variables, [n, m]."""
        size = np.zeros(1, np.int64)
        self._checked(self._library.xmcjax_multiclass_alpha_count, size)
        index, value = np.zeros(size[0], np.int32), np.zeros(size[0])
        offset = np.zeros(self.shape[0] + 1, np.int64)
        self._checked(self._library.xmcjax_multiclass_get_alpha, offset, index, value)
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
        """W in the dtype of X, [d, m], or of its classes."""
        W = np.zeros((self._d, self._classes[1] - self._classes[0]), self._dtype)
        self._checked(self._library.xmcjax_multiclass_weights, W)
        return W

    @property
    def _dtype(self) -> np.dtype:
        return self._arrays[0].dtype

    def _checked(self, function, *arguments) -> None:
        ended = function(self._handle, *(_pointer(a) if isinstance(a, np.ndarray) else a for a in arguments))
        _interrupts.check(ended, "the dual variables")


class Ascent(_Point):
    """Coordinate ascent."""

    _method = 0

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

    # --- Weston-Watkins over several processes, each with the dual variables of the matches that it hosts

    def begin_epoch(self, violation: float) -> None:
        """Before the matches of an epoch; `violation` of all that was last examined."""
        self._checked(self._library.xmcjax_multiclass_begin_epoch, ctypes.c_double(violation))

    def examine(self, match: Match, tolerance: float) -> Assessment:
        """What the variables of a match add to objectives and violation; finds which matter."""
        out = np.zeros(3)
        self._checked(self._library.xmcjax_multiclass_examine, match.numbers, ctypes.c_double(tolerance), out)
        return Assessment(*out.tolist())

    def play(self, match: Match, tolerance: float) -> float:
        """Visits the instances of a match; the largest violation that it met."""
        out = np.zeros(1)
        self._checked(self._library.xmcjax_multiclass_play, match.numbers, ctypes.c_double(tolerance), out)
        return float(out[0])

    def settle(self, shrink: bool) -> float:
        """After the matches of an epoch: leaves out what did not change three times; the share that stays."""
        share = np.zeros(1)
        self._checked(self._library.xmcjax_multiclass_settle, ctypes.c_int32(shrink), share)
        return float(share[0])

    def rows_of(self, bundle: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """The rows of W that are not zero in the classes first .. last − 1, and their values."""
        first, last = map(ctypes.c_int64, bundle)
        row, count = np.zeros(self._d, np.int32), np.zeros(1, np.int64)
        self._checked(self._library.xmcjax_multiclass_nonzero_rows, first, last, row, count)
        row = row[: count[0]].copy()
        value = np.zeros((len(row), bundle[1] - bundle[0]), self._dtype)
        self._checked(
            self._library.xmcjax_multiclass_get_rows, first, last, row, ctypes.c_int64(len(row)), value
        )
        return row, value

    def set_rows(self, bundle: tuple[int, int], row: np.ndarray, value: np.ndarray) -> None:
        """W of these classes: the values in these rows, 0 elsewhere."""
        first, last = map(ctypes.c_int64, bundle)
        assert value.shape == (len(row), bundle[1] - bundle[0])
        row, value = np.ascontiguousarray(row, np.int32), np.ascontiguousarray(value, self._dtype)
        self._checked(
            self._library.xmcjax_multiclass_set_rows, first, last, row, ctypes.c_int64(len(row)), value
        )

    # --- Lee-Lin-Wahba over several processes, each with some classes

    @property
    def parts(self) -> int:
        """Of a sweep, after each of which the mean is brought up to date; 1 where there is no mean."""
        count = np.zeros(1, np.int64)
        self._checked(self._library.xmcjax_multiclass_parts, count)
        return int(count[0])

    def part(self, number: int, tolerance: float, shrink: bool) -> tuple[float, float]:
        """A part of a sweep, which leaves the mean of the weights alone; returns as :meth:`sweep`."""
        violation, visited = np.zeros(1), np.zeros(1)
        options = ctypes.c_int64(number), ctypes.c_double(tolerance), ctypes.c_int32(shrink)
        self._checked(self._library.xmcjax_multiclass_part, *options, violation, visited)
        return float(violation[0]), float(visited[0])

    @property
    def mean_change(self) -> np.ndarray:
        """What this process has to add to the mean of the weights, [d]."""
        change = np.zeros(self._d, self._dtype)
        self._checked(self._library.xmcjax_multiclass_mean_change, change)
        return change

    def move_mean(self, change: np.ndarray) -> None:
        """Adds the sum of what all processes have to add."""
        self._checked(self._library.xmcjax_multiclass_move_mean, np.ascontiguousarray(change, self._dtype))


class CentredAscent(Ascent):
    """Coordinate ascent of Lee-Lin-Wahba over instances, each with all its dual variables at once."""

    _method = 2


class Proximal(_Point):
    """Proximal point steps by Newton's method, in float64. Starts from the α that it is given.

    Attributes:
        newton_steps: made so far.
        failures: steps in a row after which the dual was no larger.
    """

    _method = 1
    newton_steps = failures = 0

    def step(self, tolerance: float) -> Assessment:
        """One proximal point step."""
        out, count = np.zeros(3), np.zeros(2, np.int64)
        self._checked(self._library.xmcjax_multiclass_proximal_step, ctypes.c_double(tolerance), out, count)
        self.newton_steps, self.failures = count.tolist()
        return Assessment(*out.tolist())


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
