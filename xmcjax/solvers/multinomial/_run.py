"""The host loop of all methods."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xmcjax import _device_memory
from xmcjax._arguments import name_of, whole_number
from xmcjax._fork import needs_threads_of_jax
from xmcjax._options import Real
from xmcjax._platform import default_platform, said_of_host
from xmcjax.linops import real_array
from xmcjax.solvers._base import Status
from xmcjax.solvers._peers import Peers, described
from xmcjax.solvers.multinomial import (
    _checkpoint,
    _mesh,
    admm,
    auto,
    block_newton,
    dm,
    dual,
    lbfgs,
    lc,
    lc_extrapolated,
    newton,
)
from xmcjax.solvers.multinomial._certificate import Direction
from xmcjax.solvers.multinomial._judge import FALL, Judge
from xmcjax.solvers.multinomial._problem import Problem, checked_lam
from xmcjax.solvers.multinomial._state import HParams, State, next_status


class Record(NamedTuple):
    """Numbers of one outer iteration, for a figure or a table.

    Newton steps in float64 at the end of a run have one record together; its `steps` do not count them.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers.multinomial import multinomial_problem, run
        >>> problem = multinomial_problem(linops.make([[1.0], [-1.0]]), [0, 1], lam=1.0)
        >>> records = []
        >>> _ = run(problem, observe=lambda state, record: records.append(record))
        >>> records[0].steps, records[-1].value <= records[0].value
        (0, True)
    """

    steps: int
    value: float  #: G
    gradient_norm: float  #: ‖∇G‖
    bound: float  #: of LC and DM their bound
    inner: int  #: inner steps so far
    seconds: float  #: since the start, compilation included


class Solution(NamedTuple):
    """What a run ends with.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers.multinomial import multinomial_problem, run
        >>> solution = run(multinomial_problem(linops.make([[1.0], [-1.0]]), [0, 1], lam=1.0))
        >>> solution.W.shape, solution.gap < 1e-4
        ((1, 2), True)
    """

    W: jax.Array  #: [d, K]; over a mesh its columns are split, and filled up with zeros
    bias: jax.Array  #: [K], likewise
    value: float
    gradient_norm: float
    bound: float
    status: Status
    history: list[Record]
    gap: float  #: (G − min G) / G at most, of DM for its own objective; nan where nothing had ended
    reason: str = ""  #: why the method that came first did


# Modules with `init(problem, hp, W0, b0) -> State` and `step(problem, hp, State) -> State`; "auto" is a
# choice among them.
METHODS = {
    "lc": lc,
    "lc_extrapolated": lc_extrapolated,
    "dm": dm,
    "admm": admm,
    "lbfgs": lbfgs,
    "newton": newton,
    "block_newton": block_newton,
    "dual": dual,
}
# Methods whose steps are made on the host and not by a compiled program.
ON_THE_HOST = ("block_newton",)
# What takes less of the memory of a device.
_SMALLER = "block_newton (on the CPU), fewer classes, "
CHOICES = ("auto", *METHODS)


def _initial(problem: Problem, hp: HParams, W0, b0, *, method: str) -> State:
    """The state before the first iteration of a method that is compiled.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers.multinomial import HParams, initial, multinomial_problem
        >>> problem = multinomial_problem(linops.make([[1.0], [-1.0]]), [0, 1], lam=1.0)
        >>> initial(problem, HParams(), None, None, method="lbfgs").bias.tolist()
        [0.0, 0.0]
    """
    return _compiled(method).init(problem, hp, W0, b0)


def _advance(problem: Problem, hp: HParams, state: State, *, method: str) -> State:
    """One outer iteration in one compiled call; the buffers of `state` are donated.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers.multinomial import HParams, advance, initial, multinomial_problem
        >>> problem = multinomial_problem(linops.make([[1.0], [-1.0]]), [0, 1], lam=1.0)
        >>> state = initial(problem, HParams(), None, None, method="newton")
        >>> before = float(state.value)
        >>> after = advance(problem, HParams(), state, method="newton")
        >>> int(after.steps), float(after.value) < before
        (1, True)
    """
    return _compiled(method).step(problem, hp, state)


def _compiled(method: str):
    if method in ON_THE_HOST:
        raise ValueError(f"{method} runs on the host and cannot be compiled: call run")
    return METHODS[method]


# Scores, n K, up to which a program without the optimisations of LLVM is ready and done earlier than one with
# them: it takes 0.6 of the time to compile, and a step of CG 0.2 ms more.
FEW_SCORES = 1 << 14
# Least number of outer iterations without progress after which a run gives up.
IDLE = 30
_FROM_0 = Real(least=0)
_PLAIN = {"xla_backend_optimization_level": 0}

initial, _plain_initial = (
    needs_threads_of_jax(jax.jit(_initial, static_argnames="method", compiler_options=options))
    for options in (None, _PLAIN)
)
advance, _plain_advance = (
    needs_threads_of_jax(
        jax.jit(_advance, static_argnames="method", donate_argnames="state", compiler_options=options)
    )
    for options in (None, _PLAIN)
)


@needs_threads_of_jax
def run(
    problem: Problem,
    method: str = "auto",
    hp: HParams | None = None,
    *,
    W0=None,
    b0=None,
    mesh: Mesh | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 0.0,
    observe: Callable[[State, Record], None] | None = None,
) -> Solution:
    """Iterates until the gradient is small enough, and G − min G ≤ tolerance · G is certain.

    The bound on G − min G is worked out in float64 on the host. Where it is too large, the run goes on with a
    smaller tolerance of the gradient. Where steps in the dtype of X bring nothing any more, Newton steps in
    float64 follow, and the status is STALLED where those do not help either. Above 2^26 scores, for features
    that are not at hand, in several processes, and for dm, the bound is ‖∇G‖²/(2λ) in the dtype of X, in
    which the intercepts count by their gradient alone.

    Args:
        problem: from :func:`multinomial_problem`.
        method: "auto", or one of the table ``METHODS``.
        hp: of the stopping rule; None for its defaults. With a tolerance of 0 the gradient alone decides.
        W0: starting weights [d, K]; None for the method's own start. With an intercept block_newton begins at
            W = 0 where G is larger at W0.
        b0: starting intercepts [K]; their mean is subtracted, because it moves all scores of a row alike. In
            a problem without an intercept they stay as they are, and G is minimised over W alone.
        mesh: of one axis, over which the classes are split; lc, lc_extrapolated, dm, admm, lbfgs and
            newton can. Every process of the mesh has to make the same call.
        checkpoint: a folder in which the state is kept after each iteration. Where it has a state of this
            problem, the run goes on from there.
        checkpoint_seconds: the least time from one state that is kept to the next; 0 keeps every state, which
            several processes need.
        observe: called with the state and its record after each iteration; the arrays of the
            state are valid until it returns. Where the mesh has explicit axes, the arrays are over a mesh
            whose axes are left to the compiler.

    Raises:
        TypeError: an argument of another kind.
        ValueError: a λ of the problem that is not above 0, an unknown method, one that cannot run on these
            features or this mesh, starting weights of another shape, or a checkpoint of another run or
            damaged.
        OSError: the checkpoint cannot be written or read.
        Disagreement: a ValueError; processes were given different arguments, and all of them say which.
        PeerError: a RuntimeError; another process failed, was killed or stopped. It comes within a minute
            and names the process. The process that raises it then exits with status 1, whatever others do.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers.multinomial import multinomial_problem
        >>> problem = multinomial_problem(linops.make([[1.0], [-1.0]]), [0, 1], lam=1.0)
        >>> run(problem).status.name
        'CONVERGED'
    """
    name_of("method", method, CHOICES)
    checked_lam(problem.l2)
    hp = HParams() if hp is None else _checked(hp)
    every = _FROM_0.check("checkpoint_seconds", checkpoint_seconds)
    W0, b0 = (a if a is None else real_array(name, a, finite=True) for name, a in (("W0", W0), ("b0", b0)))
    if b0 is not None and b0.shape == (problem.classes,):  # another shape is refused where the run begins
        b0 = b0.astype(np.float64)
        b0 -= (b0 / problem.classes).sum()
    with Peers(mesh) as peers:
        peers.agree(lambda: _given(problem, method, hp, W0, b0, mesh, checkpoint))
        if mesh is None:
            return _solved(peers, problem, method, hp, W0, b0, None, checkpoint, every, observe)
        with _mesh.left_to_the_compiler(mesh) as its:
            found = _solved(peers, problem, method, hp, W0, b0, its, checkpoint, every, observe)
        return found._replace(W=_mesh.over(mesh, found.W), bias=_mesh.over(mesh, found.bias))


def _checked(hp: HParams) -> HParams:
    """The stopping rule with numbers that a compiled program takes."""
    gradient = hp.gradient_tolerance
    return HParams(
        _FROM_0.check("tolerance", hp.tolerance),
        whole_number("max_steps", hp.max_steps, 0),
        gradient if gradient is None else _FROM_0.check("gradient_tolerance", gradient),
    )


def _given(problem: Problem, method: str, hp: HParams, W0, b0, mesh, checkpoint) -> dict[str, str]:
    """What every process of a mesh has to call :func:`run` with, in words."""
    numbers = {name: None if value is None else float(value) for name, value in hp._asdict().items()}
    options = dict(method=method, **numbers, checkpoint=checkpoint is not None, mesh=f"{mesh}")
    problem_options = dict(classes=problem.classes, intercept=problem.intercept, lam=float(problem.l2))
    arrays = {"features": jax.tree.leaves(problem.op), "y": [problem.y], "weight": [problem.weight]}
    arrays["starting weights"] = [np.asarray(a) for a in (W0, b0) if a is not None]
    said = {name: ", ".join(map(described, parts)) for name, parts in arrays.items()}
    return {"work": "multinomial"} | said | {"options": repr(options | problem_options)}


def _solved(
    peers: Peers,
    problem: Problem,
    method: str,
    hp: HParams,
    W0,
    b0,
    mesh: Mesh | None,
    checkpoint: str | Path | None,
    every: float,
    observe: Callable[[State, Record], None] | None,
) -> Solution:
    begin = time.perf_counter()
    calls = _Run(problem, hp, mesh, peers)
    devices = 1 if mesh is None else mesh.size
    store = None if checkpoint is None else _checkpoint.Store(checkpoint, problem, method, devices)
    kept = -1 if store is None else store.last_steps(peers)
    if store is not None and kept >= 0:
        now = store.method(kept)
        state = calls.going_on(now, store.load(kept, _on_a_device(calls.initial(now))))
    else:
        now = auto.first(calls.problem) if method == "auto" else method
        state = calls.initial(now, W0, b0)
    history: list[Record] = []
    due = time.monotonic() + every

    def note(storing: bool = True):
        nonlocal due
        # fetched together, the status for later, because each fetch of its own would wait for the device
        told = state.value, state.gradient_norm, state.bound, state.steps, state.inner, state.status
        value, norm, bound, steps, inner, _ = jax.device_get(told)
        seconds = time.perf_counter() - begin
        history.append(Record(int(steps), float(value), float(norm), float(bound), int(inner), seconds))
        # where not every state is kept, the starting point is not: nothing would be gained by it
        is_due = every == 0 or (int(steps) > 0 and time.monotonic() >= due)
        if storing and store is not None and is_due:
            store.save(now, _on_a_device(state))
            due = time.monotonic() + every
        if observe is not None:
            observe(state, history[-1])

    note()
    judge = Judge(calls.problem, hp, mesh is not None)
    while True:
        if int(state.status) == Status.RUNNING and _idle(history, float(jnp.finfo(problem.op.dtype).eps)):
            state = calls.stuck(state)
        if int(state.status) != Status.RUNNING:
            verdict = judge.verdict(now, state, calls.direction(now, state))
            if verdict.status != Status.RUNNING or int(state.steps) >= hp.max_steps:
                break
            state = calls.tightened(state)
        state = calls.advance(now, state)
        following = auto.following(now, [r.gradient_norm for r in history]) if method == "auto" else now
        if following != now and int(state.status) == Status.RUNNING:
            steps, inner = state.steps, state.inner
            state, now = calls.initial(following, state.W, state.bias), following
            state = state._replace(steps=steps, inner=inner)
        note()
    value, norm, better = history[-1].value, history[-1].gradient_norm, verdict.better
    if better is not None:
        value, norm = better.value, better.gradient_norm
        if not (np.array_equal(better.W, state.W) and np.array_equal(better.bias, state.bias)):
            numbers = dict(value=value, gradient_norm=norm, bound=value, stationarity=norm)
            state = state._replace(W=better.W, bias=better.bias, **numbers)
            note(storing=False)
    W, bias = _on_a_device((state.W, state.bias))
    status = verdict.status
    # the gap may be within the tolerance, if not as small as is asked for where weights gain little
    if status == Status.RUNNING:
        status = Status.CONVERGED if verdict.gap <= hp.tolerance else Status.MAX_STEPS
    reason = auto.reason(calls.problem) if method == "auto" else f"{method} was asked for"
    if default_platform() == "cpu":
        reason = said_of_host(reason, auto.WHY)
    return Solution(W, bias, value, norm, history[-1].bound, status, history, verdict.gap, reason)


def _on_a_device(tree):
    """Arrays of NumPy as arrays of JAX."""
    return jax.tree.map(lambda a: a if isinstance(a, jax.Array) else jax.device_put(a), tree)


def _idle(history: list[Record], eps: float) -> bool:
    """Whether neither ‖∇G‖ nor the bound has fallen by more than rounding for a long time."""
    made = history[-1].steps - history[0].steps
    first = len(history) - max(IDLE, made // 4)
    if first <= 0:
        return False
    before, lately = history[:first], history[first:]
    norm = min(r.gradient_norm for r in lately) > 0.9 * min(r.gradient_norm for r in before)
    least = min(r.bound for r in before)
    return norm and not min(r.bound for r in lately) < least - 8 * eps * abs(least)


class _Run:
    """The compiled functions of a run, on one device or over a mesh."""

    def __init__(self, problem: Problem, hp: HParams, mesh: Mesh | None, peers: Peers):
        self.problem = problem if mesh is None else _mesh.shared(problem, mesh)
        self._hp, self._mesh, self._awaited = hp, mesh, peers.awaited
        few = problem.op.shape[0] * problem.classes <= FEW_SCORES and default_platform() == "cpu"
        self._initial, self._advance = (_plain_initial, _plain_advance) if few else (initial, advance)

    def initial(self, method: str, W0=None, b0=None) -> State:
        if self._mesh is None and method in ON_THE_HOST:
            return METHODS[method].init(self.problem, self._hp, W0, b0)
        if self._mesh is None:
            self._check_memory(method, W0, b0)
            return self._awaited(self._initial, self.problem, self._hp, W0, b0, method=method)
        module, mesh, classes = METHODS[method], self._mesh, self.problem.classes
        if not _mesh.can_be_split(module):
            raise ValueError(
                f"{method} cannot be split over a mesh: take lc, lc_extrapolated, dm, admm, lbfgs or newton"
            )
        W0, b0 = (_mesh.split_columns(a, classes, mesh) for a in (W0, b0))
        return self._awaited(_mesh.initial(module, mesh, classes), self.problem, self._hp, W0, b0)

    def _check_memory(self, method: str, W0, b0) -> None:
        """Raises DeviceMemoryError where a step does not fit into what is free on the device."""
        if _device_memory.free_memory(_device_memory.device_of(self.problem.y)) is None:
            return
        given = self.problem, self._hp
        # by the jitted function, which is traced once
        state = _device_memory.jitted(self._initial).eval_shape(*given, W0, b0, method=method)
        what = f"a step of {method} for {self.problem.classes} classes"
        _device_memory.check_program(what, self._advance, *given, state, remedy=_SMALLER, method=method)

    def advance(self, method: str, state: State) -> State:
        if method in ON_THE_HOST:
            return METHODS[method].step(self.problem, self._hp, state)
        if self._mesh is None:
            return self._awaited(self._advance, self.problem, self._hp, state, method=method)
        return self._awaited(_mesh.advance(METHODS[method], self._mesh), self.problem, self._hp, state)

    def direction(self, method: str, state: State) -> Direction | None:
        """What makes Newton directions at the state; None for methods that do not keep what this needs."""
        if method not in ON_THE_HOST:
            return None
        # a float32 gradient that steps no longer lower is rounding, and its Newton direction bounds nothing
        if int(state.status) == Status.LINE_SEARCH_FAILED and self.problem.op.dtype == np.float32:
            return None
        value, norm = float(state.value), float(state.gradient_norm)
        make = functools.partial(METHODS[method].direction, state)
        return Direction(make, value, norm * norm / (2 * float(self.problem.l2)))

    def stuck(self, state: State) -> State:
        """The state, ended because its steps bring nothing."""
        return state._replace(status=state.status * 0 + Status.LINE_SEARCH_FAILED)

    def tightened(self, state: State) -> State:
        """The state, running, with a smaller tolerance from now on."""
        tolerance, gradient = self._hp.tolerance * FALL, self._hp.gradient_tolerance
        gradient = None if gradient is None else gradient * FALL
        self._hp = self._hp._replace(tolerance=tolerance, gradient_tolerance=gradient)
        return state._replace(status=state.status * 0)  # on the same devices, over a mesh too

    def going_on(self, method: str, state: State) -> State:
        """A stored state, whose run may have ended by another stopping rule."""
        status = int(state.status)
        if status == Status.CONVERGED and method in ON_THE_HOST and self._hp.gradient_tolerance is None:
            return state  # by more than the state holds: the certificate tells whether it is enough
        if status in (Status.RUNNING, Status.CONVERGED, Status.MAX_STEPS):
            return state._replace(status=next_status(self._hp, state))
        return state
