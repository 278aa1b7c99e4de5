"""The protocol of a block of lanes, the block whose arrays are on the host, and which block is made."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np

from xmcjax.lanes._clipping import Clipping
from xmcjax.lanes._device_block import DeviceBlock, Shared
from xmcjax.lanes._job import NUMBERS, Job, Weights
from xmcjax.native import InPlace, aligned_zeros, put_columns, take_columns
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers import Status, newton_cg
from xmcjax.solvers.far_starts import FARTHER, drifted

# Lanes whose weights are copied together, so that each cache line that holds them is read once.
_TOGETHER = 8


class Block(Protocol):
    """B lanes whose arrays keep their shapes for a whole run. One object serves one host thread."""

    def start(self, jobs: Sequence[tuple[int, Job]]) -> None:
        """Puts each job into its lane."""
        ...

    def begin(self) -> None:
        """Begins a Newton step of the lanes that are moving; a device makes it while the caller goes on."""
        ...

    def numbers(self) -> dict[str, np.ndarray]:
        """Finishes the step, and returns copies of the numbers of each lane after it, by their names."""
        ...

    def again(self, lanes: Sequence[int], starts: np.ndarray) -> list[int]:
        """Restarts converged lanes from their weights where their stored scores have drifted from X w + b.

        Args:
            lanes: the lanes that are checked.
            starts: for each of them, ‖(w, b)‖ of its start.

        Returns:
            The lanes that begin again; see ``xmcjax.solvers.far_starts.multiplied_out``.
        """
        ...

    def leave(self, lanes: Sequence[int]) -> None:
        """Makes no further steps of some lanes that are moving."""
        ...

    def close(self) -> None:
        """Waits for a step that has begun and ignores its result; the block is not used after that."""
        ...

    def read(
        self, lanes: Sequence[int], clipping: Clipping, heaviest: Sequence[float]
    ) -> Callable[[], list[Weights]]:
        """Begins to read out the weights of some lanes; the function it returns waits for them.

        Args:
            lanes: at least one; they have ended.
            clipping: says which weights are left out; zeros always are.
            heaviest: for each of these lanes, the larger of the weights of rows with and without its label.
        """
        ...


def make_block(shared: Shared, size: int, by_part: bool = False) -> Block:
    """The block of `size` lanes that is fastest for these features and this loss.

    Args:
        shared: what the lanes have in common.
        size: B.
        by_part: whether lanes of a block on the host may be solved with a part of C.
    """
    if newton_cg.has_kernels(shared.op, shared.loss, shared.penalty):
        return HostBlock(shared, size, by_part)
    return DeviceBlock(shared, size)


class _Starts:
    """Targets, weights, tolerances and starting weights of all lanes, on the host."""

    def __init__(
        self,
        n: int,
        d: int,
        size: int,
        dtype: np.dtype,
        weight: np.ndarray,
        by_label: bool,
        by_part: bool,
    ):
        self.y = np.full((n, size), -1, np.int8)
        weight = np.array(weight, dtype).reshape(-1, 1)
        self._of_rows = weight[:, 0] if by_label or by_part else None
        self._negative = np.ones(size)  # the weight of its negatives that a lane has now
        #: c: [1 or n, 1]; [1 or n, B] where lanes may have parts of C; [n, B] where jobs have weights
        self.weight = weight
        if by_label or by_part:
            self.weight = aligned_zeros((n if by_label else len(weight), size), dtype)
            self.weight[:] = weight
        self.tolerance = np.zeros(size, dtype)
        self.w0 = aligned_zeros((d, size), dtype)
        self.b0 = np.zeros(size, dtype)
        self._positives: list[np.ndarray] = [np.zeros(0, np.int64)] * size
        self._base: tuple[np.ndarray | None, np.ndarray] = None, np.zeros(0, dtype)

    def put(self, jobs: Sequence[tuple[int, Job]]) -> None:
        for first in range(0, len(jobs), _TOGETHER):
            some = jobs[first : first + _TOGETHER]
            weights = np.zeros((len(some), len(self.w0)), self.w0.dtype)
            # what the dtype cannot hold is infinite: such a tolerance is always met, such a start never taken
            with np.errstate(over="ignore", invalid="ignore"):
                for (lane, job), w in zip(some, weights, strict=True):
                    self._put(lane, job, w)
            put_columns(self.w0, [lane for lane, _ in some], weights)

    def _put(self, lane: int, job: Job, w: np.ndarray) -> None:
        self.y[self._positives[lane], lane] = -1
        self.y[job.positives, lane] = 1
        if self._of_rows is not None:
            self.weigh(lane, job)
        self._positives[lane] = job.positives
        self.tolerance[lane] = job.tolerance
        if job.base is not None:
            np.multiply(self._in_dtype(job.base), w.dtype.type(job.scale), out=w)
        w[job.indices] += job.values
        self.b0[lane] = job.bias

    def weigh(self, lane: int, job: Job, part: float = 1.0) -> None:
        """Gives a lane the weights of its job, times a part of C."""
        assert self._of_rows is not None, "blocks are told that weights are by label, or by part"
        column, n = self.weight[:, lane], len(self.y)
        if len(column) != n:
            column[:] = self._of_rows * part
            return
        of_rows, negative = np.broadcast_to(self._of_rows, n), part * job.negative_weight
        if negative == self._negative[lane]:
            before = self._positives[lane]
            column[before] = of_rows[before] * negative
        else:
            column[:] = of_rows * negative
            self._negative[lane] = negative
        column[job.positives] = of_rows[job.positives] * (part * job.positive_weight)

    def _in_dtype(self, base: np.ndarray) -> np.ndarray:
        """The shared vector of the starts in the dtype of w0; consecutive jobs mostly share one."""
        if self._base[0] is not base:
            self._base = base, base.astype(self.w0.dtype, copy=False)
        return self._base[1]


class _Look(NamedTuple):
    """Arguments of the native call that computes how much a lane's losses rise without some weights."""

    lane: np.ndarray
    dropped: np.ndarray
    reach: np.ndarray
    rise: np.ndarray


