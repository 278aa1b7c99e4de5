"""``xmcjax train --system multinomial``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from xmcjax.cli._cache import compilation_cache
from xmcjax.cli._classes import ClassOptions, checked, train
from xmcjax.cli._options import ClassWeightName, Directory, File, described, one_of
from xmcjax.estimators import OPTIONS, MultinomialLogisticRegression

_OPTIONS = OPTIONS["multinomial"]
if TYPE_CHECKING:
    SolverName = str
else:
    SolverName = one_of(_OPTIONS["solver"].values.names)


@described(_OPTIONS)
@dataclasses.dataclass(frozen=True)
class Options(ClassOptions):
    """Train multinomial logistic regression, which gives probabilities, on rows with one label or several.

    Attributes:
        train: training data, any number of labels per row.
    """

    train: File
    model: Directory
    solver: SolverName = _OPTIONS["solver"].of_flag
    C: float = _OPTIONS["C"].of_flag
    fit_intercept: bool = _OPTIONS["fit_intercept"].of_flag
    class_weight: ClassWeightName = _OPTIONS["class_weight"].of_flag
    tol: float = _OPTIONS["tol"].of_flag
    max_iter: int = _OPTIONS["max_iter"].of_flag
    n_jobs: int = _OPTIONS["n_jobs"].of_flag


@compilation_cache()
def run(options: Options) -> int:
    """Trains and stores; 75 where the time was over, else 0."""
    classifier = MultinomialLogisticRegression(**checked(options, _OPTIONS))
    return train(options, classifier, "multinomial", several=True)
