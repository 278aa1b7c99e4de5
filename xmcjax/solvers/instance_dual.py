"""Dual ascent over instances, for multi-class losses that a projection solves; many problems as lanes.

Lapin, Hein and Schiele, "Top-k multiclass SVM", 2015, Algorithm 1; Shalev-Shwartz and
Zhang, "Accelerated proximal stochastic dual coordinate ascent", 2014. Each lane solves

    min_W  P = ½‖W‖² + Σ_i φ_i(z_i),   z_i = W x_i,   φ_i the support function of a set of radius r_i,

through its dual

    max    D = Σ_i 1ᵀx_i − ½‖W‖²,      W = Σ_i a_i x_iᵀ,  a_i = (1ᵀx_i at y_i, −x_i elsewhere).

With a smoothing γ > 0 the losses are the Moreau envelopes φ_γ(h) = max {⟨x, h⟩ − γ/2 ‖x‖²} over the set of
radius 1 (Lapin, Hein and Schiele 2016), and D has −½ Σ_i (γ/r_i) ‖x_i‖² besides.

symbol      variable              shape
features    problem.op            [n, d], or the matrix of inner products [n, n]
y           problem.y             int32 [n]
r           problem.bound         [lanes, n]; 0 leaves an instance out
k           problem.k             int32 [lanes]
γ           problem.gamma         [lanes]; 0 for losses that are not smoothed
x           state.dual            [lanes, n, m]
W           state.weights         see State

An epoch visits every instance once, in random order, and makes its m − 1 dual variables optimal
together. Instances are visited in blocks: the scores of a block come from one product, and further sweeps
over the block need no further product (Algorithm 1 has a single sweep). The gaps that the visits find on
their way tell when to work out the true one, which costs half an epoch: that is done when they sum to
the tolerance, though at most once in five epochs after the first time, and after 10, 20, 40 … epochs
in any case.

Where a lane of float32 has ended, its weights have seen the rounding of all visits. :func:`run` works them
out anew from the dual variables, with the gap in float64; where it is too large the lane goes on from there.

On a CPU all of this is native (native/dual/simd_instance_dual.cc), the epochs of a lane one call; the twin
of an epoch is _instance_twin.py.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import number_from_0, whole_number
from xmcjax._fork import needs_threads_of_jax
from xmcjax.linops import Csr, host_features, put
from xmcjax.solvers import _instance_twin as twin
from xmcjax.solvers._accuracy import closed
from xmcjax.solvers._base import Status
from xmcjax.solvers._certified import Certified, certified, certified_kernel
from xmcjax.solvers._host_loop import Calls, at_most
from xmcjax.solvers._instance_native import (
    EPOCHS_PER_CHECK,
    FIRST_CHECK,
    epochs_in_place,
    native_epochs,
    native_gap,
    of_host,
    of_jax,
)
from xmcjax.solvers._instance_problem import Gram, HParams, Problem, problem
from xmcjax.solvers._instance_start import as_weights, placed
from xmcjax.solvers._progress import Observe, Progress

__all__ = [
    "Gram",
    "HParams",
    "Problem",
    "State",
    "advance",
    "coefficients",
    "dual_variables",
    "init",
    "objectives",
    "problem",
    "proof",
    "run",
    "step",
    "weights",
]

# Most epochs of one call.
_EPOCHS_PER_CALL = 64
# How often a lane goes on that has converged by its own gap but not by the certified one.
_ATTEMPTS = 3
# Size of the dual variables of a lane up to which all of them are kept.
_MOST_BYTES = 256 << 20


class State(NamedTuple):
    """The state of all lanes; fields are of the last epoch unless said otherwise.

    Example:
        >>> state = init(problem(Gram(jnp.eye(3)), [0, 1, 2], set_name="topk_alpha", bound=np.ones((2, 3))))
        >>> state.dual.shape, state.epochs.tolist()
        ((2, 3, 3), [0, 0])
    """

    weights: jax.Array  #: W: [lanes, m, d], CSR [lanes, d, m]; Gram: all scores, [lanes, m, n]
    dual: jax.Array  #: x, [lanes, n, m]; with slots, their non-zeros [lanes, n, slots]
    index: jax.Array  #: classes of the slots, int32 [lanes, n, slots]
    seed: jax.Array  #: uint32, of the orders of the epochs
    primal: jax.Array  #: [lanes], P when the gap was last worked out; inf before
    dual_objective: jax.Array  #: [lanes], D at that check; 0 before
    gap: jax.Array  #: [lanes], P − D at that check; inf before
    estimate: jax.Array  #: [lanes], relative gap as the visits found it
    ratio: jax.Array  #: [lanes], the true relative gap over `estimate` at the last check; 1 before
    status: jax.Array  #: int32 [lanes], of :class:`xmcjax.solvers.Status`
    epochs: jax.Array  #: int32 [lanes], epochs made
    checks: jax.Array  #: int32 [lanes], how often the gap was worked out
    changed: jax.Array  #: int32 [lanes], visits that changed something
    support: jax.Array  #: int32 [lanes], instances with x ≠ 0 at the last check
    truncated: jax.Array  #: int32 [lanes], visits that found too few slots for their x
    history: jax.Array  #: [lanes, checks, 3], epoch, P and D of every check; ∞ beyond


@needs_threads_of_jax
def init(problem: Problem, key=None, *, slots: int | None = None, checks: int = 64) -> State:
    """All lanes at W = 0.

    Args:
        problem: of the lanes.
        key: of :func:`jax.random.key`, for the order of the visits, the same in all lanes; None for key 0.
        slots: dual variables kept per instance, which takes 8 bytes each (12 for float64), in
            place of 4 (8) for every class; mostly few of them are not 0, and :func:`run` makes room
            where there are more. 0 keeps all; None keeps all where that takes at most 256 MiB per lane,
            and else max(64, 2k). Only native calls have slots.
        checks: entries of the history; the last one is overwritten.

    Raises:
        ValueError: slots where an epoch is no native call.

    Example:
        >>> one = problem(Gram(jnp.eye(3)), [0, 1, 2], set_name="topk_alpha", bound=np.ones((1, 3)))
        >>> init(one).weights.shape, init(one, jax.random.key(1)).gap.tolist()
        ((1, 3, 3), [inf])
    """
    n, m, lanes, dtype = problem.y.shape[0], problem.classes, problem.lanes, problem.op.dtype
    whole_number("checks", checks, 1)
    if slots is not None:
        whole_number("slots", slots, 0)
    if slots is None:
        large = n * m * np.dtype(dtype).itemsize > _MOST_BYTES
        slots = max(64, 2 * int(jnp.max(problem.k))) if large and problem.rows is None else 0
    if slots and problem.rows is not None:
        raise ValueError("expected slots=0, which the epochs in plain JAX need")
    if slots and slots < int(jnp.max(problem.k)):
        raise ValueError(f"expected 0 or at least k = {int(jnp.max(problem.k))} slots, got {slots}")
    slots = min(slots, m - 1)
    columns = problem.op.shape[1]
    size = (columns, m) if isinstance(problem.op, Csr) else (m, columns)

    # of the host, because a compiled program for each of these shapes would take longer
    def number(value):
        return put(np.full(lanes, value, dtype))

    def count(value=0):
        return put(np.full(lanes, value, np.int32))

    return State(
        weights=put(np.zeros((lanes, *size), dtype)),
        dual=put(np.zeros((lanes, n, slots or m), dtype)),
        index=put(np.zeros((lanes, n, slots), np.int32)),
        seed=_seed_of(jax.random.key(0) if key is None else key),
        primal=number(np.inf),
        dual_objective=number(0),
        gap=number(np.inf),
        estimate=number(np.inf),
        ratio=number(1),
        status=count(Status.RUNNING),
        epochs=count(),
        checks=count(),
        changed=count(),
        support=count(),
        truncated=count(),
        history=put(np.full((lanes, checks, 3), np.inf, dtype)),
    )


@jax.jit
def _seed_of(key) -> jax.Array:
    """32 bits that depend on all of the key's."""
    seed = jnp.uint32(0)
    for word in jax.random.key_data(key).ravel():
        seed = twin.mixed(seed ^ word)
    return seed


