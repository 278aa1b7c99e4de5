"""Dual ascent of a multi-class SVM in the native library, on NumPy arrays.

The twins of what :mod:`xmcjax.solvers.multiclass_dual` does in plain JAX: `Ascent` of its epochs, with α kept
as lists of the classes that matter to each instance, `SeparateAscent` of those of one against the rest, with
a list of rows for each class, `RankingAscent` of the multi-label SVM, and `Proximal` of its proximal point
steps. A call leaves the GIL. One that is interrupted raises KeyboardInterrupt, or what else a signal handler
raised, and leaves an object that is of no use any more.
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
    """At W and α, over all dual variables."""

    primal: float
    dual: float
    violation: float  #: largest |projected gradient|

    @property
    def gap(self) -> float:
        """(primal − dual) / |primal|."""
        return (self.primal - self.dual) / abs(self.primal)


class Advanced(NamedTuple):
    """How far `SeparateAscent` or `RankingAscent` has come."""

    found: Assessment
    passes: float  #: over all rows, made since the start; where each class is a problem those of the slowest
    left_out: float  #: share of the rows that the last sweeps left out
    running: bool  #: whether it could go on


class Ends(NamedTuple):
    """The same label by label, each [L]."""

    primal: np.ndarray
    gap: np.ndarray  #: primal − dual
    passes: np.ndarray  #: over all rows, made so far


class Match(NamedTuple):
    """Two bundles of classes, first and last + 1 of each."""

    a: tuple[int, int]
    b: tuple[int, int]
    inner: bool  #: whether each plays against itself as well

    @property
    def numbers(self) -> np.ndarray:
        return np.array([*self.a, *self.b, self.inner], np.int64)


#: Classes of which several objects may have the weights together, or none of them: as many as fill the widest
#: vector of any processor, by the size of a number.
PANEL = {4: 16, 8: 8}


def shared_room(d: int, m: int, dtype: np.dtype) -> int:
    """Numbers that weights of d features and m classes need in memory that several objects share."""
    return -(-m // PANEL[dtype.itemsize]) * PANEL[dtype.itemsize] * d


class Gate:
    """Where a fixed number of threads meet, of one process or several.

    Args:
        memory: int64 [16] on whole lines of the cache, which all of them have; zeros at first.
        members: that meet.
    """

    #: Seconds after which a wait that goes on is reported.
    PATIENCE = 0.2

    def __init__(self, memory: np.ndarray, members: int):
        self._held = np.zeros((), np.int64)
        state, patience = np.zeros(2, np.int64), round(1000 * self.PATIENCE)
        self._call = InPlace(
            "meet", members=members, patience=patience, gate=memory, state=state, held=self._held
        )

    def meet(self) -> bool:
        """Comes, or goes on waiting; whether all have come."""
        self._call()
        return bool(self._held)


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
        shared: zeros [shared_room(d, m)] on whole lines of the cache, where Weston-Watkins keeps the weights
            that several objects have together, of this process or others; None for weights of its own.

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
        C: float,
        *,
        seed: int = 0,
        threads: int = 1,
        classes: tuple[int, int] | None = None,
        shared: np.ndarray | None = None,
    ):
        assert y.dtype == np.int32 and y.shape == X.shape[:1]
        own: dict[str, Any] = dict(y=np.ascontiguousarray(y), C=C, method=self._method)
        own.update(shared=np.zeros(0, X.dtype) if shared is None else shared)
        general: dict[str, Any] = dict(seed=seed, threads=threads, classes=classes)
        self._make(
            "multiclass_new", X, m, formulation=_ids.number("formulation", formulation), **general, **own
        )

    def _make(self, call: str, X, m: int, *, seed, threads, classes=None, **fields) -> None:
        assert X.dtype in (np.float32, np.float64)
        self.shape, self._d, self._dtype = (X.shape[0], m), X.shape[1], X.dtype
        self._classes = classes or (0, m)
        handle = np.zeros((), np.int64)
        # kept, because the library keeps the addresses of its arrays
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
        """W in the dtype of X, [d, m], or of its classes."""
        W = np.zeros((self._d, self._classes[1] - self._classes[0]), self._dtype)
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


class Ascent(_Point):
    """Coordinate ascent."""

    _method = 0

    def assess(self, tolerance: float) -> Assessment:
        """Passes over everything; shrunk variables that `tolerance` would change come back."""
        return self._assessed("assess", tolerance=tolerance)

    def sweep(self, tolerance: float, shrink: bool = True) -> tuple[float, float]:
        """One pass over what is not shrunk.

        Returns:
            The largest violation that it met, and the share of the instances that it visited.
        """
        return self._swept("sweep", tolerance=tolerance, shrink=shrink)

    # --- Weston-Watkins over several processes, each with the dual variables of the matches that it hosts

    def begin_epoch(self, violation: float) -> None:
        """Before the matches of an epoch; `violation` of all that was last examined."""
        self._call("begin_epoch", violation=violation)

    def examine(self, match: Match, tolerance: float) -> Assessment:
        """What the variables of a match add to objectives and violation; finds which matter."""
        return self._assessed("examine", match=match.numbers, tolerance=tolerance)

    def play(self, match: Match, tolerance: float, shrink: bool = True) -> float:
        """Visits the instances of a match that have variables in it; the largest violation that it met."""
        violation = np.zeros(())
        self._call("play", match=match.numbers, shrink=shrink, tolerance=tolerance, violation=violation)
        return float(violation)

    def settle(self, shrink: bool) -> float:
        """After the matches of an epoch: leaves out what did not change three times; the share that stays."""
        share = np.zeros(())
        self._call("settle", shrink=shrink, share=share)
        return float(share)

    def moves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and classes of the dual variables that the last match changed, and by what."""
        count = self._count("count_moves")
        row, label = np.zeros(count, np.int32), np.zeros(count, np.int32)
        change = np.zeros(count, self._dtype)
        self._call("get_moves", row=row, label=label, change=change)
        return row, label, change

    def follow(self, row: np.ndarray, label: np.ndarray, change: np.ndarray) -> None:
        """Makes the moves of another process, which has the dual variables, in the weights."""
        self._call("follow_moves", row=row, label=label, change=change)

    def set_weights(self, W: np.ndarray) -> None:
        """Takes other weights than those of the dual variables, [d, m]."""
        self._call("set_weights", W=np.ascontiguousarray(W, self._dtype))

    # --- Lee-Lin-Wahba over several processes, each with some classes

    @property
    def parts(self) -> int:
        """Of a sweep, after each of which the mean is brought up to date."""
        return self._count("parts")

    def part(self, number: int, tolerance: float, shrink: bool) -> tuple[float, float]:
        """A part of a sweep, which leaves the mean of the weights alone; returns as :meth:`sweep`."""
        return self._swept("part", number=number, tolerance=tolerance, shrink=shrink)

    @property
    def mean_change(self) -> np.ndarray:
        """What this process has to add to the mean of the weights, [d]."""
        change = np.zeros(self._d, self._dtype)
        self._call("mean_change", change=change)
        return change

    def move_mean(self, change: np.ndarray) -> None:
        """Adds the sum of what all processes have to add."""
        self._call("move_mean", change=np.ascontiguousarray(change, self._dtype))


