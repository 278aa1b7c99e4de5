"""The steps of the alternating direction method of multipliers, for every loss and all lanes at once.

One algorithm for all losses, whose row map, a projection, is all that tells one from another, and many
problems as lanes: folds, a grid of C, sets of classes. Nothing is sequential, which is what a GPU wants. With
features in the basis of the eigenvectors E of XᵀX, X̃ = X E and X̃ᵀX̃ = diag(λ), a step of a lane is

    α⁺ = row_map(M α + ρ h, ρ),   h = 1 + linear(X̃ W),   O = −X̃ᵀ coefficients(α⁺),
    Δ = (W + 2 O − V) / (1 + ρ λ),   W ← W − κ Δ,   α ← α + κ (α⁺ − α),   V ← V + κ (O − V),

with the functions of :mod:`xmcjax.solvers._formulations`, V = −X̃ᵀ coefficients(α) and κ = 1.8; W = −V at the
optimum. Rows that a lane leaves out have α = 0, so that all lanes share the basis. P(W) and D(α⁺) are known
in every step, and the best of both are kept: a lane ends by its relative gap (P − D)/P. D is that of α⁺,
shortened where that is better. Where P no longer falls, that of the weights of the best α⁺ counts too,
around which W may go for long, and as rounding to float32 has it, that of weights that are a little longer.

Each lane has a ρ of its own: 3 ‖α‖ / ‖XW‖ at first, and multiplied by √r with r = ‖Δα‖² / (ρ² ‖XΔ‖²) every 10
steps until step 100, every 50 until step 1,000, every 500 until 10,000 and so on, where r is not within
[1/1.5, 1.5]: a ρ that changes for ever may keep the steps from converging.

symbol      variable              shape
X̃           problem.features      [n, r]
α           state.dual            [n, lanes, m]
W, V        state.weights, ...    [r, lanes, m]
ρ           state.rho             [lanes]

Lanes of float32 that have ended are certified in float64 on the host: see :func:`xmcjax.solvers.admm.run`.

Eckstein and Bertsekas, "On the Douglas-Rachford splitting method and the proximal point algorithm for maximal
monotone operators", 1992 (κ); He, Yang and Wang, "Alternating direction method with self-adaptive penalty
parameters", 2000 (ρ). The steps of the host, with the same formulas, are :mod:`xmcjax.solvers._admm`.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers._accuracy import closed
from xmcjax.solvers._base import Status
from xmcjax.solvers._formulations import LeeLinWahba, TopKBeta
from xmcjax.solvers._host_loop import at_most
from xmcjax.solvers._progress import starting_point
from xmcjax.solvers._search import MARGIN
from xmcjax.solvers.admm._memory import check_memory
from xmcjax.solvers.admm._problem import Problem

_RELAXED = 1.8
# Steps from one look at the gap to the next.
_CHECK = 5
# ρ is looked at every so many steps, and from each of these steps on after half as many; changes of it that
# are let be, and the range that it stays in, relative to the first.
_EARLY, _DECADES, _BALANCED, _RANGE = 10, (100, 1000, 10_000, 100_000), 1.5, 1e8
# Steps in float32 without progress after which rounding is taken to be the reason, at least; it may also be
# four fifths of all steps. Progress is a gap that falls by a tenth, or a dual that rises by a twentieth.
# Lanes of float64 go as long without any while ρ is far from its best, and end well all the same.
_IDLE = 800
# Steps without progress after which the weights of dual variables are tried, and in float32 longer ones, and
# by how much, in units of its rounding.
_TRIED, _LONGER = 20, (8, 64, 512, 4096, 32768)
# Of the largest number: by how much those of a state differ at most that is taken for one of this problem.
_ALIKE = 1e-3


class HParams(NamedTuple):
    """Of the method.

    Example:
        >>> HParams(tol=1e-4).max_steps
        10000
    """

    tol: float = 1e-3  #: a lane has converged when P − D ≤ tol · P
    max_steps: int = 10_000  #: of a lane


class State(NamedTuple):
    """Of all lanes.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> lanes = admm.problem(linops.make(np.eye(3, dtype=np.float32)), [0, 1, 2], C=[0.1, 1.0])
        >>> state = admm.init(lanes)
        >>> state.dual.shape, state.rho.shape
        ((3, 2, 3), (2,))
    """

    dual: jax.Array  #: α, [n, lanes, m]
    weights: jax.Array  #: W in the basis, [r, lanes, m]
    sums: jax.Array  #: V, [r, lanes, m]
    best_dual: jax.Array  #: α⁺ of the largest D, [n, lanes, m]
    best_weights: jax.Array  #: W of the smallest P, [r, lanes, m]
    rho: jax.Array  #: [lanes]
    first_rho: jax.Array  #: [lanes]
    primal: jax.Array  #: [lanes], the smallest P so far; inf before
    dual_objective: jax.Array  #: [lanes], the largest D so far; −inf before
    gap: jax.Array  #: [lanes], (P − D)/P; inf before
    target: jax.Array  #: [lanes], the part of the tolerance at which a lane ends
    fallen: jax.Array  #: [lanes], the gap at the last progress
    risen: jax.Array  #: [lanes], D then
    since: jax.Array  #: int32 [lanes], the step then
    steps: jax.Array  #: int32 [lanes], made
    status: jax.Array  #: int32 [lanes], of :class:`xmcjax.solvers.Status`


class _Rows(NamedTuple):
    """What a problem says of its rows, in the order of the arrays of the state."""

    y: jax.Array  #: [n, lanes]
    C: jax.Array  #: [n, lanes, 1], 1 for rows that are left out
    there: jax.Array  #: whether a row counts, [n, lanes, 1]


def _rows(problem: Problem) -> _Rows:
    C = problem.bound.T[:, :, None]
    there = C > 0
    return _Rows(problem.y.T, jnp.where(there, C, 1), there)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a [p, q] times b [q, lanes, m]."""
    # features that are all 0 have an empty basis, of which no axis can be left to be inferred
    flat = jnp.matmul(a, b.reshape(b.shape[0], math.prod(b.shape[1:])), precision="highest")
    return flat.reshape(a.shape[0], *b.shape[1:])


