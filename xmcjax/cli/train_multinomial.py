"""``xmcjax train --system multinomial``."""

from __future__ import annotations

from xmcjax.cli._cache import compilation_cache
from xmcjax.cli._classes import ClassOptions, train
from xmcjax.cli._options import with_flags
from xmcjax.estimators import OPTIONS, MultinomialLogisticRegression


@with_flags(OPTIONS["multinomial"])
class Options(ClassOptions):
    """Train multinomial logistic regression, which gives probabilities, on rows with one label or several.

    Attributes:
        train: training data, any number of labels per row.
    """


@compilation_cache()
def run(options: Options) -> int:
    """Trains and stores; 75 where the time was over, else 0."""
    return train(options, MultinomialLogisticRegression, "multinomial", several=True)