@needs_threads_of_jax
@jax.jit
def step(problem: Problem, hp: HParams, state: State) -> State:
    """One epoch of every lane that is running; the others stay as they are.

    Example:
        >>> one = problem(Gram(jnp.eye(3)), [0, 1, 2], set_name="topk_alpha", bound=np.ones((1, 3)))
        >>> step(one, HParams(), init(one)).epochs.tolist()
        [1]
    """
    if problem.rows is None:
        return native_epochs(problem, hp, state, 1)
    return _twin_epoch(problem, hp, state)


@needs_threads_of_jax
@functools.partial(jax.jit, donate_argnames=("state",))
def advance(problem: Problem, hp: HParams, state: State, count) -> State:
    """At most `count` epochs of each lane in one compiled call; the buffers of `state` are donated.

    A lane also pauses after a check with too few slots (see :func:`run`).

    Example:
        >>> two = problem(Gram(jnp.eye(3)), [0, 1, 2], set_name="topk_alpha", bound=[[1.0], [10.0]])
        >>> bool((advance(two, HParams(tol=0.0), init(two), 5).epochs <= 5).all())
        True
    """
    if problem.rows is None:
        return native_epochs(problem, hp, state, count)
    epoch = functools.partial(_twin_epoch, problem, hp)
    return at_most(epoch, lambda state: jnp.any(state.status == Status.RUNNING), state, count)