def _of(penalty: Penalty, w: np.ndarray) -> float:
    """R(w), without JAX where R is ½‖w‖²."""
    return 0.5 * float(w @ w) if isinstance(penalty, L2) else float(penalty.value(jnp.asarray(w)).sum())


class HostBlock:
    """Arrays on the host, changed in place by the native step: nothing is dispatched or copied."""

    def __init__(self, shared: Shared, size: int, by_part: bool = False):
        op: Any = shared.op  # a Csr: the native kernels take no other
        n, d = op.shape
        dtype = np.dtype(op.dtype)
        self._starts = starts = _Starts(n, d, size, dtype, shared.weight, shared.by_label, by_part)
        number = functools.partial(np.zeros, size, dtype)
        count = functools.partial(np.zeros, size, np.int32)
        self._state: dict[str, np.ndarray] = {
            "w": aligned_zeros((d, size), dtype),
            "z": aligned_zeros((n, size), dtype),
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
        self._op, self._penalty = op, shared.penalty
        problem = dict(X=tuple(np.asarray(a) for a in op.arrays), y=starts.y, weight=starts.weight)
        numbers = newton_cg.native_numbers(shared.hp, shared.loss, shared.penalty)
        self._step = InPlace(
            "newton_step",
            **problem,
            shift=np.zeros((1, 1), dtype),
            tolerance=starts.tolerance,
            **numbers,
            **self._state,
        )
        self._look = _Look(np.zeros(1, np.int32), np.zeros((d, 1), dtype), np.zeros((), dtype), np.zeros(1))
        of_loss = {name: numbers[name] for name in ("loss", "loss_parameter")}
        self._risen_losses = InPlace(
            "risen_losses", **problem, z=self._state["z"], **of_loss, **self._look._asdict()
        )

    def start(self, jobs: Sequence[tuple[int, Job]]) -> None:
        self._starts.put(jobs)
        for lane, _ in jobs:
            self._state["status"][lane] = Status.FRESH
            self._state["steps"][lane] = self._state["cg_steps"][lane] = 0

    def again(self, lanes: Sequence[int], starts: np.ndarray) -> list[int]:
        state, found = self._state, []
        X: Any = None  # a SciPy matrix, whose products need no threads of JAX
        for lane, start in zip(lanes, starts.tolist(), strict=True):
            w, bias = state["w"][:, lane], state["bias"][lane]
            if start <= FARTHER * np.hypot(np.linalg.norm(w.astype(np.float64)), float(bias)):
                continue
            X = self._op.to_scipy() if X is None else X
            if drifted(X @ w + bias, state["z"][:, lane]):
                self._begin_again(lane)
                found.append(lane)
        return found

    def _begin_again(self, lane: int) -> None:
        """Restarts a lane from its weights."""
        state = self._state
        state["direction"][:, lane] = state["w"][:, lane]
        state["direction_bias"][lane] = state["bias"][lane]
        state["status"][lane] = Status.FRESH

    def leave(self, lanes: Sequence[int]) -> None:
        self._state["status"][list(lanes)] = Status.MAX_STEPS

    def weigh(self, lane: int, job: Job, part: float) -> None:
        """Restarts a lane from its weights with this part of C; the block was made with `by_part`."""
        self._starts.weigh(lane, job, part)
        self._begin_again(lane)

    def begin(self) -> None:
        """Does nothing: :meth:`numbers` makes the step."""

    def close(self) -> None:
        pass  # a step is made where it is begun

    def numbers(self) -> dict[str, np.ndarray]:
        self._step()
        return {name: self._state[name].copy() for name in NUMBERS}

    def read(
        self, lanes: Sequence[int], clipping: Clipping, heaviest: Sequence[float]
    ) -> Callable[[], list[Weights]]:
        read: list[Weights] = []
        values, active = self._state["value"], self._state["active"]
        for first in range(0, len(lanes), _TOGETHER):
            for w in take_columns(self._state["w"], lanes[first : first + _TOGETHER]):
                lane, heavy = lanes[len(read)], heaviest[len(read)]
                risen = functools.partial(self._risen, lane)
                read.append(clipping.weights(w, float(values[lane]), float(active[lane]), heavy, risen))
        return lambda: read

    def _risen(self, lane: int, dropped: np.ndarray, reach: float) -> float:
        """By how much the objective of a lane rises when these weights are set to 0.

        A row's score by them is at most `reach` times the square root of its number of entries.
        """
        look = self._look
        look.lane[0], look.dropped[:, 0], look.reach[...] = lane, dropped, reach
        self._risen_losses()
        return float(look.rise[0]) - _of(self._penalty, dropped)
