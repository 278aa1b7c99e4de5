"""Multinomial logistic regression as one of ``SOLVERS``, with its derivative."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax.core import Tracer

from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers._hparams import nan_below_0
from xmcjax.solvers._implicit import Conditions, differentiable, system_tolerance
from xmcjax.solvers._protocol import Solution, Solver, Weights, check_state
from xmcjax.solvers.multinomial import auto, newton
from xmcjax.solvers.multinomial._problem import (
    Problem,
    centred,
    checked_lam,
    evaluate_at,
    log_normaliser,
    multinomial_problem,
    scores,
)
from xmcjax.solvers.multinomial._run import METHODS, run
from xmcjax.solvers.multinomial._run import Solution as OwnSolution
from xmcjax.solvers.multinomial._state import HParams, State


def _init(problem: Problem, hp: HParams, W0=None, b0=None) -> State:
    if not isinstance(problem.l2, Tracer):
        checked_lam(problem.l2)
    return METHODS[auto.first(problem, compiled=True)].init(problem, hp, W0, b0)


@needs_threads_of_jax
@jax.jit
def _step(problem: Problem, hp: HParams, state: State) -> State:
    problem = dataclasses.replace(problem, l2=nan_below_0(problem.l2))
    return METHODS[auto.first(problem, compiled=True)].step(problem, hp, state)


def _ended(problem: Problem, hp: HParams, state: State | OwnSolution | None) -> Solution:
    """Solves from the weights of a state, or of a solution of `run`, which ``diagnostics`` are."""
    if not (state is None or isinstance(state, OwnSolution)):
        check_state(state, State)
    W0, b0 = (None, None) if state is None else (state.W, state.bias)
    # the derivative is that at ∇G = 0
    gradient = hp.tolerance if hp.gradient_tolerance is None else hp.gradient_tolerance
    found = run(_of_dtype(problem), "auto", hp._replace(gradient_tolerance=gradient), W0=W0, b0=b0)
    value, status = (jnp.asarray(a) for a in (found.value, found.status))
    value, status = value.astype(found.W.dtype), status.astype(jnp.int32)
    return Solution(Weights(found.W, found.bias), value, status, found)


def _of_dtype(problem: Problem) -> Problem:
    """The problem with all numbers in the dtype of its features: another λ may have another."""
    numbers = {name: jnp.asarray(getattr(problem, name), problem.op.dtype) for name in ("weight", "l2")}
    return dataclasses.replace(problem, **numbers)


def _evaluated(parameters, x: Weights):
    """∇G and G."""
    problem = _of_dtype(dataclasses.replace(parameters[0], op=differentiable(parameters[0].op)))
    now = evaluate_at(problem, x.w, scores(problem, x.w, x.bias))
    return Weights(now.gradient, now.bias_gradient), now.value


def _solve(parameters, x: Weights, right: Weights) -> Weights:
    """H⁻¹ of a right side, by the CG of the Newton steps; the mean of the intercepts stays 0."""
    problem = _of_dtype(parameters[0])
    Z = scores(problem, x.w, x.bias)
    last = centred(problem, right.bias) if problem.intercept else jnp.zeros_like(right.bias)
    right_side = jnp.concatenate([right.w, last[None, :]])
    product = newton.hessian(problem, Z, log_normaliser(problem, Z))
    most, tolerance = 10 * right_side.size, system_tolerance(right_side.dtype)
    y, _ = newton.solve_system(problem, product, right_side, tolerance=tolerance, max_steps=most)
    return Weights(y[:-1], centred(problem, y[-1]) if problem.intercept else y[-1])


SOLVER = Solver(
    problem=multinomial_problem,
    hparams=HParams,
    init=_init,
    step=_step,
    ended=_ended,
    derivative=Conditions(_evaluated, _solve, _solve),
    pure=False,
)
