"""The arrays of a block of lanes, on a device or on the host, and the step that changes them."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax.linops import Csr, LinOp, put
from xmcjax.losses import MarginLoss
from xmcjax.native._newton import InPlaceStep
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers import Status, newton_cg

_L2 = L2()


@dataclasses.dataclass(frozen=True)
class Job:
    """One binary problem for a lane.

    Attributes:
        label: its number.
        positives: rows with target +1; the others have −1.
        tolerance: bound on ‖∇f‖.
        base, scale, indices, values, bias: the start, as in :class:`xmcjax.inits.Starts`.
        positive_weight, negative_weight: of the rows with target +1 and −1, besides their own.
    """

    label: int
    positives: np.ndarray
    tolerance: float
    base: np.ndarray | None
    scale: float
    indices: np.ndarray
    values: np.ndarray
    bias: float
    positive_weight: float = 1.0
    negative_weight: float = 1.0


class Block(Protocol):
    """B lanes whose arrays keep their shapes for a whole run. One object serves one host thread."""

    def start(self, jobs: Sequence[tuple[int, Job]]) -> None:
        """Puts each job into its lane."""
        ...

    def step(self) -> dict[str, np.ndarray]:
        """One Newton step of the lanes that are moving; copies of the numbers a lane has."""
        ...

    def weights(self, lane: int) -> np.ndarray:
        """A copy of a lane's weights, [d]."""
        ...


# the fields of newton_cg.State with one number a lane that are handed out
NUMBERS = ("status", "steps", "cg_steps", "active", "multiplier", "value", "gradient_norm", "bias")


def make_block(
    op: LinOp,
    loss: MarginLoss,
    weight: np.ndarray,
    hp: newton_cg.HParams,
    size: int,
    *,
    by_label: bool = False,
    penalty: Penalty = _L2,
) -> Block:
    """The block of `size` lanes that is fastest for these features and this loss.

    Args:
        op: the features.
        loss: of the margin.
        weight: c of the lane problem, [1] or [n].
        hp: of the solver.
        size: B.
        by_label: whether jobs have weights of their own; the block then holds c as [n, B].
        penalty: of the weights.
    """
    host = isinstance(op, Csr) and op.native and loss.native is not None
    return (HostBlock if host else DeviceBlock)(op, loss, weight, hp, size, by_label, penalty)  # type: ignore[arg-type]


class _Starts:
    """Targets, weights, tolerances and starting weights of all lanes, on the host."""

    def __init__(self, n: int, d: int, size: int, dtype: np.dtype, weight: np.ndarray, by_label: bool):
        self.y = np.full((n, size), -1, np.int8)
        weight = np.array(weight, dtype).reshape(-1, 1)
        self._of_rows = weight[:, 0] if by_label else None
        self._negative = np.ones(size)  # the weight of its negatives that a lane has now
        #: c, [1 or n, 1], or [n, B] where jobs have weights of their own
        self.weight = np.array(np.broadcast_to(weight, (n, size))) if by_label else weight
        self.tolerance = np.zeros(size, dtype)
        self.w0 = np.zeros((d, size), dtype)
        self.b0 = np.zeros(size, dtype)
        self._positives: list[np.ndarray] = [np.zeros(0, np.int64)] * size
        self._base: tuple[np.ndarray | None, np.ndarray] = None, np.zeros(0, dtype)

    def put(self, lane: int, job: Job) -> None:
        self.y[self._positives[lane], lane] = -1
        self.y[job.positives, lane] = 1
        if self._of_rows is not None:
            self._weigh(lane, job, self._of_rows)
        self._positives[lane] = job.positives
        self.tolerance[lane] = job.tolerance
        column = self.w0[:, lane]
        if job.base is None:
            column[:] = 0
        else:
            np.multiply(self._in_dtype(job.base), self.w0.dtype.type(job.scale), out=column)
        column[job.indices] += job.values
        self.b0[lane] = job.bias

    def _weigh(self, lane: int, job: Job, of_rows: np.ndarray) -> None:
        column, n = self.weight[:, lane], len(self.y)
        of_rows = np.broadcast_to(of_rows, n)
        if job.negative_weight == self._negative[lane]:
            before = self._positives[lane]
            column[before] = of_rows[before] * job.negative_weight
        else:
            column[:] = of_rows * job.negative_weight
            self._negative[lane] = job.negative_weight
        column[job.positives] = of_rows[job.positives] * job.positive_weight

    def _in_dtype(self, base: np.ndarray) -> np.ndarray:
        """The shared vector of the starts; most jobs in a row have the same, converted once."""
        if self._base[0] is not base:
            self._base = base, base.astype(self.w0.dtype, copy=False)
        return self._base[1]


