"""The steps of the alternating direction method of multipliers, for every loss and all lanes at once.

One algorithm serves all losses, which differ in their row map alone, a projection. It solves many problems as
lanes: folds, a grid of C, sets of classes. Nothing is sequential, which is what a GPU wants. With features in
the basis of the eigenvectors E of XᵀX, X̃ = X E and X̃ᵀX̃ = diag(λ), a step of a lane is

    α⁺ = row_map(M α + ρ h, ρ),   h = 1 + linear(X̃ W),   O = −X̃ᵀ coefficients(α⁺),
    Δ = (W + 2 O − V) / (1 + ρ λ),   W ← W − κ Δ,   α ← α + κ (α⁺ − α),   V ← V + κ (O − V),

with the functions of :mod:`xmcjax.solvers._formulations`, V = −X̃ᵀ coefficients(α) and κ = 1.8; W = −V at the
optimum. Rows that a lane leaves out have α = 0, so that all lanes share the basis. P(W) and D(α⁺) are known
in every step, and the best W and α⁺ are kept: a lane ends by its relative gap (P − D)/P. D is that of α⁺,
shortened where this raises D. Where P no longer falls, two other weights are tried: those that the best α⁺
gives, around which W may circle for long, and weights a little longer than W, because with a large C the
smallest gain above 0, even one made by rounding, costs more than ½ ‖W‖².

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
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers._accuracy import closed
from xmcjax.solvers._base import Status
from xmcjax.solvers._host_loop import at_most
from xmcjax.solvers.admm._problem import Problem
from xmcjax.solvers.admm._sums import LaneRows, centred, gain_of, lane_sums, product, rows_of, sums_of

_RELAXED = 1.8
# Steps from one look at the gap to the next.
_CHECK = 5
# ρ is looked at every _EARLY steps, and from each step of _DECADES on after half as many steps as that. It
# stays while r is within a factor _BALANCED of 1, and never leaves a factor _RANGE around the first ρ.
_EARLY, _DECADES, _BALANCED, _RANGE = 10, (100, 1000, 10_000, 100_000), 1.5, 1e8
# Steps in float32 without progress after which rounding is taken to be the reason, or four fifths of all
# steps where that is more. Progress: the gap falls by a tenth, or the dual objective rises by a twentieth.
# Lanes of float64 go as long without progress while ρ is far from its best, and converge all the same.
_IDLE = 800
# _TRIED: steps without progress after which the weights of the best α⁺, and longer weights, are tried.
# _LONGER: how much longer these are, in units of the rounding of float32.
_TRIED, _LONGER = 20, (8, 64, 512, 4096, 32768)


class HParams(NamedTuple):
    """Hyperparameters of the method.

    Example:
        >>> HParams(tol=1e-4).max_steps
        10000
    """

    tol: float = 1e-3  #: a lane has converged when P − D ≤ tol · P
    max_steps: int = 10_000  #: of a lane


class State(NamedTuple):
    """The state of all lanes.

    Example:
        >>> import numpy as np
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
    primal: jax.Array  #: [lanes], the smallest P so far; inf before the first look at the gap
    dual_objective: jax.Array  #: [lanes], the largest D so far
    gap: jax.Array  #: [lanes], (P − D)/P; inf before the first look
    target: jax.Array  #: [lanes], the part of the tolerance at which a lane ends
    fallen: jax.Array  #: [lanes], the gap at the last progress
    risen: jax.Array  #: [lanes], D at the last progress
    since: jax.Array  #: int32 [lanes], the step of the last progress
    steps: jax.Array  #: int32 [lanes], steps made
    status: jax.Array  #: int32 [lanes], of :class:`xmcjax.solvers.Status`


@needs_threads_of_jax
@jax.jit
def step(problem: Problem, hp: HParams, state: State) -> State:
    """One step of every lane that is running; the others stay as they are.

    Every fifth step, and one for which no steps are left, looks at the gap first; the lane ends there where
    the gap is small enough.

    Example:
        >>> import numpy as np
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> X = np.float32([[1, 0], [0, 1], [1, 1]])
        >>> lanes = admm.problem(linops.make(X), [0, 1, 2], C=[1.0, 10.0])
        >>> step(lanes, HParams(), admm.init(lanes)).steps.tolist()
        [1, 1]
    """
    form, rows, k = problem.formulation, rows_of(problem), problem.k
    rho = state.rho[:, None]
    due = (state.status == Status.RUNNING) & ((state.steps % _CHECK == 0) | (state.steps >= hp.max_steps))
    idle = due & (state.steps - state.since >= _TRIED)
    state = jax.lax.cond(jnp.any(idle), lambda: _of_dual(problem, rows, state, idle), lambda: state)
    h = _gains(problem, rows, product(problem.features, state.weights))
    found = form.row_map(form.metric(state.dual) + rho * h, rows.y, rho, rows.C, k)
    new = jnp.where(rows.there, found, 0)
    sums = sums_of(problem, rows, new)
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
        weights=centred(problem, moved(state.weights, -delta)),
        sums=moved(state.sums, sums - state.sums),
        rho=new_rho,
        steps=steps,
    )


