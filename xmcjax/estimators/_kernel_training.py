"""Checked training data of :class:`KernelLogisticClassifier`, in the precision that a fit needs."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from xmcjax._arguments import flag, name_of
from xmcjax._hierarchy import Hierarchy
from xmcjax._options import Real
from xmcjax.estimators._counted import counted_classes
from xmcjax.estimators._inputs import checked_data
from xmcjax.estimators._kernel_parts import Training, base_kernel, labelled, ordered, points_of, remedy
from xmcjax.estimators._kernel_sizes import filled_points, may_be_filled
from xmcjax.estimators._label_warnings import warn_of_empty
from xmcjax.estimators._weights import row_weights


def training(
    model: Any, X, y, sample_weight, *, widen: bool, tol: float | None = None
) -> tuple[Training, Any]:
    """The data, and their dtype: that of X, with `widen` float64 where K̃α is rounded too much in float32.

    How much is too much depends on `tol`; None stands for that of the model.

    Raises:
        TypeError, ValueError: as ``fit`` of the model does.
    """
    from xmcjax.estimators._kernel_precision import points_in_precision
    from xmcjax.lanes import check_sample_weight, precision
    from xmcjax.linops import check_features
    from xmcjax.solvers.kernel_multinomial import LIKELIHOODS

    name_of("likelihood", model.likelihood, LIKELIHOODS)
    name_of("approximation", model.approximation, ("cholesky", "nystrom", "fourier"))
    flag("inner_labels", model.inner_labels)
    check_random_state(model.random_state)
    tree = None if model.hierarchy is None else Hierarchy.from_edges(model.hierarchy)
    X, y = checked_data(model, X, y)
    check_features(X)
    weight = None if sample_weight is None else check_sample_weight(sample_weight, X.shape[0])
    classes, numbers, allowed = labelled(y, weight, tree, model.inner_labels, model.likelihood)
    weights = _row_weights(model, y, weight, tree)

    given = (X, weight, model.kernel, model.w)  # class weights change losses, not the kernel
    if widen:
        points, scale, dtype = points_in_precision(
            *given,
            v=model.v,
            sigma2=model.sigma2,
            tol=Real(above=0).check("tol", model.tol) if tol is None else tol,
            weight=weights,
            depth=1 if tree is None else int(tree.depth.max()),
            loadings=model.loadings,
        )
    else:
        dtype = X.dtype
        with precision(dtype):
            points, scale = points_of(*given)
    # a leaf of a tree has the functions of the nodes above it
    counted = np.arange(len(classes))
    if tree is None:
        counted = counted_classes(len(classes), numbers, weights).places
    widened = dtype != X.dtype
    data = Training(points, points, numbers, allowed, classes, tree, weights, scale, widened, counted)
    with precision(dtype):
        kernel = base_kernel(model.kernel, model.w, data.scale)
        # not with an approximation, which chooses among the points
        if model.rank is None and may_be_filled(kernel, points):
            data = _of_common_size(data)
    return data, dtype


def _row_weights(model, y, weight: np.ndarray | None, tree: Hierarchy | None) -> np.ndarray | None:
    """Weights of the losses by those of rows and of labels, which are leaves or nodes of a tree."""
    labels = np.ravel(y)
    if tree is None:
        return row_weights(model.class_weight, *np.unique(labels, return_inverse=True), weight)
    nodes = np.unique(np.r_[0, tree.nodes] if model.inner_labels else tree.nodes[tree.leaves])
    refusal = partial(tree.refusal, leaves_only=not model.inner_labels, name="class_weight")
    return row_weights(model.class_weight, nodes, np.searchsorted(nodes, labels), weight, refusal)


def _of_common_size(data: Training) -> Training:
    """The same problem with rows behind, of weight 0, for which programs are likely to be there."""
    points = filled_points(data.given)
    if points.n == data.given.n:
        return data
    data = data._replace(points=points)
    weight = np.ones(data.given.n) if data.weight is None else data.weight
    allowed = None if data.allowed is None else data.filled(data.allowed, True)
    return data._replace(numbers=data.filled(data.numbers), allowed=allowed, weight=data.filled(weight))


def base_of(model: Any, data: Training):
    """The base kernels, whose hyperparameters stand in the order of the tree."""
    import jax

    base = base_kernel(model.kernel, model.w, data.scale)
    if not isinstance(model.kernel, str):  # hyperparameters [1], which functions had in common
        base = jax.tree.map(lambda a: a[0] if np.shape(a) == (1,) else a, base)
    return ordered(base, data.tree)


def warn_of_end(model: Any, data: Training, residual: float) -> None:
    """What a caller of `fit` should know: classes without rows, and a fit that has not converged."""
    from xmcjax.solvers import Status

    warn_of_empty(len(data.without), len(data.classes), stacklevel=5)
    if model.status_ != Status.CONVERGED:
        warnings.warn(
            f"not converged ({model.status_.name}, residual {residual:.3g}): "
            + remedy(model.dual_coef_.dtype),
            ConvergenceWarning,
            stacklevel=4,  # the caller of a decorated method
        )
