"""Kernel classifiers as directories: their training rows, coefficients and hyperparameters."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np

from xmcjax import __version__
from xmcjax._arguments import name_of
from xmcjax._hierarchy import Hierarchy
from xmcjax._systems import SYSTEMS
from xmcjax.estimators._kernel_arrays import from_arrays, to_arrays
from xmcjax.estimators._kernel_parts import kernel_of
from xmcjax.estimators._kernel_scores import check_parts
from xmcjax.estimators._stored import decoded, encoded, is_of_a_fit, remember
from xmcjax.kernels import ClassKernels, Kernel, Points, Tree
from xmcjax.lanes import precision
from xmcjax.models import ModelFormatError, Names, read_kernel_model, system_of, write_kernel_model
from xmcjax.solvers import Status
from xmcjax.solvers.kernel_multinomial import LIKELIHOODS

_NUMBERS = ("objective_", "n_iter_", "n_cg_", "sigma2_", "criterion_")


def save(classifier, path: str | os.PathLike[str], more: dict[str, Any], *, held: bool = False) -> None:
    """Writes a fitted classifier.

    Args:
        classifier: of :class:`xmcjax.KernelLogisticClassifier`.
        path: directory, new or empty.
        more: of the meta data.
        held: whether the caller has reserved the directory.

    Raises:
        TypeError: a kernel that is not of the library, or an argument that JSON cannot hold.
        FileExistsError, OSError: as :func:`xmcjax.models.write_kernel_model`.
    """
    tree, arrays = to_arrays(classifier._kernels)
    arrays |= {"dual_coef": classifier.dual_coef_, "v": classifier.v_}
    parameters = classifier.get_params(False)
    if isinstance(classifier.kernel, Kernel):
        kernel, numbers = to_arrays(classifier.kernel)
        parameters["kernel"] = None
        arrays |= {f"kernel.{name}": array for name, array in numbers.items()}
    else:
        kernel = None
    features = getattr(classifier, "feature_names_in_", None)
    transforms = getattr(classifier, "transforms_", None)
    meta = {
        "xmcjax_version": __version__,
        "n_features": classifier.n_features_in_,
        "n_labels": len(classifier.classes_),
        "dtype": np.dtype(classifier.dual_coef_.dtype).name,
        "transforms": [] if transforms is None else list(transforms.names),
        "system": "kernel",
        "parameters": {name: encoded(name, value) for name, value in parameters.items()},
        "kernel": kernel,
        "kernels": tree,
        "fit": {name: getattr(classifier, name) for name in _NUMBERS if hasattr(classifier, name)}
        | {"status_": int(classifier.status_), "likelihood": classifier._likelihood}
        | {"without_rows": classifier._without.tolist()},
        **getattr(classifier, "_of_training", {}),
        **more,
    }
    names = Names(classifier.classes_, None if features is None else tuple(map(str, features)))
    write_kernel_model(path, meta, arrays, names, transforms, held=held)


def load(kind: type, path: str | os.PathLike[str]):
    """The classifier of a directory.

    Raises:
        ValueError: the model is of another system.
        ModelError, OSError: as :func:`xmcjax.models.read_kernel_model`.
    """
    system = system_of(path)
    if system != "kernel":
        found = f"one of {system}, which {SYSTEMS.get(system)}.load opens"
        raise ValueError(f"{path}: expected a model of the system kernel, found {found}")
    meta, arrays, names, transforms = read_kernel_model(path)
    try:
        with precision(np.dtype(meta["dtype"])):
            return _made(kind, meta, arrays, names, transforms)
    except (
        *(ValueError, TypeError, KeyError, AttributeError, IndexError),
        *(ArithmeticError, RecursionError),
    ) as error:
        found = f"others ({' '.join(str(error).split())[:200]})"
        raise ModelFormatError(path, f"the parts of a {kind.__name__}", found) from error


def _made(kind: type, meta, arrays, names: Names, transforms):
    parameters = decoded(meta["parameters"])
    if meta["kernel"] is not None:
        own = {name.removeprefix("kernel."): a for name, a in arrays.items() if name.startswith("kernel.")}
        parameters["kernel"] = from_arrays(meta["kernel"], own)
    classifier = kind(**parameters)
    kernels = from_arrays(meta["kernels"], arrays)
    alpha = arrays["dual_coef"]
    if (
        names.classes is None
        or alpha.shape != (kernels.n, meta["n_labels"])
        or kernels.n_classes != alpha.shape[1]
    ):
        raise ValueError(
            f"expected coefficients [{kernels.n}, {meta['n_labels']}], found {list(alpha.shape)}"
        )
    points = kernels.gram.points
    width = (points.op if isinstance(points, Points) else points.matrix).shape[1]
    if width != meta["n_features"] or alpha.dtype != meta["dtype"]:
        raise ValueError(
            f"expected {meta['n_features']} features of {meta['dtype']}, found {width}, {alpha.dtype}"
        )
    if isinstance(points, Points) and not points.norms2.shape == points.offset.shape == (points.n,):
        # a single number would pass for all points until further points fill them up
        found = f"{list(points.norms2.shape)}, {list(points.offset.shape)}"
        raise ValueError(f"expected a norm and an offset of each of {points.n} points, found {found}")
    if not np.isfinite(alpha).all():
        raise ValueError("expected finite coefficients, found others")
    if isinstance(kernels.mixing, Tree):
        _check_tree(kernels.mixing, kernels, alpha.shape[1])
    check_parts(kernels, alpha, width)
    classifier._kernels = jax.tree.map(np.asarray, kernels)
    classifier._tree = None if classifier.hierarchy is None else Hierarchy.from_edges(classifier.hierarchy)
    classifier.classes_, classifier.dual_coef_ = names.classes, alpha
    classifier.v_, classifier.kernel_ = arrays["v"], kernel_of(classifier._kernels, classifier._tree)
    likelihood = meta["fit"].get("likelihood", classifier.likelihood)  # older models do not tell it
    classifier._likelihood = name_of("likelihood", likelihood, LIKELIHOODS)
    without = meta["fit"].get("without_rows", [])  # older models do not tell it
    numbers = range(len(names.classes))
    if not isinstance(without, list) or any(type(one) is not int or one not in numbers for one in without):
        raise ValueError(f"expected numbers of classes without rows, found {without!r}")
    classifier._without = np.array(without, np.int64)
    classifier.loadings_ = getattr(classifier._kernels.mixing, "B", None)
    classifier.n_features_in_ = meta["n_features"]
    remember(classifier, meta)
    if names.features is not None:
        classifier.feature_names_in_ = np.array(names.features, object)
    if transforms.names:
        classifier.transforms_ = transforms
    for name in (*_NUMBERS, "status_"):
        if name in meta["fit"]:
            value = meta["fit"][name]
            if not is_of_a_fit(name, value):
                raise ValueError(f"expected {name} as a number of a fit, found {value!r}")
            setattr(classifier, name, value)
    classifier.status_ = Status(meta["fit"]["status_"])
    return classifier


def _check_tree(tree: Tree, kernels: ClassKernels, n_classes: int) -> None:
    """Whether parents stand before their children, the classes are nodes, and each has a variance."""
    parent, leaf = np.asarray(tree.parent), np.asarray(tree.leaf)
    whole = parent.dtype.kind == leaf.dtype.kind == "i" and parent.ndim == 1 and leaf.shape == (n_classes,)
    if not whole or not (np.all(parent >= -1) and np.all(parent < np.arange(len(parent)))):
        raise ValueError("expected a tree whose parents stand before their children, found another one")
    if not (np.all(leaf >= 0) and np.all(leaf < len(parent))):
        raise ValueError(f"expected leaves from 0 to {len(parent) - 1}, found others")
    functions = kernels.n_functions if kernels.chains is not None else np.size(kernels.v)
    if functions != len(parent):
        raise ValueError(f"expected a variance for each of {len(parent)} nodes, found {functions}")
