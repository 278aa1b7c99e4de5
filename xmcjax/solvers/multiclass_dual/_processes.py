"""Multi-class SVMs over several processes.

Alber et al. 2017. For Weston-Watkins the classes are cut into twice as many bundles as there are processes
("countries"), which play each other by the 1-factorization schedule: in a round every process hosts the match
of two bundles. The dual variables of a match stay where it is played. After a round every process tells the
others which of its variables changed and by what, a row, a class and a number each, and adds what it is told
to its weights: w_y += δ x, w_c −= δ x. The paper moves the weights of bundles, of which a round changes a
small part as soon as most variables have come to rest. For Lee-Lin-Wahba every process has some of the
classes; the mean of the weights is brought up to date after each tenth of an epoch by one sum over the
processes, [d]. One against the rest needs nothing of the others. For Crammer-Singer every process has some of
the rows (:mod:`._row_shares`).

Every process has X and y whole.
"""

from __future__ import annotations

import itertools
import logging
import math
import struct

import numpy as np
import scipy.sparse as sp
from jax.sharding import Mesh

from xmcjax import linops
from xmcjax._arguments import flag, number, whole_number
from xmcjax._fork import needs_threads_of_jax
from xmcjax._platform import host_bound
from xmcjax.native import Advanced, Ascent, Assessment, Match, SeparateAscent
from xmcjax.solvers._accuracy import Accuracy
from xmcjax.solvers._certified import Share
from xmcjax.solvers._formulations import NAMES
from xmcjax.solvers._peers import Peers
from xmcjax.solvers._peers import described as given
from xmcjax.solvers._search import Ended, Passes, Search, ascend, ascend_separately
from xmcjax.solvers.multiclass_dual._native import canonical, described, multiplied_densely
from xmcjax.solvers.multiclass_dual._problem import check_limits, check_problem
from xmcjax.solvers.multiclass_dual._row_shares import RowShares
from xmcjax.solvers.multiclass_dual._schedule import round_count, round_pairs
from xmcjax.solvers.multiclass_dual._solve import Solution
from xmcjax.solvers.multiclass_dual._threads import ThreadWire, Together
from xmcjax.solvers.multiclass_dual._wire import Wire

_log = logging.getLogger(__name__)
# Visits of an instance in a match: the second costs less than the messages of an epoch more.
_PLAYS = 2
# What a process tells before its moves: how many there are of each visit, and two numbers.
_HEAD = struct.Struct(f"@{_PLAYS}q2d")


@needs_threads_of_jax
def run_over_mesh(
    X,
    y,
    mesh: Mesh,
    *,
    formulation: str = "ww",
    C: float = 1.0,
    tol: float = 1e-3,
    max_epochs: int = 1000,
    seed: int = 0,
    shrinking: bool = True,
    threads: int = 1,
) -> Solution:
    """Trains one multi-class SVM over the processes of a mesh, by the native kernels.

    Every process calls it with the same arguments and gets the same solution.

    Args:
        X, y, formulation, C, tol, seed, shrinking: of :func:`run`.
        mesh: of one axis, with one device of every process of ``jax.distributed``.
        max_epochs: epochs at most; one that leaves out shrunk instances counts for its share.
        threads: of each process, the same in all. One-vs-rest and Lee-Lin-Wahba share their classes among
            them, Crammer-Singer its rows in the passes over everything; all come out the same to the bit.
            For Weston-Watkins each thread is a place as a process is, with weights [d, m] of its own: p
            processes of t threads make what p t processes make, but for the order of a few sums, and send
            one message in place of t. They are fewer where there are fewer than two classes for each.

    Returns:
        As :func:`run`. The logger ``xmcjax.solvers.multiclass_dual`` says in its INFO what each process held
        and sent.

    Raises:
        ValueError: as :func:`run`; another mesh; `threads` below 1; fewer classes than processes (for
            Weston-Watkins than twice as many, for Crammer-Singer fewer rows).
        Disagreement: a ValueError; processes were given different arguments, and all of them say which.
        PeerError: a RuntimeError; another process failed, was killed or stopped. It comes within a minute
            and names the process. This one then exits with status 1, whatever the others do.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from jax.sharding import Mesh
        >>> alone = Mesh(np.array(jax.devices()[:1]), ("processes",))
        >>> X, y = np.repeat(np.eye(3, dtype=np.float32), 2, axis=0), [0, 0, 1, 1, 2, 2]
        >>> run_over_mesh(X, y, alone, formulation="ww").status.name
        'CONVERGED'
    """
    with Peers(mesh) as peers:
        return _solved(peers, X, y, mesh, formulation, C, tol, max_epochs, seed, shrinking, threads)