def _counts(problem: Problem, dtype) -> jax.Array:
    """How many classes the lanes have, [lanes, 1]."""
    assert problem.members is not None
    return jnp.sum(problem.members, axis=-1, keepdims=True, dtype=dtype)


def _centred(problem: Problem, V: jax.Array) -> jax.Array:
    """With Σ_c w_c = 0 over the classes of a lane, where the formulation has that."""
    if not isinstance(problem.formulation, LeeLinWahba):
        return V
    if problem.members is None:
        return V - jnp.mean(V, axis=-1, keepdims=True)
    inside = jnp.where(problem.members, V, 0)
    counts = _counts(problem, V.dtype)
    return jnp.where(problem.members, inside - jnp.sum(inside, axis=-1, keepdims=True) / counts, 0)


def _sums(problem: Problem, rows: _Rows, alpha: jax.Array) -> jax.Array:
    """−X̃ᵀ coefficients(α)."""
    if isinstance(problem.formulation, LeeLinWahba):
        a = -_centred(problem, alpha)
    else:
        a = problem.formulation.coefficients(alpha, rows.y)
    return -_centred(problem, _product(problem.features.T, a))


def _lane_sums(a: jax.Array) -> jax.Array:
    """Sums of [n, lanes, m], or of [n, lanes], for each lane."""
    return jnp.sum(a, axis=(0, *range(2, a.ndim)))


def _lane_maxima(a: jax.Array) -> jax.Array:
    """The largest number of [n, lanes, m] for each lane; 0 of none."""
    return jnp.max(a, axis=(0, 2), initial=0)


def _gain(problem: Problem, rows: _Rows, alpha: jax.Array) -> jax.Array:
    """D without −½ ‖W‖², [lanes]."""
    return jax.vmap(problem.formulation.dual_gain, in_axes=(1, 1))(alpha, rows.C)


@needs_threads_of_jax
def init(problem: Problem, alpha=None) -> State:
    """All lanes at equal dual variables, as large as is best.

    Args:
        problem: of the lanes.
        alpha: dual variables [n, m] to start from, sparse or dense, the same for all lanes; brought into the
            dual set of each first. None, or 0 for all, for the start that is said.

    Raises:
        ValueError, TypeError: dual variables of another shape, or not finite.
        DeviceMemoryError: lanes that do not fit into what is free on the device, where that tells, and how
            many would: give them to further problems.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> lanes = admm.problem(linops.make(np.eye(3, dtype=np.float32)), [0, 1, 2], C=[0.1, 1.0])
        >>> init(lanes, np.full((3, 3), 0.25)).dual[0, 1].tolist()
        [0.0, 0.25, 0.25]
    """
    check_memory(problem, _start, advance, HParams())
    given = None if alpha is None else _given(problem, alpha)
    # of dual variables that are 0 no ρ can be told
    return _start(problem) if given is None or not given.any() else _start_given(problem, jnp.asarray(given))


