"""The host loop of all methods."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax

from xmcjax.solvers._base import Status
from xmcjax.solvers.multinomial import admm, auto, dm, dual, lbfgs, lc, lc_extrapolated, newton
from xmcjax.solvers.multinomial._problem import Problem
from xmcjax.solvers.multinomial._state import HParams, State


class Record(NamedTuple):
    """Of one outer iteration, for a figure or a table."""

    steps: int
    value: float  #: G
    gradient_norm: float  #: ‖∇G‖
    bound: float  #: of LC and DM their bound
    inner: int  #: inner steps so far
    seconds: float  #: since the start, compilation included


class Solution(NamedTuple):
    """What a run ends with."""

    W: jax.Array  #: [d, K]
    bias: jax.Array  #: [K]
    value: float
    gradient_norm: float
    bound: float
    status: Status
    history: list[Record]


# Modules with `init(problem, hp, W0, b0) -> State` and `step(problem, hp, State) -> State`; "auto" is a
# choice among them.
METHODS = {
    "lc": lc,
    "lc_extrapolated": lc_extrapolated,
    "dm": dm,
    "admm": admm,
    "lbfgs": lbfgs,
    "newton": newton,
    "dual": dual,
}
CHOICES = ("auto", *METHODS)


@functools.partial(jax.jit, static_argnames=("method",))
def initial(problem: Problem, hp: HParams, W0, b0, *, method: str) -> State:
    """The state before the first iteration of a method."""
    return METHODS[method].init(problem, hp, W0, b0)


@functools.partial(jax.jit, static_argnames=("method",), donate_argnames=("state",))
def advance(problem: Problem, hp: HParams, state: State, *, method: str) -> State:
    """One outer iteration in one compiled call; the buffers of `state` are given away."""
    return METHODS[method].step(problem, hp, state)


def solve(
    problem: Problem,
    method: str = "auto",
    hp: HParams | None = None,
    *,
    W0=None,
    b0=None,
    observe: Callable[[State, Record], None] | None = None,
) -> Solution:
    """Iterates until the gradient is small enough.

    Args:
        problem: from :func:`multinomial_problem`.
        method: "auto", or one of the table ``METHODS``.
        hp: of the stopping rule; None for its defaults.
        W0: starting weights [d, K]; None for the method's own start.
        b0: starting intercepts [K].
        observe: called with the state and its record after each iteration; the arrays of the
            state are valid until it returns.

    Raises:
        ValueError: an unknown method, one that cannot run on these features, or starting weights
            of another shape.
    """
    if method not in CHOICES:
        raise ValueError(f"expected a method of {', '.join(CHOICES)}, got {method!r}")
    hp = HParams() if hp is None else hp
    begin = time.perf_counter()
    now = auto.first(problem) if method == "auto" else method
    state = initial(problem, hp, W0, b0, method=now)
    history: list[Record] = []

    def note():
        history.append(
            Record(
                int(state.steps),
                float(state.value),
                float(state.gradient_norm),
                float(state.bound),
                int(state.inner),
                time.perf_counter() - begin,
            )
        )
        if observe is not None:
            observe(state, history[-1])

    note()
    while int(state.status) == Status.RUNNING:
        state = advance(problem, hp, state, method=now)
        note()
        following = auto.following(now, [r.gradient_norm for r in history]) if method == "auto" else now
        if following != now and int(state.status) == Status.RUNNING:
            steps, inner = state.steps, state.inner
            state = initial(problem, hp, state.W, state.bias, method=following)
            state, now = state._replace(steps=steps, inner=inner), following
    return Solution(
        state.W,
        state.bias,
        float(state.value),
        float(state.gradient_norm),
        float(state.bound),
        Status(int(state.status)),
        history,
    )