@needs_threads_of_jax
def run(problem: Problem, hp: HParams, state: State) -> State:
    """Epochs until every lane has ended; the buffers of `state` are donated. Not for jit.

    A lane is CONVERGED where the gap of its dual variables and its weights is at most ``hp.tol`` in float64,
    and STALLED where rounding to float32 keeps it above.

    Where slots run out, visits choose the best x over as many classes as there are slots; where that
    was so in the epoch of a check, the slots are doubled.

    The state is not checked: it must be a state of this problem, and lanes that have ended stay as they are.
    Give a state of another C or of other features to ``SOLVERS["instance_dual"].run``, or its dual variables
    to :func:`xmcjax.solvers.topk_sdca.solve`.

    Example:
        >>> two = problem(Gram(jnp.eye(3)), [0, 1, 2], set_name="topk_alpha", bound=[[1.0], [10.0]])
        >>> [Status(s).name for s in run(two, HParams(tol=1e-3), init(two)).status.tolist()]
        ['CONVERGED', 'CONVERGED']
    """
    state, _ = proved(problem, hp, state)
    return of_jax(state) if problem.rows is None else state


@needs_threads_of_jax
def proved(
    problem: Problem, hp: HParams, state: State, observe: Observe | None = None
) -> tuple[State, dict[int, Certified]]:
    """As :func:`run`, with the certificates of the lanes that it certified, by their numbers.

    Args:
        problem, hp, state: of :func:`run`.
        observe: called with the progress of the first lane every few epochs; or None.

    Returns:
        The state, with arrays of NumPy where an epoch is a native call, and the proofs.
    """
    most = whole_number("max_epochs", hp.max_epochs, 0)
    tol = min(number_from_0("tol", hp.tol), float(np.finfo(problem.op.dtype).max))  # a number of that type
    hp = dataclasses.replace(hp, tol=tol, max_epochs=most)
    attempts, proofs = np.zeros(problem.lanes, int), {}
    on_host = problem.rows is None
    if on_host:
        problem, state = of_host(problem, state)
    calls = Calls(
        epochs_in_place if on_host else advance, problem, hp, _EPOCHS_PER_CALL, compiled=not on_host
    )
    while True:
        state = _verified(problem, hp, calls(state), attempts, proofs)
        if observe is not None:
            gap, primal = float(state.gap[0]), float(state.primal[0])
            relative = gap / primal if 0 < primal < np.inf else np.inf
            at = functools.partial(dual_variables, problem, state, 0)
            observe(Progress("epochs over rows", int(state.epochs[0]), relative, at))
        running = np.asarray(state.status) == Status.RUNNING
        if not running.any():
            return state, proofs
        slots = state.index.shape[2]
        if slots and np.any(running & (np.asarray(state.truncated) > 0)):
            more = ((0, 0), (0, 0), (0, min(slots, problem.classes - 1 - slots)))
            state = state._replace(dual=np.pad(state.dual, more), index=np.pad(state.index, more))


def solved(
    problem: Problem, hp: HParams, seed: int, start: sp.csr_array, observe: Observe | None = None
) -> tuple[State, Certified]:
    """The end of one lane, with its proof.

    Args:
        problem: of one lane.
        hp, observe: of :func:`proved`.
        seed: of the orders of the epochs.
        start: dual variables [n, m] in the dual set to start from; of shape [0, 0] for 0.
    """
    state = init(problem, jax.random.key(seed))
    state, proofs = proved(problem, hp, placed(problem, state, [start]) if start.size else state, observe)
    return state, proofs[0] if proofs else proof(problem, state, 0, hp.tol)