@host_bound
def _solved(
    peers: Peers,
    X,
    y,
    mesh: Mesh,
    formulation: str,
    C: float,
    tol: float,
    max_epochs: int,
    seed: int,
    shrinking: bool,
    threads: int,
) -> Solution:
    check_limits(tol, max_epochs, threads)
    seed, shrinking, C = whole_number("seed", seed, 0), flag("shrinking", shrinking), number("C", C)
    X, y, m, _ = check_problem(X, y, formulation, C)
    if not linops.native_ready():
        raise ValueError("expected the native kernels on a CPU device, but they are not built or not its own")
    wire, X = Wire(mesh, peers), canonical(X)
    options = dict(
        formulation=formulation,
        C=C,
        tol=tol,
        max_epochs=max_epochs,
        seed=seed,
        shrinking=shrinking,
        threads=threads,
    )
    facts = {"work": "multiclass_dual", "options": repr(options)}
    peers.agree(lambda: facts | {"X": given(X), "y": given(y)})
    league = _league(wire, (X, y, m, formulation, C), seed, threads)
    passes, violation = Passes(), np.inf
    # the processes go on together, or none of them
    share = Share(wire.place, wire.count, wire.total)
    search = Search(
        X,
        y,
        formulation,
        C,
        tol,
        agreed=lambda gap: float(wire.largest(np.array(gap))),
        share=share,
        threads=threads,
    )

    def left() -> float:
        return max_epochs - passes.visited

    def ascent(target: float, alpha) -> Ended:
        nonlocal violation
        if isinstance(league, _Separate):
            found = ascend_separately(league, target, shrinking, passes, left)
        else:
            found = ascend(league, Accuracy(X.dtype, target), shrinking, passes, left)
        violation = found.violation
        return Ended(_gathered(wire, league.alpha()), found.gap)

    try:
        search.attempt(ascent, left)
    finally:
        if isinstance(league, Together):
            league.close()
    if _log.isEnabledFor(logging.INFO):  # it copies what it measures
        places = league.leagues if isinstance(league, Together) else [league]
        held = sum(one.point.weights.nbytes for one in places) + _bytes_of(league.alpha())
        _log.info(
            "process %d of %d: %d bytes of weights and variables, %d bytes sent in %d messages, %d sweeps",
            *(wire.place, wire.count, held, wire.sent, wire.messages, passes.sweeps),
        )
    counts = dict(epochs=math.ceil(passes.visited), newton_steps=0, shrunk=passes.shrunk)
    return Solution(**counts, **described(search, violation, left(), formulation))


