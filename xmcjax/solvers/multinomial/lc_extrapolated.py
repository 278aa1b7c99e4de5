"""The log-concavity bound with its variational parameters extrapolated.

An iteration of lc is a map T of log a, [n], onto itself, whose fixed point is sought. Anderson's
method (1965; Walker and Ni, 2011, with mixing 1) goes from the last maps to

    Σ_j α_j T(x_j),   α = argmin ‖Σ_j α_j (T(x_j) − x_j)‖ subject to Σ_j α_j = 1.

Where G would rise the iteration is not taken: the next one is a plain one, from which the memory fills
again. So G never rises here either.

The mean of W over the classes is subtracted in each iteration, because T alone would remove it slowly. A mesh
has only the d sums of this mean to send beyond what lc sends, since every device has log a.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers._base import Status
from xmcjax.solvers.multinomial import lc
from xmcjax.solvers.multinomial._problem import Problem
from xmcjax.solvers.multinomial._state import HParams, State

DEPTH = 10
# Part of their first gradient to which the class problems are solved: less than in lc, for extrapolation.
ACCURACY = 0.01

CLASS_AXES = {"log_a": None, "norms": 0, "mapped": None, "residuals": None, "kept": None}


class Memory(NamedTuple):
    """What an iteration of extrapolated LC hands to the next."""

    log_a: jax.Array  #: at the weights of the state, [n]
    norms: jax.Array  #: ‖∇G‖ of each class, [K]
    mapped: jax.Array  #: T(x_j) of the last iterations, [DEPTH, n]
    residuals: jax.Array  #: T(x_j) − x_j
    kept: jax.Array  #: int32, how many of them there are


@needs_threads_of_jax
def init(problem: Problem, hp: HParams, W0=None, b0=None, width: int | None = None) -> State:
    """The state at the starting weights; `state.inner` counts Newton steps, over all classes."""
    state = lc.init(problem, hp, W0, b0, width)
    empty = jnp.zeros((DEPTH, problem.y.shape[0]), problem.op.dtype)
    log_a, norms = state.memory
    return state._replace(memory=Memory(log_a, norms, empty, empty, jnp.int32(0)))


@needs_threads_of_jax
def step(problem: Problem, hp: HParams, state: State) -> State:
    """One pass over the classes with extrapolated a, and the best a after it."""
    memory: Memory = state.memory
    plain = memory.kept < 2
    log_a = jnp.where(plain, memory.log_a, _extrapolated(problem, memory))

    def remember(made: lc.Pass, norms):
        mapped = jnp.roll(memory.mapped, 1, axis=0).at[0].set(made.log_a)
        residuals = jnp.roll(memory.residuals, 1, axis=0).at[0].set(made.log_a - log_a)
        return Memory(made.log_a, norms, mapped, residuals, jnp.minimum(memory.kept + 1, DEPTH))

    after = lc.advanced(problem, hp, state, log_a, ACCURACY, remember, centre=True)
    # An extrapolation that raises G is forgotten; only a plain iteration that does ends the run.
    rejected = (after.status == Status.LINE_SEARCH_FAILED) & ~plain
    status = jnp.where(after.steps >= hp.max_steps, Status.MAX_STEPS, Status.RUNNING)
    return after._replace(
        status=jnp.where(rejected, status, after.status).astype(jnp.int32),
        memory=after.memory._replace(kept=jnp.where(rejected, 0, after.memory.kept)),
    )


def _extrapolated(problem: Problem, memory: Memory):
    # With differences of residuals the constraint on α is gone: γ = argmin ‖r_0 − Σ_j γ_j (r_0 − r_j)‖
    weight = jnp.sqrt(problem.weight)
    differences = memory.residuals[:1] - memory.residuals[1:]
    used = (jnp.arange(1, DEPTH, dtype=jnp.int32) < memory.kept)[:, None]
    A = jnp.where(used, differences, 0) * weight
    gram = jnp.matmul(A, A.T, precision="highest")  # TF32 took an eighth more iterations
    # unused rows decide nothing, and directions lost in rounding little
    ridge = jnp.where(used[:, 0], 1e-10 * jnp.trace(gram), 1) + jnp.finfo(A.dtype).tiny
    gamma = jnp.linalg.solve(gram + jnp.diag(ridge), A @ (weight * memory.residuals[0]))
    return memory.mapped[0] - gamma @ jnp.where(used, memory.mapped[:1] - memory.mapped[1:], 0)
