"""A block of lanes that is kept busy: a lane that has ended is read out and refilled."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax.linops import LinOp
from xmcjax.losses import MarginLoss
from xmcjax.solvers import Status, newton_cg


@dataclasses.dataclass(frozen=True)
class Job:
    """One binary problem for a lane.

    Attributes:
        label: its number.
        positives: rows with target +1; the others have −1.
        tolerance: bound on ‖∇f‖.
        base, scale, indices, values, bias: the start, as in :class:`xmcjax.inits.Starts`.
    """

    label: int
    positives: np.ndarray
    tolerance: float
    base: np.ndarray | None
    scale: float
    indices: np.ndarray
    values: np.ndarray
    bias: float


class Solved(NamedTuple):
    """What a lane ended with."""

    job: Job
    w: np.ndarray  #: [d]
    bias: float
    status: int
    newton_steps: int
    cg_steps: int
    value: float
    gradient_norm: float


class StepRecord(NamedTuple):
    """Numbers of one step of the busy lanes, for figures; arrays of one number a lane."""

    labels: np.ndarray
    newton_steps: np.ndarray  #: made so far; 0 for the step that takes the starting weights
    cg_steps: np.ndarray  #: made so far
    active: np.ndarray  #: rows with a slope or a curvature
    multiplier: np.ndarray  #: of the line search
    value: np.ndarray
    gradient_norm: np.ndarray
    status: np.ndarray


@functools.partial(jax.jit, donate_argnames=("state", "y", "tolerance"))
def _refill(
    state: newton_cg.State, y, tolerance, fresh, start
) -> tuple[newton_cg.State, jax.Array, jax.Array]:
    """State, targets and tolerances with the starts in the fresh lanes.

    The starts are host arrays, passed as they are: what comes back is computed, so that it shares
    no memory with them.
    """
    new_y, new_tolerance, w0, b0 = start
    state = state._replace(
        direction=jnp.where(fresh, w0, state.direction),
        direction_bias=jnp.where(fresh, b0, state.direction_bias),
        status=jnp.where(fresh, Status.FRESH, state.status).astype(jnp.int32),
        steps=jnp.where(fresh, 0, state.steps),
        cg_steps=jnp.where(fresh, 0, state.cg_steps),
    )
    return state, jnp.where(fresh, new_y, y), jnp.where(fresh, new_tolerance, tolerance)


class Lanes:
    """B lanes of :mod:`xmcjax.solvers.newton_cg` over one feature matrix.

    All arrays keep their shapes for the whole run, so that refilling costs no compilation. One
    object serves one host thread.

    Args:
        op: the features.
        loss: of the margin.
        weight: c of the lane problem, [1] or [n].
        hp: of the solver.
        size: B.
    """

    def __init__(self, op: LinOp, loss: MarginLoss, weight: np.ndarray, hp: newton_cg.HParams, size: int):
        n, d = op.shape
        dtype = np.dtype(op.dtype)
        # on the device once, instead of with every step
        fields: list[Any] = [
            _put(np.asarray(v, np.int32 if isinstance(v, numbers.Integral) else dtype)) for v in hp
        ]
        self._hp = newton_cg.HParams(*fields)
        self._jobs: list[Job | None] = [None] * size
        self._y = np.full((n, size), -1, np.int8)
        self._tolerance = np.zeros(size, dtype)
        self._w0 = np.zeros((d, size), dtype)
        self._b0 = np.zeros(size, dtype)
        self._base: tuple[np.ndarray | None, np.ndarray] = None, np.zeros(0, dtype)
        # Made of host arrays: nothing here is worth a compiled program.
        self._problem = newton_cg.LaneProblem(
            op,
            _put(self._y),
            _put(np.asarray(weight, dtype).reshape(-1, 1)),
            _put(np.zeros((1, 1), dtype)),
            _put(self._tolerance),
            loss,
        )
        number, count = np.zeros(size, dtype), np.zeros(size, np.int32)
        self._state = newton_cg.State(
            w=_put(self._w0),
            z=_put(np.zeros((n, size), dtype)),
            direction=_put(self._w0),
            **{
                f: _put(number)
                for f in ("bias", "direction_bias", "slope", "value", "gradient_norm", "multiplier")
            },
            # idle until refilled
            status=_put(np.full(size, Status.CONVERGED, np.int32)),
            **{f: _put(count) for f in ("steps", "cg_steps", "active")},
        )

    @property
    def idle(self) -> int:
        """How many lanes have no job."""
        return self._jobs.count(None)

    @property
    def busy(self) -> bool:
        """Whether any lane has a job."""
        return self.idle < len(self._jobs)

    def start(self, jobs: Iterable[Job]) -> None:
        """Gives jobs, at most as many as :attr:`idle`, to idle lanes."""
        jobs = list(jobs)
        if not jobs:
            return
        fresh = np.zeros(len(self._jobs), bool)
        free = [lane for lane, job in enumerate(self._jobs) if job is None]
        for lane, job in zip(free, jobs, strict=False):
            self._jobs[lane] = job
            self._y[job.positives, lane] = 1
            self._tolerance[lane] = job.tolerance
            column = self._w0[:, lane]
            if job.base is None:
                column[:] = 0
            else:
                np.multiply(self._in_dtype(job.base), self._w0.dtype.type(job.scale), out=column)
            column[job.indices] += job.values
            self._b0[lane] = job.bias
            fresh[lane] = True
        start = self._y, self._tolerance, self._w0, self._b0
        problem = self._problem
        self._state, y, tolerance = _refill(self._state, problem.y, problem.tolerance, fresh, start)
        self._problem = dataclasses.replace(problem, y=y, tolerance=tolerance)

    def _in_dtype(self, base: np.ndarray) -> np.ndarray:
        """The shared vector of the starts; most jobs in a row have the same, converted once."""
        if self._base[0] is not base:
            self._base = base, base.astype(self._w0.dtype, copy=False)
        return self._base[1]

    def step(self) -> tuple[list[Solved], StepRecord]:
        """One Newton step of every busy lane; returns what ended and the numbers of the step."""
        self._state = state = newton_cg.advance(self._problem, self._hp, self._state)
        state.status.block_until_ready()
        status = _view(state.status).copy()
        last = {
            name: _view(getattr(state, name)).copy()
            for name in ("steps", "cg_steps", "active", "multiplier", "value", "gradient_norm", "bias")
        }
        busy = np.array([lane for lane, job in enumerate(self._jobs) if job is not None], int)
        record = StepRecord(
            labels=np.array([self._jobs[lane].label for lane in busy], np.int64),
            newton_steps=last["steps"][busy],
            cg_steps=last["cg_steps"][busy],
            active=last["active"][busy],
            multiplier=last["multiplier"][busy],
            value=last["value"][busy],
            gradient_norm=last["gradient_norm"][busy],
            status=status[busy],
        )
        ended = busy[~newton_cg.moving(status[busy])].tolist()
        solved = []
        if ended:
            W = _view(state.w)
            for lane in ended:
                job = self._jobs[lane]
                solved.append(
                    Solved(
                        job,
                        W[:, lane].copy(),
                        float(last["bias"][lane]),
                        int(status[lane]),
                        int(last["steps"][lane]),
                        int(last["cg_steps"][lane]),
                        float(last["value"][lane]),
                        float(last["gradient_norm"][lane]),
                    )
                )
                self._y[job.positives, lane] = -1
                self._jobs[lane] = None
        return solved, record


def _view(a: jax.Array) -> np.ndarray:
    """A finished array on the host, to be copied from and dropped.

    ``np.asarray`` would leave a reference with the array, and a buffer that somebody else holds
    cannot be given away: the next step would copy the whole state.
    """
    device: Any = a.device
    return np.from_dlpack(a) if device.platform == "cpu" else np.asarray(a)  # type: ignore[arg-type]


def _put(a: np.ndarray) -> jax.Array:
    """On the device, never a view of the host array: that is written to again.

    ``device_put`` may take the memory of a host array that happens to be aligned, also where told
    ``may_alias=False``.
    """
    return jax.device_put(np.array(a))
