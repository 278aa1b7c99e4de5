"""What :class:`KernelLogisticClassifier` makes of its arguments, and how it decides."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from xmcjax import _sparse
from xmcjax._arguments import number, number_from_0, whole_number
from xmcjax._hierarchy import Hierarchy
from xmcjax._range import check_norms, check_range, largest
from xmcjax.estimators._counted import LOWEST
from xmcjax.estimators._targets import class_numbers

# Largest part of a device's free memory for kernel matrices: a fit in float64 takes half as much again.
_PART = 1 / 3
# What takes less memory, for errors.
_SMALLER = "a smaller memory or rank, "
# Values of features that are converted to float64 at a time.
_NUMBERS = 1 << 20
LOSSES = ("zero_one", "taxonomy", "parent")
SHARES = ("class", "all", "level", "subtree")


@contextlib.contextmanager
def computing(dtype: Any) -> Iterator[None]:
    """A context in the precision of the data, in which a full device raises an error of one sentence."""
    from xmcjax import _device_memory
    from xmcjax.lanes import precision

    with precision(dtype), _device_memory.explained("a fit of kernels", _SMALLER):
        yield


def checked_memory(memory: Any) -> float:
    """`memory` as a number of bytes, which a stored model can hold.

    Raises:
        TypeError: no number.
        ValueError: a number below 0, or infinity.
    """
    if (memory := number_from_0("memory", memory)) == np.inf:
        raise ValueError("memory: expected a finite number from 0, got inf")
    return memory


def matrix_bytes(memory: Any) -> float:
    """Bytes that kernel matrices may take: `memory`, and a part of what is free where the device tells it.

    Raises:
        ValueError: of :func:`checked_memory`.
    """
    from xmcjax import _device_memory

    memory = checked_memory(memory)
    free = _device_memory.free_memory()
    return memory if free is None else min(memory, _PART * free)


class Training(NamedTuple):
    """Checked training data: n rows, and perhaps others behind them of weight 0."""

    given: Any  #: the n points, of :mod:`xmcjax.kernels`
    points: Any  #: these, and those behind them
    numbers: np.ndarray  #: class of each row, [n]; of an inner label any class below it
    allowed: np.ndarray | None  #: where there are inner labels, the classes of each row, bool [n, C]
    classes: np.ndarray  #: [C]
    tree: Hierarchy | None
    weight: np.ndarray | None  #: [n]
    scale: float  #: Σ_j Var[x_j] / d; 1 for given products
    widened: bool  #: whether float32 features became float64, in which products have enough digits
    counted: np.ndarray  #: numbers of the classes with a row of weight above 0, ascending; in a tree all

    @property
    def without(self) -> np.ndarray:
        """Numbers of the other classes, which are no part of the problem."""
        return np.setdiff1d(np.arange(len(self.classes)), self.counted)

    def filled(self, of_rows: np.ndarray, value: Any = 0) -> np.ndarray:
        """An array of the n rows with a value for those behind them."""
        behind = self.points.n - self.given.n
        return np.pad(of_rows, [(0, behind), *[(0, 0)] * (of_rows.ndim - 1)], constant_values=value)


class CvGradient(NamedTuple):
    """Derivatives of Ψ, each of the shape of its parameter."""

    log_v: Any
    log_w: Any  #: in the kernel's hyperparameters; a kernel of them where that is an object
    log_sigma2: float


def spread(X, weight: np.ndarray | None, inverted: bool) -> float:
    """Mean over the features of their variances, Σ_j Var[x_j] / d; 1 where it is 0.

    Raises:
        ValueError: it is `inverted`, and it or its inverse is no number of the dtype of X.
    """
    share = np.full(X.shape[0], 1 / X.shape[0]) if weight is None else weight / weight.sum()
    size = largest(X)
    if size == 0:
        return 1.0
    # about the mean, because a difference of squares has no digits left where the mean is large
    about = 0.0
    if sp.issparse(X):
        X = _sparse.canonical_csr(X)
        x, of_row = X.data.astype(np.float64) / size, np.repeat(share, np.diff(X.indptr))
        mean, there = (np.bincount(X.indices, s, minlength=X.shape[1]) for s in (of_row * x, of_row))
        full = np.bincount(X.indices[of_row > 0], minlength=X.shape[1]) == np.count_nonzero(share)
        absent, rest = np.where(full, 0, 1 - there), x - mean[X.indices]
        squares = of_row @ x**2
        about = of_row @ rest**2 + absent @ mean**2
        rounding = np.bincount(X.indices, of_row * rest, minlength=X.shape[1]) - absent * mean
    else:
        mean, rows, rounding = share @ X / size, max(1, _NUMBERS // X.shape[1]), np.zeros(X.shape[1])
        for i in range(0, X.shape[0], rows):
            rest, of_row = X[i : i + rows].astype(np.float64), share[i : i + rows]
            rest /= size
            rest -= mean
            about += of_row @ np.einsum("ij,ij->i", rest, rest)
            rounding += of_row @ rest
        squares = about + mean @ mean
    about -= rounding @ rounding  # corrects the rounding of the mean
    if not about > (16 * np.finfo(X.dtype).eps) ** 2 * squares:
        return 1.0
    value = float(about) / X.shape[1] * size * size
    if inverted:
        both = value, 1 / max(value, np.finfo(np.float64).tiny)
        check_range("X: expected features whose mean variance is", both, X.dtype)
    return value


def points_of(X, weight: np.ndarray | None, kernel, w) -> tuple[Any, float]:
    """What a kernel is worked out from, and the mean variance of the features, 1 for given products.

    Raises:
        ValueError: rows whose squared norms overflow, or, for a named kernel without w, a mean variance that
            is no number of the dtype of X or has no inverse there.
    """
    from xmcjax import kernels

    named = kernel if isinstance(kernel, str) else ""
    if named == "precomputed":
        return kernels.precomputed(X.toarray() if sp.issparse(X) else X), 1.0
    check_norms(X, X.dtype)
    return kernels.points(X), spread(X, weight, inverted=w is None and named not in ("", "linear"))


def base_kernel(kernel, w, scale: float):
    """The kernel of a name with its w, or the object itself.

    Args:
        kernel: "rbf", "matern", "linear", "precomputed", or a :class:`xmcjax.kernels.Kernel`.
        w: inverse squared length; None for 1 / `scale`.
        scale: mean variance of the features.

    Raises:
        ValueError: an unknown name, or a w that the kernel does not have.
        TypeError: neither a name nor a kernel.
    """
    from xmcjax.kernels import KERNELS, Kernel, Linear

    if isinstance(kernel, Kernel):
        if w is not None:
            raise ValueError("w: expected None beside a kernel object, which has hyperparameters of its own")
        return kernel
    names = [*KERNELS, "precomputed"]
    if not isinstance(kernel, str):
        raise TypeError(f"kernel: expected one of {', '.join(names)}, or a Kernel, got {kernel!r}")
    if kernel not in names:
        raise ValueError(f"kernel: expected one of {', '.join(names)}, got {kernel!r}")
    if kernel in ("linear", "precomputed"):
        if w is not None:
            raise ValueError(f"w: expected None for the kernel {kernel}, which has none")
        return Linear()
    return KERNELS[kernel](1 / scale if w is None else _sparse.dense(w, "w")[()])


def learnt_of(free, sigma2, *, mixed: bool) -> tuple[str, ...]:
    """The parts of the hyperparameters that a search learns, by the names that ``tune`` takes for them.

    Args:
        free: some of "v", "w", "sigma2" and, where functions are `mixed`, "loadings".
        sigma2: where the search starts.
        mixed: whether there are loadings.

    Raises:
        TypeError: no names, or a sigma2 that is no number.
        ValueError: an unknown name or none, or a sigma2 that has no logarithm.
    """
    parts = {"v": "v", "w": "kernel", "sigma2": "sigma2"} | ({"loadings": "loadings"} if mixed else {})
    expected = f"free: expected some of {', '.join(parts)}"
    if isinstance(free, str) or not isinstance(free, Iterable):
        raise TypeError(f"{expected}, got {free!r}")
    free = tuple(free)
    if not free or not all(isinstance(name, str) and name in parts for name in free):
        raise ValueError(f"{expected}, got {free!r}")
    if "sigma2" in free and not number("sigma2", sigma2) > 0:
        raise ValueError(f"free: sigma2 is learnt by its logarithm, expected above 0, got {sigma2}")
    return tuple(parts[name] for name in free)


def groups(share: str | None, tree: Hierarchy | None, n_classes: int) -> np.ndarray:
    """Group of each function, [P], whose hyperparameters are learnt as one.

    Args:
        share: of ``SHARES``; None for "class", with a tree "level".
        tree: of the classes, or None.
        n_classes: C.

    Raises:
        ValueError: an unknown name, or one that needs a tree.
    """
    share = share or ("class" if tree is None else "level")
    known = SHARES if tree is not None else SHARES[:2]
    if share not in known:
        raise ValueError(f"share: expected one of {', '.join(known)}, got {share!r}")
    P = n_classes if tree is None else tree.n_nodes
    if share == "all":
        return np.zeros(P, int)
    if share == "class" or tree is None:
        return np.arange(P)
    if share == "level":
        return tree.depth - 1
    return np.unique(tree.above(1), return_inverse=True)[1]


def labelled(y, weight, tree: Hierarchy | None, inner_labels: bool, likelihood: str) -> tuple[Any, Any, Any]:
    """The classes, the number of each row's class, and, where labels may be inner nodes, the classes below.

    Args:
        y: labels of the rows, [n].
        weight: of the rows, [n]; None for ones.
        tree: its leaves are the classes; None for the classes of y.
        inner_labels: whether nodes above the leaves may be labels too.
        likelihood: of which only "softmax" takes inner labels.

    Raises:
        ValueError: labels that are no classes, or inner ones without a tree or with another likelihood.
    """
    classes, numbers = class_numbers(y, weight)
    if inner_labels and (tree is None or likelihood != "softmax"):
        raise ValueError("inner_labels: expected a hierarchy and the likelihood softmax beside them")
    if tree is None:
        return classes, numbers, None
    numbers, allowed = below(y, tree) if inner_labels else (tree.places(y, leaves_only=True), None)
    return tree.nodes[tree.leaves], numbers, allowed


def below(y, tree: Hierarchy) -> tuple[np.ndarray, np.ndarray | None]:
    """(A class of each row; all classes of each row, or None where each has one) for inner labels.

    Raises:
        ValueError: a number that is no node of the tree.
    """
    y = np.asarray(y)
    allowed = np.ones((len(y), tree.n_classes), bool)  # below the root
    allowed[y != 0] = tree.members()[tree.places(y[y != 0], leaves_only=False)]
    return np.argmax(allowed, axis=1), allowed if (allowed.sum(axis=1) > 1).any() else None


def ordered(values, tree: Hierarchy | None):
    """Numbers, or leaves of a kernel, by node number, put in the order of ``tree.nodes``; lists as arrays."""
    import jax

    rank = None if tree is None else np.argsort(np.argsort(tree.nodes))

    def one(a):
        a = _sparse.numbers(a, "hyperparameters") if _is_list(a) else a
        return a if rank is None or np.shape(a) != rank.shape else np.asarray(a)[rank]

    return jax.tree.map(one, values, is_leaf=_is_list)


def _is_list(a) -> bool:
    """Whether a is a list or tuple of numbers, in which JAX would see so many of them."""
    return type(a) in (list, tuple) and len(a) > 0 and all(np.isscalar(value) for value in a)


def kernel_of(kernels, tree: Hierarchy | None):
    """The base kernel of a fit, with one hyperparameter for all functions, or one per function as in v_."""
    import jax

    by_number = np.arange(len(kernels.v)) if tree is None else np.argsort(tree.nodes)
    count, columns, slots = kernels.gram.count, kernels.columns, kernels.slots
    base = np.arange(len(kernels.v)) if slots is None else np.asarray(slots) // columns.shape[1]

    def one(a):
        a = np.asarray(a)
        return a[base[by_number]] if count > 1 and a.shape == (count,) else a

    return jax.tree.map(one, kernels.gram.kernel)


def by_group(values, group: np.ndarray):
    """Geometric means over the groups, [G], of values or kernel leaves [P]; a number counts for all P."""
    import jax

    def means(a):
        a = _sparse.numbers(a, "hyperparameters")
        if a.shape not in ((), group.shape):
            raise ValueError(f"expected a number or {len(group)} hyperparameters, got shape {a.shape}")
        if not (np.isfinite(a) & (a > 0)).all():
            raise ValueError(f"expected hyperparameters above 0, got {a[~(a > 0)].ravel()[:1]}")
        return np.exp(np.bincount(group, np.broadcast_to(np.log(a), group.shape)) / np.bincount(group))

    return jax.tree.map(means, values)


def least_expected_loss(u: np.ndarray, probabilities: np.ndarray, loss, tree: Hierarchy | None) -> np.ndarray:
    """Number of the class with the least expected loss, [m] (Seeger 2006, section 8.2 and note 12).

    Args:
        u: the scores, [m, C], with which the probabilities of a row's classes rise; `LOWEST` for classes
            that are never predicted.
        probabilities: [m, C].
        loss: "zero_one"; "taxonomy" or "parent" with a tree; or the loss of each (true, predicted)
            pair of classes, [C, C].
        tree: of the classes, or None.

    Raises:
        TypeError: neither a name nor real numbers.
        ValueError: an unknown name, one that needs a tree, or a matrix of another shape or not finite.
    """
    C = probabilities.shape[1]
    if not isinstance(loss, str):
        loss = _sparse.numbers(loss, "loss")
        if loss.shape != (C, C):
            raise ValueError(f"loss: expected losses [{C}, {C}], got shape {list(loss.shape)}")
        if not np.isfinite(loss).all():
            raise ValueError(f"loss: expected finite losses, found {loss[~np.isfinite(loss)][0]}")
        return np.argmin(np.where(u > LOWEST, probabilities @ loss, np.inf), axis=1)
    known = LOSSES if tree is not None else LOSSES[:1]
    if loss not in known:
        raise ValueError(f"loss: expected one of {', '.join(known)}, or a matrix, got {loss!r}")
    if loss == "zero_one" or tree is None:
        return np.argmax(u, axis=1)  # probabilities of several classes may be 1, or 0, by rounding
    if loss == "parent":
        # the parent with the most mass on children that are leaves, and its likeliest child
        parents, family = np.unique(tree.parent[tree.leaves], return_inverse=True)
        members = sp.csr_array((np.ones(C), (np.arange(C), family)), shape=(C, len(parents)))
        best = np.argmax(probabilities @ members, axis=1)
        return np.argmax(np.where(family == best[:, None], u, -np.inf), axis=1)
    # Σ_c' p_c' Δ(c', c) = ½ d_c + ½ Σ_c' p_c' d_c' − Σ_{nodes on the path of c} Σ_{c' below} p_c'
    below = sp.csr_array(tree.members().astype(probabilities.dtype))  # [P, C]
    mass = probabilities @ below.T
    return np.argmin(tree.depth[tree.leaves] / 2 - mass @ below, axis=1)


def remedy(dtype) -> str:
    """What to do about fits in this precision that did not converge."""
    less = (
        "take smaller v, or for a precomputed kernel values that were made in float64, or for a linear "
        "kernel features with means of about 0, whose products are rounded less"
    )
    finer = "use float64" if dtype == np.float32 else less
    return f"raise max_iter, max_cg or tol, or {finer}"


def warn_of_unconverged(objective, dtype) -> None:
    """Warns where fits of a criterion did not converge; called by a decorated method."""
    if objective.unconverged:
        warnings.warn(
            f"{objective.unconverged} of {objective.fits} fits to the folds did not converge: the criterion "
            f"and its gradient are not exact there; {remedy(dtype)}",
            ConvergenceWarning,
            stacklevel=4,  # the caller of a decorated method
        )


def folds_of(folds, data: Training, random_state) -> np.ndarray:
    """The fold of each row: as given, or so many drawn at random; rows of weight 0 are not judged.

    Raises:
        ValueError: more folds than rows, or one whose training part has one class.
    """
    from xmcjax.solvers.kernel_multinomial import check_folds, random_folds

    n = data.given.n
    numbers = data.numbers[:n]
    if data.allowed is not None:
        numbers = np.where(data.allowed[:n].sum(axis=1) == 1, numbers, -1)
    there = np.ones(n, bool) if data.weight is None else data.weight[:n] > 0
    if np.ndim(folds) == 0:
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        drawn = random_folds(int(there.sum()), whole_number("folds", folds, 2), seed)
        folds = np.full(len(numbers), -1, drawn.dtype)
        folds[there] = drawn
    return data.filled(check_folds(folds, np.where(there, numbers, -1)), -1)


def target_of(data: Training, likelihood: str):
    """The likelihood with the targets of the rows."""
    import jax.numpy as jnp

    from xmcjax.solvers.kernel_multinomial import LIKELIHOODS, SomeClasses, partial_labels

    if data.allowed is not None:
        return partial_labels(data.allowed)
    y = data.numbers[:, None] == data.counted
    target = LIKELIHOODS[likelihood](jnp.asarray(y[:, :, None]))
    if not data.without.size:
        return target
    return SomeClasses(target, jnp.asarray(data.counted[:, None], jnp.int32), len(data.classes))


def approximated(kernel, points, rank, name: str, random_state):
    """An approximation of a kernel with its active points and draws.

    Args:
        kernel: the function.
        points: all of them.
        rank: of the approximation.
        name: "cholesky", "nystrom" or "fourier".
        random_state: of the draws.
    """
    from xmcjax import kernels

    rank = whole_number("rank", rank, 1)
    seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    if name == "fourier":
        return kernels.fourier(kernel, points, rank, seed=seed)
    return kernels.low_rank(kernel, points, rank, method=name, seed=seed)