def _given(problem: Problem, alpha) -> np.ndarray:
    """Dual variables in the dual set of each lane, [n, lanes, m]."""
    out = np.zeros((len(problem.y[0]), problem.lanes, problem.classes), problem.op.dtype)
    for lane in range(problem.lanes):
        bound = np.asarray(problem.bound[lane], np.float64)
        begin = starting_point(
            alpha, np.asarray(problem.y[lane]), problem.classes, problem.formulation, bound, problem.k
        )
        out[:, lane] = begin.toarray()
        if problem.members is not None:
            out[:, lane, ~np.asarray(problem.members[lane])] = 0
    return out


@jax.jit
def _start(problem: Problem) -> State:
    form, rows, m = problem.formulation, _rows(problem), problem.classes
    there = jnp.broadcast_to(rows.there, (*rows.y.shape, m))
    there &= form.exists(there, rows.y)
    count: Any = m
    if problem.members is not None:
        there &= problem.members
        count = _counts(problem, rows.C.dtype)
    # of sums that are at most C an equal part
    each = rows.C / (count - 1) if isinstance(form, TopKBeta) else rows.C
    alpha = jnp.where(there, each, jnp.zeros((), rows.C.dtype))
    V, total = _sums(problem, rows, alpha), _lane_sums(alpha)
    # D(s α) = s Σα − ½ s² (‖V‖² + Σ ridge α²)
    curved = _lane_sums(V * V) + 2 * (total - _gain(problem, rows, alpha))
    factor = jnp.where(curved > total, total / jnp.where(curved > 0, curved, 1), 1)
    return _start_from(problem, factor[:, None] * alpha)


@jax.jit
def _start_given(problem: Problem, alpha: jax.Array) -> State:
    """Dual variables that may be the best of all, as those of an earlier run are."""
    state = _start_from(problem, alpha)
    dual = _gain(problem, _rows(problem), alpha) - _lane_sums(state.sums * state.sums) / 2
    return state._replace(dual_objective=dual)


@jax.jit
def continued(problem: Problem, state: State) -> State:
    """Running lanes at the best dual variables of a state, brought into the dual set.

    Where they were in it, and V is that of these features, the steps go on where they were; else the state is
    that of another problem, and they begin anew.
    """
    form, rows, alpha = problem.formulation, _rows(problem), state.best_dual
    there = rows.there & form.exists(alpha, rows.y)
    if problem.members is not None:
        there &= problem.members
    # the projection; of a set without upper bounds it shortens by a thousandth
    nearest = form.row_map(
        jnp.where(there, form.metric(alpha), -jnp.inf), rows.y, 1e-3 * rows.C, rows.C, problem.k
    )
    inside = jnp.where(there, nearest, 0)
    start = _start_given(problem, inside)._replace(since=state.steps, steps=state.steps)
    if state.weights.shape != start.weights.shape:
        return start

    def equal(a, b):
        return _lane_maxima(jnp.abs(a - b)) <= _ALIKE * _lane_maxima(jnp.abs(a))

    kept = equal(alpha, inside) & equal(state.sums, _sums(problem, rows, state.dual))
    fields = ("dual", "weights", "sums", "rho", "first_rho")
    old, new = ({name: getattr(s, name) for name in fields} for s in (state, start))
    here = jax.tree.map(lambda a, b: jnp.where(kept if a.ndim == 1 else kept[:, None], a, b), old, new)
    return start._replace(**here)


@jax.jit
def _start_from(problem: Problem, alpha: jax.Array) -> State:
    form, rows, dtype = problem.formulation, _rows(problem), alpha.dtype
    V = _sums(problem, rows, alpha)
    variables = _lane_sums(alpha * form.metric(alpha))
    scores = _lane_sums(problem.eigenvalue[:, None, None] * V * V)
    rho = 3 * jnp.sqrt(variables / jnp.where(scores > 0, scores, 1))
    # α = 0, or sums beyond their dtype: the first step of a row of mean length goes to its bound
    rho = jnp.where((scores > 0) & (rho > 0) & jnp.isfinite(rho), rho, jnp.mean(rows.C, axis=(0, 2)))

    def number(value):
        return jnp.full_like(rho, value)

    def count(value):
        return jnp.full_like(rho, value, jnp.int32)

    return State(
        dual=alpha,
        weights=-V,
        sums=V,
        best_dual=alpha,
        best_weights=-V,
        rho=rho,
        first_rho=rho,
        primal=number(jnp.inf),
        dual_objective=number(-jnp.inf),
        gap=number(jnp.inf),
        target=number(MARGIN if dtype == jnp.float32 else 1),
        fallen=number(jnp.inf),
        risen=number(0),
        since=count(0),
        steps=count(0),
        status=count(Status.RUNNING),
    )


