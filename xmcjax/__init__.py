"""xmcjax: exact extreme, multi-class and structured classification in JAX."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def __getattr__(name: str):
    # On first use, so that importing the package costs neither JAX nor scikit-learn.
    if name in __all__:
        return getattr(importlib.import_module("xmcjax.estimators"), name)
    if name in _PARTS:
        return importlib.import_module(f"xmcjax.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_PARTS])
