"""The fit of a problem: nonlinear CG where there are many classes, then Newton's method where that stalls."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._fork import needs_threads_of_jax
from xmcjax._pytrees import is_traced
from xmcjax.solvers._host_loop import at_most, run_in_calls
from xmcjax.solvers._hparams import check_hparams
from xmcjax.solvers.kernel_multinomial._conjugate import conjugate_step, conjugate_steps
from xmcjax.solvers.kernel_multinomial._newton import newton_step
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem, without_lone_axis
from xmcjax.solvers.kernel_multinomial._state import Phase, State
from xmcjax.solvers.kernel_multinomial._systems import HParams


@needs_threads_of_jax
@jax.jit
def step(problem: KernelProblem, hp: HParams, state: State) -> State:
    """One step of every lane that is running; by Newton's method once nonlinear CG has no lane left.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import init, kernel_problem
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> problem = kernel_problem(family, [0, 1, 1])
        >>> before = init(problem)
        >>> after = step(problem, HParams(), before)
        >>> after.steps.tolist(), bool(after.value[0] < before.value[0])
        ([1], True)
    """
    if not problem.conjugate:
        return newton_step(problem, hp, state)
    return jax.lax.cond(
        jnp.any(state.running(Phase.CONJUGATE)),
        lambda: conjugate_step(problem, hp, state),
        lambda: newton_step(problem, hp, state),
    )


@needs_threads_of_jax
def run(
    problem: KernelProblem, hp: HParams, state: State, observe: Callable[[State], None] | None = None
) -> State:
    """Steps until every lane has ended.

    Directions are computed in single precision where the problem is in double precision. Where JAX traces
    the problem they are not, because its numbers cannot be looked at.

    Args:
        problem, hp: of the lanes.
        state: where to start; of :func:`init`, for this problem. Lanes that have ended stay as they are: with
            a state of another problem give its α to :func:`init`.
        observe: called with the state after every few steps, whose ``alpha`` another fit can start from; or
            None. It is not called where JAX traces the problem.

    Raises:
        TypeError, ValueError: a hyperparameter that is not traced and out of its range, or `observe` that
            cannot be called.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import init, kernel_problem
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> problem = kernel_problem(family, [0, 1, 1])
        >>> run(problem, HParams(), init(problem)).status.tolist()
        [1]
    """
    if observe is not None and not callable(observe):
        raise TypeError(f"observe: expected a function of the state, got {type(observe).__name__}")
    check_hparams(hp)
    problem = problem.matrices_only()
    traced = is_traced((problem, hp, state))
    rough = problem if traced or not problem.conjugate else problem.with_single()

    def running(*phases: Phase):
        def of(state: State) -> bool:  # on the host, where no program has to be compiled for it
            here = state._replace(status=np.asarray(state.status), phase=np.asarray(state.phase))
            return bool(np.any(here.running(*phases)))

        return of

    if problem.conjugate:
        state = _with_directions(state, problem.kernel.dtype if rough.single is None else rough.single.dtype)
        state = run_in_calls(_conjugate_steps, running(Phase.CONJUGATE), rough, hp, state, observe)
        state = _with_directions(state, problem.kernel.dtype)
        if rough.single is not None:
            state = run_in_calls(_newton_steps, running(Phase.NEWTON), rough, hp, state, observe)
    return run_in_calls(_newton_steps, running(), problem, hp, state, observe)


def _with_directions(state: State, dtype) -> State:
    fields = ("direction", "K_direction", "gradient")
    return state._replace(**{name: getattr(state, name).astype(dtype) for name in fields})


@jax.jit
@without_lone_axis
def _conjugate_steps(problem: KernelProblem, hp: HParams, state: State, count) -> State:
    return conjugate_steps(problem, hp, state, count)


@jax.jit
@without_lone_axis
def _newton_steps(problem: KernelProblem, hp: HParams, state: State, count) -> State:
    phases = (Phase.NEWTON,) if problem.single is not None else ()
    newton = functools.partial(newton_step, problem, hp)
    return at_most(newton, lambda state: jnp.any(state.running(*phases)), state, count)