@needs_threads_of_jax
@jax.jit
def step(problem: Problem, hp: HParams, state: State) -> State:
    """One step of every lane that is running; the others stay as they are.

    In every fifth, and where no more are allowed, it looks at the gap first, and ends there where that is
    small enough.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> X = np.float32([[1, 0], [0, 1], [1, 1]])
        >>> lanes = admm.problem(linops.make(X), [0, 1, 2], C=[1.0, 10.0])
        >>> step(lanes, HParams(), init(lanes)).steps.tolist()
        [1, 1]
    """
    form, rows, k = problem.formulation, _rows(problem), problem.k
    rho = state.rho[:, None]
    due = (state.status == Status.RUNNING) & ((state.steps % _CHECK == 0) | (state.steps >= hp.max_steps))
    idle = due & (state.steps - state.since >= _TRIED)
    state = jax.lax.cond(jnp.any(idle), lambda: _of_dual(problem, rows, state, idle), lambda: state)
    h = _gains(problem, rows, _product(problem.features, state.weights))
    found = form.row_map(form.metric(state.dual) + rho * h, rows.y, rho, rows.C, k)
    new = jnp.where(rows.there, found, 0)
    sums = _sums(problem, rows, new)
    state = jax.lax.cond(
        jnp.any(due), lambda: _looked(problem, rows, hp, state, h, new, sums, due), lambda: state
    )
    running = state.status == Status.RUNNING
    delta = (state.weights + 2 * sums - state.sums) / (1 + rho * problem.eigenvalue[:, None, None])
    steps = state.steps + running.astype(jnp.int32)
    balanced = running & (steps % _every(steps) == 0)
    new_rho = jax.lax.cond(
        jnp.any(balanced), lambda: _balanced(problem, state, new, delta, balanced), lambda: state.rho
    )

    def moved(old, change):
        return jnp.where(running[:, None], old + _RELAXED * change, old)

    return state._replace(
        dual=moved(state.dual, new - state.dual),
        weights=_centred(problem, moved(state.weights, -delta)),
        sums=moved(state.sums, sums - state.sums),
        rho=new_rho,
        steps=steps,
    )


def _gains(problem: Problem, rows: _Rows, scores: jax.Array) -> jax.Array:
    """h of scores, [n, lanes, m]; −inf of classes that are none of a lane."""
    h = problem.formulation.gains(scores, rows.y)
    return h if problem.members is None else jnp.where(problem.members, h, -jnp.inf)


def _of_dual(problem: Problem, rows: _Rows, state: State, which) -> State:
    """The state with P of the weights that the best dual variables give, where that is smaller.

    Where α has settled W may still go round them.
    """
    V = _sums(problem, rows, state.best_dual)
    losses = problem.formulation.losses(_gains(problem, rows, -_product(problem.features, V)), problem.k)
    primal = _lane_sums(V * V) / 2 + _lane_sums(problem.bound.T * losses)
    lower = which & (primal < state.primal)
    return state._replace(
        primal=jnp.where(lower, primal, state.primal),
        best_weights=jnp.where(lower[:, None], -V, state.best_weights),
    )


