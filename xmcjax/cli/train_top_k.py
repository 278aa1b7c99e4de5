"""``xmcjax train --system top-k``."""

from __future__ import annotations

from xmcjax.cli._cache import compilation_cache
from xmcjax.cli._classes import ClassOptions, train
from xmcjax.cli._options import with_flags
from xmcjax.estimators import OPTIONS, TopKSVC


@with_flags(OPTIONS["top-k"])
class Options(ClassOptions):
    """Train a top-k SVM, for data with one class per row: the k best classes are to hold the right one."""


@compilation_cache()
def run(options: Options) -> int:
    """Trains and stores; 75 where the time was over, else 0."""
    return train(options, TopKSVC, "top-k")
