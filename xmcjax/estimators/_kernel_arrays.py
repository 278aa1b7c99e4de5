"""Kernels as a tree of names with arrays beside it, as a stored model holds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import kernels, linops

_CLASSES = {
    name: getattr(kernels, name)
    for name in (
        *("ClassKernels", "Gram", "LowRank", "Fourier", "Factors", "Points", "GivenProducts"),
        *("Independent", "Loadings", "Tree"),
        *("RBF", "Linear", "Matern", "Scaled", "Sum", "Product"),
    )
}


def to_arrays(kernel: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A kernel of :mod:`xmcjax.kernels` as JSON values and the arrays that they name.

    Raises:
        TypeError: an object that is not of that package, such as a kernel of one's own.
    """
    arrays: dict[str, np.ndarray] = {}

    def array(value) -> dict[str, str]:
        name = f"{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"array": name}

    def tree(value) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if _CLASSES.get(type(value).__name__) is type(value):
            fields = getattr(value, "_fields", None) or [field.name for field in dataclasses.fields(value)]
            return {
                "class": type(value).__name__,
                "fields": {name: tree(getattr(value, name)) for name in fields},
            }
        if isinstance(value, (tuple, list)):
            return [tree(entry) for entry in value]
        if isinstance(value, linops.Dense):
            return {"dense": array(value.X)}
        if hasattr(value, "to_scipy"):
            X = value.to_scipy()
            parts = [array(part) for part in (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64))]
            return {"csr": parts, "columns": X.shape[1]}
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            return array(value)
        raise TypeError(
            f"kernel: expected one of xmcjax.kernels, found {type(value).__name__}; pickle stores a "
            "classifier with any kernel"
        )

    return tree(kernel), arrays


def from_arrays(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The kernel that :func:`to_arrays` took apart.

    Raises:
        ValueError, TypeError, KeyError: other values than it makes.
    """
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    if isinstance(tree, list):
        return tuple(from_arrays(entry, arrays) for entry in tree)
    if "array" in tree:
        return arrays[tree["array"]]
    if "dense" in tree:
        return linops.make(from_arrays(tree["dense"], arrays))
    if "csr" in tree:
        data, indices, indptr = (from_arrays(part, arrays) for part in tree["csr"])
        X = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, tree["columns"]))
        return linops.make(X, data.dtype, backend=linops.products_backend(X))
    fields = {name: from_arrays(value, arrays) for name, value in tree["fields"].items()}
    return _CLASSES[tree["class"]](**fields)