def _every(steps: jax.Array) -> jax.Array:
    """From how many steps to how many ρ is looked at."""
    every = jnp.full_like(steps, _EARLY)
    for until in _DECADES:
        every = jnp.where(steps >= until, until // 2, every)
    return every


def _balanced(problem: Problem, state: State, new, delta, which) -> jax.Array:
    """ρ of lanes, so that dual variables and scores change alike."""
    change, rho = new - state.dual, state.rho
    changed = _lane_sums(change * problem.formulation.metric(change))
    curved = rho * (rho * _lane_sums(problem.eigenvalue[:, None, None] * delta * delta))
    there = (curved > 0) & (changed > 0)
    ratio = jnp.where(there, changed / jnp.where(curved > 0, curved, 1), 1)
    least, most = state.first_rho / _RANGE, state.first_rho * _RANGE
    new_rho = jnp.clip(rho * jnp.sqrt(ratio), least, most)
    outside = (ratio > _BALANCED) | (ratio < 1 / _BALANCED)
    return jnp.where(which & outside & jnp.isfinite(new_rho), new_rho, rho)


def _looked(problem: Problem, rows: _Rows, hp: HParams, state: State, h, new, sums, due) -> State:
    """The state with P and D of these gains and dual variables, and how lanes end by them."""
    form, dtype = problem.formulation, h.dtype
    norm2, of_rows = _lane_sums(state.weights * state.weights), problem.bound.T

    def primal_of(factor):
        """P of so many times the weights."""
        losses = form.losses(1 + factor[:, None] * (h - 1), problem.k)
        return factor * factor * norm2 / 2 + _lane_sums(of_rows * losses)

    one = jnp.ones_like(norm2)
    primal, longer = primal_of(one), one
    if dtype == jnp.float32:
        idle = due & (state.steps - state.since >= _TRIED)
        primal, longer = jax.lax.cond(
            jnp.any(idle), lambda: _lengthened(primal_of, primal, idle), lambda: (primal, longer)
        )
    gain, square = _gain(problem, rows, new), _lane_sums(sums * sums)
    factor = one
    if problem.name != "ovr_squared":  # D(s α) of the best s: the dual sets hold all shorter ones
        factor = jnp.where(square > gain, gain / jnp.where(square > 0, square, 1), 1)
    dual = factor * (gain - factor * square / 2)
    finite = jnp.isfinite(primal) & jnp.isfinite(dual)
    lower, higher = due & (primal < state.primal), due & (dual > state.dual_objective)
    best_primal = jnp.where(lower, primal, state.primal)
    best_dual = jnp.where(higher, dual, state.dual_objective)
    gap = (best_primal - best_dual) / jnp.where(best_primal > 0, best_primal, 1)
    progress = (gap < 0.9 * state.fallen) | (best_dual > 1.05 * state.risen)
    since = jnp.where(due & progress, state.steps, state.since)
    status = jnp.where(state.steps >= hp.max_steps, Status.MAX_STEPS, Status.RUNNING)
    if dtype == jnp.float32:
        stalled = state.steps - since > jnp.maximum(_IDLE, 4 * (state.steps // 5))
        status = jnp.where(stalled, Status.STALLED, status)
    status = jnp.where(closed(gap, state.target * jnp.asarray(hp.tol, dtype), 1), Status.CONVERGED, status)
    status = jnp.where(finite, status, Status.NONFINITE).astype(jnp.int32)
    return state._replace(
        best_dual=jnp.where(higher[:, None], factor[:, None] * new, state.best_dual),
        best_weights=jnp.where(lower[:, None], longer[:, None] * state.weights, state.best_weights),
        primal=best_primal,
        dual_objective=best_dual,
        gap=jnp.where(due, gap, state.gap),
        fallen=jnp.where(due & progress, jnp.minimum(gap, state.fallen), state.fallen),
        risen=jnp.where(due & progress, best_dual, state.risen),
        since=since,
        status=jnp.where(due, status, state.status),
    )


def _lengthened(primal_of, primal, which) -> tuple[jax.Array, jax.Array]:
    """The smallest P of weights that are a little longer, and how much longer they are."""
    eps = float(jnp.finfo(primal.dtype).eps)
    factors = 1 + eps * jnp.asarray(_LONGER, primal.dtype)[:, None] * jnp.ones_like(primal)
    values = jax.lax.map(primal_of, factors)
    place = jnp.argmin(values, axis=0)
    value = jnp.min(values, axis=0)
    better = which & (value < primal)
    factor = 1 + eps * jnp.asarray(_LONGER, primal.dtype)[place]
    return jnp.where(better, value, primal), jnp.where(better, factor, 1)


@needs_threads_of_jax
@jax.jit
def advance(problem: Problem, hp: HParams, state: State, count) -> State:
    """At most `count` steps of each lane in one compiled call.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> X = np.float32([[1, 0], [0, 1], [1, 1]])
        >>> lanes = admm.problem(linops.make(X), [0, 1, 2], C=[1.0, 10.0])
        >>> advance(lanes, HParams(tol=0.0), init(lanes), 7).steps.tolist()
        [7, 7]
    """
    steps = functools.partial(step, problem, hp)
    return at_most(steps, lambda state: jnp.any(state.status == Status.RUNNING), state, count)


@needs_threads_of_jax
def weights(problem: Problem, state: State) -> jax.Array:
    """The best W of all lanes, [lanes, d, m]; of inner products coefficients of the rows, [lanes, n, m].

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> lanes = admm.problem(linops.make(np.eye(3, dtype=np.float32)), [0, 1, 2], C=[0.1, 1.0])
        >>> weights(lanes, init(lanes)).shape
        (2, 3, 3)
    """
    return _weights(problem, state.best_weights)


@jax.jit
def _weights(problem: Problem, best: jax.Array) -> jax.Array:
    return jnp.swapaxes(_centred(problem, _product(problem.rotation, best)), 0, 1)