def _gains(problem: Problem, rows: LaneRows, scores: jax.Array) -> jax.Array:
    """h of scores, [n, lanes, m]; −inf for classes that a lane does not have."""
    h = problem.formulation.gains(scores, rows.y)
    return h if problem.members is None else jnp.where(problem.members, h, -jnp.inf)


def _of_dual(problem: Problem, rows: LaneRows, state: State, which) -> State:
    """The state with P of the weights that the best dual variables give, where that is smaller.

    Where α has settled, W may still circle around these weights.
    """
    V = sums_of(problem, rows, state.best_dual)
    losses = problem.formulation.losses(_gains(problem, rows, -product(problem.features, V)), problem.k)
    primal = lane_sums(V * V) / 2 + lane_sums(problem.bound.T * losses)
    lower = which & (primal < state.primal)
    return state._replace(
        primal=jnp.where(lower, primal, state.primal),
        best_weights=jnp.where(lower[:, None], -V, state.best_weights),
    )


def _every(steps: jax.Array) -> jax.Array:
    """The number of steps from one look at ρ to the next."""
    every = jnp.full_like(steps, _EARLY)
    for until in _DECADES:
        every = jnp.where(steps >= until, until // 2, every)
    return every


def _balanced(problem: Problem, state: State, new, delta, which) -> jax.Array:
    """ρ of lanes, so that dual variables and scores change alike."""
    change, rho = new - state.dual, state.rho
    changed = lane_sums(change * problem.formulation.metric(change))
    curved = rho * (rho * lane_sums(problem.eigenvalue[:, None, None] * delta * delta))
    there = (curved > 0) & (changed > 0)
    ratio = jnp.where(there, changed / jnp.where(curved > 0, curved, 1), 1)
    least, most = state.first_rho / _RANGE, state.first_rho * _RANGE
    new_rho = jnp.clip(rho * jnp.sqrt(ratio), least, most)
    outside = (ratio > _BALANCED) | (ratio < 1 / _BALANCED)
    return jnp.where(which & outside & jnp.isfinite(new_rho), new_rho, rho)


def _looked(problem: Problem, rows: LaneRows, hp: HParams, state: State, h, new, sums, due) -> State:
    """The state after a look at P and D of the gains `h` and the dual variables `new`; lanes may end."""
    form, dtype = problem.formulation, h.dtype
    norm2, of_rows = lane_sums(state.weights * state.weights), problem.bound.T

    def primal_of(factor):
        """P of `factor` times the weights."""
        losses = form.losses(1 + factor[:, None] * (h - 1), problem.k)
        return factor * factor * norm2 / 2 + lane_sums(of_rows * losses)

    one = jnp.ones_like(norm2)
    primal, longer = primal_of(one), one
    idle = due & (state.steps - state.since >= _TRIED)
    primal, longer = jax.lax.cond(
        jnp.any(idle), lambda: _lengthened(primal_of, primal, idle), lambda: (primal, longer)
    )
    gain, square = gain_of(problem, rows, new), lane_sums(sums * sums)
    factor = one
    if problem.name != "ovr_squared":  # D(s α⁺) of the best s ≤ 1: the dual sets hold s α⁺ too
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
    lengths = 1 + float(jnp.finfo(jnp.float32).eps) * jnp.asarray(_LONGER, primal.dtype)
    factors = lengths[:, None] * jnp.ones_like(primal)
    values = jax.lax.map(primal_of, factors)
    place = jnp.argmin(values, axis=0)
    value = jnp.min(values, axis=0)
    better = which & (value < primal)
    return jnp.where(better, value, primal), jnp.where(better, lengths[place], 1)


@needs_threads_of_jax
@jax.jit
def advance(problem: Problem, hp: HParams, state: State, count) -> State:
    """At most `count` steps of each lane in one compiled call.

    Example:
        >>> import numpy as np
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> X = np.float32([[1, 0], [0, 1], [1, 1]])
        >>> lanes = admm.problem(linops.make(X), [0, 1, 2], C=[1.0, 10.0])
        >>> advance(lanes, HParams(tol=0.0), admm.init(lanes), 7).steps.tolist()
        [7, 7]
    """
    steps = functools.partial(step, problem, hp)
    return at_most(steps, lambda state: jnp.any(state.status == Status.RUNNING), state, count)


@needs_threads_of_jax
def weights(problem: Problem, state: State) -> jax.Array:
    """The best W of all lanes, [lanes, d, m]; of inner products coefficients of the rows, [lanes, n, m].

    Example:
        >>> import numpy as np
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import admm
        >>> lanes = admm.problem(linops.make(np.eye(3, dtype=np.float32)), [0, 1, 2], C=[0.1, 1.0])
        >>> weights(lanes, admm.init(lanes)).shape
        (2, 3, 3)
    """
    return _weights(problem, state.best_weights)


@jax.jit
def _weights(problem: Problem, best: jax.Array) -> jax.Array:
    return jnp.swapaxes(centred(problem, product(problem.rotation, best)), 0, 1)
