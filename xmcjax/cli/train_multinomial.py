"""``xmcjax train --system multinomial``."""

from __future__ import annotations

from xmcjax.cli._cache import compilation_cache
from xmcjax.cli._classes import ClassOptions, checked, train
from xmcjax.cli._options import with_flags
from xmcjax.estimators import OPTIONS, MultinomialLogisticRegression

_OPTIONS = OPTIONS["multinomial"]


@with_flags(_OPTIONS)
class Options(ClassOptions):
    """Train multinomial logistic regression, which gives probabilities, on rows with one label or several.

    Attributes:
        train: training data, any number of labels per row.
    """


@compilation_cache()
def run(options: Options) -> int:
    """Trains and stores; 75 where the time was over, else 0."""
    classifier = MultinomialLogisticRegression(**checked(options, _OPTIONS))
    return train(options, classifier, "multinomial", several=True)
