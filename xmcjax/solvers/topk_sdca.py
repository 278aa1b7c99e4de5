"""The top-k multi-class SVM by stochastic dual coordinate ascent; many problems as lanes.

Lapin, Hein and Schiele, "Top-k multiclass SVM", 2015, Algorithm 1. Each lane solves

    min_W ½‖W‖² + C Σ_i φ(z_i),   z_i = W x_i,

with a hinge loss of the k largest of the margins h_j = 1 + z_j − z_y over the classes j ≠ y:

    alpha    φ = max{0, mean of the k largest h}      (eq. 3; k = 1 is Crammer and Singer's SVM)
    beta     φ = mean over the k largest of max{0, h} (eq. 5, Usunier et al.)

or "entropy", :func:`xmcjax.losses.topk_entropy`, whose k = 1 is the cross-entropy of the softmax. With a
smoothing γ > 0 the loss of alpha and beta is the Moreau envelope of φ, φ − γ/2 ≤ φ_γ ≤ φ. Both are of Lapin,
Hein and Schiele, "Loss Functions for Top-k Error: Analysis and Insights", 2016.

λ of the paper is 1/(Cn), and the radius of an instance's set is C. The k largest are taken among the classes
other than y, so that k ≤ m − 1. Eq. (3), taken literally, has the true class among them, with the value 0,
and the paper's Proposition 3 would then not hold for k ≥ 2.

:mod:`xmcjax.solvers.instance_dual` does the ascent; its State, HParams and functions are those of
this module.

Example:
    >>> import jax
    >>> import numpy as np
    >>> from xmcjax import linops
    >>> X, y = np.eye(6, dtype=np.float32), [0, 0, 1, 1, 2, 2]
    >>> lanes = problem(linops.make(X), y, k=[1, 2, 1], C=[1.0, 1.0, 0.1])
    >>> state = run(lanes, HParams(tol=1e-4), init(lanes, jax.random.key(0)))
    >>> weights(lanes, state).shape
    (3, 3, 6)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from jax.typing import ArrayLike

from xmcjax import _sparse, linops
from xmcjax._arguments import name_of, number, number_from_0, whole_number
from xmcjax._fork import needs_threads_of_jax
from xmcjax._platform import host_bound
from xmcjax._sizes import with_rows
from xmcjax.linops import LinOp
from xmcjax.solvers import _admm_dense, _lbfgs_weights, instance_dual, multiclass_dual
from xmcjax.solvers._base import Status
from xmcjax.solvers._common_size import of_common_size
from xmcjax.solvers._expected_costs import Costs, expected
from xmcjax.solvers._host_loop import abandonable
from xmcjax.solvers._instance_problem import bounds_of_lanes
from xmcjax.solvers._progress import Observe, Progress, observed, starting_point
from xmcjax.solvers._search import Ended, Search
from xmcjax.solvers.instance_dual import (
    Gram,
    HParams,
    State,
    advance,
    coefficients,
    dual_variables,
    init,
    objectives,
    proof,
    run,
    step,
    weights,
)

VARIANTS = ("alpha", "beta", "entropy")
# Share of nonzero entries above which a sparse matrix is solved as an array.
_DENSE = 0.25
# Least number of epochs before steps for all rows at once (ADMM), where features are sparse or inner
# products: text needs a few dozen epochs.
_PATIENCE = 400
# _LEAST: the same number where features are dense and epochs come first. _SHARE: part of the epochs allowed
# that the first epochs take at most, unless the least number of them is more.
_LEAST, _SHARE = 20, 0.8
# Epochs of the entropy before L-BFGS where features are not dense: text needs three to six. As many come
# first where L-BFGS does not end, and then twice as many each time.
_EPOCHS = 10
# _WEIGHTS: number of weights up to which the solver of Crammer and Singer's SVM has Newton's method. _LAST:
# part of the epochs allowed that is left to that solver.
_WEIGHTS, _LAST = 1200, 0.5

__all__ = [
    "VARIANTS",
    "Gram",
    "HParams",
    "Solution",
    "State",
    "advance",
    "coefficients",
    "dual_variables",
    "init",
    "objectives",
    "problem",
    "proof",
    "run",
    "solve",
    "step",
    "weights",
]


class Solution(NamedTuple):
    """What :func:`solve` ends with.

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers import topk_sdca
        >>> topk_sdca.solve(np.float32([[1, 0], [0, 1], [1, 1]]), [0, 1, 2], k=1).status.name
        'CONVERGED'
    """

    #: the weights [d, m] for which the gap holds, in float32, or float64 where X has it (those of epochs only
    #: with jax_enable_x64); where X are inner products, coefficients of the rows, [n, m]
    W: np.ndarray
    primal: float
    gap: float  #: relative duality gap of the weights, in float64
    epochs: int
    status: Status
    reason: str  #: why the method that came first did
    alpha: sp.csr_array  #: dual variables, float64 [n, m]


def problem(
    op: LinOp | Gram,
    y,
    k: np.typing.ArrayLike = 1,
    C: np.typing.ArrayLike = 1.0,
    *,
    variant: str = "alpha",
    gamma: ArrayLike = 0.0,
    weight=None,
    mask=None,
    classes: int | None = None,
    backend: str = "auto",
) -> instance_dual.Problem:
    """Makes the problem whose lanes are a grid of k and C, or the folds of a cross-validation.

    Args:
        op: features of :func:`xmcjax.linops.make` [n, d], or inner products, as `instance_dual.Gram`.
        y: whole numbers from 0 below the number of classes, [n].
        k: a whole number or [lanes], from 1 to classes − 1.
        C: weight of the losses, above 0; a number or [lanes].
        variant: "alpha", "beta" or "entropy".
        gamma: smoothing γ ≥ 0 of alpha and beta, a number or [lanes]; 0 (default) for the losses themselves.
        weight: s ≥ 0 of the rows, [n]: the loss of row i counts C s_i; None for ones.
        mask: whether a row belongs to the problem, [n] or [lanes, n]; None takes all.
        classes: the number of classes m; None for the largest of y plus one.
        backend: "native"; "jnp", epochs in plain JAX; "auto", native where the library is built.

    Raises:
        ValueError: an unknown variant; k, C, gamma or classes out of range; shapes that do not match.
        TypeError: k or classes that are no whole numbers, a mask that is not boolean.

    Example:
        >>> from xmcjax import linops
        >>> lanes = problem(linops.make(np.float32([[1, 0], [0, 1], [1, 1]])), [0, 1, 2], k=[1, 2], C=1.0)
        >>> lanes.bound.shape
        (2, 3)
    """
    name_of("variant", variant, VARIANTS)
    if not isinstance(op, Gram):
        linops.check_operator(op)
    bound = bounds_of_lanes(C, weight, mask, op.shape[0])
    return instance_dual.problem(
        op, y, set_name=f"topk_{variant}", bound=bound, k=k, gamma=gamma, classes=classes, backend=backend
    )


def _operator(X):
    """X as it is solved, its operator, and the number of stored entries where X is sparse, else None."""
    if isinstance(X, Gram):
        return X, X, None
    X, entries = _sparse.matrix(X), None
    # rows of a sparse matrix are visited one by one, those of an array in blocks
    if sp.issparse(X):
        X = _sparse.canonical_csr(X, zeros=False)  # so that each form of a matrix has as many entries
        if X.nnz >= _DENSE * X.shape[0] * X.shape[1]:
            X = X.toarray()
        else:
            entries = X.nnz
    op = linops.make(X)
    if X.dtype not in (np.float32, np.float64):  # the dtype of X is that in which weights are certified
        X = X.astype(op.dtype)
    return X, op, entries


def _kind(op: LinOp | Gram, entries: int | None) -> str:
    """What features are."""
    return "dense" if isinstance(op, linops.Dense) else "inner products" if entries is None else "sparse"


def _epochs_first(
    op: LinOp | Gram, costs: Costs, entries: int | None, max_epochs: int, *, smooth: bool
) -> tuple[int, str]:
    """Epochs before steps for all rows at once take over, and why so many."""

    def worth(least: int) -> int:
        """The number of epochs that cost as much as the steps for all rows at once are expected to."""
        most = min(costs.steps / costs.epoch if costs.epoch else least, _SHARE * max_epochs)
        return int(np.clip(most, min(least, max_epochs), max_epochs))

    kind = _kind(op, entries)
    if kind != "dense":
        most = worth(_PATIENCE)
        return most, f"epochs come first, {most} of them at most where more are allowed: features are {kind}"
    if not linops.native_ready():
        return worth(_LEAST), "epochs come first: native steps for all rows at once are missing"
    if smooth:
        return worth(_LEAST), "epochs come first: native steps for all rows at once have no smoothing"
    return 0 if costs.steps < costs.epochs else worth(_LEAST), costs.reason


def _epochs_of_entropy(op: LinOp | Gram, entries: int | None) -> tuple[int, str]:
    """Epochs before L-BFGS takes over, and why so many."""
    kind = _kind(op, entries)
    if kind == "dense":
        return 0, "L-BFGS for the weights comes first: the loss is smooth, and features are dense"
    return _EPOCHS, f"epochs come first, {_EPOCHS} of them before L-BFGS for the weights: features are {kind}"


def _filled(
    lane: instance_dual.Problem, X: Any, C: float | np.ndarray, start: sp.csr_array
) -> tuple[instance_dual.Problem, sp.csr_array]:
    """One lane and its start with rows appended, where epochs are programs compiled per number of rows.

    Args:
        lane: the problem.
        X: its features, CSR or an array [n, d], or inner products, which stay as they are.
        C: weight of the losses, a number or [n].
        start: dual variables [n, m], or of shape [0, 0] for 0.
    """
    if lane.rows is None or isinstance(X, Gram):
        return lane, start
    X, y, C = of_common_size(X, np.asarray(lane.y), C)
    if len(y) == lane.y.size:
        return lane, start
    of_all: dict[str, Any] = dict(
        set_name=lane.set_name, k=np.asarray(lane.k), gamma=np.asarray(lane.gamma), classes=lane.classes
    )
    filled = instance_dual.problem(linops.make(X), y, bound=np.reshape(C, (1, -1)), **of_all)
    return filled, with_rows(start, len(y))


def _crammer_singer(X, y, observe: Observe | None, made: int, **options: Any) -> Solution:
    """What the solver of Crammer and Singer's SVM comes to, after the `made` epochs of this solver."""

    def told(progress: Progress) -> None:
        if observe is not None:
            observe(progress._replace(passes=made + progress.passes))

    found = multiclass_dual.run(X, y, formulation="cs", observe=told, **options)
    made += found.epochs + found.newton_steps
    return Solution(found.W, found.primal, found.gap, made, found.status, found.reason, found.alpha)


