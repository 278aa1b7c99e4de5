"""Dual block coordinate ascent in plain JAX, epoch by epoch, with shrinking.

Alber et al. 2017. A variable that three epochs leave unchanged is dropped (shrinking). When the others have
converged, an epoch over all variables must confirm it, and the duality gap after it must be small enough;
otherwise variables are made more accurate. There is also an epoch over all variables whenever the largest
violation of those not dropped has fallen to a tenth of what the last such epoch left, so that a variable that
was dropped too early does not wait until the others have converged to the last digit.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._fork import needs_threads_of_jax
from xmcjax.solvers._accuracy import EPS
from xmcjax.solvers._base import Status
from xmcjax.solvers._host_loop import at_most, run_in_calls
from xmcjax.solvers.multiclass_dual._problem import MulticlassProblem

# Epochs without a change after which a variable is dropped.
IDLE = 3
# What rounding may add to a relative gap, in units of the rounding of the dtype.
_ROUNDING = 16
# An epoch over all variables is due when the violation has fallen to this part of what the last one left.
_FALL = 0.1


class HParams(NamedTuple):
    """Numbers of the method; all are traced, so none costs a compilation.

    Attributes:
        tol: converged when the relative duality gap, plus what rounding may have added, is at most this.
        max_epochs: epochs at most.
        shrinking: whether variables are dropped.

    Example:
        >>> HParams(tol=1e-6, max_epochs=50)
        HParams(tol=1e-06, max_epochs=50, shrinking=True)
    """

    tol: float = 1e-3
    max_epochs: int = 1000
    shrinking: bool = True


class State(NamedTuple):
    """The state after some epochs; the numbers are those of the current W and alpha.

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers.multiclass_dual import init, multiclass_problem
        >>> problem = multiclass_problem(np.float32([[1, 0], [0, 1]]), [0, 1], formulation="ww")
        >>> state = init(problem)
        >>> state.W.shape, int(state.epoch), Status(int(state.status)).name
        ((2, 2), 0, 'RUNNING')
    """

    W: jax.Array  #: [d, m]
    alpha: jax.Array  #: [n, m]
    idle: jax.Array  #: int8 [n, m], epochs since a variable changed, 3 at most
    key: jax.Array  #: of the random orders to come
    epoch: jax.Array  #: int32, epochs made
    everything: jax.Array  #: bool, whether the next epoch visits dropped variables too
    eps: jax.Array  #: |projected gradient| up to which a variable stays as it is
    target: jax.Array  #: violation of the variables not dropped, at which everything is visited again
    status: jax.Array  #: int32, of :class:`xmcjax.solvers.Status`
    primal: jax.Array
    dual: jax.Array
    gap: jax.Array  #: (primal − dual) / |primal|
    violation: jax.Array  #: largest |projected gradient|
    density_w: jax.Array  #: share of the weights that are not zero
    density_alpha: jax.Array  #: share of the dual variables that are not zero
    shrunk: jax.Array  #: share of the dual variables that the last epoch left out


class Certificate(NamedTuple):
    """How far W and α are from the optimum.

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers.multiclass_dual import certificate, multiclass_problem
        >>> problem = multiclass_problem(np.float32([[1, 0], [0, 1]]), [0, 1], formulation="ww")
        >>> zero = np.zeros((2, 2), np.float32)
        >>> at_zero = certificate(problem, zero, zero)
        >>> float(at_zero.primal), float(at_zero.dual), float(at_zero.gap)
        (2.0, 0.0, 1.0)
    """

    primal: jax.Array
    dual: jax.Array
    gap: jax.Array  #: (primal − dual) / |primal|
    violation: jax.Array  #: |projected gradient|, [n, m] or [n, 1]


@needs_threads_of_jax
def weights(problem: MulticlassProblem, alpha) -> jax.Array:
    """W = Xᵀ coefficients(α), [d, m].

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers.multiclass_dual import multiclass_problem
        >>> problem = multiclass_problem(np.float32([[1, 0], [0, 1]]), [0, 1], formulation="ww")
        >>> weights(problem, np.float32([[0, 0.5], [0.25, 0]])).tolist()
        [[0.5, -0.5], [-0.25, 0.25]]
    """
    return problem.op.rmatmat(problem.formulation.coefficients(alpha, problem.y))


@needs_threads_of_jax
def certificate(problem: MulticlassProblem, W, alpha) -> Certificate:
    """Primal and dual objective, gap and projected gradient at W and α with W = weights(α).

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers.multiclass_dual import multiclass_problem
        >>> problem = multiclass_problem(np.float32([[1, 0], [0, 1]]), [0, 1], formulation="ww")
        >>> alpha = np.float32([[0, 0.5], [0.5, 0]])  # the weight of each row against the other class
        >>> found = certificate(problem, weights(problem, alpha), alpha)
        >>> bool(found.dual <= found.primal), float(found.dual)
        (True, 0.5)
    """
    formulation, C = problem.formulation, problem.C_of_classes
    gains = formulation.gains(problem.op.matmat(W), problem.y)
    half = jnp.sum(W * W) / 2
    primal = half + jnp.sum(problem.C * formulation.losses(gains))
    dual = formulation.dual_gain(alpha, C) - half
    gap = (primal - dual) / jnp.abs(primal)
    return Certificate(primal, dual, gap, formulation.violation(gains, alpha, problem.y, C))


@needs_threads_of_jax
def init(problem: MulticlassProblem, key=None, alpha=None) -> State:
    """The state before the first epoch.

    Args:
        problem: as made by :func:`multiclass_problem`.
        key: of :func:`jax.random.key`, for the random orders; None for the key of 0.
        alpha: dual variables to start from, inside the dual set; None for zero.

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers.multiclass_dual import multiclass_problem
        >>> problem = multiclass_problem(np.float32([[1, 0], [0, 1]]), [0, 1], formulation="ww")
        >>> float(init(problem).dual), float(init(problem, alpha=np.float32([[0, 0.5], [0.5, 0]])).dual)
        (0.0, 0.5)
    """
    shape = (problem.y.shape[0], problem.classes)
    dtype = problem.op.dtype
    start = jnp.zeros(shape, dtype) if alpha is None else jnp.asarray(alpha, dtype)
    if start.shape != shape:
        raise ValueError(f"expected dual variables {list(shape)}, got {list(start.shape)}")
    W = weights(problem, start)
    return _assess(
        problem,
        State(
            W=W,
            alpha=start,
            idle=jnp.zeros(shape, jnp.int8),
            key=jax.random.key(0) if key is None else key,
            epoch=jnp.int32(0),
            everything=jnp.bool_(True),
            eps=jnp.asarray(EPS, dtype),
            target=jnp.zeros((), dtype),
            status=jnp.int32(Status.RUNNING),
            primal=jnp.zeros((), dtype),
            dual=jnp.zeros((), dtype),
            gap=jnp.zeros((), dtype),
            violation=jnp.zeros((), dtype),
            density_w=jnp.zeros((), dtype),
            density_alpha=jnp.zeros((), dtype),
            shrunk=jnp.zeros((), dtype),
        ),
        certificate(problem, W, start),
    )


def _assess(problem: MulticlassProblem, state: State, found: Certificate) -> State:
    dtype = state.W.dtype
    exists = problem.formulation.exists(state.alpha, problem.y)
    return state._replace(
        primal=found.primal,
        dual=found.dual,
        gap=found.gap,
        violation=jnp.max(found.violation),
        density_w=jnp.mean((state.W != 0).astype(dtype)),
        density_alpha=jnp.sum((state.alpha != 0).astype(dtype)) / jnp.sum(exists.astype(dtype)),
    )


@needs_threads_of_jax
@jax.jit
def step(problem: MulticlassProblem, hp: HParams, state: State) -> State:
    """One epoch of a state that is running; any other stays as it is.

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers.multiclass_dual import init, multiclass_problem
        >>> problem = multiclass_problem(np.float32([[1, 0], [0, 1]]), [0, 1], formulation="ww")
        >>> before = init(problem)
        >>> after = step(problem, HParams(), before)
        >>> int(after.epoch), bool(after.dual > before.dual)
        (1, True)
    """
    return jax.lax.cond(state.status == Status.RUNNING, lambda s: _epoch(problem, hp, s), lambda s: s, state)


def _epoch(problem: MulticlassProblem, hp: HParams, state: State) -> State:
    formulation = problem.formulation
    tol, eps = jnp.asarray(hp.tol, state.W.dtype), state.eps
    rounding = jnp.finfo(eps.dtype).eps
    key, order = jax.random.split(state.key)
    exists = formulation.exists(state.alpha, problem.y)
    everything = state.everything | ~jnp.asarray(hp.shrinking)
    active = exists & (everything | (state.idle < IDLE))
    # rounding adds up in W: an epoch that may be the last one starts from W = weights(α)
    W = jax.lax.cond(state.everything, lambda: weights(problem, state.alpha), lambda: state.W)
    W, alpha = _visits(problem, W, state.alpha, active, order, eps)

    idle = jnp.where(alpha != state.alpha, 0, jnp.minimum(state.idle + jnp.int8(1), jnp.int8(IDLE)))
    found = certificate(problem, W, alpha)
    worst = jnp.max(found.violation)
    converged = everything & (found.gap + _ROUNDING * rounding <= tol)
    # the gap is too large although no projected gradient is
    accurate = eps * jnp.clip(worst * tol / (eps * jnp.abs(found.gap)), 0.01, 0.3).astype(eps.dtype)
    eps = jnp.where(everything & (worst <= eps), jnp.maximum(accurate, rounding), eps)
    target = jnp.where(everything, jnp.maximum(eps, jnp.asarray(_FALL, eps.dtype) * worst), state.target)
    due = jnp.max(jnp.where(active, found.violation, 0)) <= target
    epochs = state.epoch + 1
    status = jnp.where(epochs >= hp.max_epochs, Status.MAX_STEPS, Status.RUNNING)
    status = jnp.where(converged, Status.CONVERGED, status)
    status = jnp.where(jnp.isfinite(found.primal), status, Status.NONFINITE).astype(jnp.int32)
    dtype = W.dtype
    state = state._replace(
        W=W,
        alpha=alpha,
        idle=idle.astype(jnp.int8),
        key=key,
        epoch=epochs,
        everything=due,
        eps=eps,
        target=target,
        status=status,
        shrunk=jnp.sum((exists & ~active).astype(dtype)) / jnp.sum(exists.astype(dtype)),
    )
    return _assess(problem, state, found)


def _visits(problem: MulticlassProblem, W, alpha, active, key, tolerance):
    """Visits every instance once, in random order, and makes its dual variables optimal together.

    Args:
        problem: of n instances and m classes.
        W: [d, m].
        alpha: [n, m].
        active: bool [n, m], the dual variables that are not dropped; an instance with one takes part.
        key: of the order.
        tolerance: an instance stays as it is where its |projected gradients| are no larger.

    Returns:
        W and alpha.
    """
    formulation = problem.formulation
    order = jax.random.permutation(key, jnp.arange(len(problem.y), dtype=jnp.int32))
    part, rows = jnp.any(active, axis=1), problem.rows
    assert rows is not None

    def visit(carry, i):
        W, alpha = carry
        row, old, y = rows.take(i), alpha[i], problem.y[i]
        C = problem.C[i] if problem.C.ndim else problem.C
        h = formulation.gains(row.dot(W), y)
        moves = part[i] & (jnp.max(formulation.violation(h, old, y, C)) > tolerance)
        new = jnp.where(moves, formulation.best(h, old, y, problem.norms2[i], C), old)
        return (row.add(W, formulation.coefficients(new - old, y)), alpha.at[i].set(new)), None

    return jax.lax.scan(visit, (W, alpha), order)[0]


@needs_threads_of_jax
def run_epochs(problem: MulticlassProblem, hp: HParams, state: State) -> State:
    """Epochs until the state is no longer running.

    Example:
        >>> import numpy as np
        >>> from xmcjax.solvers.multiclass_dual import init, multiclass_problem
        >>> problem = multiclass_problem(np.float32([[1, 0], [0, 1]]), [0, 1], formulation="ww")
        >>> end = run_epochs(problem, HParams(tol=1e-4), init(problem))
        >>> Status(int(end.status)).name, bool(end.gap <= 1e-4)
        ('CONVERGED', True)
    """

    def running(state: State) -> bool:
        return bool(state.status == Status.RUNNING)

    return run_in_calls(_at_most, running, problem, hp, state)


@jax.jit
def _at_most(problem: MulticlassProblem, hp: HParams, state: State, count) -> State:
    epoch = functools.partial(_epoch, problem, hp)
    return at_most(epoch, lambda state: state.status == Status.RUNNING, state, count)
