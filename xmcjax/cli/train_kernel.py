"""``xmcjax train --system kernel``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import tyro

from xmcjax.cli._cache import compilation_cache
from xmcjax.cli._classes import ClassOptions, checked, train
from xmcjax.cli._options import ClassWeightName, described, one_of
from xmcjax.estimators import OPTIONS, KernelLogisticClassifier

_OPTIONS = OPTIONS["kernel"]
if TYPE_CHECKING:
    KernelName = LikelihoodName = ApproximationName = str
else:
    KernelName = one_of(_OPTIONS["kernel"].values.names)
    LikelihoodName = one_of(_OPTIONS["likelihood"].values.names)
    ApproximationName = one_of(_OPTIONS["approximation"].values.names)


@described(_OPTIONS)
@dataclasses.dataclass(frozen=True)
class Options(ClassOptions):
    """Train kernel multinomial regression, for data with one class per row; it gives probabilities."""

    kernel: KernelName = _OPTIONS["kernel"].of_flag
    v: float = _OPTIONS["v"].of_flag
    w: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = _OPTIONS["w"].of_flag
    sigma2: float = _OPTIONS["sigma2"].of_flag
    likelihood: LikelihoodName = _OPTIONS["likelihood"].of_flag
    class_weight: ClassWeightName = _OPTIONS["class_weight"].of_flag
    tol: float = _OPTIONS["tol"].of_flag
    max_iter: int = _OPTIONS["max_iter"].of_flag
    max_cg: int = _OPTIONS["max_cg"].of_flag
    rank: Annotated[int | None, tyro.conf.arg(metavar="N")] = _OPTIONS["rank"].of_flag
    approximation: ApproximationName = _OPTIONS["approximation"].of_flag
    random_state: int = _OPTIONS["random_state"].of_flag


@compilation_cache()
def run(options: Options) -> int:
    """Trains and stores; 75 where the time was over, else 0.

    Raises:
        ValueError: an approximation without a rank, and what `train` raises.
    """
    if options.rank is None and options.approximation != _OPTIONS["approximation"].default:
        raise ValueError(f"--approximation {options.approximation} needs --rank, got none")
    return train(options, KernelLogisticClassifier(**checked(options, _OPTIONS)), "kernel")
