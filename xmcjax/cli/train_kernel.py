"""``xmcjax train --system kernel``."""

from __future__ import annotations

from xmcjax.cli._cache import compilation_cache
from xmcjax.cli._classes import ClassOptions, train
from xmcjax.cli._options import with_flags
from xmcjax.estimators import OPTIONS, KernelLogisticClassifier

_OPTIONS = OPTIONS["kernel"]


@with_flags(_OPTIONS)
class Options(ClassOptions):
    """Train kernel multinomial regression, for data with one class per row; it gives probabilities."""


@compilation_cache()
def run(options: Options) -> int:
    """Trains and stores; 75 where the time was over, else 0.

    Raises:
        ValueError: an approximation without a rank, and what `train` raises.
    """
    if options.rank is None and options.approximation != _OPTIONS["approximation"].default:
        raise ValueError(f"--approximation {options.approximation} needs --rank, got none")
    return train(options, KernelLogisticClassifier, "kernel")
