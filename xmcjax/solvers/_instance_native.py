"""Epochs of ascent over instances by native calls: in what JAX traces, and on arrays of the host."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from xmcjax import native
from xmcjax._platform import committed_to_host, on_host
from xmcjax.linops import Csr, Dense
from xmcjax.solvers._instance_problem import Gram, HParams, Problem

# The gap, which costs about half an epoch, is worked out at most once in so many epochs …
EPOCHS_PER_CHECK = 5
# … and the first time after so many at the latest.
FIRST_CHECK = 10


def native_fields(problem: Problem, hp: HParams) -> dict[str, Any]:
    """The fields that both native calls have, but for the state."""
    op, real, whole = problem.op, problem.op.dtype, np.int32
    no_matrix = np.zeros((0, 0), real)
    no_rows = np.zeros(0, real), np.zeros(0, whole), np.zeros((1, 2), whole)
    X: Any = no_matrix
    csr: Any = no_rows
    if isinstance(op, Csr):
        kind, csr = "csr", op.arrays
    elif isinstance(op, Gram):
        kind, X = "gram", op.K
    else:
        assert isinstance(op, Dense)
        kind, X = "dense", op.X
    return dict(
        X=X,
        csr=csr,
        y=problem.y,
        squared_norms=problem.squared_norms,
        bound=problem.bound,
        k=problem.k,
        gamma=problem.gamma,
        classes=problem.classes,
        block=hp.block_for(problem.classes),
        threads=hp.threads,
        features=native.id_number("features", kind),
        set=native.id_number("set", problem.set_name),
    )


def _fields_of_epochs(hp: HParams, state: Any, count: Any) -> dict[str, Any]:
    return dict(
        **state._asdict(),
        sweeps=hp.sweeps,
        tolerance=hp.tol,
        max_epochs=hp.max_epochs,
        count=count,
        epochs_per_check=EPOCHS_PER_CHECK,
        first_check=FIRST_CHECK,
    )


def native_epochs(problem: Problem, hp: HParams, state: Any, count: Any) -> Any:
    """At most `count` epochs of each lane; JAX may trace the call."""
    fields = native_fields(problem, hp), _fields_of_epochs(hp, state, count)
    return state._replace(**native.call("instance_dual", **fields[0], **fields[1]))


def epochs_in_place(problem: Problem, hp: HParams, state: Any, count: int) -> Any:
    """:func:`native_epochs` on arrays of :func:`of_host`, which change; no size needs a compilation."""
    fields = native_fields(problem, hp), _fields_of_epochs(hp, state, count)
    native.InPlace.once("instance_dual", **fields[0], **fields[1])
    return state


def native_gap(problem: Problem, hp: HParams, state: Any) -> tuple[jax.Array, ...]:
    """P, D, P − D and the instances with dual variables of each lane; JAX may trace the call."""
    of_state = dict(weights=state.weights, dual=state.dual, index=state.index)
    return tuple(native.call("instance_gap", **native_fields(problem, hp), **of_state).values())


def of_host(problem: Problem, state: Any) -> tuple[Problem, Any]:
    """Problem and state with arrays of NumPy; those of the state are copies, and JAX's arrays are deleted."""

    def own(a: Any) -> np.ndarray:
        copy = np.array(a)
        if isinstance(a, jax.Array):
            a.delete()
        return copy

    return jax.tree.map(np.asarray, problem), jax.tree.map(own, state)


def of_jax(state: Any) -> Any:
    """A state of :func:`of_host`, whose arrays nobody changes any more, with JAX's arrays of the CPU."""
    with on_host():
        return committed_to_host(jax.tree.map(jax.device_put, state))