class CentredAscent(Ascent):
    """Coordinate ascent of Lee-Lin-Wahba over instances, each with all its dual variables at once."""

    _method = 2


class _Advancing(_Point):
    def advance(self, tolerance: float, passes: float, shrink: bool = True) -> Advanced:
        """Goes on until the gap, of one against the rest that of each class, is at most `tolerance` of P.

        Args:
            tolerance: of the relative gap.
            passes: over the rows, made at most, of each class; 0 only looks.
            shrink: whether sweeps leave out rows that have little of the gap.
        """
        found = np.zeros(6)
        self._call("advance", tolerance=tolerance, passes=passes, shrink=shrink, found=found)
        primal, dual, violation, made, left_out, running = found.tolist()
        return Advanced(Assessment(primal, dual, violation), made, left_out, running > 0)


class SeparateAscent(_Advancing):
    """Coordinate ascent of one against the rest, each label to the end of its own.

    Args:
        X, formulation, seed, threads: of the other methods; "ovr" or "ovr_squared".
        labels: CSC [n, L], each stored entry a label of its row, rows ascending in a column and none twice.
        cost: weights C of the losses of the rows, above 0, [n]; or one number.
        positive, negative: factors of them for rows with and without each label, above 0, [L]; None for ones.
        dense: whether to multiply rows of all features rather than of those that are not zero.
        numbers: of the labels, by which each has a random order of its own, [L]; None for 0 … L−1.
        of: labels of the problem that these are some of: with many, they start from the optimum without
            labels. None for L. With `numbers` and `of` a label comes out equal to the bit, whatever the
            others are.
        classes: first and last + 1 of the labels that this process of several has; None for all.
    """

    def __init__(
        self,
        X,
        labels,
        formulation: str,
        cost: np.ndarray | float,
        *,
        positive: np.ndarray | None = None,
        negative: np.ndarray | None = None,
        dense: bool = False,
        numbers: np.ndarray | None = None,
        of: int | None = None,
        seed: int = 0,
        threads: int = 1,
        classes: tuple[int, int] | None = None,
    ):
        n, m = labels.shape
        first, last = classes or (0, m)
        begin, end = labels.indptr[first], labels.indptr[last]
        ones = np.ones(last - first)
        numbers = np.arange(m) if numbers is None else numbers
        self._make(
            "separate_new",
            X,
            m,
            offset=(labels.indptr[first : last + 1] - begin).astype(np.int64),
            row=np.ascontiguousarray(labels.indices[begin:end], np.int32),
            cost=np.ascontiguousarray(np.broadcast_to(np.asarray(cost, np.float64), n)),
            positive=ones if positive is None else np.ascontiguousarray(positive, np.float64),
            negative=ones if negative is None else np.ascontiguousarray(negative, np.float64),
            dense=dense,
            number=np.ascontiguousarray(numbers[first:last], np.int64),
            of=m if of is None else of,
            formulation=_ids.number("formulation", formulation),
            seed=seed,
            threads=threads,
            classes=classes,
        )

    @classmethod
    def of_classes(cls, X, y, m: int, formulation: str, C: np.ndarray | float, **options) -> SeparateAscent:
        """That of a multi-class problem, whose classes y, 0 … m−1, are the labels."""
        rows = np.argsort(y, kind="stable").astype(np.int32)
        ends = np.concatenate([[0], np.cumsum(np.bincount(y, minlength=m))])
        labels = sp.csc_array((np.ones(len(y), np.int8), rows, ends), shape=(len(y), m))
        return cls(X, labels, formulation, C, **options)

    def ended(self) -> Ends:
        """Where each label is."""
        first, last = self._classes
        found = Ends(*(np.zeros(last - first) for _ in Ends._fields))
        self._call("ended", **found._asdict())
        return found


