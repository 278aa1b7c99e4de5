"""A block of lanes on a device: X and the lanes stay there, and only small arrays are copied.

A start is sent as the entries that it consists of, and a solution comes back as the weights that are
kept. Both copies are begun before the next step and awaited after it, so that the copies and the host's
work on them take place while the device makes the step. A step contains loops, and with a GPU the thread
that begins a step waits for the ends of its loops: a thread of its own does that.
"""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._device_memory import counted, described, held
from xmcjax._fork import check_threads_of_jax
from xmcjax._platform import default_platform
from xmcjax._settings import settings_here
from xmcjax.lanes._clipping import ALLOWED, EXPECTED, Clipping
from xmcjax.lanes._job import NUMBERS, Job, Weights
from xmcjax.linops import LinOp, put
from xmcjax.losses import MarginLoss
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers import Status, newton_cg
from xmcjax.solvers.far_starts import multiplied_out

# Most entries of positives, and of starting weights, that are sent in one call.
ENTRIES = 1 << 16
# Lanes that are read out in one call, and the first guess of the weights that a lane keeps on average.
READ, KEPT = 32, 1024
# Arrays of [READ, d] that reading out holds where lanes keep most of their weights.
OF_READ = 16
# Arrays of [READ, n] that reading out holds where objectives are evaluated.
OF_LOOK = 6
# Most bytes of a constant array that is sent; a larger one is made on the device by a program of its own.
SENT = 1 << 20


class _Numbers(NamedTuple):
    """Numbers of each lane, [B] each."""

    tolerance: np.ndarray
    bias: np.ndarray
    scale: np.ndarray  #: factor of the shared vector in its start
    positive: np.ndarray  #: weight of the rows with target +1
    negative: np.ndarray


class Shared(NamedTuple):
    """What the lanes of a block have in common.

    Attributes:
        op: the features.
        loss: of the margin.
        weight: c of the lane problem, [1] or [n].
        hp: of the solver.
        by_label: whether jobs have weights of their own; the block then holds c as [n, B].
        penalty: of the weights.
    """

    op: LinOp
    loss: MarginLoss
    weight: np.ndarray
    hp: newton_cg.HParams
    by_label: bool = False
    penalty: Penalty = L2()