def _league(wire: Wire, problem: tuple, seed: int, threads: int):
    """What this process has of the problem, with the way to the others."""
    _, y, m, formulation, _ = problem
    if formulation == "cs":
        return RowShares(wire, problem, seed, threads)
    if formulation == "ww":
        # a place has two bundles of classes; one place of each process there must be
        places = max(1, min(threads, m // (2 * wire.count)))
        if places == 1:
            return _Countries(wire, problem, seed)
        return Together(wire, places, lambda of_thread: _Countries(of_thread, problem, seed))
    bundles = _cut(np.bincount(y), wire.count)
    return (_Separate if NAMES[formulation].has_own else _Shares)(wire, bundles, problem, seed, threads)


def _cut(sizes: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Bundles of neighbouring classes, about as many instances in each, none of them empty."""
    m = len(sizes)
    if m < count:
        raise ValueError(f"expected at least {count} classes for this many processes, got {m}")
    after = np.concatenate([[0], np.cumsum(sizes)])
    cuts = np.searchsorted(after, after[-1] * np.arange(count + 1) / count)
    for b in range(1, count):
        cuts[b] = min(max(cuts[b], cuts[b - 1] + 1), m - (count - b))
    cuts[-1] = m
    return [(int(a), int(b)) for a, b in itertools.pairwise(cuts)]


class _Countries:
    """Weston-Watkins: bundles of classes that play each other."""

    def __init__(self, wire: Wire | ThreadWire, problem: tuple, seed: int):
        X, y, m, _, C = problem
        self._wire, self._bundles = wire, _cut(np.bincount(y), 2 * wire.count)
        self.point = Ascent(*problem, seed=seed)
        self._filled = np.diff(X.indptr) > 0
        # a row of zeros has all its variables at the bound, and that for its loss
        self._zeros = float(np.sum(~self._filled)) * C * (m - 1)
        self.point.assess(1.0)  # gives every instance its first classes
        self._violation = 1.0
        self._dtype = X.dtype

    def _matches(self):
        """The match that this process hosts in each round."""
        count, place = len(self._bundles), self._wire.place
        for r in range(round_count(count)):
            a, b = (int(side[place]) for side in round_pairs(count, r))
            yield Match(self._bundles[a], self._bundles[b], r == 0)

    def _told(self, moves: list[tuple[np.ndarray, ...]], numbers: list[float]) -> list[float]:
        """Follows the moves of the other processes; the largest of all processes, number by number."""
        if self._wire.count == 1:
            return numbers
        head = _HEAD.pack(*(len(change) for _, _, change in moves), *numbers)
        parts = self._wire.gather_parts(b"".join([head, *(a.tobytes() for move in moves for a in move)]))
        heads = [_HEAD.unpack_from(part) for part in parts]
        for place, part in enumerate(parts):
            at = _HEAD.size
            for count in heads[place][:_PLAYS] if place != self._wire.place else ():
                row, label = np.frombuffer(part, np.int32, 2 * count, at).reshape(2, count)
                change = np.frombuffer(part, self._dtype, count, at + 8 * count)
                self.point.follow(row, label, change)
                at += (8 + self._dtype.itemsize) * count
        return np.max([head[_PLAYS:] for head in heads], axis=0).tolist()

    def assess(self, tol: float) -> Assessment:
        self.point.begin_epoch(self._violation)
        parts = [self.point.examine(match, tol) for match in self._matches()]
        worst = self._wire.largest(np.array(max(part.violation for part in parts)))
        sums = np.array([[part.primal, part.dual] for part in parts]).sum(axis=0)
        primal, dual = self._wire.total(sums) + self._zeros
        self._violation = float(worst)
        self.point.begin_epoch(self._violation)
        return Assessment(float(primal), float(dual), self._violation)

    def sweep(self, tol: float, shrinking: bool) -> tuple[float, float]:
        worst = kept = 0.0
        for r, match in enumerate(self._matches(), 1):
            moves = []
            for _ in range(_PLAYS):
                worst = max(worst, self.point.play(match, tol))
                moves.append(self.point.moves())
            if r == round_count(len(self._bundles)):
                kept = self.point.settle(shrinking)
            worst, kept = self._told(moves, [worst, kept])
        return worst, kept

    def alpha(self) -> sp.csr_array:
        """The dual variables of the matches of this process; of the rows of zeros on the first."""
        alpha = self.point.alpha
        if not self._wire.place:
            return alpha
        return sp.csr_array(sp.diags_array(self._filled.astype(alpha.dtype)) @ alpha)


class _Separate:
    """One against the rest: every process has some classes, and waits for the others now and then."""

    def __init__(self, wire: Wire, bundles: list[tuple[int, int]], problem: tuple, seed: int, threads: int):
        self._wire = wire
        X = problem[0]
        self.point = SeparateAscent.of_classes(
            *problem,
            dense=multiplied_densely(X),
            seed=seed,
            threads=threads,
            classes=bundles[wire.place],
        )

    def advance(self, tol: float, passes: float, shrinking: bool) -> Advanced:
        to = self.point.advance(tol, passes, shrinking)
        sums = np.array([to.found.primal, to.found.dual, to.left_out])
        primal, dual, left_out = self._wire.total(sums).tolist()
        most = self._wire.largest(np.array([to.found.violation, to.passes, float(to.running)])).tolist()
        return Advanced(Assessment(primal, dual, most[0]), most[1], left_out / self._wire.count, most[2] > 0)

    def alpha(self) -> sp.csr_array:
        """The dual variables of the classes of this process."""
        return self.point.alpha


class _Shares:
    """Lee-Lin-Wahba: every process has some classes."""

    def __init__(self, wire: Wire, bundles: list[tuple[int, int]], problem: tuple, seed: int, threads: int):
        self._wire = wire
        self.point = Ascent(*problem, seed=seed, threads=threads, classes=bundles[wire.place])

    def assess(self, tol: float) -> Assessment:
        found = self.point.assess(tol)
        primal, dual = self._wire.total(np.array([found.primal, found.dual]))
        worst = self._wire.largest(np.array(found.violation))
        return Assessment(float(primal), float(dual), float(worst))

    def sweep(self, tol: float, shrinking: bool) -> tuple[float, float]:
        worst = visited = 0.0
        for k in range(self.point.parts):
            violation, share = self.point.part(k, tol, shrinking)
            worst, visited = max(worst, violation), visited + share
            self.point.move_mean(self._wire.total(self.point.mean_change))
        worst, visited = self._wire.largest(np.array([worst, visited]))
        return float(worst), float(visited)

    def alpha(self) -> sp.csr_array:
        """The dual variables of the classes of this process."""
        return self.point.alpha


def _bytes_of(alpha: sp.csr_array) -> int:
    return alpha.data.nbytes + alpha.indices.nbytes + alpha.indptr.nbytes


def _gathered(wire: Wire, alpha: sp.csr_array) -> sp.csr_array:
    """The dual variables of all processes, no two of which have the same."""
    entries = alpha.tocoo()
    length = int(wire.largest(np.array(alpha.nnz)))
    parts = [
        wire.gather(np.pad(a, (0, length - alpha.nnz))) for a in (entries.row, entries.col, entries.data)
    ]
    row, column, value = (part.ravel() for part in parts)
    real = value != 0
    return sp.coo_array((value[real], (row[real], column[real])), shape=alpha.shape).tocsr()
