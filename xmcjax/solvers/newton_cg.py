"""Truncated Newton with conjugate gradients, many binary problems at once as lanes.

Schultheis and Babbar, "Speeding-up one-versus-all training for extreme classification via mean-separating
initialization", 2022, sections 2 and 4; Galli and Lin, "A study on truncated Newton methods for linear
classification", 2021.

Each lane solves

    min_{w,b}  f = λ R(w) + λ_b R(b) + Σ_i c_i ℓ(z_i + o_i, y_i),   z = X w + b 1,

where ℓ is a loss φ of the margin y_i (z_i + o_i), or one of the score, and R(w) = ½ ‖w‖² or another.

symbol      variable            shape
X           problem.op          [n, d]
y           problem.y           [n, B], ±1
c, o        weight, shift       broadcast to [n, B]
w, b        state.w, .bias      [d, B], [B]
z           state.z             [n, B]
δ           state.direction     [d, B], the step to be made next
D           curvature           [n, B], c ℓ''

A step minimises f over the multiple of the direction and the bias together, on the margins alone
(X is not multiplied again), takes the gradient, and solves for the next direction by CG in which
b is eliminated and only rows with ℓ'' ≠ 0 count: implicit negative mining. In a fresh lane the
direction holds the starting weights, so that X w0 shares the pass over X with the steps of its
neighbours.

With another penalty (the l1 norm, the elastic net, Huber's) the model keeps the penalty as it is, and
coordinate descent or proximal gradient steps take the place of CG: a proximal Newton step, see
:mod:`~xmcjax.solvers._proximal_step`.

Where X is CSR on a CPU, one native call makes the whole step (native/newton/simd_newton.cc,
native/newton/simd_penalised.cc); a lane's result there does not depend on its neighbours, to the bit.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from xmcjax import native
from xmcjax._fork import needs_threads_of_jax
from xmcjax.linops import Csr, LinOp, real_array
from xmcjax.losses import LaneLoss
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers._backtrack import backtrack
from xmcjax.solvers._base import Status
from xmcjax.solvers._cg import PART_OF_BOUND, Progress, cg
from xmcjax.solvers._host_loop import run_in_calls
from xmcjax.solvers._hparams import check_hparams, nan_below_0
from xmcjax.solvers._lane_cg import has_cg_kernels, lane_cg
from xmcjax.solvers._lane_problem import LaneProblem as LaneProblem
from xmcjax.solvers._lane_problem import lane_problem as lane_problem
from xmcjax.solvers._plane_search import Plane, plane_search, rounding_error, sums_along
from xmcjax.solvers._proximal_step import proximal_step
from xmcjax.solvers.far_starts import largest_start, multiplied_out


class HParams(NamedTuple):
    """Numbers of the method; all are traced, so none costs a compilation.

    Attributes:
        l2: λ > 0, of any penalty. A traced one below 0 counts as NaN.
        l2_bias: λ_b; 0 leaves the bias free, a negative number leaves it out.
        max_steps: Newton steps per lane.
        cg_progress: CG stops at its step i where i times the last fall of the quadratic model is at most
            this part of the whole fall (S. Nash, A. Sofer, "Assessing a search direction within a
            truncated-Newton method", 1990).
        cg_tolerance: where cg_progress is 0, CG stops at ‖r‖ ≤ cg_tolerance ‖∇f‖. Coordinate descent always
            stops where a sweep changes the model by this part of the first sweep's change.
        max_cg: CG steps, or sweeps of coordinate descent, per Newton step.
        preconditioner: α of (1−α) I + α diag(H); 0 for none. On rows of norm 1 α = 0.01, the
            choice of LIBLINEAR, saved 2% of the CG steps and no time; on raw counts it cost a tenth more.
            With α > 0 a lane converges by ‖∇f‖²/2λ alone, because the bounds of CG are not known.
        armijo: η of the sufficient decrease.
        max_backtracks: halvings per move of the line search, see :mod:`~xmcjax.solvers._plane_search`.
        backtracking: α of the line search of Schultheis and Babbar (2022, section 5, after LIBLINEAR), which
            takes the first t of 1, α, α², …, α^max_backtracks with f(w + t δ) − f(w) ≤ η t ∇fᵀδ, and takes
            starting weights as they are; the bias moves by t δ_b. The paper has α = 0.5, η = 0.01 and
            20 halvings. 0 for the minimum over t and the bias. With a penalty other than ½‖w‖² the search
            halves the step whatever this is.
        decrement: a lane has converged when ‖∇f‖ ≤ tolerance and its Newton decrement ½ ∇fᵀH⁻¹∇f, which is
            about f − f*, is at most decrement · f. With the bias at its minimum the gradient alone can be
            small too early. The decrement is taken to be the part that CG has found plus a third of the bound
            on the rest. Before the first CG step this bound is ‖∇f‖²/2λ, and with λ_b < λ also g_b²/2h,
            h = λ_b + Σ_i c_i ℓ''. CG goes on until the part found is more than decrement · f, or the whole
            is known to be less than nine times that.

    Example:
        >>> HParams(l2=0.1)._replace(max_steps=50).max_steps
        50
    """

    l2: float = 1.0
    l2_bias: float = 1.0
    max_steps: int = 100
    cg_progress: float = 0.3
    cg_tolerance: float = 0.25
    max_cg: int = 200
    preconditioner: float = 0.0
    armijo: float = 0.01
    max_backtracks: int = 20
    backtracking: float = 0.0
    decrement: float = 3e-4


class State(NamedTuple):
    """The state of B lanes; fields are of the last step unless said otherwise.

    Example:
        >>> from xmcjax import linops, losses
        >>> problem = lane_problem(linops.make([[1.0], [-1.0]]), [[1, -1], [-1, 1]], losses.logistic)
        >>> state = init(problem)  # two lanes over two rows of one feature
        >>> state.w.shape, state.z.shape, Status(int(state.status[0])).name
        ((1, 2), (2, 2), 'FRESH')
    """

    w: jax.Array  #: [d, B]
    z: jax.Array  #: [n, B], X w + b
    direction: jax.Array  #: [d, B], the step to come; the starting weights of a fresh lane
    bias: jax.Array  #: [B]
    direction_bias: jax.Array  #: [B]
    slope: jax.Array  #: [B], f' along the direction; with a penalty of its own gᵀp + R(w + p) − R(w)
    value: jax.Array  #: [B], f
    gradient_norm: jax.Array  #: [B], ‖∇f‖, or the distance of 0 to ∂f, the bias included
    multiplier: jax.Array  #: [B], of the direction, found by the line search
    status: jax.Array  #: int32 [B], of :class:`xmcjax.solvers.Status`
    steps: jax.Array  #: int32 [B], Newton steps made
    cg_steps: jax.Array  #: int32 [B], CG steps, or sweeps of coordinate descent, made
    active: jax.Array  #: int32 [B], rows with φ' or φ'' ≠ 0


@needs_threads_of_jax
def init(problem: LaneProblem, w0=None, b0: ArrayLike = 0.0) -> State:
    """Fresh lanes at the starting weights; costs no product with X.

    Args:
        problem: of B lanes.
        w0: [d, B]; None for zero.
        b0: a number or [B].

    Raises:
        ValueError: starting weights or biases of another shape.

    Example:
        >>> from xmcjax import linops, losses
        >>> problem = lane_problem(linops.make([[1.0], [-1.0]]), [[1], [-1]], losses.logistic)
        >>> init(problem, w0=[[0.5]]).direction.tolist()  # the first step takes them
        [[0.5]]
    """
    n, lanes = problem.y.shape
    d, dtype = problem.op.shape[1], problem.op.dtype
    w0 = jnp.zeros((d, lanes), dtype) if w0 is None else jnp.asarray(real_array("w0", w0), dtype)
    if w0.shape != (d, lanes):
        raise ValueError(f"expected starting weights [{d}, {lanes}], got {list(w0.shape)}")

    b0 = jnp.asarray(b0, dtype)
    if b0.shape not in ((), (1,), (lanes,)):
        raise ValueError(f"b0: expected a number or [{lanes}], got an array of shape {list(b0.shape)}")

    # each field has a buffer of its own, because `advance` donates them
    zero, count = (functools.partial(jnp.zeros, lanes, kind) for kind in (dtype, jnp.int32))
    return State(
        w=jnp.zeros((d, lanes), dtype),
        z=jnp.zeros((n, lanes), dtype),
        direction=jnp.array(w0),
        bias=zero(),
        direction_bias=zero() + b0,
        slope=zero(),
        value=zero(),
        gradient_norm=zero(),
        multiplier=zero(),
        status=jnp.full(lanes, Status.FRESH, jnp.int32),
        steps=count(),
        cg_steps=count(),
        active=count(),
    )


@needs_threads_of_jax
@jax.jit
def step(problem: LaneProblem, hp: HParams, state: State) -> State:
    """One Newton step of every lane that is fresh or running; the others stay as they are.

    Example:
        >>> from xmcjax import linops, losses
        >>> problem = lane_problem(linops.make([[1.0], [-1.0]]), [[1], [-1]], losses.logistic)
        >>> state = step(problem, HParams(), init(problem))  # takes the starting weights, 0
        >>> state.steps.tolist(), round(float(state.value[0]), 3)  # 2 log 2
        ([0], 1.386)
    """
    op, hp = problem.op, hp._replace(l2=nan_below_0(hp.l2))
    if has_kernels(op, problem.loss, problem.penalty):
        return _native_step(problem, hp, state)
    if not isinstance(problem.penalty, L2):
        return proximal_step(problem, hp, state)
    return _jnp_step(problem, hp, state)


def has_kernels(op: LinOp, loss: LaneLoss, penalty: Penalty) -> bool:
    """Whether the C++ kernels make the steps.

    Example:
        >>> from xmcjax import linops, losses
        >>> has_kernels(linops.make([[1.0], [-1.0]]), losses.logistic, L2())  # dense features
        False
    """
    listed = loss.native is not None and penalty.native is not None
    return isinstance(op, Csr) and op.native and listed


@needs_threads_of_jax
@functools.partial(jax.jit, static_argnames=("count",), donate_argnames=("state",))
def advance(problem: LaneProblem, hp: HParams, state: State, *, count: int = 1) -> State:
    """`count` steps in one compiled call; the buffers of `state` are donated.

    Example:
        >>> from xmcjax import linops, losses
        >>> problem = lane_problem(linops.make([[1.0], [-1.0]]), [[1], [-1]], losses.logistic)
        >>> advance(problem, HParams(), init(problem), count=2).steps.tolist()  # the first takes the start
        [1]
    """
    return jax.lax.fori_loop(0, count, lambda _, s: step(problem, hp, s), state)


@needs_threads_of_jax
def run(problem: LaneProblem, hp: HParams, state: State) -> State:
    """Steps until every lane has ended.

    Where a lane began at weights far larger than those at its end, X w + b is computed anew before the lane
    is CONVERGED. It goes on where z differs from that, because z keeps the rounding of the first scores.

    Raises:
        TypeError, ValueError: a hyperparameter that is not traced and out of its range.

    Example:
        >>> from xmcjax import linops, losses
        >>> problem = lane_problem(linops.make([[1.0], [-1.0]]), [[1], [-1]], losses.logistic, tolerance=1e-3)
        >>> run(problem, HParams(), init(problem)).status.tolist()
        [1]
    """
    check_hparams(hp)

    def running(carry: tuple[State, jax.Array]) -> bool:
        return bool(np.any(moving(np.asarray(carry[0].status))))

    return run_in_calls(_at_most, running, problem, hp, (state, jnp.zeros_like(state.bias)))[0]


@jax.jit
def _at_most(problem: LaneProblem, hp: HParams, carry: tuple[State, jax.Array], count):
    def unfinished(carry):
        return (carry[0] < count) & jnp.any(moving(carry[1].status))

    def one_step(carry):
        return carry[0] + 1, step(problem, hp, carry[1])

    def until_they_end(carry):
        made, state, before = carry
        start = largest_start(state, before)
        made, state = jax.lax.while_loop(unfinished, one_step, (made, state))
        return made, multiplied_out(problem, start, state), start

    return jax.lax.while_loop(unfinished, until_they_end, (jnp.int32(0), *carry))[1:]


def moving(status):
    """Whether a lane of this status is still stepping.

    Example:
        >>> moving(np.array([Status.FRESH, Status.RUNNING, Status.CONVERGED])).tolist()
        [True, True, False]
    """
    return (status == Status.FRESH) | (status == Status.RUNNING)


def gradient_tolerance(eps: float, positives, n: float, gradient_norm_at_zero):
    """ε₀ max(1, min(|P|, |N|)) / n · ‖∇f(0)‖ (Schultheis and Babbar 2022, eqs. 12 and 13).

    Args:
        eps: ε₀.
        positives: |P| of each lane.
        n: rows.
        gradient_norm_at_zero: ‖∇f(0)‖ of each lane.

    Example:
        >>> gradient_tolerance(0.01, np.array([2, 50]), 100, np.array([10.0, 10.0])).round(6).tolist()
        [0.002, 0.05]
    """
    rare = np.minimum(positives, n - np.asarray(positives))
    return eps * np.maximum(1, rare) / n * gradient_norm_at_zero


def _native_step(problem: LaneProblem, hp: HParams, state: State) -> State:
    if state.w.shape[0] != problem.op.shape[1]:
        raise ValueError(f"expected weights of {problem.op.shape[1]} features, got {state.w.shape[0]}")
    stepped = native.call(
        "newton_step",
        X=problem.op.arrays,  # type: ignore[attr-defined]  # only such operators come here
        y=problem.y,
        weight=problem.weight,
        shift=problem.shift,
        tolerance=problem.tolerance,
        **native_numbers(hp, problem.loss, problem.penalty),
        **state._asdict(),
    )
    return State(**stepped)


def native_numbers(hp: HParams, loss: LaneLoss, penalty: Penalty) -> dict[str, Any]:
    """The fields of the native step that are no arrays of a problem or a state, by their names.

    Example:
        >>> from xmcjax import losses
        >>> native_numbers(HParams(l2=0.5), losses.squared_hinge, L2())["l2"]
        0.5
    """
    return {
        "loss": loss.native,
        "loss_parameter": loss.parameter,
        "penalty": penalty.native,
        "penalty_parameter": penalty.parameter,
        **hp._asdict(),
    }


def _jnp_step(problem: LaneProblem, hp: HParams, state: State) -> State:
    op, loss, dtype = problem.op, problem.loss, problem.op.dtype
    y = problem.y.astype(dtype)
    c, o = problem.weight, problem.shift

    def losses(z):  # c ℓ(z + o, y)
        return c * loss.score_value(z + o, y)

    def slopes(z):
        return c * loss.score_grad(z + o, y)

    def curvatures(z):
        return c * loss.score_curv(z + o, y)

    fresh = state.status == Status.FRESH
    lanes = moving(state.status)
    has_bias = jnp.asarray(hp.l2_bias >= 0)
    l2, l2_bias = jnp.asarray(hp.l2, dtype), jnp.maximum(jnp.asarray(hp.l2_bias, dtype), 0)
    # A fresh lane starts from zero, whatever was there before it.
    w, z = jnp.where(fresh, 0, state.w), jnp.where(fresh, 0, state.z)
    bias = jnp.where(fresh, 0, state.bias)
    direction, direction_bias = state.direction, state.direction_bias

    # m = X δ + δ_b: the one full product of a step
    m = op.matmat(direction) + direction_bias
    before = jnp.where(fresh, 0, losses(z))

    plane = Plane(
        fresh=fresh,
        steps=state.steps,
        multiplier=state.multiplier,
        l2=l2,
        l2_bias=l2_bias,
        has_bias=has_bias,
        wd=jnp.sum(w * direction, axis=0),
        dd=jnp.sum(direction * direction, axis=0),
        bias=bias,
        direction_bias=direction_bias,
        value=state.value,
        slope=state.slope,
        bias_tolerance=0.1 * problem.tolerance,
    )
    shrinks = jnp.asarray(hp.backtracking) > 0
    sums = sums_along(problem, state.z, m, fresh)
    t, beta, failed = plane_search(
        sums, plane, lanes & ~shrinks, armijo=hp.armijo, max_halvings=hp.max_backtracks
    )

    def change(t):  # f(t) − f(0)
        terms = losses(z + t * m) - before
        b = bias + t * direction_bias
        of_bias = l2_bias / 2 * (b - bias) * (b + bias)
        return jnp.sum(terms, axis=0) + l2 * t * (plane.wd + t * plane.dd / 2) + of_bias

    searching = lanes & shrinks & ~fresh
    shrunk, none_falls = backtrack(
        change,
        state.slope,
        rounding_error(state.value),
        searching,
        armijo=hp.armijo,
        max_backtracks=hp.max_backtracks,
        factor=hp.backtracking,
    )
    t = jnp.where(lanes & shrinks, jnp.where(fresh, 1, shrunk), t).astype(dtype)
    failed = failed | none_falls
    w, z, bias = w + t * direction, z + t * m + beta, bias + t * direction_bias + beta
    solved = lanes & ~failed

    # ∇f = (λ w + Xᵀ ℓ', λ_b b + 1ᵀ ℓ')
    slope, curvature = slopes(z), curvatures(z)
    slope = jnp.where(solved, slope, 0)
    gradient = l2 * w + op.rmatmat(slope)
    gradient_bias = jnp.where(has_bias, jnp.sum(slope, axis=0) + l2_bias * bias, 0)
    gradient_norm = jnp.sqrt(jnp.sum(gradient * gradient, axis=0) + gradient_bias**2)
    value = jnp.sum(losses(z), axis=0) + l2 / 2 * jnp.sum(w * w, axis=0) + l2_bias / 2 * bias**2
    active = jnp.sum((slope != 0) | (curvature != 0), axis=0, dtype=jnp.int32)

    steps = state.steps + (lanes & ~fresh).astype(jnp.int32)
    status = jnp.where(steps >= hp.max_steps, Status.MAX_STEPS, Status.RUNNING)
    # f − f* ≤ ‖∇f‖²/2λ; a bias that is free or has λ_b < λ adds about g_b²/2h. Most lanes converge by
    # PART_OF_BOUND of these bounds; for the others CG works the decrement out.
    gap = jnp.asarray(hp.decrement, dtype) * jnp.abs(value)
    small = gradient_norm <= problem.tolerance
    of_bias = jnp.where(l2_bias < l2, gradient_bias**2, 0)
    settled_by_bounds = (PART_OF_BOUND * gradient_norm**2 <= 2 * l2 * gap) & (
        PART_OF_BOUND * of_bias <= 2 * (jnp.sum(curvature, axis=0) + l2_bias) * gap
    )
    candidate = small & ~settled_by_bounds
    status = jnp.where(small, jnp.where(candidate, Status.RUNNING, Status.CONVERGED), status)
    status = jnp.where(jnp.isfinite(value) & jnp.isfinite(gradient_norm), status, Status.NONFINITE)
    status = jnp.where(failed, Status.LINE_SEARCH_FAILED, status)
    status = jnp.where(lanes, status, state.status)

    running = status == Status.RUNNING
    candidate = candidate & running
    D = jnp.where(running, curvature, 0)
    next_direction, next_bias, cg_steps, small_decrement = newton_direction(
        op, D, gradient, gradient_bias, l2, l2_bias, has_bias, running, jnp.where(candidate, gap, 0), hp
    )
    # f' along the next direction
    next_slope = jnp.sum(gradient * next_direction, axis=0) + gradient_bias * next_bias
    undecided = jnp.where(steps >= hp.max_steps, Status.MAX_STEPS, Status.RUNNING)
    settled = jnp.where(small_decrement, Status.CONVERGED, undecided)
    status = jnp.where(candidate, settled, status).astype(jnp.int32)
    running = status == Status.RUNNING

    keep = jnp.where
    return State(
        w=keep(lanes, w, state.w),
        z=keep(lanes, z, state.z),
        direction=keep(running, next_direction, 0),
        bias=keep(lanes, bias, state.bias),
        direction_bias=keep(running, next_bias, 0),
        slope=keep(running, next_slope, 0),
        value=keep(solved, value, state.value),
        gradient_norm=keep(solved, gradient_norm, state.gradient_norm),
        multiplier=keep(lanes, t, state.multiplier),
        status=status,
        steps=keep(lanes, steps, state.steps),
        cg_steps=state.cg_steps + cg_steps,
        active=keep(solved, active, state.active),
    )


def newton_direction(op, D, gradient, gradient_bias, l2, l2_bias, has_bias, lanes, enough, hp: HParams):
    """(δ, δ_b, CG steps, whether the decrement is at most `enough`): the Newton direction, bias eliminated.

    S δ = −g + u g_b/h,  S = λ I + XᵀDX − u uᵀ/h,  u = XᵀD1,  h = λ_b + 1ᵀD1,  δ_b = −(g_b + uᵀδ)/h.

    Example:
        Without a bias and with D = 1, λ = 1 it is −(I + XᵀX)⁻¹ g:

        >>> from xmcjax import linops
        >>> op, one = linops.make([[1.0, 0.0], [0.0, 2.0]]), jnp.ones((2, 1))
        >>> none, lanes = jnp.zeros(1), jnp.array([True])
        >>> hp = HParams(cg_progress=0.0, cg_tolerance=1e-6)
        >>> delta, *_ = newton_direction(op, one, one, none, 1.0, 0.0, jnp.array([False]), lanes, none, hp)
        >>> bool(jnp.allclose(delta.ravel(), jnp.array([-0.5, -0.2]), atol=1e-4))
        True
    """
    h = jnp.sum(D, axis=0) + l2_bias
    eliminated = has_bias & (h > 0)
    h = jnp.where(eliminated, h, 1)
    u = jnp.where(eliminated, op.rmatmat(D), 0)

    def product(V):
        return l2 * V + op.gram_matmat(D, V) - u * (jnp.sum(u * V, axis=0) / h)

    alpha = jnp.asarray(hp.preconditioner, D.dtype)
    diagonal = jax.lax.cond(alpha > 0, lambda: op.squared_rmatmat(D) + l2, lambda: jnp.ones_like(gradient))
    inverse = 1 / ((1 - alpha) + alpha * diagonal)
    right = jnp.where(lanes, u * (gradient_bias / h) - gradient, 0)
    # a free bias that has no curvature here can go far
    far = jnp.where(gradient_bias == 0, 0, jnp.inf)
    of_bias = jnp.where(eliminated, gradient_bias**2 / (2 * h), far)
    # the bounds hold for the system without a preconditioner
    end = Progress(hp.cg_progress, l2, jnp.where(alpha > 0, 0, enough - of_bias))
    options: dict[str, Any] = dict(tolerance=hp.cg_tolerance, max_steps=hp.max_cg, progress=end)
    if has_cg_kernels(op):
        of_bias = jnp.where(eliminated, 1 / h, 0)
        solved = lane_cg(op, D, l2, l2_bias, of_bias, right, inverse, alpha, lanes, **options)
    else:
        solved = cg(product, right, inverse, lanes, **options)
    direction, cg_steps, settled = solved
    direction_bias = jnp.where(eliminated, -(gradient_bias + jnp.sum(u * direction, axis=0)) / h, 0)
    return direction, direction_bias, cg_steps, settled
