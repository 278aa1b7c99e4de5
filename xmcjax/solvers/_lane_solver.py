"""Truncated Newton on lanes as one of ``SOLVERS``, with its derivative."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from xmcjax.penalties import L2
from xmcjax.solvers import newton_cg
from xmcjax.solvers._base import Status
from xmcjax.solvers._implicit import Conditions, differentiable, system_tolerance
from xmcjax.solvers._protocol import Solution, Solver, Weights, check_state


def _continued(problem: newton_cg.LaneProblem, state) -> newton_cg.State:
    """Fresh lanes at the weights of a state: scores, direction and status may be those of another problem."""
    lanes, features = problem.y.shape[1], problem.op.shape[1]
    of_weights, of_lanes = (features, lanes), (lanes,)
    check_state(state, newton_cg.State, w=of_weights, direction=of_weights, bias=of_lanes, status=of_lanes)
    fresh = state.status == Status.FRESH
    w = jnp.where(fresh, state.direction, state.w)
    bias = jnp.where(fresh, state.direction_bias, state.bias)
    return newton_cg.init(problem, w, bias)._replace(steps=state.steps, cg_steps=state.cg_steps)


def _ended(problem: newton_cg.LaneProblem, hp, state) -> Solution:
    problem = _of_dtype(problem)
    start = newton_cg.init(problem) if state is None else _continued(problem, state)
    state = newton_cg.run(problem, hp, start)
    return Solution(Weights(state.w, state.bias), state.value, state.status, state)


def _of_dtype(problem: newton_cg.LaneProblem) -> newton_cg.LaneProblem:
    """The problem with all numbers in the dtype of its features: another weight may have another."""
    names = ("weight", "shift", "tolerance")
    numbers = {name: jnp.asarray(getattr(problem, name), problem.op.dtype) for name in names}
    return dataclasses.replace(problem, **numbers)


def _of_bias(l2_bias):
    """Whether there is a bias, and λ_b with the derivative 1 at 0, where that of max(λ_b, 0) would be ½."""
    has_bias = l2_bias >= 0
    return has_bias, jnp.where(has_bias, l2_bias, 0)


def _evaluated(parameters, x: Weights):
    """∇f and f of each lane."""
    problem, hp = _of_dtype(parameters[0]), parameters[1]
    if not isinstance(problem.penalty, L2):
        raise TypeError(f"expected the penalty l2 for derivatives of a solution, got {problem.penalty.name}")
    op, loss, dtype = differentiable(problem.op), problem.loss, problem.op.dtype
    y, c = problem.y.astype(dtype), problem.weight
    l2, l2_bias = jnp.asarray(hp.l2, dtype), jnp.asarray(hp.l2_bias, dtype)
    has_bias, r = _of_bias(l2_bias)
    z = op.matmat(x.w) + x.bias + problem.shift
    # ∇f = (λ w + Xᵀ ℓ', λ_b b + 1ᵀ ℓ')
    slope = c * loss.score_grad(z, y)
    gradient_bias = jnp.where(has_bias, jnp.sum(slope, axis=0) + r * x.bias, 0)
    value = jnp.sum(c * loss.score_value(z, y), axis=0)
    value = value + l2 / 2 * jnp.sum(x.w * x.w, axis=0) + r / 2 * x.bias * x.bias
    return Weights(l2 * x.w + op.rmatmat(slope), gradient_bias), value


def _solve(parameters, x: Weights, right: Weights) -> Weights:
    """H⁻¹ of a right side, by the CG of the Newton steps."""
    problem, hp = _of_dtype(parameters[0]), parameters[1]
    op, dtype = problem.op, problem.op.dtype
    z = op.matmat(x.w) + x.bias + problem.shift
    D = problem.weight * problem.loss.score_curv(z, problem.y.astype(dtype))
    l2, l2_bias = jnp.asarray(hp.l2, dtype), jnp.asarray(hp.l2_bias, dtype)
    exact = hp._replace(
        cg_progress=0.0,
        cg_tolerance=system_tolerance(dtype),
        max_cg=10 * (op.shape[1] + 1),
        preconditioner=0.0,
    )
    has_bias, r = _of_bias(l2_bias)
    lanes, enough = jnp.ones(x.bias.shape, bool), jnp.zeros_like(x.bias)
    w, bias, *_ = newton_cg.newton_direction(
        op, D, -right.w, -right.bias, l2, r, has_bias, lanes, enough, exact
    )
    return Weights(w, bias)


SOLVER = Solver(
    problem=newton_cg.lane_problem,
    hparams=newton_cg.HParams,
    init=lambda problem, hp, **start: newton_cg.init(problem, **start),
    step=newton_cg.step,
    ended=_ended,
    derivative=Conditions(_evaluated, _solve, _solve),
    pure=True,
)
