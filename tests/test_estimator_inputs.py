"""What estimators are given: each method stands in the table of matrices, and what is none is refused."""

from __future__ import annotations

import inspect
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from malformed_matrices import MALFORMED, classes, features, labels
from matrix_entries import ESTIMATORS, entries, fitted

from xmcjax import estimators

# Public methods, inherited ones included, that take no matrix.
NO_MATRIX = {
    "get_metadata_routing": "tells what is asked for",
    "get_params": "names of arguments",
    "set_params": "values of arguments, which fit checks",
}
CLASSES = [name for name in ESTIMATORS if name != "OneVsAllClassifier"]


@pytest.fixture(autouse=True)
def default_settings(strict_numbers):
    """JAX's settings as users have them."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def public_methods(kind) -> dict[str, set[str]]:
    """The arguments of every method, by name."""
    return {
        name: set(inspect.signature(getattr(kind, name)).parameters) - {"self"}
        for name in dir(kind)
        if not name.startswith("_") and callable(getattr(kind, name))
    }


def test_every_estimator_is_known():
    public = {
        name for name, kind in vars(estimators).items() if inspect.isclass(kind) and hasattr(kind, "fit")
    }
    assert public == set(ESTIMATORS)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_method_that_takes_a_matrix_is_in_the_table(name):
    known = {entry.removesuffix(" beside a dense X") for entry in entries(Path())}
    for method, arguments in public_methods(getattr(estimators, name)).items():
        if method in NO_MATRIX or (method.startswith("set_") and method.endswith("_request")):
            assert not arguments & {"X", "y", "Y"}, method
            continue
        assert "X" in arguments, f"{name}.{method} is in no table"
        for argument in arguments & {"X", "y", "Y"}:
            # classes are no sparse matrix: the test below shows that one is refused
            if argument != "y" or name not in CLASSES:
                assert f"estimators.{name}.{method} {argument}" in known, f"{method} {argument}"


def methods_of_classes():
    for name in CLASSES:
        for method, arguments in public_methods(getattr(estimators, name)).items():
            if "y" in arguments:
                yield name, method


@pytest.mark.parametrize(("name", "method"), list(methods_of_classes()))
def test_a_sparse_matrix_is_no_class_vector(name, method):
    estimator = fitted(name) if method == "score" else getattr(estimators, name)()
    with pytest.raises(TypeError, match=r"^y: expected one class per row, found a sparse matrix of shape"):
        getattr(estimator, method)(features(), labels())
    for case, malform in MALFORMED.items():
        with pytest.raises((ValueError, TypeError), match=r"^y(\.\w+)?: expected .*found"):
            getattr(estimator, method)(features(), malform(labels()))
            pytest.fail(f"{name}.{method} took as y a matrix: {case}")


def test_score_compares_with_labels_as_fit_has_them():
    estimator = estimators.OneVsAllClassifier().fit(features(), labels())
    plain = labels()
    expected = (estimator.predict(features()) != plain).sum(axis=1).A1 == 0
    weight = np.arange(1.0, len(expected) + 1)
    for y in (plain, 3 * plain, plain.toarray(), sp.dok_array(plain)):
        assert estimator.score(features(), y) == pytest.approx(expected.mean())
        assert estimator.score(features(), y, weight) == pytest.approx(np.average(expected, weights=weight))
    for y, said in (
        (plain[:, :3], r"^y: expected 4 labels, as in fit, found 3$"),
        (-plain, r"^y: expected a matrix of 0 and 1, found -1\.0$"),
        (plain * np.float32(np.nan), r"^y: expected a matrix of 0 and 1, found nan$"),
    ):
        with pytest.raises(ValueError, match=said):
            estimator.score(features(), y)
    by_class = estimators.OneVsAllClassifier().fit(features(), classes())
    with pytest.raises(TypeError, match=r"^y: expected one class per row, found a sparse matrix"):
        by_class.score(features(), plain)