class DeviceBlock:
    """Arrays on a device, stepped by the compiled :func:`xmcjax.solvers.newton_cg.advance`."""

    def __init__(self, shared: Shared, size: int):
        check_threads_of_jax()
        op, (n, d) = shared.op, shared.op.shape
        self._dtype = dtype = np.dtype(op.dtype)
        of_rows = np.broadcast_to(np.array(shared.weight, dtype).reshape(-1, 1), (n, 1))
        self._of_rows = put(of_rows) if shared.by_label else None
        self._numbers = _Numbers(*(np.zeros(size, dtype) for _ in _Numbers._fields))
        self._entries = min(ENTRIES, 1 << max(n, d).bit_length())
        # places among the weights of all lanes that are read together are int32
        self._together = min(READ, max(1, np.iinfo(np.int32).max // max(d, 1)))
        self._all = self._together * d
        self._room = self._rounded(self._together * min(KEPT, d))
        self._curvature: tuple[Clipping | None, jax.Array] = None, put(np.zeros(d, dtype))
        problem, self._hp, self._state = jax.tree.map(_placed, _fields(shared, size))
        self._problem = dataclasses.replace(problem, op=op)
        self._beside = ThreadPoolExecutor(1, "xmcjax-step") if default_platform() != "cpu" else None
        self._step: Future | None = None
        self._base: tuple[np.ndarray | None, jax.Array] = None, put(np.zeros((d, 1), dtype))

    # what the dtype cannot hold is infinite: such a tolerance is always met, such a start never taken
    @np.errstate(over="ignore", invalid="ignore")
    def start(self, jobs: Sequence[tuple[int, Job]]) -> None:
        if not jobs:
            return
        fresh = np.zeros(len(self._numbers.tolerance), bool)
        base = self._shared_base([job.base for _, job in jobs if job.base is not None])
        for lane, job in jobs:
            fresh[lane] = True
            scale = job.scale if job.base is not None and job.base is self._base[0] else 0.0
            numbers = job.tolerance, job.bias, scale, job.positive_weight, job.negative_weight
            for array, number in zip(self._numbers, numbers, strict=True):
                array[lane] = number
        positives = _entries([(lane, job.positives) for lane, job in jobs])
        added = [(lane, *self._added(job)) for lane, job in jobs]
        starts = _entries([(lane, indices) for lane, indices, _ in added])
        values = np.concatenate([values for *_, values in added])
        for first in range(0, max(len(positives[0]), len(starts[0]), 1), self._entries):
            span = slice(first, first + self._entries)
            parts = [self._filled(a[span]) for a in (*positives, *starts)]
            problem = self._problem
            changing = self._state, problem.y, problem.tolerance, problem.weight
            self._state, y, tolerance, weight = _refill(
                changing,
                self._of_rows,
                fresh,
                _Numbers(*(a.copy() for a in self._numbers)),
                base,
                parts,
                self._filled(values[span]),
            )
            self._problem = dataclasses.replace(problem, y=y, tolerance=tolerance, weight=weight)
            fresh = np.zeros_like(fresh)  # the entries that follow are added to the same starts

    def _shared_base(self, bases: Sequence[np.ndarray]) -> jax.Array:
        """The vector that starts share, [d, 1], which is sent once."""
        if bases and all(base is not self._base[0] for base in bases):
            self._base = bases[0], put(bases[0].astype(self._dtype)[:, None])
        return self._base[1]

    def _added(self, job: Job) -> tuple[np.ndarray, np.ndarray]:
        """Features and values of a start besides its multiple of the shared vector, or of a whole start."""
        values = job.values.astype(self._dtype)
        if job.base is None or job.base is self._base[0]:
            return job.indices, values
        at = np.flatnonzero(job.base)
        own = job.base[at].astype(self._dtype) * self._dtype.type(job.scale)
        return np.concatenate([at, job.indices]), np.concatenate([own, values])

    def _filled(self, entries: np.ndarray) -> np.ndarray:
        """Pads entries to the length that the compiled program takes, with an index out of every range."""
        nothing = np.iinfo(np.int32).max
        return np.pad(entries, (0, self._entries - len(entries)), constant_values=nothing)

    def begin(self) -> None:
        given = self._problem, self._hp, self._state
        if self._beside is None:
            self._state = newton_cg.advance(*given)
        else:
            self._step = self._beside.submit(_advanced, settings_here(), *given)

    def numbers(self) -> dict[str, np.ndarray]:
        if self._step is not None:
            step, self._step = self._step, None
            try:
                self._state = step.result()
            finally:
                # an error refers to this frame, which would refer to it and keep the arrays of the block
                del step
        fields = [getattr(self._state, name) for name in NUMBERS]
        _copy_ahead(fields)
        self._state.status.block_until_ready()
        return {name: _view(field).copy() for name, field in zip(NUMBERS, fields, strict=True)}

    def again(self, lanes: Sequence[int], starts: np.ndarray) -> list[int]:
        of_all = np.zeros(len(self._numbers.tolerance), self._dtype)
        of_all[lanes] = starts
        self._state = _multiplied_out(self._problem, of_all, self._state)
        fresh = _view(self._state.status) == Status.FRESH
        return [lane for lane in lanes if fresh[lane]]

    def leave(self, lanes: Sequence[int]) -> None:
        status = _view(self._state.status).copy()
        status[list(lanes)] = Status.MAX_STEPS
        self._state = self._state._replace(status=put(status))

    def close(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            wait([step])
        if self._beside is not None:
            self._beside.shutdown()

    def read(
        self, lanes: Sequence[int], clipping: Clipping, heaviest: Sequence[float]
    ) -> Callable[[], list[Weights]]:
        if self._curvature[0] is not clipping and clipping.most > 0:
            self._curvature = clipping, put(clipping.curvature)
        some = self._together
        batches = [slice(first, first + some) for first in range(0, len(lanes), some)]
        waiting = [self._begin_read(lanes[batch], clipping, heaviest[batch]) for batch in batches]
        return lambda: [weights for finish in waiting for weights in finish()]

    def _rounded(self, weights: int) -> int:
        """The next power of 2, or the number of all weights of the lanes that are read together."""
        return min(1 << max(weights - 1, 0).bit_length(), self._all)

    def _begin_read(
        self, lanes: Sequence[int], clipping: Clipping, heaviest: Sequence[float]
    ) -> Callable[[], list[Weights]]:
        chosen, scale = np.zeros(self._together, np.int32), np.ones(self._together, self._dtype)
        chosen[: len(lanes)] = lanes
        rule = _Rule(*(self._dtype.type(number) for number in (clipping.most, clipping.part)))
        curvature, state, room = self._curvature[1], self._state, self._room
        scale[len(lanes) :] = np.inf  # the others are lane 0, of which nothing is kept
        # The next step takes over the arrays of the state; these copies stay.
        lanes_of_state = _columns(state.w, state.value, state.active, chosen)
        problem = self._problem
        look = None  # computes the rise of objectives
        if any(map(clipping.is_stiff, heaviest)):
            rows = _rows(state.z, problem.y, problem.weight, chosen)
            given = problem.op, rows, lanes_of_state[0], rule
            look = functools.partial(_risen, *given, loss=problem.loss, penalty=problem.penalty)
        found = _largest(lanes_of_state, rule, scale, curvature, room=room)
        _copy_ahead([found])

        def finish() -> list[Weights]:
            nonlocal found, room
            expected, doubted = [0.0] * len(lanes), np.zeros(len(lanes), bool)
            again = np.zeros(0, int)
            for factor in clipping.scales():
                if factor < 1:
                    if not again.size:
                        break
                    scale[again] = factor
                    found = _largest(lanes_of_state, rule, scale.copy(), curvature, room=room)
                read = _Read.of(found, scale, room)
                for k, heavy in enumerate(heaviest):
                    square, curved, value = (float(a[k]) for a in (read.square, read.curved, read.value))
                    expected[k] = clipping.expected_rise(square, curved, value, float(read.active[k]) * heavy)
                    doubted[k] = expected[k] <= EXPECTED and clipping.doubts(square, curved, value, heavy)
                too_many = np.array(expected) > EXPECTED
                if look is not None and doubted.any():
                    risen = np.asarray(look(scale.copy()), np.float64)[: len(lanes)]
                    too_many |= doubted & ~(risen <= ALLOWED * read.value[: len(lanes)])
                again = np.flatnonzero(too_many)
            total = int(read.counts.sum())
            if total > room:
                room = self._rounded(total)
                more = _largest(lanes_of_state, rule, scale.copy(), curvature, room=room)
                read = _Read.of(more, scale, room)
            # Labels come in order of their numbers of positives, so the next ones keep about as many weights.
            # Reading too much costs more than compiling for another size, and there are few sizes.
            usual = total * self._together // len(lanes)
            if not room // 4 < usual <= room:
                self._room = self._rounded(usual)
            ends = np.cumsum(read.counts[: len(lanes)])[:-1]
            parts = (np.split(a[:total], ends) for a in (read.indices, read.weights))
            return [
                Weights(indices.astype(np.int64), weights.copy(), rise)
                for indices, weights, rise in zip(*parts, expected, strict=True)
            ]

        return finish


class _Read(NamedTuple):
    """What :func:`_largest` found of the lanes of a call, on the host."""

    weights: np.ndarray  #: [room], those of a lane side by side, lane after lane
    square: np.ndarray  #: Σ δ² of what is left out, [k]
    curved: np.ndarray  #: Σ δ² curvature
    value: np.ndarray  #: objectives
    active: np.ndarray  #: numbers of active rows
    counts: np.ndarray  #: of the weights that are kept, int32
    indices: np.ndarray  #: int32 [room]

    @classmethod
    def of(cls, packed: jax.Array, scale: np.ndarray, room: int) -> _Read:
        """Takes apart the array of bytes that :func:`_largest` has made for these scales."""
        lanes, dtype = len(scale), scale.dtype
        floats, ints = np.split(np.asarray(packed), [(room + 4 * lanes) * dtype.itemsize])
        of_weights, of_lanes = np.split(floats.view(dtype), [room])
        counts, indices = np.split(ints.view(np.int32), [lanes])
        square, curved, value, active = of_lanes.astype(np.float64).reshape(4, lanes)
        return cls(of_weights, square, curved, value, active, counts, indices)


def _advanced(settings, problem, hp, state) -> newton_cg.State:
    with settings(None):
        return newton_cg.advance(problem, hp, state)


_multiplied_out = jax.jit(multiplied_out, donate_argnums=(2,))


def _placed(a: np.ndarray) -> jax.Array:
    """An array on the device; a large constant one is made there from its number."""
    if a.nbytes > SENT and not any(a.strides):
        return jnp.full(a.shape, a[(0,) * a.ndim], a.dtype)
    return put(a)


def _fields(shared: Shared, size: int) -> tuple[newton_cg.LaneProblem, newton_cg.HParams, newton_cg.State]:
    """The arguments of a step of idle lanes, without X, as arrays of NumPy that take no memory."""
    (n, d), dtype = shared.op.shape, np.dtype(shared.op.dtype)

    def full(value: Any, shape: tuple[int, ...], kind: Any = dtype) -> Any:
        return np.broadcast_to(np.asarray(value, kind), shape)

    hp: list[Any] = [np.asarray(v, np.int32 if isinstance(v, numbers.Integral) else dtype) for v in shared.hp]
    c: Any = np.array(shared.weight, dtype).reshape(-1, 1)
    without_X: Any = None
    problem = newton_cg.LaneProblem(
        without_X,
        full(-1, (n, size), np.int8),
        full(c, (n, size)) if shared.by_label else c,
        full(0, (1, 1)),
        full(0, (size,)),
        shared.loss,
        shared.penalty,
    )
    lanes = ("bias", "direction_bias", "slope", "value", "gradient_norm", "multiplier")
    state = newton_cg.State(
        w=full(0, (d, size)),
        z=full(0, (n, size)),
        direction=full(0, (d, size)),
        **{name: full(0, (size,)) for name in lanes},
        status=full(Status.CONVERGED, (size,), np.int32),  # idle until started
        **{name: full(0, (size,), np.int32) for name in ("steps", "cg_steps", "active")},
    )
    return problem, newton_cg.HParams(*hp), state


def block_bytes(shared: Shared, size: int) -> int | None:
    """Bytes that a block takes beside X: XLA's count for its step, plus what reading out takes.

    Args:
        shared, size: of :class:`DeviceBlock`.

    Returns:
        None where XLA counts nothing.
    """
    op = shared.op
    problem, hp, state = described(_fields(shared, size))
    # with the arguments of `begin`, which then finds the program compiled
    found = counted(newton_cg.advance, dataclasses.replace(problem, op=op), hp, state)
    if found is None:
        return None
    n, d = op.shape
    return found - held(op) + (OF_READ * d + OF_LOOK * n) * READ * np.dtype(op.dtype).itemsize


def _entries(parts: Sequence[tuple[int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """(indices, their lanes) of all parts, int32."""
    indices = np.concatenate([indices for _, indices in parts]).astype(np.int32)
    lanes = np.repeat([lane for lane, _ in parts], [len(indices) for _, indices in parts])
    return indices, lanes.astype(np.int32)


@functools.partial(jax.jit, donate_argnums=(0,))
def _refill(changing, of_rows, fresh, numbers: _Numbers, base, entries, values):
    """State, targets, tolerances and c with the starts in the fresh lanes, and more entries of starts added.

    Args:
        changing: state, targets, tolerances and c, which are returned changed.
        of_rows: weights of the rows, [n, 1], where c differs from lane to lane, else None.
        fresh: bool [B].
        numbers: of all lanes.
        base: [d, 1], times the scale of each lane.
        entries: rows of positives, their lanes, features of starts, their lanes; what is
            beyond the arrays is dropped.
        values: of the features.
    """
    state, y, tolerance, weight = changing
    rows, row_lanes, features, feature_lanes = entries
    y = jnp.where(fresh, jnp.int8(-1), y)
    y = y.at[rows, row_lanes].set(jnp.int8(1), mode="drop")
    # a lane of scale 0 begins from zero, also where the base has overflowed
    scaled = jnp.where(numbers.scale != 0, numbers.scale * base, 0)
    w0 = jnp.where(fresh, scaled, state.direction)
    w0 = w0.at[features, feature_lanes].add(values, mode="drop")
    if of_rows is not None:
        weight = of_rows * jnp.where(y > 0, numbers.positive, numbers.negative)
    state = state._replace(
        direction=w0,
        direction_bias=jnp.where(fresh, numbers.bias, state.direction_bias),
        status=jnp.where(fresh, Status.FRESH, state.status).astype(jnp.int32),
        steps=jnp.where(fresh, 0, state.steps),
        cg_steps=jnp.where(fresh, 0, state.cg_steps),
    )
    return state, y, jnp.where(fresh, numbers.tolerance, tolerance), weight


class _Rule(NamedTuple):
    """Numbers of a :class:`xmcjax.lanes._clipping.Clipping`, in the dtype of the weights."""

    most: np.floating
    part: np.floating


@jax.jit
def _columns(w, value, active, lanes):
    """The weights of some lanes, [k, d], their objectives and their numbers of active rows, [k]."""
    return w[:, lanes].T, value[lanes], active[lanes]


@functools.partial(jax.jit, static_argnames=("room",))
def _largest(of_lanes, rule: _Rule, scale, curvature, *, room: int):
    """The weights that are not 0 and not below scale · min(most, part ‖w‖), the first `room` of them.

    Returns:
        What :class:`_Read` takes apart, as bytes: one array is copied faster than seven.
    """
    columns, value, active = of_lanes
    stays, squares = _staying(columns, rule, scale)
    dropped = jnp.where(stays, 0, squares)
    upto = jnp.cumsum(stays.ravel(), dtype=jnp.int32)
    # the j-th weight kept stands where the count reaches j; the search is compiled by itself, since together
    # with what makes its operands some versions of XLA compile it for minutes
    upto, counted = jax.lax.optimization_barrier((upto, jnp.arange(1, room + 1, dtype=jnp.int32)))
    place = jnp.searchsorted(upto, counted, method="scan_unrolled")
    place = jnp.minimum(place, columns.size - 1)
    numbers = [dropped.sum(axis=1), dropped @ curvature, value, active.astype(columns.dtype)]
    floats = jnp.concatenate([columns.ravel()[place], *numbers])
    counts = stays.sum(axis=1, dtype=jnp.int32)
    ints = jnp.concatenate([counts, (place % columns.shape[1]).astype(jnp.int32)])
    return jnp.concatenate([_bytes(floats), _bytes(ints)])


def _staying(columns, rule: _Rule, scale):
    """Which weights stay, and the squares of all."""
    magnitude, squares = jnp.abs(columns), columns**2
    norm = jnp.sqrt(squares.sum(axis=1))
    # ∞ times a norm of 0 is NaN; where the squares underflow to 0, all weights stay
    relative = jnp.where(jnp.isinf(rule.part), jnp.inf, rule.part * norm)
    least = (scale * jnp.minimum(rule.most, relative))[:, None]
    return (magnitude >= least) & (magnitude > 0), squares


@jax.jit
def _rows(z, y, weight, lanes):
    """The scores, targets and c of some lanes, [n, k]; c may have one row or one column."""
    return z[:, lanes], y[:, lanes], weight if weight.shape[1] == 1 else weight[:, lanes]


@functools.partial(jax.jit, static_argnames=("loss", "penalty"))
def _risen(op: LinOp, rows, columns, rule: _Rule, scale, *, loss: MarginLoss, penalty: Penalty):
    """By how much f rises when the weights that do not stay are dropped, [k]."""
    z, y, c = rows
    y = y.astype(z.dtype)
    stays, _ = _staying(columns, rule, scale)
    dropped = jnp.where(stays, 0, columns)
    moved = z - op.matmat(dropped.T)
    change = loss.score_value(moved, y) - loss.score_value(z, y)
    return (c * change).sum(axis=0) - penalty.value(dropped).sum(axis=1)


def _bytes(a):
    return jax.lax.bitcast_convert_type(a, jnp.uint8).ravel()


def _copy_ahead(arrays: Sequence[jax.Array]) -> None:
    """Begins to copy arrays to the host; not where the device is the host, see :func:`_view`."""
    for array in arrays:
        device: Any = array.device
        if device.platform != "cpu":
            array.copy_to_host_async()


def _view(a: jax.Array) -> np.ndarray:
    """A finished array on the host, to be copied from and dropped.

    ``np.asarray`` would leave a reference with the array, and a buffer that somebody else holds
    cannot be given away: the next step would copy the whole state.
    """
    device: Any = a.device
    return np.from_dlpack(a) if device.platform == "cpu" else np.asarray(a)  # type: ignore[arg-type]