class RankingAscent(_Advancing):
    """Coordinate ascent of the multi-label SVM. ``alpha`` has signs: W = Xᵀ α.

    Args:
        X, seed, threads: of the other methods.
        labels: CSR [n, L], each stored entry a label of its row, ascending in a row and none twice.
        cost: weights C of the losses of the rows, from 0, [n]; or one number.
        dense: whether to multiply rows of all features rather than of those that are not zero.
    """

    def __init__(self, X, labels, cost, *, dense: bool = False, seed: int = 0, threads: int = 1):
        n, m = labels.shape
        self._make(
            "ranking_new",
            X,
            m,
            offset=labels.indptr.astype(np.int64),
            label=np.ascontiguousarray(labels.indices, np.int32),
            cost=np.ascontiguousarray(np.broadcast_to(np.asarray(cost, np.float64), n)),
            dense=dense,
            seed=seed,
            threads=threads,
        )


class Proximal(_Point):
    """Proximal point steps by Newton's method, in float64. Starts from the α that it is given.

    Attributes:
        newton_steps: made so far.
        failures: steps in a row after which the dual was no larger.
    """

    _method = 1
    newton_steps = failures = 0

    def step(self, tolerance: float, most: int = 60) -> Assessment:
        """One proximal point step, of so many Newton steps at most, and 60.

        Raises:
            ValueError: none is allowed.
        """
        counts = np.zeros(2, np.int64)
        found = self._assessed("proximal_step", tolerance=tolerance, most=most, counts=counts)
        self.newton_steps, self.failures = counts.tolist()
        return found


class Splitting(_Point):
    """A step of the alternating direction method of multipliers for Lee-Lin-Wahba, in two halves.

    Between them the caller solves a dense system, S x = `right` or (I + ρ XXᵀ) x = `right`. ``weights`` and
    ``alpha`` are those that were kept last; setting ``alpha`` sets what :meth:`begin` starts from.

    Attributes:
        size: of the dense system.
        right: [size, m], in the dtype of X; the solution may take its place.
    """

    _method = 3
    size = 0
    right: np.ndarray

    def eliminate(self, most: int) -> int:
        """Orders the features for a factor of I + ρ XᵀX.

        Returns:
            The entries of its sparse part, `most` or few more; ``size`` is that of the dense part.
        """
        dense, entries = np.zeros((), np.int64), np.zeros((), np.int64)
        self._call("eliminate", most=most, dense=dense, entries=entries)
        self.size = int(dense)
        return int(entries)

    def by_rows(self) -> None:
        """Takes the form with inner products of rows."""
        self._call("by_rows")
        self.size = self.shape[0]

    def factor(self, rho: float) -> np.ndarray:
        """Makes the factor; returns S [size, size], of which the lower half counts."""
        S = np.zeros((self.size, self.size))
        self._call("factor", rho=rho, dense=S)
        return S

    def begin(self) -> tuple[float, float]:
        """‖α‖² and ‖X W‖² of W = weights(α)."""
        self.right = np.zeros((self.size, self.shape[1]), self._dtype)
        found = np.zeros(2)
        self._call("begin", found=found)
        variables, scores = found.tolist()
        return variables, scores

    def look(self, rho: float, relaxed: float, keep: bool) -> list[float]:
        """The first half; fills ``right``.

        Returns:
            Σ max(0, gain), Σ α⁺, ‖W‖², ‖weights(α⁺)‖² and ‖α⁺ − α‖².
        """
        found = np.zeros(5)
        self._call("look", rho=rho, relaxed=relaxed, keep=keep, right=self.right, found=found)
        return found.tolist()

    def move(self, rho: float, relaxed: float, solution: np.ndarray) -> tuple[float, float]:
        """The second half.

        Returns:
            ‖Δ‖², and what the sparse part of a factor adds to Δᵀ(I + ρ XᵀX) Δ.
        """
        found = np.zeros(2)
        self._call("move", rho=rho, relaxed=relaxed, solution=solution, found=found)
        step, curved = found.tolist()
        return step, curved

    def keep_weights(self) -> None:
        """Those of the last look."""
        self._call("keep", which=0)

    def keep_alpha(self) -> None:
        """α⁺ of the last look, which was told to keep it."""
        self._call("keep", which=1)