def _verified(
    problem: Problem, hp: HParams, state: State, attempts: np.ndarray, proofs: dict[int, Certified]
) -> State:
    """The state with weights and gap worked out anew in ended lanes of float32; `attempts` counts how often.

    In float64 the sums of the epochs themselves are as good. A lane at its last epoch has converged where
    rounding alone made its gap too large, and stays as it is where it has not.
    """
    status = np.array(state.status)
    last = status == Status.MAX_STEPS
    ended = np.flatnonzero((last | (status == Status.CONVERGED)) & (attempts <= _ATTEMPTS))
    if problem.op.dtype != np.float32 or not len(ended):
        return state
    W, primal, dual, gap, ratio = (
        np.array(a) for a in (state.weights, state.primal, state.dual_objective, state.gap, state.ratio)
    )
    for lane in ended.tolist():
        found = proofs[lane] = proof(problem, state, lane, hp.tol)
        enough = found.gap <= hp.tol
        attempts[lane] += _ATTEMPTS + 1 if enough or last[lane] else 1
        if last[lane] and not enough:
            continue
        primal[lane], dual[lane], gap[lane] = found.primal, found.dual, found.primal - found.dual
        W[lane] = as_weights(problem, found.W)
        if enough:
            status[lane] = Status.CONVERGED
            continue
        status[lane] = Status.STALLED if attempts[lane] > _ATTEMPTS else Status.RUNNING
        if status[lane] == Status.RUNNING:
            del proofs[lane]
        ratio[lane] = found.gap / max(float(state.estimate[lane]), np.finfo(np.float32).tiny)
    numbers = dict(weights=W, primal=primal, dual_objective=dual, gap=gap, ratio=ratio, status=status)
    made = numbers if problem.rows is None else {name: jnp.asarray(a) for name, a in numbers.items()}
    return state._replace(**made)


@needs_threads_of_jax
def proof(problem: Problem, state: State, lane: int, tol: float) -> Certified:
    """The dual variables of a lane with the weights that they give, and objectives in float64.

    Args:
        problem: of the lanes.
        state: of which only the dual variables count.
        lane: its number.
        tol: as for :func:`xmcjax.solvers._certified.certified`.

    Example:
        >>> one = problem(Gram(jnp.eye(3)), [0, 1, 2], set_name="topk_alpha", bound=np.ones((1, 3)))
        >>> found = proof(one, run(one, HParams(tol=1e-4), init(one)), lane=0, tol=1e-4)
        >>> bool(0 <= found.primal - found.dual <= 1e-4 * found.primal)
        True
    """
    number_from_0("tol", tol)
    whole_number("lane", lane, 0, problem.lanes - 1)
    bound, k = np.asarray(problem.bound, np.float64)[lane], int(problem.k[lane])
    alpha, y = dual_variables(problem, state, lane), np.asarray(problem.y)
    formulation = problem.smoothed(float(problem.gamma[lane]))
    op = problem.op
    if isinstance(op, Gram):
        return certified_kernel(np.asarray(op.K), y, alpha, formulation, bound, k)
    return certified(host_features(op), y, alpha, formulation, bound, tol, k=k)


@needs_threads_of_jax
def dual_variables(problem: Problem, state: State, lane: int) -> sp.csr_array:
    """x of a lane, [n, m].

    Example:
        >>> one = problem(Gram(jnp.eye(3)), [0, 1, 2], set_name="topk_alpha", bound=np.ones((1, 3)))
        >>> x = dual_variables(one, run(one, HParams(), init(one)), lane=0)
        >>> x.shape, bool((x.data > 0).all()), bool((x.sum(axis=1) <= 1.001).all())  # of radius 1
        ((3, 3), True, True)
    """
    whole_number("lane", lane, 0, problem.lanes - 1)
    x = np.asarray(state.dual[lane])
    row, place = np.nonzero(x)
    column = np.asarray(state.index[lane])[row, place] if state.index.shape[2] else place
    return sp.csr_array((x[row, place], (row, column)), shape=(x.shape[0], problem.classes))


@needs_threads_of_jax
@jax.jit
def objectives(problem: Problem, hp: HParams, state: State) -> tuple[jax.Array, ...]:
    """(P, D, P − D, instances with x ≠ 0) of all lanes as they are, each [lanes].

    Example:
        >>> one = problem(Gram(jnp.eye(3)), [0, 1, 2], set_name="topk_alpha", bound=np.ones((1, 3)))
        >>> [float(a[0]) for a in objectives(one, HParams(), init(one))]  # at W = 0 each loss is 1
        [3.0, 0.0, 3.0, 0.0]
    """
    if problem.rows is None:
        return native_gap(problem, hp, state)
    return twin.gap(problem.rows, problem, hp, state.weights, state.dual)


