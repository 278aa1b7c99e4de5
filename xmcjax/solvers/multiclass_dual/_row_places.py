"""Weston-Watkins and Crammer-Singer over several processes and threads, each of which is called a place.

Every place has the dual variables of the rows of some classes. A sweep has parts. In a part each place
visits some of its rows at weights that stay as they are, so that visits of one part do not see each other's
changes. Then all these changes are made in the weights: w_y += δ x, w_c −= δ x. Places of one machine share
the weights, and each makes the changes of some classes (:mod:`._board`), mostly those of its own rows:
neighbouring classes are alike as a rule, so that a core rereads what it has written. Places of other
machines are told the changes, as a row, a class and a number each.

The gain of a visit is certain, Σ_c δ_c h_c − ½ ‖x‖² (Σ δ_c² + (Σ δ_c)²) with h_c = 1 + z_c − z_y. The gain of
all rows of a part together is certain only where they have little in common. Where the dual objective falls,
sweeps have more parts from then on, and in the end shorter steps, for which ‖x‖² is taken to be larger, by a
factor of up to the number of rows of a part, with which the objective cannot fall (Ma et al., "Adding vs.
averaging in distributed primal-dual optimization", 2015).

Alber et al. 2017 divide bundles of classes instead of rows: two bundles play each other, as threads of one
process do here, and an instance is visited in every match that has some of its classes. Where rows have few
features, each of these visits costs as much as one visit for all classes: two processes took as long as one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from xmcjax.native import Ascent, Assessment, shared_panel, shared_room
from xmcjax.solvers.multiclass_dual._board import Board, shared_memory
from xmcjax.solvers.multiclass_dual._schedule import bundles_of
from xmcjax.solvers.multiclass_dual._threads import ThreadWire
from xmcjax.solvers.multiclass_dual._wire import Wire

# _ALIKE: rows of the largest class in a part, about. _LEAST: rows of a place in a part, at least. _PARTS:
# parts of a sweep, at least, where rows suffice for so many. _MOST: parts of a sweep, at most.
_ALIKE, _LEAST, _PARTS, _MOST = 3, 8, 32, 1024
# Bundles of neighbouring classes per place: few, so that a place itself changes most weights that it reads.
_BUNDLES = 8
# Least number of classes for places: with fewer, most rows have the classes of most others on their lists.
_FEW = 64
# Where the dual objective has fallen by more than _ROUNDING times its rounding, a sweep has _CAREFUL times as
# many parts, or steps are shorter by that factor.
_CAREFUL, _ROUNDING = 3, 100
# What a place tells before its moves: how many there are.
_HEAD = struct.Struct("@q")


def parts_of(y: np.ndarray, m: int, places: int) -> int:
    """Parts of a sweep at first; 0 where places would be of no use: rows have too much in common."""
    most, needed = _most_parts(len(y), places), -(-int(np.bincount(y).max()) // _ALIKE)
    return min(max(needed, _PARTS), most) if m >= _FEW and needed <= most else 0


def _most_parts(n: int, places: int) -> int:
    return min(n // (_LEAST * places), _MOST)


def row_places(
    wire: Wire, problem: tuple, seed: int, threads: int, share_weights: bool
) -> Callable[[Wire | ThreadWire], RowPlaces]:
    """A function that makes a place from its wire; every process makes this call."""
    X, y, m, _, _ = problem
    count = threads * wire.count
    size = shared_room(X.shape[1], m, X.dtype) * X.dtype.itemsize
    shared = shared_memory(wire, size, threads, share_weights)
    parts = parts_of(y, m, count)

    def made(place: Wire | ThreadWire) -> RowPlaces:
        board = Board(shared, threads, place.place, X.dtype, place.look)
        return RowPlaces(place, problem, seed, parts, board)

    return made


class RowPlaces:
    """One place.

    Args:
        wire: from this place to all.
        problem: X, y, m, formulation, C.
        seed: of the random orders.
        parts: of a sweep at first, of :func:`parts_of`.
        board: where the places meet that share their weights.
    """

    def __init__(self, wire: Wire | ThreadWire, problem: tuple, seed: int, parts: int, board: Board):
        X, y, m, _, _ = problem
        self._wire, self._board, self._parts, self._caution = wire, board, parts, 1.0
        self._far = len(board.near) < wire.count  # whether there are places with other weights
        self._n, self._most = X.shape[0], _most_parts(X.shape[0], wire.count)
        panel = shared_panel(X.dtype)
        has = places_of(y, m, wire.count, panel if m >= panel * _BUNDLES * wire.count else 1) == wire.place
        moved = places_of(y, m, len(board.near), panel) == board.own
        # rows of different places may be alike, so that each place has an order of its own
        self.point = Ascent(
            *problem, seed=seed * wire.count + wire.place, place=(has, moved), shared=board.weights
        )
        self._dtype, self._dual = X.dtype, -np.inf

    def assess(self, tol: float) -> Assessment:
        found = self.point.assess(tol)
        if self._far:
            primal, dual = self._wire.total(np.array([found.primal, found.dual])).tolist()
            worst = float(self._wire.largest(np.array(found.violation)))
        else:
            met = self._board.gather(list(found))
            primal, dual = met[:, :2].sum(axis=0).tolist()
            worst = float(met[:, 2].max())
        if dual < self._dual - _ROUNDING * float(np.finfo(self._dtype).eps) * abs(dual):
            self._take_care()
        self._dual = dual
        return Assessment(primal, dual, worst)

    def sweep(self, tol: float, shrinking: bool) -> tuple[float, float]:
        violation = (self._told if self._far else self._met)(tol)
        numbers = [violation, self.point.settle(shrinking)]
        all_numbers = self._wire.gather(np.array(numbers)) if self._far else self._board.gather(numbers)
        return float(all_numbers[:, 0].max()), float(all_numbers[:, 1].mean())

    def alpha(self) -> sp.csr_array:
        """The dual variables of the rows of this place."""
        return self.point.alpha

    def _take_care(self) -> None:
        if self._parts < self._most:
            self._parts = min(_CAREFUL * self._parts, self._most)
        else:
            self._caution = min(_CAREFUL * self._caution, max(1.0, self._n / self._parts))

    def _met(self, tol: float) -> float:
        """Makes the parts of a sweep where all places share the weights; the largest violation."""
        return self._board.sweep(self.point, self._parts, tol, self._caution)

    def _told(self, tol: float) -> float:
        """Makes the parts of a sweep where some places have other weights, and are told of all moves."""
        worst = 0.0
        for part in range(self._parts):
            worst = max(worst, self.point.row_part(part, self._parts, tol, self._caution))
            moves = self.point.moves()
            head = _HEAD.pack(len(moves[0]))
            for told in self._wire.gather_parts(b"".join([head, *(a.tobytes() for a in moves)])):
                (count,) = _HEAD.unpack_from(told)
                row, label = np.frombuffer(told, np.int32, 2 * count, _HEAD.size).reshape(2, count)
                change = np.frombuffer(told, self._dtype, count, _HEAD.size + 8 * count)
                self.point.follow(row, label, change)
            self._board.gather([])  # the weights are up to date
        return worst


def places_of(y: np.ndarray, m: int, places: int, unit: int) -> np.ndarray:
    """The place of each class, [m]: `unit` neighbouring classes at a time have the same place.

    Every place has several bundles of neighbours, and all have about as many rows.
    """
    sizes = np.add.reduceat(np.bincount(y, minlength=m), np.arange(0, m, unit))
    held, found = np.zeros(places, int), np.zeros(len(sizes), int)
    for first, last in bundles_of(sizes, min(_BUNDLES * places, len(sizes))):
        place = found[first:last] = np.argmin(held)
        held[place] += sizes[first:last].sum()
    return np.repeat(found, unit)[:m]
