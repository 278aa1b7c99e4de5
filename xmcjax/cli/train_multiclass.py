"""``xmcjax train --system multiclass``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xmcjax.cli._cache import compilation_cache
from xmcjax.cli._classes import CalibrationName, ClassOptions, checked, train
from xmcjax.cli._options import ClassWeightName, Directory, File, described, one_of
from xmcjax.estimators import OPTIONS, MulticlassSVC

_OPTIONS = OPTIONS["multiclass"]
if TYPE_CHECKING:
    FormulationName = str
    SolverName = str
else:
    FormulationName = one_of(_OPTIONS["formulation"].values.names)
    SolverName = one_of(_OPTIONS["solver"].values.names)


@described(_OPTIONS)
@dataclasses.dataclass(frozen=True)
class Options(ClassOptions):
    """Train a linear SVM over all classes at once; the formulation cs takes rows with several labels too.

    Attributes:
        train: training data, one class per row, or with cs any number of labels.
    """

    train: File
    model: Directory
    formulation: FormulationName = _OPTIONS["formulation"].of_flag
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
    classifier = MulticlassSVC(**checked(options, _OPTIONS))
    return train(options, classifier, "multiclass", several=options.formulation == "cs")
