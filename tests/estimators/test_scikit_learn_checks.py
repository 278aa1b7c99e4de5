"""scikit-learn's own checks of an estimator, one test each."""

import collections

import pytest
from sklearn.utils.estimator_checks import (
    check_estimator,
    estimator_checks_generator,
    parametrize_with_checks,
)

import xmcjax


# Some of the checks' data lie far from the origin, which coordinate ascent takes many epochs for.
@pytest.mark.filterwarnings("ignore:the relative duality gap:sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        xmcjax.OneVsAllClassifier(),
        xmcjax.MulticlassSVC(),
        xmcjax.MultinomialLogisticRegression(),
        xmcjax.TopKSVC(),
    ]
)
def test_check(estimator, check):
    check(estimator)


def test_the_checks_are_many():
    """A tag can make scikit-learn leave most checks out, which would pass unseen."""
    checks = list(estimator_checks_generator(xmcjax.OneVsAllClassifier()))
    names = [getattr(check, "func", check).__name__ for _, check in checks]
    assert len(names) >= 55
    for needed in ("multilabel", "sparse", "sample_weight", "pickle", "dtypes"):
        assert any(needed in name for name in names), needed


@pytest.mark.parametrize("options", [dict(loss="logistic", clip=0), dict(init="ova_primal_pp", n_jobs=2)])
def test_checks_with_other_options(options):
    results = check_estimator(xmcjax.OneVsAllClassifier(**options), on_skip=None)
    assert collections.Counter(result["status"] for result in results)["passed"] >= 55
