"""Multi-class SVMs over several processes.

For Weston-Watkins and Crammer-Singer every process has some of the rows (:mod:`._row_places`). For
Lee-Lin-Wahba every process has some of the classes; the mean of the weights is brought up to date after each
tenth of an epoch by one sum over the processes, [d] (Alber et al. 2017, Algorithm 3). For one-vs-rest every
process has some of the classes too, and needs nothing of the others.

Every process has X and y whole.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from jax.sharding import Mesh

from xmcjax import linops
from xmcjax._arguments import flag, number, whole_number
from xmcjax._fork import needs_threads_of_jax
from xmcjax._platform import on_host
from xmcjax.native import Advanced, Ascent, Assessment, SeparateAscent
from xmcjax.solvers._accuracy import Accuracy
from xmcjax.solvers._certified import Share
from xmcjax.solvers._formulations import NAMES
from xmcjax.solvers._peers import Peers
from xmcjax.solvers._peers import described as given
from xmcjax.solvers._search import Ended, Passes, Search, ascend, ascend_separately
from xmcjax.solvers.multiclass_dual._native import canonical, described, multiplied_densely
from xmcjax.solvers.multiclass_dual._problem import check_limits, check_problem
from xmcjax.solvers.multiclass_dual._row_places import RowPlaces, parts_of, row_places
from xmcjax.solvers.multiclass_dual._schedule import bundles_of
from xmcjax.solvers.multiclass_dual._solve import Solution
from xmcjax.solvers.multiclass_dual._threads import Together
from xmcjax.solvers.multiclass_dual._wire import Wire

_log = logging.getLogger(__name__)


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
    share_weights: bool = True,
) -> Solution:
    """Trains one multi-class SVM over the processes of a mesh, by the native kernels.

    Every process calls it with the same arguments and gets the same solution.

    Args:
        X, y, formulation, C, tol, seed, shrinking: of :func:`run`.
        mesh: of one axis, with one device of every process of ``jax.distributed``.
        max_epochs: epochs at most; one that leaves out shrunk instances counts for its share.
        threads: of each process, the same in all. One-vs-rest and Lee-Lin-Wahba divide their classes among
            the threads, whose number changes no bit. For Weston-Watkins and Crammer-Singer over several
            processes each thread takes part as a process does: p processes of t threads compute what p t
            processes compute, but for rounding over several machines. Fewer threads take part where rows are
            too few. With fewer than 64 classes, or a class of more than 3 / (8 p) of the rows, every process
            solves the whole problem.
        share_weights: whether processes of one machine share the weights of Weston-Watkins and
            Crammer-Singer, in memory that Linux gives them. If False they send messages as processes of
            different machines do, which shows on one machine what messages cost.

    Returns:
        As :func:`run`. The logger ``xmcjax.solvers.multiclass_dual`` says in its INFO what each process held
        and sent.

    Raises:
        ValueError: as :func:`run`; another mesh; `threads` below 1; fewer classes than processes for
            Lee-Lin-Wahba and one-vs-rest.
        Disagreement: a ValueError; processes were given different arguments, and all of them say which.
        PeerError: a RuntimeError; another process failed, was killed or stopped. It comes within a minute
            and names the process. The process that raises it then exits with status 1, whatever others do.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from jax.sharding import Mesh
        >>> alone = Mesh(np.array(jax.devices()[:1]), ("processes",))
        >>> X, y = np.repeat(np.eye(3, dtype=np.float32), 2, axis=0), [0, 0, 1, 1, 2, 2]
        >>> run_over_mesh(X, y, alone, formulation="ww").status.name
        'CONVERGED'
    """
    with Peers(mesh) as peers, on_host():
        check_limits(tol, max_epochs, threads)
        seed, shrinking, C = whole_number("seed", seed, 0), flag("shrinking", shrinking), number("C", C)
        X, y, m, _ = check_problem(X, y, formulation, C)
        if not linops.native_ready():
            raise ValueError(linops.NO_NATIVE)
        wire, X = Wire(mesh, peers), canonical(X)
        options = dict(
            formulation=formulation,
            C=C,
            tol=tol,
            max_epochs=max_epochs,
            seed=seed,
            shrinking=shrinking,
            threads=threads,
            share_weights=flag("share_weights", share_weights),
        )
        facts = {"work": "multiclass_dual", "options": repr(options)}
        peers.agree(lambda: facts | {"X": given(X), "y": given(y)})
        league = _league(wire, (X, y, m, formulation, C), seed, threads, share_weights)
        passes, violation = Passes(), np.inf
        # all processes go on, or none does
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
            elif isinstance(league, _Alone):
                found = league.ascend(Accuracy(X.dtype, target), shrinking, passes, left)
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
            held = _bytes_of_weights(league) + _bytes_of(league.alpha())
            _log.info(
                "process %d of %d: %d bytes of weights and variables, %d bytes sent in %d messages, "
                "%d sweeps",
                *(wire.place, wire.count, held, wire.sent, wire.messages, passes.sweeps),
            )
        counts = dict(epochs=math.ceil(passes.visited), newton_steps=0, shrunk=passes.shrunk)
        return Solution(**counts, **described(search, violation, left(), formulation))


def _league(wire: Wire, problem: tuple, seed: int, threads: int, share_weights: bool):
    """The part of the problem that this process has, with the way to the other processes."""
    _, y, m, formulation, _ = problem
    if formulation in ("ww", "cs"):
        # as many threads as there are rows for
        some = (t for t in range(threads, 0, -1) if wire.count > 1 and parts_of(y, m, t * wire.count))
        places = next(some, 0)
        if not places:
            return _Alone(wire, problem, seed, threads)
        make = row_places(wire, problem, seed, places, share_weights)
        return make(wire) if places == 1 else Together(wire, places, make)
    bundles = bundles_of(np.bincount(y), wire.count)
    return (_Separate if NAMES[formulation].has_own else _Shares)(wire, bundles, problem, seed, threads)


class _Alone:
    """The whole problem in every process; what the first process finds counts."""

    def __init__(self, wire: Wire, problem: tuple, seed: int, threads: int):
        self._wire = wire
        self.point = Ascent(*problem, seed=seed, threads=threads)

    def ascend(
        self, accuracy: Accuracy, shrinking: bool, passes: Passes, left: Callable[[], float]
    ) -> Assessment:
        found = ascend(self.point, accuracy, shrinking, passes, left)
        # what a machine with other vector instructions finds may differ by rounding
        numbers = np.array([*found, passes.sweeps, passes.visited, passes.shrunk])
        primal, dual, worst, *made = self._wire.gather(numbers)[0].tolist()
        passes.sweeps, passes.visited, passes.shrunk = int(made[0]), made[1], made[2]
        return Assessment(primal, dual, worst)

    def alpha(self) -> sp.csr_array:
        """The dual variables, on the first process; none on the others."""
        return self.point.alpha if not self._wire.place else sp.csr_array(self.point.shape)


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


def _bytes_of_weights(league) -> int:
    places = league.leagues if isinstance(league, Together) else [league]
    if isinstance(places[0], RowPlaces):  # the threads of a process share the weights
        places = places[:1]
    return sum(one.point.weights.nbytes for one in places)


def _bytes_of(alpha: sp.csr_array) -> int:
    return alpha.data.nbytes + alpha.indices.nbytes + alpha.indptr.nbytes


def _gathered(wire: Wire, alpha: sp.csr_array) -> sp.csr_array:
    """The dual variables of all processes; each is on one process."""
    entries = alpha.tocoo()
    layout = np.dtype([("row", np.int32), ("column", np.int32), ("value", np.float64)])
    own = np.zeros(alpha.nnz, layout)
    own["row"], own["column"], own["value"] = entries.row, entries.col, entries.data
    every = np.concatenate([np.frombuffer(part, layout) for part in wire.gather_parts(own.tobytes())])
    every = every[every["value"] != 0]
    return sp.coo_array((every["value"], (every["row"], every["column"])), shape=alpha.shape).tocsr()
