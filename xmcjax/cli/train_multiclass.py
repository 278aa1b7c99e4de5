"""``xmcjax train --system multiclass``."""

from __future__ import annotations

from xmcjax.cli._cache import compilation_cache
from xmcjax.cli._classes import ClassOptions, train
from xmcjax.cli._options import with_flags
from xmcjax.estimators import OPTIONS, MulticlassSVC


@with_flags(OPTIONS["multiclass"])
class Options(ClassOptions):
    """Train a linear SVM over all classes at once; the formulation cs takes rows with several labels too.

    Attributes:
        train: training data, one class per row, or with cs any number of labels.
    """


@compilation_cache()
def run(options: Options) -> int:
    """Trains and stores; 75 where the time was over, else 0."""
    return train(options, MulticlassSVC, "multiclass", several=options.formulation == "cs")
