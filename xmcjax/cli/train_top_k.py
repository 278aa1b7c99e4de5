"""``xmcjax train --system top-k``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xmcjax.cli._cache import compilation_cache
from xmcjax.cli._classes import CalibrationName, ClassOptions, checked, train
from xmcjax.cli._options import ClassWeightName, described, one_of
from xmcjax.estimators import OPTIONS, TopKSVC

_OPTIONS = OPTIONS["top-k"]
if TYPE_CHECKING:
    VariantName = str
    SolverName = str
else:
    VariantName = one_of(_OPTIONS["variant"].values.names)
    SolverName = one_of(_OPTIONS["solver"].values.names)


@described(_OPTIONS)
@dataclasses.dataclass(frozen=True)
class Options(ClassOptions):
    """Train a top-k SVM, for data with one class per row: the k best classes are to hold the right one."""

    k: int = _OPTIONS["k"].of_flag
    variant: VariantName = _OPTIONS["variant"].of_flag
    smoothing: float = _OPTIONS["smoothing"].of_flag
    solver: SolverName = _OPTIONS["solver"].of_flag
    C: float = _OPTIONS["C"].of_flag
    class_weight: ClassWeightName = _OPTIONS["class_weight"].of_flag
    tol: float = _OPTIONS["tol"].of_flag
    fit_intercept: bool = _OPTIONS["fit_intercept"].of_flag
    max_iter: int = _OPTIONS["max_iter"].of_flag
    calibration: CalibrationName = _OPTIONS["calibration"].of_flag
    cv: int = _OPTIONS["cv"].of_flag
    n_jobs: int = _OPTIONS["n_jobs"].of_flag
    random_state: int = _OPTIONS["random_state"].of_flag


@compilation_cache()
def run(options: Options) -> int:
    """Trains and stores; 75 where the time was over, else 0."""
    return train(options, TopKSVC(**checked(options, _OPTIONS)), "top-k")
