"""xmcjax: exact extreme, multi-class and structured classification in JAX."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xmcjax import cli as cli
    from xmcjax import cluster as cluster
    from xmcjax import data as data
    from xmcjax import datasets as datasets
    from xmcjax import estimators as estimators
    from xmcjax import inits as inits
    from xmcjax import kernels as kernels
    from xmcjax import lanes as lanes
    from xmcjax import linops as linops
    from xmcjax import losses as losses
    from xmcjax import metrics as metrics
    from xmcjax import models as models
    from xmcjax import native as native
    from xmcjax import penalties as penalties
    from xmcjax import plots as plots
    from xmcjax import projections as projections
    from xmcjax import solvers as solvers
    from xmcjax.estimators import KernelChainClassifier as KernelChainClassifier
    from xmcjax.estimators import KernelLogisticClassifier as KernelLogisticClassifier
    from xmcjax.estimators import MulticlassSVC as MulticlassSVC
    from xmcjax.estimators import MultinomialLogisticRegression as MultinomialLogisticRegression
    from xmcjax.estimators import OneVsAllClassifier as OneVsAllClassifier
    from xmcjax.estimators import TopKSVC as TopKSVC

__version__ = "0.1.0"

__all__ = [
    "KernelChainClassifier",
    "KernelLogisticClassifier",
    "MulticlassSVC",
    "MultinomialLogisticRegression",
    "OneVsAllClassifier",
    "TopKSVC",
]

_PARTS = (
    "cli",
    "cluster",
    "data",
    "datasets",
    "estimators",
    "inits",
    "kernels",
    "lanes",
    "linops",
    "losses",
    "metrics",
    "models",
    "native",
    "penalties",
    "plots",
    "projections",
    "solvers",
)


if not TYPE_CHECKING:  # which would let every name pass

    def __getattr__(name: str):
        # On first use, so that importing the package costs neither JAX nor scikit-learn.
        if name in __all__:
            return getattr(importlib.import_module("xmcjax.estimators"), name)
        if name in _PARTS:
            return importlib.import_module(f"xmcjax.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_PARTS])
