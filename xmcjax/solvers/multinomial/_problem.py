"""The problem that all methods of this package solve, and what each of them needs of it.

    G(W, b) = λ/2 ‖W‖² + Σ_i c_i (log Σ_k e^{z_ik} − z_{i,y_i}),   Z = X W + 1 bᵀ

S. Gopal, Y. Yang, "Distributed training of large-scale logistic models", 2013, OPT1.

symbol      variable            shape
X           problem.op          [n, d]
y           problem.y           [n], 0 … K−1
c           problem.weight      [n]
λ           problem.l2          []
W, b        W, bias             [d, K], [K]
Z, P        Z, P                [n, K], P = softmax of the rows of Z

Over a mesh the classes are split: W, b and Z are the columns of this device, and `problem.axis`
names the axis of the mesh over which sums go. Columns beyond the last class, which make the split
even, have scores −∞ and weights 0.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from xmcjax import _sparse, native
from xmcjax._arguments import flag, whole_number
from xmcjax._finite import place_not_finite
from xmcjax._fork import check_threads_of_jax, needs_threads_of_jax
from xmcjax._pytrees import pytree
from xmcjax._range import check_range
from xmcjax.linops import Csr, Dense, LinOp, check_operator
from xmcjax.solvers._implicit import fixed

# Kernels take −_NEVER as the score of a column that is no class: e to this score is 0, and no infinity is
# subtracted from infinity.
_NEVER = 1e30


@pytree(
    data_fields=["op", "y", "weight", "l2"],
    meta_fields=["classes", "intercept", "axis"],
)
@dataclasses.dataclass(frozen=True)
class Problem:
    """A multinomial logistic regression; made by :func:`multinomial_problem`.

    Attributes:
        op: the features, n rows of d.
        y: classes 0 … K−1, int32 [n].
        weight: c ≥ 0, [n].
        l2: λ > 0, [].
        classes: K.
        intercept: whether there is a b; it is not regularised.
        axis: of the mesh over which the classes are split, or None.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers.multinomial import multinomial_problem
        >>> isinstance(multinomial_problem(linops.make([[1.0], [-1.0]]), [0, 1], lam=1.0), Problem)
        True
    """

    op: LinOp
    y: jax.Array
    weight: jax.Array
    l2: jax.Array
    classes: int
    intercept: bool
    axis: str | None = None

    @property
    def native(self) -> bool:
        """Whether the passes of the C++ kernels serve this problem."""
        return isinstance(self.op, Csr) and self.op.native

    @property
    def csr(self) -> tuple[Any, Any, Any]:
        """The arrays of X for the passes of the C++ kernels."""
        return cast(Csr, self.op).arrays


def multinomial_problem(
    op: LinOp, y, lam: float, *, classes: int | None = None, weight: Any = 1.0, intercept: bool = False
) -> Problem:
    """Checks the parts of a :class:`Problem` and gives them their dtypes.

    Args:
        op: features [n, d], from :func:`xmcjax.linops.make`.
        y: classes 0 … K−1, integers [n].
        lam: λ > 0.
        classes: K; None for the largest of y plus 1, and then each class must occur.
        weight: c ≥ 0, of the instances; a number or [n].
        intercept: whether there is a b, which is not regularised.

    Raises:
        ValueError: λ not above 0; fewer than two classes; labels out of range or of another
            length; features or weights that are not finite, or weights too large for a gradient. Numbers
            that a transformation of JAX hides are not looked at.
        TypeError: labels that are not integers, features that are no operator, or a λ that is traced.

    Example:
        >>> from xmcjax import linops
        >>> multinomial_problem(linops.make([[1.0], [-1.0]]), [0, 1], lam=1.0).classes
        2
    """
    check_operator(op)
    check_threads_of_jax()
    lam = checked_lam(lam)
    n = op.shape[0]
    y = _sparse.array(y, "y")
    if not np.issubdtype(y.dtype, np.integer):
        raise TypeError(f"expected labels that are integers, got {y.dtype}")
    if y.shape != (n,) or n == 0:
        raise ValueError(f"expected one label for each of {n} rows, got {list(y.shape)}")
    count = int(y.max()) + 1 if classes is None else whole_number("classes", classes, 1)
    if y.min() < 0 or y.max() >= count:
        raise ValueError(
            f"expected labels from 0 to {count - 1}, found {y.min() if y.min() < 0 else y.max()}"
        )
    if classes is None and len(present := np.unique(y)) < count:
        absent = np.setdiff1d(np.arange(count), present)[0]
        raise ValueError(
            f"expected labels 0 … {count - 1}, found none of {absent}: give classes to allow that"
        )
    if count < 2:
        raise ValueError("expected at least two classes, got one")
    check_range("expected lam", lam, op.dtype)
    values = fixed(op.X if isinstance(op, Dense) else op.value if isinstance(op, Csr) else None)
    known = not (values is None or isinstance(values, Tracer))
    if known and place_not_finite(np.asarray(values).reshape(-1, 1)) is not None:
        raise ValueError("expected finite features, found NaN or infinity")
    return Problem(
        op=op,
        y=jax.device_put(y.astype(np.int32)),
        weight=_weights(weight, n, op.dtype),
        l2=jax.device_put(np.asarray(lam, op.dtype)),
        classes=count,
        intercept=flag("intercept", intercept),
    )


def checked_lam(lam: Any) -> float:
    """λ as a float; ValueError where it is not above 0, TypeError where it is traced."""
    if isinstance(lam, Tracer):
        raise TypeError("lam: expected a number, got one that is traced: make the problem outside")
    if np.ndim(lam) == 0 and hasattr(lam, "item"):
        lam = lam.item()
    if not (isinstance(lam, numbers.Real) and 0 < float(lam) < np.inf):
        raise ValueError(f"expected lam above 0, got {lam!r}")
    return float(lam)


def _weights(weight: Any, n: int, dtype) -> jax.Array:
    """c of every row, [n]; numbers that a transformation of JAX hides are not looked at."""
    c = fixed(weight)
    known = not isinstance(c, Tracer)
    c = _sparse.numbers(c, "weight") if known else c
    if c.shape not in ((), (1,), (n,)):
        raise ValueError(f"weight: expected a number or one for each of {n} rows, got shape {list(c.shape)}")
    if known:
        if not np.all(np.isfinite(c)) or c.min() < 0 or c.max() == 0:
            raise ValueError("expected finite weights of at least 0, one of them above 0")
        total = np.sum(np.broadcast_to(c, (n,)), dtype=np.float64)
        if not total < float(np.finfo(dtype).max) ** 0.5:  # the norm of a gradient is squared
            raise ValueError(
                f"expected weights of the rows whose sum has a square within the range of {dtype}, "
                f"found {total:.3g}"
            )
    if isinstance(weight, Tracer):
        return jnp.broadcast_to(jnp.asarray(weight, dtype), (n,))
    return jax.device_put(np.broadcast_to(c, (n,)).astype(dtype))


def all_sum(problem: Problem, x):
    """The sum over the devices that share the classes."""
    return x if problem.axis is None else jax.lax.psum(x, problem.axis)


def all_max(problem: Problem, x):
    """The largest over the devices that share the classes."""
    return x if problem.axis is None else jax.lax.pmax(x, problem.axis)


def first_class(problem: Problem, width: int):
    """The number of the class in column 0 of this device, which has `width` columns."""
    return 0 if problem.axis is None else width * jax.lax.axis_index(problem.axis)


def open_columns(problem: Problem, width: int, first=None):
    """Which columns are classes and no filling, bool [width]; `first` is the class of column 0."""
    first = first_class(problem, width) if first is None else first
    return first + jnp.arange(width, dtype=jnp.int32) < problem.classes


def scores(problem: Problem, W, bias):
    """Z = X W + 1 bᵀ, [n, K], −∞ in columns that are no class."""
    Z = problem.op.matmat(W) + bias[None, :]
    return Z if problem.axis is None else jnp.where(open_columns(problem, Z.shape[1]), Z, -jnp.inf)


def own_scores(problem: Problem, Z):
    """z_{i,y_i} where that class is among the columns of Z, else 0; [n]."""
    width = Z.shape[1]
    column = problem.y - first_class(problem, width)
    inside = jnp.clip(column, 0, width - 1)[:, None]
    found = jnp.take_along_axis(Z, inside, axis=1, mode="promise_in_bounds")[:, 0]
    return found if problem.axis is None else jnp.where((column >= 0) & (column < width), found, 0)


def targets(problem: Problem, width: int, first=None):
    """Whether y_i is the class of a column, bool [n, width]."""
    first = first_class(problem, width) if first is None else first
    return problem.y[:, None] == first + jnp.arange(width, dtype=jnp.int32)[None, :]


def log_normaliser(problem: Problem, Z):
    """log Σ_k e^{z_ik} over all classes, [n]."""
    top = all_max(problem, jnp.max(Z, axis=1))
    return top + jnp.log(all_sum(problem, jnp.sum(jnp.exp(Z - top[:, None]), axis=1)))


def mean_over_classes(problem: Problem, bias):
    """The mean of numbers of the classes, [K], over all devices."""
    return (
        all_sum(problem, jnp.sum(jnp.where(open_columns(problem, bias.shape[0]), bias, 0))) / problem.classes
    )


def centred(problem: Problem, bias):
    """Intercepts, or their gradient, less their mean: G does not change if all intercepts change alike."""
    moved = bias - mean_over_classes(problem, bias)
    return jnp.where(open_columns(problem, bias.shape[0]), moved, 0)


def squared_norm(problem: Problem, *arrays):
    """The sum of the squares of arrays whose columns are classes, over all devices."""
    return all_sum(problem, sum(jnp.sum(a * a) for a in arrays))


class Evaluation(NamedTuple):
    """G and its gradient."""

    value: jax.Array  #: []
    gradient: jax.Array  #: [d, K]
    bias_gradient: jax.Array  #: [K]; 0 without intercept
    norm: jax.Array  #: [], of both gradients


@needs_threads_of_jax
def evaluate(problem: Problem, W, bias) -> Evaluation:
    """G and ∇G by one product with X and one with its transpose; both at once in the native pass.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers.multinomial import multinomial_problem
        >>> problem = multinomial_problem(linops.make([[1.0], [-1.0]]), [0, 1], lam=1.0)
        >>> round(float(evaluate(problem, jnp.zeros((1, 2)), jnp.zeros(2)).value), 3)
        1.386
    """
    if problem.native and problem.axis is None:
        sums = native.call("softmax_pass", X=problem.csr, y=problem.y, weight=problem.weight, W=W, bias=bias)
        gradient = problem.l2 * W + sums["gradient"]
        bias_gradient = centred(problem, sums["bias_gradient"]) if problem.intercept else jnp.zeros_like(bias)
        norm = jnp.sqrt(squared_norm(problem, gradient, bias_gradient))
        return Evaluation(problem.l2 / 2 * jnp.sum(W * W) + sums["loss"], gradient, bias_gradient, norm)
    if problem.native:
        return _evaluate_in_parts(problem, W, bias)
    return evaluate_at(problem, W, scores(problem, W, bias))


def _evaluate_in_parts(problem: Problem, W, bias) -> Evaluation:
    """:func:`evaluate` by two native passes, between which sums go over the mesh."""
    width = W.shape[1]
    y = problem.y - first_class(problem, width)
    bias = jnp.where(open_columns(problem, width), bias, -_NEVER)
    part = native.call("softmax_exponentials", X=problem.csr, y=y, W=W, bias=bias)
    top = all_max(problem, part["top"])
    below = jnp.exp(part["top"] - top)
    sums, own = all_sum(problem, jnp.stack([below * part["sum"], part["own"]]))
    # c p = c e^{z - top} / Σ
    scale = problem.weight * below / sums
    given: dict[str, Any] = dict(X=problem.csr, y=y, E=part["E"], scale=scale, weight=problem.weight)
    made = native.call("softmax_gradient", sizes={"d": W.shape[0]}, **given)
    gradient = problem.l2 * W + made["gradient"]
    none = jnp.zeros_like(made["bias_gradient"])
    bias_gradient = centred(problem, made["bias_gradient"]) if problem.intercept else none
    square, norm = all_sum(
        problem, jnp.stack([jnp.sum(W * W), jnp.sum(gradient * gradient) + jnp.sum(bias_gradient**2)])
    )
    # the largest score and that of the class may cancel
    loss = jnp.sum(problem.weight * ((top - own) + jnp.log(sums)))
    return Evaluation(problem.l2 / 2 * square + loss, gradient, bias_gradient, jnp.sqrt(norm))


class Form(NamedTuple):
    """How a method keeps W, with G and its gradient for weights that are kept in this form."""

    evaluate: Callable[..., Evaluation]  #: (problem, W as it is kept, b)
    kept: Callable[[Any], Any]  #: W [d, K] as it is kept
    columns: Callable[[Any], Any]  #: [d, K] of what is kept


def _as_it_is(W):
    return W


#: The form of W on one device.
WHOLE = Form(evaluate, _as_it_is, _as_it_is)


def evaluate_at(problem: Problem, W, Z, log_sums=None) -> Evaluation:
    """G and ∇G where the scores are known; `log_sums` is log Σ_k e^{z_ik}, [n], where that is known too."""
    log_sums = log_normaliser(problem, Z) if log_sums is None else log_sums
    # ∇_z = c (p − e_y)
    slope = problem.weight[:, None] * (
        jnp.exp(Z - log_sums[:, None]) - targets(problem, Z.shape[1]).astype(Z.dtype)
    )
    gradient, bias_gradient = _loss_gradients(problem, slope)
    gradient = problem.l2 * W + gradient
    norm = jnp.sqrt(squared_norm(problem, gradient, bias_gradient))
    return Evaluation(objective(problem, W, Z, log_sums), gradient, bias_gradient, norm)


def objective(problem: Problem, W, Z, log_sums):
    """G where scores and log Σ_k e^{z_ik} are known."""
    own = all_sum(problem, own_scores(problem, Z))
    return problem.l2 / 2 * squared_norm(problem, W) + jnp.sum(problem.weight * (log_sums - own))


def norm_at_zero(problem: Problem, width: int):
    """‖∇G(0)‖; `width` is the number of columns of this device."""
    # ∇_z = c (1/K − e_y)
    uniform = jnp.where(open_columns(problem, width), 1 / problem.classes, 0).astype(problem.op.dtype)
    slope = problem.weight[:, None] * (uniform - targets(problem, width).astype(problem.op.dtype))
    return jnp.sqrt(squared_norm(problem, *_loss_gradients(problem, slope)))


def _loss_gradients(problem: Problem, slope):
    """The gradients of the loss in W [d, K] and b [K], from its gradient in Z [n, K]."""
    # the gradient in b has the mean 0, but for rounding
    none = jnp.zeros(slope.shape[1], slope.dtype)
    last = centred(problem, jnp.sum(slope, axis=0)) if problem.intercept else none
    return problem.op.rmatmat(slope), last
