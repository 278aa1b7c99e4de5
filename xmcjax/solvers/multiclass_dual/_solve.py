"""A multi-class SVM solved to a tolerance, by whichever of the methods suits it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax import linops
from xmcjax._arguments import whole_number
from xmcjax._platform import host_bound
from xmcjax._range import check_norms
from xmcjax.native import awaited
from xmcjax.solvers._accuracy import Accuracy
from xmcjax.solvers._base import Status
from xmcjax.solvers._common_size import of_common_size
from xmcjax.solvers._progress import Observe, Progress, observed, starting_point
from xmcjax.solvers._search import Ended, Search
from xmcjax.solvers.multiclass_dual import _native, _proximal, _weighted
from xmcjax.solvers.multiclass_dual._epochs import HParams, certificate, init, run_epochs
from xmcjax.solvers.multiclass_dual._problem import (
    MulticlassProblem,
    check_limits,
    check_problem,
    multiclass_problem,
)

# Epochs of coordinate ascent in plain JAX before proximal point steps take over: an epoch is a chain of n
# small operations there, a Newton step a few large ones.
_EPOCHS = 30


class Solution(NamedTuple):
    """What :func:`run` ends with.

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers import multiclass_dual
        >>> solution = multiclass_dual.run(np.float32([[1, 0], [0, 1]]), [0, 1], formulation="cs")
        >>> solution.status.name
        'CONVERGED'
    """

    #: [d, m], in the dtype of X; with the backend "dense" or "jnp" in the dtype of JAX, which is float32
    #: without jax_enable_x64
    W: np.ndarray
    alpha: sp.csr_array  #: dual variables, [n, m]
    primal: float
    dual: float
    gap: float  #: |primal − dual| / |primal|, of W and alpha in float64
    violation: float  #: largest |projected gradient| that ascent or Newton's method found last
    epochs: int  #: of coordinate ascent; a native epoch that leaves out rows counts as its share
    newton_steps: int  #: of the proximal point and the interior-point method
    status: Status
    density_w: float  #: share of the weights that are not zero
    density_alpha: float  #: share of the dual variables that are not zero
    shrunk: float  #: share of the dual variables that the last epoch left out
    reason: str = ""  #: why the methods came in their order


@host_bound
def run(
    X,
    y,
    *,
    formulation: str = "ww",
    C: float | np.ndarray = 1.0,
    classes: int | None = None,
    tol: float = 1e-3,
    max_epochs: int = 1000,
    seed: int = 0,
    shrinking: bool = True,
    backend: str = "auto",
    threads: int = 1,
    start=None,
    observe: Observe | None = None,
) -> Solution:
    """Trains one multi-class SVM.

    Coordinate ascent comes first. What it has not solved after a number of epochs, as happens where
    features are dense and badly scaled, goes to proximal point steps by Newton's method, in float64, or to an
    interior-point method.

    Where rows have different C, the bounds of their dual variables differ, and the native ascent over classes
    has no such bounds. Then native ascent over instances, or class by class, and steps for all rows at once
    come first, on one thread, and proximal point steps in JAX follow where these do not suffice.

    Args:
        X, y, formulation, C, classes: of :func:`multiclass_problem`.
        backend: "native", the C++ kernels, whose dtypes do not depend on JAX's settings; "dense" or "jnp",
            plain JAX, of :func:`xmcjax.linops.make`; "auto" takes native where it is built and the default
            device is a CPU, else what suits X.
        threads: of the native kernels, and of the certificate. For one-vs-rest and Lee-Lin-Wahba their number
            changes no bit of the solution.
        tol: relative duality gap (P − D)/P at which training ends, 1e-3 by default: P is then above its
            minimum by no more than that part of it. The gap that counts is worked out in float64 from the
            dual variables and the weights that are returned. Where their rounding to float32 keeps it above
            `tol`, the status is STALLED.
        max_epochs: epochs and Newton steps at most, together; in the native kernels, an epoch that leaves
            out shrunk instances counts for its share.
        seed: of the random orders.
        shrinking: whether coordinate ascent leaves out what has not changed for three epochs.
        start: dual variables [n, m] to start from, such as those of a solution with another C or other
            features; brought into the dual set first. None for 0.
        observe: called every few passes with the progress: ``method``, ``passes``, ``gap``, and ``alpha()``,
            the dual variables, from which another call can start; or None.

    Returns:
        Weights and dual variables, with objectives and duality gap; ``status`` says whether `tol` was
        reached.

    Raises:
        ValueError: as :func:`multiclass_problem`; `tol` not above 0; `max_epochs` or `threads` below 1; a
            start of another shape, or not finite.
        TypeError: a start that is no matrix, or `observe` that cannot be called.

    Example:
        >>> solution = run(np.float32([[1, 0], [0, 1], [1, 1]]), [0, 1, 2], formulation="ww", C=1.0)
        >>> solution.W.shape, solution.gap < 1e-3
        ((2, 3), True)
    """
    check_limits(tol, max_epochs, threads)
    seed = whole_number("seed", seed, 0)
    X, y, m, C = check_problem(X, y, formulation, C, classes)
    begin, observe = starting_point(start, y, m, formulation, C), observed(observe)
    native = backend in ("auto", "native") and linops.native_ready()
    if native and not isinstance(C, np.ndarray):
        limits: dict[str, Any] = dict(tol=tol, max_epochs=max_epochs, threads=threads)
        limits |= dict(seed=seed, shrinking=shrinking, start=begin, observe=observe)
        return Solution(**_native.Methods(X, y, m, formulation, C, **limits).solved())
    dtype = linops.computed_dtype(X.dtype if X.dtype in (np.float32, np.float64) else np.float32)
    check_norms(X, dtype)
    size: dict[str, Any] = dict(classes=m, backend=backend, threads=threads)
    given = X, y, C

    def problem() -> MulticlassProblem:
        X, y, C = of_common_size(*given)
        return multiclass_problem(X, y, formulation=formulation, C=C, **size)

    X = _native.canonical(X) if sp.issparse(X) else np.asarray(X, dtype)
    search = Search(X, y, formulation, C, tol, start=begin, threads=threads)
    before, reason = 0, "epochs and Newton steps in plain JAX: there is no native library, or another device"
    if native:  # the C of the rows differ
        assert isinstance(C, np.ndarray)
        more = max_epochs, seed, observe
        before = _weighted.attempt(search, X, y, m, formulation, C, *more)
        reason = "weights of rows differ, so that each method has a bound for each row"
    made = _InJax(problem, len(y), max_epochs - before, shrinking, seed, observe)
    if not native:
        search.attempt(made.epochs, made.left)
    if search.unsolved and made.left() > 0:
        search.attempt(made.polish, made.left)
    epochs, shrunk = before + made.epochs_made, made.shrunk
    counts = dict(epochs=epochs, newton_steps=made.newton_steps, shrunk=shrunk, reason=reason)
    return Solution(**counts, **_native.described(search, made.violation, made.left(), formulation))


class _InJax:
    """The methods in plain JAX, and how many of the passes that are allowed they made.

    Args:
        make: makes the problem when it is first needed, because programs are compiled for that.
        n: number of rows that were given; rows that are appended to them have next to no weight.
        most, shrinking, seed, observe: of :func:`run`; epochs and Newton steps that are allowed.
    """

    def __init__(
        self,
        make: Callable[[], MulticlassProblem],
        n: int,
        most: int,
        shrinking: bool,
        seed: int,
        observe: Observe | None,
    ):
        self._observe = observe
        self._make, self._n, self._most, self._shrinking = make, n, most, shrinking
        self._seed, self._state = seed, None
        self.epochs_made, self.newton_steps, self.violation, self.shrunk = 0, 0, np.inf, 0.0

    @functools.cached_property
    def _problem(self) -> MulticlassProblem:
        return self._make()

    def left(self) -> int:
        """Epochs and Newton steps that are still allowed."""
        return self._most - self.epochs_made - self.newton_steps

    def epochs(self, tol: float, alpha) -> Ended:
        """Coordinate ascent, from where it ended last."""
        hp = HParams(tol, min(self._most, _EPOCHS), self._shrinking)
        begin = self._filled(alpha)
        state = self._state or init(self._problem, jax.random.key(self._seed), begin)
        state = run_epochs(self._problem, hp, state._replace(status=jnp.int32(Status.RUNNING)))
        self._state, self.epochs_made = state, int(state.epoch)
        # the appended rows are left out as soon as any rows are
        of_all = len(self._problem.y)
        self.shrunk = max(0.0, 1 - (1 - float(state.shrunk)) * of_all / self._n)
        self.violation = float(state.violation)
        alpha = np.asarray(state.alpha)[: self._n]
        self._tell("epochs", float(state.gap), alpha)
        return Ended(sp.csr_array(alpha), float(state.gap))

    def _filled(self, alpha: sp.csr_array) -> np.ndarray:
        """Dual variables with zeros for the appended rows; all are 0 where `alpha` has the shape [0, 0]."""
        whole = np.zeros((len(self._problem.y), self._problem.classes))
        if alpha.size:
            whole[: self._n] = alpha.toarray()
        return whole

    def _tell(self, method: str, gap: float, alpha) -> None:
        if self._observe is not None:
            made = self.epochs_made + self.newton_steps
            self._observe(Progress(method, made, gap, lambda: sp.csr_array(np.asarray(alpha))))

    def polish(self, tol: float, alpha: sp.csr_array) -> Ended:
        """Proximal point steps in float64 from some dual variables."""
        before = self.newton_steps
        with jax.enable_x64(True):
            problem = dataclasses.replace(self._problem, rows=None)  # the steps need only products with X
            wide, accuracy = jax.tree.map(_wide, problem), Accuracy(np.dtype(np.float64), tol)
            point = awaited(_proximal.begin, wide, self._filled(alpha))
            while True:
                most = jnp.int32(self._most - self.epochs_made - before - int(point.newton_steps))
                point = awaited(_proximal.advance, wide, accuracy.eps, point, most)
                found = awaited(_certificate, wide, point.W, point.alpha)
                self.newton_steps, self.violation = before + int(point.newton_steps), float(point.violation)
                alpha = np.asarray(point.alpha)[: self._n]
                self._tell("Newton's method", float(found.gap), alpha)
                if (
                    accuracy.enough(float(found.gap), self.violation)
                    or self.left() <= 0
                    or int(point.failures) >= _native.FAILURES
                ):
                    return Ended(sp.csr_array(alpha), float(found.gap))


_certificate = jax.jit(certificate)


def _wide(a):
    return a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a
