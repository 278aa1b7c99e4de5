"""W and α of a multi-class SVM in the native library, on NumPy arrays.

These classes are the native counterparts of :mod:`xmcjax.solvers.multiclass_dual` in plain JAX: `Ascent` of
its epochs, with α kept as lists of the classes that matter to each instance; `SeparateAscent` of its
one-vs-rest epochs, with a list of rows for each class; `RankingAscent` of the multi-label SVM; and `Proximal`
of its proximal point steps. A call releases the GIL. An interrupted call raises KeyboardInterrupt, or what
else a signal handler raised, and its object must not be used again.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax.native import _ids, _library
from xmcjax.native._calls import InPlace
from xmcjax.native._csr import csr_arrays


class Assessment(NamedTuple):
    """Objectives and violation at W and α, over all dual variables."""

    primal: float
    dual: float
    violation: float  #: largest |projected gradient|

    @property
    def gap(self) -> float:
        """(primal − dual) / |primal|."""
        return (self.primal - self.dual) / abs(self.primal)


class DualPoint:
    """W and α of one problem.

    Args:
        X: CSR of float32 or float64 from :func:`xmcjax._sparse.canonical_csr`.
        y: classes 0 … m−1, int32 [n].
        m: number of classes.
        formulation: one of native/interface/ids.def.
        C: weight of the losses; for `CentredAscent`, and `Proximal` with "ovr", also a weight above 0 for
            each row, [n].
        seed: of the random orders.
        threads: how many a call may use.
        classes: first and last + 1 of the classes of this process, if there are several; None for all.
        place: if several places solve Weston-Watkins or Crammer-Singer together: the classes whose rows this
            place has, and the classes whose weights it moves (whole panels of :func:`shared_panel`), both
            bool [m]; None for all.
        shared: zeros [shared_room(d, m)] on whole cache lines, in which places of this or other processes
            keep common weights, and then set no dual variables; None for weights of its own.

    Raises:
        MemoryError: no room for the weights.
    """

    _method: int  # of multiclass_new in methods.def

    def __init__(
        self,
        X,
        y,
        m: int,
        formulation: str,
        C: float | np.ndarray,
        *,
        seed: int = 0,
        threads: int = 1,
        classes: tuple[int, int] | None = None,
        place: tuple[np.ndarray, np.ndarray] | None = None,
        shared: np.ndarray | None = None,
    ):
        assert y.dtype == np.int32 and y.shape == X.shape[:1]
        own: dict[str, Any] = dict(y=np.ascontiguousarray(y), method=self._method)
        of_rows = np.ndim(C) > 0
        own.update(C=1.0 if of_rows else C, cost=np.ascontiguousarray(C if of_rows else [], np.float64))
        rows, moved = (np.zeros(0, bool),) * 2 if place is None else place
        own.update(rows=np.asarray(rows, np.int8), moved=np.asarray(moved, np.int8))
        own.update(shared=np.zeros(0, X.dtype) if shared is None else shared)
        general: dict[str, Any] = dict(seed=seed, threads=threads, classes=classes)
        self._make(
            "multiclass_new", X, m, formulation=_ids.number("formulation", formulation), **general, **own
        )

    def _make(self, call: str, X, m: int, *, seed, threads, classes=None, **fields) -> None:
        assert X.dtype in (np.float32, np.float64)
        self.shape, self._d, self.dtype = (X.shape[0], m), X.shape[1], X.dtype
        self._classes = classes or (0, m)
        handle = np.zeros((), np.int64)
        # the call object is kept, because the library keeps the addresses of its arrays
        self._new = InPlace(
            call,
            f"the weights of {m} classes and {self._d} features",
            X=csr_arrays(X),
            d=self._d,
            classes=m,
            seed=seed,
            threads=threads,
            first=self._classes[0],
            last=self._classes[1],
            handle=handle,
            **fields,
        )
        self._new()
        self._handle = int(handle)

    def __del__(self):
        if getattr(self, "_handle", None):
            library = _library.load_library()
            assert library is not None
            library.xmcjax_multiclass_free(ctypes.c_int64(self._handle))

    @property
    def alpha(self) -> sp.csr_array:
        """The dual variables, [n, m]."""
        count = self._count("alpha_count")
        index, value = np.zeros(count, np.int32), np.zeros(count)
        offset = np.zeros(self.shape[0] + 1, np.int64)
        self._call("get_alpha", offset=offset, index=index, value=value)
        return sp.csr_array((value, index, offset), shape=self.shape)

    @alpha.setter
    def alpha(self, alpha: sp.csr_array) -> None:
        assert alpha.shape == self.shape and alpha.has_sorted_indices
        self._call(
            "set_alpha",
            offset=np.ascontiguousarray(alpha.indptr, np.int64),
            index=np.ascontiguousarray(alpha.indices, np.int32),
            value=np.ascontiguousarray(alpha.data, np.float64),
        )

    @property
    def weights(self) -> np.ndarray:
        """W in the dtype of X, [d, m], or only the columns of the process's classes."""
        W = np.zeros((self._d, self._classes[1] - self._classes[0]), self.dtype)
        self._call("weights", W=W)
        return W

    def _call(self, name: str, **fields) -> None:
        InPlace.once(f"multiclass_{name}", "the dual variables", handle=self._handle, **fields)

    def _count(self, name: str) -> int:
        count = np.zeros((), np.int64)
        self._call(name, count=count)
        return int(count)

    def _assessed(self, name: str, **fields) -> Assessment:
        found = np.zeros(3)
        self._call(name, found=found, **fields)
        return Assessment(*found.tolist())

    def _swept(self, name: str, **fields) -> tuple[float, float]:
        done = np.zeros(2)
        self._call(name, done=done, **fields)
        violation, visited = done.tolist()
        return violation, visited
