"""Hyperparameters learnt by the gradient of the cross-validated criterion (Seeger 2006, section 5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import number
from xmcjax._fork import needs_threads_of_jax
from xmcjax._hierarchy import Hierarchy
from xmcjax._labels import row_weights
from xmcjax.kernels import ClassKernels, Kernel, class_kernels, gram, stack
from xmcjax.solvers._base import Status
from xmcjax.solvers._lbfgs import Iterate, Minimised, minimise
from xmcjax.solvers.kernel_multinomial._criterion import Hyperparameters, cv_criterion
from xmcjax.solvers.kernel_multinomial._likelihoods import Likelihood
from xmcjax.solvers.kernel_multinomial._problem import kernel_problem
from xmcjax.solvers.kernel_multinomial._systems import HParams

# Arrays [n, C, lanes] that a criterion keeps at the same time, about.
_ARRAYS = 16
# Numbers of an array, at most, of lanes with a linear kernel that are solved side by side.
_LINEAR_NUMBERS = 1 << 17


@dataclasses.dataclass(frozen=True)
class KernelModel:
    """A family of class kernels with shared hyperparameters.

    Functions of one group share their variance and, where the kernel has hyperparameters, their
    base kernel.

    Attributes:
        points: the training points.
        n_classes: C.
        groups: group of each of the P independent functions, [P], whole numbers from 0 to G − 1.
        hierarchy: the tree whose leaves are the classes, or None.
        memory: bytes for stored matrices, and for the lanes that are solved side by side.
        base: makes base kernels of a kernel function, such as ``at`` of a :class:`xmcjax.kernels.LowRank`,
            which keeps the active points of that approximation; None for the matrices themselves.

    Example:
        >>> from xmcjax.kernels import RBF, points
        >>> model = KernelModel(points([[0.0], [1.0]]), n_classes=3, groups=np.array([0, 0, 1]))
        >>> h = model.hyperparameters([1.0, 4.0], RBF(1.0), 0.5)  # a variance for each group
        >>> model.kernels(h).v.tolist()
        [1.0, 1.0, 4.0]
    """

    points: Any
    n_classes: int
    groups: np.ndarray
    hierarchy: Hierarchy | None = None
    memory: float = 2**31
    base: Callable[[Kernel], Any] | None = None

    @property
    def n_groups(self) -> int:
        """G."""
        return int(self.groups.max()) + 1

    def hyperparameters(self, v, kernel: Kernel, sigma2, loadings=None) -> Hyperparameters:
        """The hyperparameters of the groups in NumPy: v [G], leaves of the kernel [G], or [1] for numbers.

        Raises:
            ValueError: an array of another length, or a value that is not above 0.
        """
        G, v = self.n_groups, _sparse.numbers(v, "v")
        if v.shape not in ((), (G,)):
            raise ValueError(f"v: expected a number or [{G}], got shape {v.shape}")
        if not (np.isfinite(v) & (v > 0)).all():
            raise ValueError(f"v: expected numbers above 0, got {v}")
        kernel, count = stack(kernel, self.points.dtype)
        if count not in (1, G):
            raise ValueError(
                f"expected hyperparameters of the kernel that are numbers or [{G}], got [{count}]"
            )
        v = np.broadcast_to(v, (G,))
        kernel = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), kernel)
        return Hyperparameters(v, kernel, np.float64(number("sigma2", sigma2)), loadings)

    def kernels(self, h: Hyperparameters) -> ClassKernels:
        """K̃ at these hyperparameters of the groups."""
        base = (self.base or self._matrices)(h.kernel)
        share = None if base.count == 1 else self.groups
        v = np.asarray(h.v)[self.groups]
        options: dict[str, Any] = dict(share=share, hierarchy=self.hierarchy, loadings=h.loadings)
        return class_kernels(base, v, h.sigma2, self.n_classes, **options)

    def _matrices(self, kernel: Kernel):
        return gram(kernel, self.points, memory=self.memory)

    def grouped(self, gradient: Hyperparameters) -> Hyperparameters:
        """A gradient in the hyperparameters of K̃, as a gradient in the hyperparameters of the groups."""
        by_group = np.bincount(self.groups, np.asarray(gradient.v, np.float64), minlength=self.n_groups)
        return gradient._replace(v=by_group)


class CvObjective:
    """Ψ as a function of a vector of parameters, with the fits of the last call as starts of the next.

    The vector holds log v, the logarithms of the kernel's hyperparameters, log σ² and B, as far as these
    are free.

    Args:
        model: the family.
        likelihood: with the targets of all points.
        folds: fold of each point, [n], whole numbers from 0 to q − 1; −1 for points that are in
            every training part and never judged.
        at: where the search starts, and the values of what is not free.
        free: names of :class:`Hyperparameters` that the vector holds.
        hp: limits and tolerances.
        weight: of the points, [n], or None.

    Example:
        >>> from xmcjax.kernels import RBF, points
        >>> from xmcjax.solvers.kernel_multinomial import CvObjective, KernelModel, Softmax
        >>> model = KernelModel(points([[0.0], [1.0], [2.0], [3.0]]), 2, np.zeros(2, int))
        >>> targets = Softmax(jnp.eye(2)[np.array([0, 0, 1, 1])][..., None])
        >>> start = model.hyperparameters(1.0, RBF(1.0), 0.1)
        >>> objective = CvObjective(model, targets, np.array([0, 1, 0, 1]), start)
        >>> value, gradient = objective(objective.pack(start))
        >>> objective.names(), gradient.shape
        (['log v', 'log w'], (2,))
    """

    @needs_threads_of_jax
    def __init__(
        self,
        model: KernelModel,
        likelihood: Likelihood,
        folds: np.ndarray,
        at: Hyperparameters,
        *,
        free: tuple[str, ...] = ("v", "kernel"),
        hp: HParams | None = None,
        weight: np.ndarray | None = None,
    ):
        self.model, self.likelihood, self.at, self.free = model, likelihood, at, free
        self.hp = hp or HParams()
        n, C, _ = likelihood.shape
        folds = _sparse.array(folds, "folds")
        if folds.shape != (n,) or folds.dtype.kind not in "iu" or not -1 <= folds.min() <= folds.max() < n:
            raise ValueError(f"folds: expected whole numbers from -1 to {n - 1}, [{n}], got others")
        if folds.max() < 0:
            raise ValueError("folds: expected a fold of at least one point, got -1 for all of them")
        if not isinstance(free, tuple) or not set(free) <= set(Hyperparameters._fields):
            raise ValueError(f"free: expected a tuple of {', '.join(Hyperparameters._fields)}, got {free!r}")
        q = int(folds.max()) + 1
        weight = np.ones(n) if weight is None else row_weights(weight, n)
        out = folds[:, None] == np.arange(q)
        dtype = model.points.dtype
        train, test = (weight[:, None] * side for side in (~out, out))
        lane_bytes = _ARRAYS * n * C * jnp.dtype(dtype).itemsize
        # with many classes one lane fills products with features: lanes side by side would wait for the last
        room = _LINEAR_NUMBERS // (n * C) if at.kernel.linear_scale is not None else q
        together = int(max(1, min(q, model.memory // lane_bytes, room)))
        self._lanes = [
            tuple(jnp.asarray(side[:, k : k + together], dtype) for side in (train, test))
            for k in range(0, q, together)
        ]
        self._alpha = [jnp.zeros((n, C, train.shape[1]), dtype) for train, _ in self._lanes]
        self.steps = 0  #: Newton and CG steps of all calls
        self.cg_steps = 0
        self.fits = 0  #: fits of all calls
        self.unconverged = 0  #: fits that ended before their tolerance was reached

    def names(self) -> list[str]:
        """What each place of the vector is."""
        names = []
        for name in ("v", "kernel", "sigma2", "loadings"):
            if name in self.free:
                for path, leaf in jax.tree_util.tree_flatten_with_path(getattr(self.at, name))[0]:
                    label = (name if name != "kernel" else "") + jax.tree_util.keystr(path)
                    label = label.lstrip(".") if name == "loadings" else "log " + label.lstrip(".")
                    one = np.size(leaf) == 1
                    names += [label if one else f"{label}{list(i)}" for i in np.ndindex(np.shape(leaf))]
        return names

    def pack(self, h: Hyperparameters) -> np.ndarray:
        """The vector of these hyperparameters."""
        parts = [np.log(leaf).ravel() for leaf in self._logarithmic(h)]
        if "loadings" in self.free:
            parts.append(np.ravel(h.loadings))
        return np.concatenate(parts) if parts else np.zeros(0)

    def split(self, x: np.ndarray) -> Hyperparameters:
        """The parts of a vector in the form of hyperparameters: logarithms stay logarithms."""
        h, place = self.at._asdict(), 0

        def take(leaf):
            nonlocal place
            size = np.size(leaf)
            place += size
            return x[place - size : place].reshape(np.shape(leaf))

        for name in ("v", "kernel", "sigma2", "loadings"):
            if name in self.free:
                h[name] = jax.tree.map(take, h[name])
        return Hyperparameters(**h)

    def unpack(self, x: np.ndarray) -> Hyperparameters:
        """The hyperparameters of a vector."""
        h = self.split(x)
        powers = {n: jax.tree.map(np.exp, getattr(h, n)) for n in ("v", "kernel", "sigma2") if n in self.free}
        return h._replace(**powers)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """(Ψ, its gradient in x); one group of lanes after the other where memory is too small for all."""
        logarithms = x[: sum(np.size(leaf) for leaf in self._logarithmic(self.at))]
        if np.abs(logarithms).max(initial=0) > np.log(float(jnp.finfo(self.model.points.dtype).max)) - 1:
            return np.inf, np.zeros_like(x)  # beyond what the precision holds: counts as too high
        h = self.unpack(x)
        kernel = self.model.kernels(h)
        value, total = 0.0, None
        for k, (train, test) in enumerate(self._lanes):
            problem = kernel_problem(kernel, None, train, likelihood=self.likelihood)
            found = cv_criterion(problem, test, self.hp, self._alpha[k])
            if np.isfinite(np.asarray(found.value)).all():
                self._alpha[k] = found.state.alpha
            self.steps += int(found.state.steps.sum())
            self.cg_steps += int(found.state.cg_steps.sum())
            self.fits += len(found.value)
            self.unconverged += int((found.state.status != Status.CONVERGED).sum())
            value += float(found.value.sum())
            part = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), self.model.grouped(found.gradient))
            total = part if total is None else jax.tree.map(np.add, total, part)
        assert total is not None
        # dΨ/d log h = h dΨ/dh
        leaves = zip(self._logarithmic(total), self._logarithmic(h), strict=True)
        parts = [(slope * leaf).ravel() for slope, leaf in leaves]
        if "loadings" in self.free:
            parts.append(np.ravel(total.loadings))
        return value, np.concatenate(parts) if parts else np.zeros(0)

    def _logarithmic(self, h: Hyperparameters) -> list[np.ndarray]:
        names = [name for name in ("v", "kernel", "sigma2") if name in self.free]
        return [leaf for name in names for leaf in jax.tree.leaves(getattr(h, name))]


def tune(
    objective: CvObjective,
    *,
    tolerance: float = 1e-3,
    max_iter: int = 100,
    progress: bool = False,
    watch: Callable[[Iterate], None] | None = None,
) -> tuple[Hyperparameters, Minimised]:
    """Hyperparameters at a local minimum of Ψ, and the way there.

    Args:
        objective: its hyperparameters ``at`` are the start.
        tolerance: the search ends when ‖∂Ψ/∂ log h‖∞ ≤ tolerance Ψ, or when it gains next to nothing.
        max_iter: most iterations.
        progress: whether a bar on stderr, where that is a terminal, counts the evaluations of Ψ.
        watch: called with the start and after every iteration.

    Raises:
        ValueError: nothing is free, or limits below 0.
        TypeError: limits that are no numbers.

    Example:
        >>> from xmcjax.kernels import RBF, points
        >>> from xmcjax.solvers.kernel_multinomial import CvObjective, KernelModel, Softmax, tune
        >>> model = KernelModel(points([[0.0], [0.1], [5.0], [5.1]]), 2, np.zeros(2, int))
        >>> targets = Softmax(jnp.eye(2)[np.array([0, 0, 1, 1])][..., None])
        >>> start = model.hyperparameters(1.0, RBF(1.0), 0.1)
        >>> objective = CvObjective(model, targets, np.array([0, 1, 0, 1]), start)
        >>> best, search = tune(objective, max_iter=5)
        >>> search.value <= objective(objective.pack(start))[0]
        True
    """
    from tqdm import tqdm

    rounding = 100 * float(jnp.finfo(objective.model.points.dtype).eps)
    start = objective.pack(objective.at)
    if not start.size:
        raise ValueError(
            "expected an objective with hyperparameters that are free, found none: the kernel has none "
            "of those that are named, as a linear one has none"
        )
    with tqdm(desc="Ψ", unit="evaluation", disable=None if progress else True) as bar:

        def counted(x):
            value, gradient = objective(x)
            bar.set_postfix_str(f"{value:.6g}", refresh=False)
            bar.update()
            return value, gradient

        found = minimise(
            counted, start, tolerance=tolerance, max_iter=max_iter, rounding=rounding, watch=watch
        )
    return objective.unpack(found.x), found