@needs_threads_of_jax
@host_bound
def solve(
    X,
    y,
    k: int = 1,
    C: float = 1.0,
    *,
    variant: str = "alpha",
    gamma: float = 0.0,
    weight=None,
    classes: int | None = None,
    tol: float = 1e-3,
    max_epochs: int = 1000,
    seed: int = 0,
    start=None,
    observe: Observe | None = None,
) -> Solution:
    """Trains one top-k SVM: by epochs, and by steps for all rows at once where it needs many epochs.

    Steps for all rows at once need few rows or few features. With the entropy they are steps of L-BFGS for
    the weights, which come first where features are dense; further epochs follow where they do not converge.
    Where k is 1, without a smoothing and with one weight for all rows, half of the epochs are left to
    :func:`xmcjax.solvers.multiclass_dual.run` if d · m is at most 1,200: its second-order methods converge
    where features far from 0, or of different sizes, make the other methods slow.

    Args:
        X: features [n, d], sparse or dense, or inner products, as `instance_dual.Gram`.
        y, k, C, variant, gamma, weight, classes: of :func:`problem`. With a smoothing the steps for all rows
            at once are made in NumPy, where without one there may be native ones.
        tol: relative duality gap (P − D)/P at which training ends. The gap that counts is worked out in
            float64 for the weights that are returned.
        max_epochs: epochs of all rows at most; ten steps for all rows at once, or one evaluation of L-BFGS,
            count as one epoch.
        seed: of the order of rows in each epoch.
        start: dual variables [n, m] to start from, such as those of a solution with another C; brought into
            the dual set first. None for 0.
        observe: called with the progress every few epochs, as by
            :func:`xmcjax.solvers.multiclass_dual.run`; or None.

    Raises:
        ValueError, TypeError: as :func:`problem` and `instance_dual.run`; a start of another shape, or not
            finite.

    Example:
        >>> solution = solve(np.float32([[1, 0], [0, 1], [1, 1]]), [0, 1, 2], k=2, C=1.0)
        >>> solution.W.shape, solution.gap < 1e-3
        ((2, 3), True)
    """
    max_epochs, seed = whole_number("max_epochs", max_epochs, 1), whole_number("seed", seed, 0)
    C, tol, gamma = number("C", C), number_from_0("tol", tol), number("gamma", gamma)
    X, op, entries = _operator(X)
    lane = problem(op, y, k, C, variant=variant, gamma=gamma, weight=weight, classes=classes)
    y, (n, d), m = np.asarray(lane.y), op.shape, lane.classes
    of_rows, form = C, lane.smoothed(gamma)
    if weight is not None:
        of_rows = C * _sparse.numbers(weight, "weight")
        if np.all(of_rows == of_rows[0]):
            of_rows = float(of_rows[0])
    begin, observe = starting_point(start, y, m, form, of_rows, k), observed(observe)
    search, made = Search(X, y, form, of_rows, tol, k, start=begin), 0
    entropy, of_products = variant == "entropy", isinstance(X, Gram)
    fits = _admm_dense.fits(n, d, m)
    # whether there are steps for all rows at once: of L-BFGS for the entropy, of ADMM for the other losses
    at_once = _lbfgs_weights.fits(n, d, m, entries) if entropy and not of_products else fits
    hands_over = k == 1 and not form.smooth and isinstance(of_rows, float) and not of_products
    hands_over &= at_once and d * m <= _WEIGHTS and linops.native_ready() and tol > 0
    here = math.ceil((1 - _LAST) * max_epochs) if hands_over else max_epochs
    patience = here
    reason = "epochs alone: rows and features, or dual variables, are too many for steps for all rows at once"
    if at_once:
        if entropy:
            most, reason = _epochs_of_entropy(op, entries)
        else:
            size = float(np.mean(of_rows * np.asarray(lane.squared_norms, np.float64)))
            costs = expected(n, d, m, size, max(tol, 1e-12), entries)
            most, reason = _epochs_first(op, costs, entries, max_epochs, smooth=form.smooth)
        patience = min(patience, most)

    def epochs(most: int) -> Status:
        """Makes epochs from the best dual variables so far."""
        nonlocal made
        most = min(most, np.iinfo(np.int32).max)
        hp = HParams(tol=tol, max_epochs=most, sweeps=1 if entropy else HParams.sweeps)
        filled, first = _filled(lane, X, of_rows, search.alpha)
        before = made

        def seen(progress: Progress) -> None:
            if observe is not None:
                passes = before + progress.passes
                observe(progress._replace(passes=passes, alpha=lambda: progress.alpha()[:n]))

        told = None if observe is None else seen
        state, proved = instance_dual.solved(filled, hp, seed, first, told)
        made = before + int(state.epochs[0])
        search.keep(proved._replace(alpha=proved.alpha[:n]))
        return Status(int(state.status[0]))

    if patience:
        status = epochs(patience)
    if not patience or (search.unsolved and at_once and made < here):
        K = np.asarray(op.K) if isinstance(op, Gram) else None
        features = X if K is None else abandonable(lambda: _admm_dense.basis_of_products(K))
        method = _lbfgs_weights.Method if entropy else _admm_dense.Method
        steps = method(features, y, m, form, of_rows, k, observe=observe, made=lambda: made)

        def in_passes(target: float, alpha: sp.csr_array) -> Ended:
            nonlocal made
            ended, passes = steps.in_passes(alpha, target, here - made)
            made = min(made + math.ceil(passes), here)
            return ended

        search.attempt(in_passes, lambda: here - made)
        status = search.status(max_epochs - made)
        # L-BFGS was ended by rounding, or by a matrix that is no kernel. D of a few epochs may be near
        # enough to P of the weights that there are, long before P of their own weights is.
        few = _EPOCHS
        while entropy and search.unsolved and made < here:
            status, few = epochs(min(few, here - made)), 2 * few
            if status != Status.MAX_STEPS:
                break
    if hands_over and search.unsolved and made < max_epochs:
        options = dict(C=of_rows, classes=m, tol=tol, max_epochs=max_epochs - made, seed=seed, start=start)
        ended = _crammer_singer(X, y, observe, made, **options)
        if ended.gap < search.gap:
            return ended._replace(reason=f"{reason}; after {made} epochs {ended.reason}")
        made, status = ended.epochs, search.status(max_epochs - ended.epochs)
    # the gap of the best weights and the best dual variables counts, whatever the last method took it for
    if Status.CONVERGED in (status, search.status(1)):
        status = search.status(1)
    found = search.found
    return Solution(found.W, found.primal, found.gap, made, status, reason, found.alpha)
