"""Weston-Watkins over several processes and threads.

Alber et al. 2017. The classes are cut into twice as many bundles as there are places, which are processes or
their threads ("countries"). Bundles play each other by the 1-factorization schedule: in a round every place
hosts the match of two. The dual variables of a match stay where it is played. Places of one machine have the
weights together and meet after a round (:mod:`._board`). To those of other machines every place tells which
of its variables changed and by what, a row, a class and a number each, and adds what it is told to its
weights: w_y += δ x, w_c −= δ x. The paper moves the weights of bundles, of which a round changes a small part
as soon as most variables have come to rest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp

from xmcjax.native import Ascent, Assessment, Match, shared_panel, shared_room
from xmcjax.solvers.multiclass_dual._board import Board, shared_memory
from xmcjax.solvers.multiclass_dual._schedule import bundles_of, round_count, round_pairs
from xmcjax.solvers.multiclass_dual._threads import ThreadWire
from xmcjax.solvers.multiclass_dual._wire import Wire

# Visits of an instance in a match of which other machines are told: the second costs less than the messages
# of an epoch more.
_PLAYS = 2
# What a place tells before its moves: how many there are of each visit, and two numbers.
_HEAD = struct.Struct(f"@{_PLAYS}q2d")


def countries_of(
    wire: Wire, problem: tuple, seed: int, threads: int, share_weights: bool
) -> tuple[int, Callable[[Wire | ThreadWire], Countries]]:
    """How many places this process has, and what makes the one of a wire; they may be fewer than threads."""
    X, y, m, _, _ = problem
    sizes, width = np.bincount(y), shared_panel(X.dtype)
    most = -(-m // width) // (2 * wire.count)  # with two bundles of whole panels each
    places = max(1, min(threads, most))
    count = places * wire.count
    if not most:
        bundles = bundles_of(sizes, 2 * count)
        return 1, lambda place: Countries(place, problem, seed, bundles)
    panels = bundles_of(np.add.reduceat(sizes, np.arange(0, m, width)), 2 * count)
    bundles = [(first * width, min(last * width, m)) for first, last in panels]
    size = shared_room(X.shape[1], m, X.dtype) * X.dtype.itemsize
    shared = shared_memory(wire, size, places, share_weights)

    def made(place: Wire | ThreadWire) -> Countries:
        board = Board(shared, places, place.place, X.dtype, place.look)
        return Countries(place, problem, seed, bundles, board)

    return places, made


def _hosted(bundles: list[tuple[int, int]], place: int) -> Iterator[Match]:
    """The match that a place hosts in each round."""
    for r in range(round_count(len(bundles))):
        a, b = (int(side[place]) for side in round_pairs(len(bundles), r))
        yield Match(bundles[a], bundles[b], r == 0)


class Countries:
    """Weston-Watkins: bundles of classes that play each other.

    Args:
        wire: from this place to all.
        problem: X, y, m, formulation, C.
        seed: of the random orders.
        bundles: twice as many as places.
        board: where the places meet that have their weights together; None for weights of its own.
    """

    def __init__(
        self,
        wire: Wire | ThreadWire,
        problem: tuple,
        seed: int,
        bundles: list[tuple[int, int]],
        board: Board | None = None,
    ):
        X, _, m, _, C = problem
        self._wire, self._board = wire, board
        self._near = [wire.place] if board is None else board.near
        self._far = len(self._near) < wire.count  # whether there are places with other weights
        self._matches = list(_hosted(bundles, wire.place))
        self.point = Ascent(*problem, seed=seed, shared=None if board is None else board.weights)
        self._filled = np.diff(X.indptr) > 0
        # a row of zeros has all its variables at the bound, and that for its loss
        self._zeros = float(np.sum(~self._filled)) * C * (m - 1)
        self.point.assess(1.0)  # gives every instance its first classes
        self._violation = 1.0
        self._dtype = X.dtype

    @property
    def shares(self) -> bool:
        """Whether the places of a process have their weights together."""
        return self._board is not None

    def _met(self, numbers: list[float]) -> np.ndarray:
        """What the places near have of some numbers, [places, numbers]."""
        return np.array([numbers]) if self._board is None else self._board.gather(numbers)

    def _told(self, moves: list[tuple[np.ndarray, ...]], numbers: list[float]) -> list[float]:
        """Follows the moves of the places that are far; the largest of all places, number by number."""
        if not self._far:
            return self._met(numbers).max(axis=0).tolist()
        head = _HEAD.pack(*(len(change) for _, _, change in moves), *numbers)
        parts = self._wire.gather_parts(b"".join([head, *(a.tobytes() for move in moves for a in move)]))
        heads = [_HEAD.unpack_from(part) for part in parts]
        # one of those who have the weights together follows, when all of them have played
        follows = self._near[0] == self._wire.place
        for place, part in enumerate(parts) if follows else ():
            at = _HEAD.size
            for count in heads[place][:_PLAYS] if place not in self._near else ():
                row, label = np.frombuffer(part, np.int32, 2 * count, at).reshape(2, count)
                change = np.frombuffer(part, self._dtype, count, at + 8 * count)
                self.point.follow(row, label, change)
                at += (8 + self._dtype.itemsize) * count
        self._met([])  # the weights are up to date
        return np.max([head[_PLAYS:] for head in heads], axis=0).tolist()

    def assess(self, tol: float) -> Assessment:
        self.point.begin_epoch(self._violation)
        parts = [self.point.examine(match, tol) for match in self._matches]
        worst = max(part.violation for part in parts)
        sums = np.array([[part.primal, part.dual] for part in parts]).sum(axis=0)
        if self._far:
            worst, sums = float(self._wire.largest(np.array(worst))), self._wire.total(sums)
        else:
            met = self._met([*sums.tolist(), worst])
            worst, sums = float(met[:, 2].max()), met[:, :2].sum(axis=0)
        primal, dual = (sums + self._zeros).tolist()
        self._violation = worst
        self.point.begin_epoch(worst)
        return Assessment(primal, dual, worst)

    def sweep(self, tol: float, shrinking: bool) -> tuple[float, float]:
        worst = kept = 0.0
        for r, match in enumerate(self._matches, 1):
            moves = []
            for _ in range(_PLAYS if self._far else 1):
                worst = max(worst, self.point.play(match, tol, shrinking))
                if self._far:
                    moves.append(self.point.moves())
            if r == len(self._matches):
                kept = self.point.settle(shrinking)
            worst, kept = self._told(moves, [worst, kept])
        return worst, kept

    def alpha(self) -> sp.csr_array:
        """The dual variables of the matches of this process; of the rows of zeros on the first."""
        alpha = self.point.alpha
        if not self._wire.place:
            return alpha
        return sp.csr_array(sp.diags_array(self._filled.astype(alpha.dtype)) @ alpha)