def coefficients(problem: Problem, state: State) -> np.ndarray:
    """a, [lanes, n, m]: W = Σ_i a_i x_iᵀ, and the scores of new instances are K(new, old) a.

    Example:
        >>> from xmcjax import linops
        >>> one = problem(linops.make(jnp.eye(3)), [0, 1, 2], set_name="topk_alpha", bound=np.ones((1, 3)))
        >>> state = run(one, HParams(), init(one))
        >>> np.allclose(coefficients(one, state)[0].T, weights(one, state)[0], atol=1e-5)  # as X = I
        True
    """
    x = np.asarray(state.dual)
    if state.index.shape[2]:
        lane, row, slot = np.nonzero(x)
        x = np.zeros((*x.shape[:2], problem.classes), x.dtype)
        x[lane, row, np.asarray(state.index)[lane, row, slot]] = np.asarray(state.dual)[lane, row, slot]
    return problem.formulation.coefficients(x, np.broadcast_to(np.asarray(problem.y), x.shape[:2]))


def weights(problem: Problem, state: State) -> np.ndarray:
    """W, [lanes, m, d]; of a :class:`Gram` there is none.

    Example:
        >>> from xmcjax import linops
        >>> X = jnp.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
        >>> one = problem(linops.make(X), [0, 1, 2], set_name="topk_alpha", bound=np.full((1, 3), 10.0))
        >>> W = weights(one, run(one, HParams(), init(one)))
        >>> W.shape, (X @ W[0].T).argmax(axis=1).tolist()
        ((1, 3, 2), [0, 1, 2])
    """
    if isinstance(problem.op, Gram):
        raise ValueError("expected features, got inner products: there are coefficients, but no weights")
    W = np.asarray(state.weights)
    return W.swapaxes(1, 2) if isinstance(problem.op, Csr) else W


def _twin_epoch(problem: Problem, hp: HParams, state: State) -> State:
    """What Lane::advance of native/dual/simd_instance_dual.cc does in one round."""
    dtype = problem.op.dtype
    running = state.status == Status.RUNNING
    weights, dual, gap, objective, changed = twin.epoch(problem.rows, problem, hp, state)
    epochs = state.epochs + running.astype(jnp.int32)
    # relative to P, which is about the gap plus D as the visits found them
    about = gap + objective
    estimate = jnp.where(about > 0, gap / jnp.where(about > 0, about, 1), gap)
    tol = jnp.asarray(hp.tol, dtype)
    due = (estimate * state.ratio <= tol) & (epochs >= EPOCHS_PER_CHECK * state.checks)
    due |= epochs >= FIRST_CHECK * 2 ** jnp.minimum(state.checks, 25)
    wanted = running & (due | (epochs >= hp.max_epochs) | ~jnp.isfinite(estimate))
    old = state.primal, state.dual_objective, state.gap, state.support
    new = jax.lax.cond(
        jnp.any(wanted), lambda: twin.gap(problem.rows, problem, hp, weights, dual), lambda: old
    )
    primal, dual_objective, gap, support = (jnp.where(wanted, a, b) for a, b in zip(new, old, strict=True))
    status = jnp.where(epochs >= hp.max_epochs, Status.MAX_STEPS, Status.RUNNING)
    status = jnp.where(closed(gap, tol * primal, primal), Status.CONVERGED, status)
    status = jnp.where(jnp.isfinite(primal) & jnp.isfinite(gap), status, Status.NONFINITE)
    relative = gap / jnp.where(primal > 0, primal, 1)
    ratio = relative / jnp.where(estimate > 0, estimate, 1)
    entry = jnp.stack([epochs.astype(dtype), primal, dual_objective], axis=1)
    rows = state.history.shape[1]
    place = jnp.minimum(state.checks, rows - 1)[:, None]
    written = wanted[:, None] & (jnp.arange(rows, dtype=jnp.int32) == place)
    return State(
        weights=weights,
        dual=dual,
        index=state.index,
        seed=state.seed,
        primal=primal,
        dual_objective=dual_objective,
        gap=gap,
        estimate=jnp.where(running, estimate, state.estimate),
        ratio=jnp.where(wanted & (estimate > 0), ratio, state.ratio),
        status=jnp.where(wanted, status, state.status).astype(jnp.int32),
        epochs=epochs,
        checks=state.checks + wanted.astype(jnp.int32),
        changed=jnp.where(running, changed, state.changed),
        support=support,
        truncated=state.truncated,
        history=jnp.where(written[:, :, None], entry[:, None, :], state.history),
    )