class HostBlock:
    """Arrays on the host, changed in place by the native step: nothing is dispatched or copied."""

    def __init__(
        self,
        op: Csr,
        loss: MarginLoss,
        weight: np.ndarray,
        hp: newton_cg.HParams,
        size: int,
        by_label: bool,
        penalty: Penalty,
    ):
        n, d = op.shape
        dtype = np.dtype(op.dtype)
        self._starts = starts = _Starts(n, d, size, dtype, weight, by_label)
        number = functools.partial(np.zeros, size, dtype)
        count = functools.partial(np.zeros, size, np.int32)
        # the fields of newton_cg.State, in their order
        self._state: dict[str, np.ndarray] = {
            "w": np.zeros((d, size), dtype),
            "z": np.zeros((n, size), dtype),
            "direction": starts.w0,
            "bias": number(),
            "direction_bias": starts.b0,
            "slope": number(),
            "value": number(),
            "gradient_norm": number(),
            "multiplier": number(),
            "status": np.full(size, Status.CONVERGED, np.int32),  # idle until started
            "steps": count(),
            "cg_steps": count(),
            "active": count(),
        }
        assert tuple(self._state) == newton_cg.State._fields
        problem = [
            *(np.asarray(a) for a in op.arrays),
            starts.y,
            starts.weight,
            np.zeros((1, 1), dtype),
            starts.tolerance,
            *newton_cg.native_numbers(hp, loss, penalty, dtype),
        ]
        assert loss.native is not None
        self._step = InPlaceStep(problem, list(self._state.values()), d=d, loss=loss.native)

    def start(self, jobs: Sequence[tuple[int, Job]]) -> None:
        for lane, job in jobs:
            self._starts.put(lane, job)
            self._state["status"][lane] = Status.FRESH
            self._state["steps"][lane] = self._state["cg_steps"][lane] = 0

    def step(self) -> dict[str, np.ndarray]:
        self._step()
        return {name: self._state[name].copy() for name in NUMBERS}

    def weights(self, lane: int) -> np.ndarray:
        return self._state["w"][:, lane].copy()


class DeviceBlock:
    """Arrays on a device, stepped by the compiled :func:`xmcjax.solvers.newton_cg.advance`."""

    def __init__(
        self,
        op: LinOp,
        loss: MarginLoss,
        weight: np.ndarray,
        hp: newton_cg.HParams,
        size: int,
        by_label: bool,
        penalty: Penalty,
    ):
        n, d = op.shape
        dtype = np.dtype(op.dtype)
        # on the device once, instead of with every step
        fields: list[Any] = [
            put(np.asarray(v, np.int32 if isinstance(v, numbers.Integral) else dtype)) for v in hp
        ]
        self._hp = newton_cg.HParams(*fields)
        self._starts = starts = _Starts(n, d, size, dtype, weight, by_label)
        self._by_label = by_label
        # Made of host arrays: nothing here is worth a compiled program.
        self._problem = newton_cg.LaneProblem(
            op,
            put(starts.y),
            put(starts.weight),
            put(np.zeros((1, 1), dtype)),
            put(starts.tolerance),
            loss,
            penalty,
        )
        number, count = np.zeros(size, dtype), np.zeros(size, np.int32)
        self._state = newton_cg.State(
            w=put(starts.w0),
            z=put(np.zeros((n, size), dtype)),
            direction=put(starts.w0),
            **{
                f: put(number)
                for f in ("bias", "direction_bias", "slope", "value", "gradient_norm", "multiplier")
            },
            # idle until started
            status=put(np.full(size, Status.CONVERGED, np.int32)),
            **{f: put(count) for f in ("steps", "cg_steps", "active")},
        )

    def start(self, jobs: Sequence[tuple[int, Job]]) -> None:
        if not jobs:
            return
        starts = self._starts
        fresh = np.zeros(len(starts.tolerance), bool)
        for lane, job in jobs:
            starts.put(lane, job)
            fresh[lane] = True
        start = starts.y, starts.tolerance, starts.w0, starts.b0
        problem = self._problem
        self._state, y, tolerance = _refill(self._state, problem.y, problem.tolerance, fresh, start)
        weight = put(starts.weight) if self._by_label else problem.weight
        self._problem = dataclasses.replace(problem, y=y, tolerance=tolerance, weight=weight)

    def step(self) -> dict[str, np.ndarray]:
        self._state = state = newton_cg.advance(self._problem, self._hp, self._state)
        state.status.block_until_ready()
        return {name: _view(getattr(state, name)).copy() for name in NUMBERS}

    def weights(self, lane: int) -> np.ndarray:
        return _view(self._state.w)[:, lane].copy()


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


def _view(a: jax.Array) -> np.ndarray:
    """A finished array on the host, to be copied from and dropped.

    ``np.asarray`` would leave a reference with the array, and a buffer that somebody else holds
    cannot be given away: the next step would copy the whole state.
    """
    device: Any = a.device
    return np.from_dlpack(a) if device.platform == "cpu" else np.asarray(a)  # type: ignore[arg-type]
