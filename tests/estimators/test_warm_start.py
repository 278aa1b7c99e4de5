"""`warm_start` and `verbose` of the systems in which all classes are one problem."""

import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.commands import Terminal
from xmcjax import (
    KernelLogisticClassifier,
    MulticlassSVC,
    MultinomialLogisticRegression,
    OneVsAllClassifier,
    TopKSVC,
)

N, D, M = 240, 30, 5


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    y = rng.integers(0, M, N)
    X = rng.normal(size=(N, D)) + 0.8 * rng.normal(size=(M, D))[y]
    return np.float32(X), np.array(list("abcde"))[y]


FORMS = {"dense": lambda X: X, "sparse": lambda X: sp.csr_array(np.where(X > 0.5, X, 0))}
CASES: dict[str, tuple[Any, dict[str, Any], Any]] = {
    f"{name} {form}": (MulticlassSVC, dict(formulation=name), FORMS[form])
    for name in ("ww", "cs", "llw", "ovr", "ovr_squared")
    for form in FORMS
}
CASES |= {
    f"{name} {form}": (TopKSVC, dict(variant=name, k=2), FORMS[form])
    for name in ("alpha", "beta")
    for form in FORMS
}
CASES |= {
    "weighted ww": (MulticlassSVC, dict(class_weight="balanced"), FORMS["sparse"]),
    "weighted ovr": (MulticlassSVC, dict(class_weight="balanced", formulation="ovr"), FORMS["sparse"]),
    "weighted ovr_squared": (
        *(MulticlassSVC, dict(class_weight="balanced", formulation="ovr_squared")),
        FORMS["sparse"],
    ),
    "weighted alpha": (TopKSVC, dict(class_weight="balanced"), FORMS["dense"]),
    "inner products": (TopKSVC, dict(kernel="precomputed"), lambda X: X @ X.T),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fit_goes_on_from_the_last_one(problem, name):
    kind, options, form = CASES[name]
    X, y = form(problem[0]), problem[1]
    options: dict[str, Any] = dict(C=0.1, tol=1e-4, random_state=0) | options
    warm = kind(warm_start=True, **options).fit(X, y)
    cold = kind(**options | dict(C=0.102)).fit(X, y)
    before = warm.n_iter_
    warm.set_params(C=0.102).fit(X, y)
    assert warm.dual_gap_ <= 1e-4 and cold.dual_gap_ <= 1e-4
    assert warm.n_iter_ < cold.n_iter_, (before, warm.n_iter_, cold.n_iter_)
    # two objectives whose gaps are 1e-4 are that near to each other
    a, b = objective(warm, X, y), objective(cold, X, y)
    assert abs(a - b) <= 2e-4 * max(a, b)


def objective(fitted, X, y):
    """By its definition, of the top-k SVM as it is told."""
    if isinstance(fitted, TopKSVC):
        return fitted.objective_
    t = np.searchsorted(fitted.classes_, y)
    weight = np.ones(len(y)) if fitted.class_weight is None else len(y) / (M * np.bincount(t)[t])
    X = X.toarray() if sp.issparse(X) else X
    return dual_references.objective(fitted.coef_.T, X, t, fitted.formulation, 1, fitted.C * weight)


@pytest.mark.parametrize("kind", [MulticlassSVC, TopKSVC])
def test_the_last_fit_counts_where_rows_and_classes_are_the_same(problem, kind):
    X, y = problem
    fitted = kind(C=0.1, warm_start=True, random_state=0).fit(X, y)
    for rows, labels in ((X[:200], y[:200]), (X, np.where(y == "e", "f", y))):
        fitted.fit(rows, labels)
        fresh = kind(C=0.1, random_state=0).fit(rows, labels)
        np.testing.assert_array_equal(fitted.coef_, fresh.coef_)
    # other features, and other classes of some rows: a worse start, and the same optimum
    fitted.fit(-X, np.where(y == "f", "e", y))
    other = fitted.fit(X, np.roll(y, 1))
    fresh = kind(C=0.1, random_state=0).fit(X, np.roll(y, 1))
    assert other.dual_gap_ <= 1e-3 and fresh.dual_gap_ <= 1e-3
    np.testing.assert_allclose(other.coef_, fresh.coef_, atol=0.05)
    # without it nothing is kept
    assert "_dual" not in vars(fitted.set_params(warm_start=False).fit(X, y))


def test_rows_of_weight_0_keep_their_place(problem):
    X, y = problem
    weight = np.r_[np.zeros(40), np.ones(N - 40)]
    warm = MulticlassSVC(C=0.1, tol=1e-4, warm_start=True, random_state=0).fit(X, y, weight)
    first = warm.n_iter_
    assert warm._dual.shape == (N, M) and warm._dual[:40].nnz == 0
    warm.fit(X, y, weight)
    assert warm.n_iter_ < first
    warm.fit(X, y)
    assert warm.dual_gap_ <= 1e-4


VERBOSE = {
    "MulticlassSVC": (MulticlassSVC(), "epochs", "coordinate ascent comes first"),
    "TopKSVC": (TopKSVC(), "epochs", "come first: they are expected to take"),
    "MultinomialLogisticRegression": (MultinomialLogisticRegression(), "iterations", "Newton"),
    "KernelLogisticClassifier": (KernelLogisticClassifier(), "Newton steps", "5 classes are few"),
}


@pytest.mark.parametrize("name", VERBOSE)
def test_verbose_says_what_came_out_and_why(problem, name, capsys, monkeypatch):
    classifier, unit, reason = VERBOSE[name]
    classifier.set_params(verbose=0).fit(*problem)
    assert capsys.readouterr() == ("", "")
    classifier.set_params(verbose=1).fit(*problem)
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1  # no terminal: no bar
    assert err.startswith(f"{name}: {unit} ") and err.endswith(f"; {classifier.reason_}\n")
    assert reason in err
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    classifier.fit(*problem)
    assert "\r" in terminal.getvalue() and classifier.reason_ in terminal.getvalue()
    with pytest.raises(TypeError, match="verbose: expected"):
        classifier.set_params(verbose="loud").fit(*problem)


def test_the_hinge_of_one_against_the_rest_keeps_nothing_to_start_from(problem):
    message = "^warm_start: expected False with the loss hinge, got True"
    with pytest.raises(ValueError, match=message):
        OneVsAllClassifier("hinge", warm_start=True).fit(problem[0], problem[1])


def test_a_start_that_is_none_is_refused(problem):
    from xmcjax.solvers import multiclass_dual, topk_sdca

    X, y = problem[0], np.searchsorted(list("abcde"), problem[1])
    for solve in (multiclass_dual.run, topk_sdca.solve):
        with pytest.raises(
            ValueError, match=r"start: expected dual variables \[240, 5\], got shape \[240, 4\]"
        ):
            solve(X, y, start=np.zeros((N, M - 1)))
        with pytest.raises(ValueError, match="start: expected finite dual variables"):
            solve(X, y, start=np.full((N, M), np.nan))
        with pytest.raises(TypeError, match="observe: expected a function"):
            solve(X, y, observe=3)


@pytest.mark.parametrize("shape", [(150, 900), (200, 260)])  # rows have a span of their own, and a dual
def test_weights_that_are_there_take_no_faster_starts_away(shape):
    """From clipped weights of another C, rows that are few took tens of Newton steps for each label."""
    n, d = shape
    rng = np.random.default_rng(0)
    y = np.arange(n) % 6
    X = (rng.normal(size=(n, d)) + rng.normal(size=(6, d))[y]).astype(np.float32)
    warm = OneVsAllClassifier(C=1.0, warm_start=True).fit(X, y).set_params(C=30.0).fit(X, y)
    cold = OneVsAllClassifier(C=30.0).fit(X, y)
    assert (warm.n_iter_ <= cold.n_iter_).all()
    np.testing.assert_allclose(warm.coef_.toarray(), cold.coef_.toarray(), atol=1e-5)
