"""Features of any size are trained on, or refused in one line that says why."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from xmcjax import (
    KernelLogisticClassifier,
    MulticlassSVC,
    MultinomialLogisticRegression,
    OneVsAllClassifier,
    TopKSVC,
)

ESTIMATORS = [
    KernelLogisticClassifier,
    MulticlassSVC,
    MultinomialLogisticRegression,
    OneVsAllClassifier,
    TopKSVC,
]
SIZES = [
    (np.float64, 1e100),
    (np.float64, 1e160),
    (np.float64, 1e-160),
    (np.float32, 1e19),
    (np.float32, 1e-30),
]
REASONS = "rows whose squared norm", "overflowed", "mean variance"


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("dtype, size", SIZES)
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_size_is_right_or_has_its_sentence(kind, dtype, size, container):
    X, y = load_iris(return_X_y=True)
    X = container((X[::3] * size).astype(dtype))
    model = kind()
    # a warning of NumPy would be an error here
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        try:
            model.fit(X, y[::3])
        except ValueError as refusal:
            assert "\n" not in str(refusal)
            assert any(words in str(refusal) for words in REASONS)
            return
    # what is said to be right has weights that are numbers; small ones are right where C is fixed
    assert caught or size < 1 or model.score(X, y[::3]) > 0.9
    assert kind is KernelLogisticClassifier or np.isfinite(model.decision_function(X)).all()


def test_a_kernel_is_as_wide_as_the_features_at_any_size():
    X, y = load_iris(return_X_y=True)
    widths = [
        np.mean(KernelLogisticClassifier().fit((X * size).astype(dtype), y).kernel_.w) * size**2
        for dtype, size in ((np.float64, 1.0), (np.float64, 1e149), (np.float32, 1e15), (np.float32, 1e-17))
    ]
    np.testing.assert_allclose(widths, widths[0], rtol=1e-5)
