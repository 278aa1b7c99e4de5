"""Weights of rows and classes, in every estimator: repeated rows, and scikit-learn with the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

import xmcjax
from tests.support.estimators import ESTIMATORS, TIGHT, clusters, linear_svc
from xmcjax.models import LinearModel
from xmcjax.solvers import Status

pytestmark = pytest.mark.usefixtures("default_settings")

NAMES = list(ESTIMATORS)
# A row weighs in all that it takes part in; in one-vs-all in the problem of its class alone.
BY_ROW = [name for name in NAMES if name != "OneVsAllClassifier"]
EXACT = dict(tol=1e-11, max_iter=10_000)
FORMULATIONS = ("ww", "cs", "llw", "ovr", "ovr_squared")


def fitted(name, X, y, weight=None, **options):
    return ESTIMATORS[name].set_params(**EXACT, **options).fit(X, y, sample_weight=weight)


def scores(*given, **options):
    return fitted(*given, **options).decision_function(given[1])


@pytest.mark.parametrize("name", BY_ROW)
def test_the_weight_of_a_class_is_that_of_its_rows(name):
    X, y = clusters()
    weight = np.random.default_rng(0).random(len(y)) + 0.5
    # weights of rows decide about the length of a kernel where none is given, those of classes do not
    given = dict(w=1.0) if name == "KernelLogisticClassifier" else {}
    ours = scores(name, X, y, weight, class_weight={0: 3.0, 2: 0.25}, **given)
    theirs = scores(name, X, y, weight * np.array([3, 1, 0.25])[y], **given)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.abs(ours - scores(name, X, y, weight, **given)).max() > 0.01


@pytest.mark.parametrize("names", [("ant", "bee", "cow"), (-7, 3, 1000)])
@pytest.mark.parametrize("name", NAMES)
def test_balanced_classes_weigh_alike(name, names):
    X, y = clusters()
    X, y, names = X[20:], y[20:], np.array(names)
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    v = weight.sum() / (3 * np.bincount(y, weight))
    expected = scores(name, X, names[y], weight, class_weight=dict(zip(names, v, strict=True)))
    np.testing.assert_allclose(
        scores(name, X, names[y], weight, class_weight="balanced"), expected, atol=1e-5
    )


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_are_all_the_same_are_another_C(name):
    X, y = clusters()
    if name == "KernelLogisticClassifier":
        np.testing.assert_allclose(
            scores(name, X, y, np.full(len(y), 3.0)),
            scores(name, np.tile(X, (3, 1)), np.tile(y, 3))[: len(y)],
            atol=1e-5,
        )
        return
    np.testing.assert_allclose(
        scores(name, X, y, np.full(len(y), 3.0), C=0.5), scores(name, X, y, C=1.5), atol=1e-9
    )
    np.testing.assert_allclose(scores(name, X, y, np.ones(len(y))), scores(name, X, y), atol=1e-12)


@pytest.mark.parametrize("name", ["MulticlassSVC", "TopKSVC"])
@pytest.mark.parametrize("weight", [1.0, None])
def test_a_class_without_rows_that_count_is_a_class_still(name, weight):
    X, y = clusters()
    weights = np.ones(len(y)) if weight else np.random.default_rng(0).random(len(y)) + 0.5
    weights[y == 1] = 0
    with pytest.warns(UserWarning, match="^1 of 3 labels have no positive rows: .* never predicted$"):
        ours = fitted(name, X, y, weights)
    np.testing.assert_array_equal(ours.classes_, [0, 1, 2])
    assert ours.coef_.shape == (3, 4) and ours.dual_gap_ <= 1e-9
    assert not np.isin(1, ours.predict(X[y != 1]))


NO_ROWS = "^1 of 4 labels have no positive rows: they score lowest and are never predicted$"
JOINT = {
    **{name: xmcjax.MulticlassSVC(name, C=0.7, random_state=0) for name in FORMULATIONS},
    "admm": xmcjax.MulticlassSVC("cs", solver="admm"),
    "top-k": xmcjax.TopKSVC(2, random_state=0, fit_intercept=True),
    "entropy": xmcjax.TopKSVC(2, "entropy", random_state=0),
    "multinomial": xmcjax.MultinomialLogisticRegression(),
    "newton": xmcjax.MultinomialLogisticRegression("newton", fit_intercept=False),
}


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("name", JOINT)
def test_a_class_whose_rows_weigh_0_is_no_part_of_the_problem(name, by_class, tmp_path):
    X, y = clusters(80, 6, classes=4)
    everywhere = 3 * np.random.default_rng(0).normal(size=(500, 6))
    there, model = y > 0, clone(JOINT[name])
    other = clone(model).fit(X[there], y[there])
    weight = None if by_class else there.astype(float)
    if by_class:
        model.set_params(class_weight={0: 0.0})
    with pytest.warns(UserWarning, match=NO_ROWS):
        model.fit(X, y, weight)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2, 3])
    assert not model.coef_[0].any() and np.isneginf(model.intercept_[0]) and model.status_ == other.status_
    model.save(tmp_path / "model")
    stored = LinearModel.load(tmp_path / "model").status
    np.testing.assert_array_equal(stored, [Status.NO_POSITIVES, *[Status.CONVERGED] * 3])
    for same in (model, type(model).load(tmp_path / "model")):
        np.testing.assert_array_equal(same.predict(everywhere), other.predict(everywhere))
        scores = same.decision_function(everywhere)
        np.testing.assert_array_equal(scores[:, 1:], other.decision_function(everywhere))
        assert (scores[:, 0] == -1e30).all() and not (same.predict_topk(everywhere, 3)[0] == 0).any()
        with pytest.raises(ValueError, match=r"^k: expected at most 3, the number of classes with weights"):
            same.predict_topk(everywhere, 4)
        if hasattr(same, "predict_proba"):
            assert not same.predict_proba(everywhere)[:, 0].any()


@pytest.mark.parametrize("name", JOINT)
def test_a_fit_goes_on_where_other_classes_have_rows_that_count(name):
    X, y = clusters(80, 6, classes=4)
    model = clone(JOINT[name]).set_params(warm_start=True, tol=1e-6, max_iter=10_000)
    for gone in (None, 0, 2, None):
        weight = None if gone is None else (y != gone).astype(float)
        if gone is None:
            model.fit(X, y)
        else:
            with pytest.warns(UserWarning, match=NO_ROWS):
                model.fit(X, y, weight)
        fresh = clone(model).fit(X[y != gone], y[y != gone])
        kept = np.isin(model.classes_, fresh.classes_)
        ours, theirs = (m.decision_function(X) for m in (model, fresh))
        np.testing.assert_allclose(ours[:, kept], theirs, atol=0.02)


@pytest.mark.parametrize("likelihood", ["softmax", "one_vs_rest"])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_class_whose_rows_weigh_0_is_no_part_of_a_kernel_machine(likelihood, mixed, tmp_path):
    X, y = clusters(80, 6, classes=4)
    X, y, everywhere = X[4:], y[4:], 3 * np.random.default_rng(0).normal(size=(500, 6))
    there, options = y != 1, dict(w=0.2, tol=1e-9, likelihood=likelihood)
    of_classes = dict(v=np.array([1.0, 2.0, 3.0, 4.0]))
    if mixed:
        of_classes = dict(loadings=np.random.default_rng(1).normal(size=(4, 2)))
    some = {name: values[[0, 2, 3]] for name, values in of_classes.items()}
    other = xmcjax.KernelLogisticClassifier(**some, **options).fit(X[there], y[there])
    model = xmcjax.KernelLogisticClassifier(**of_classes, **options)
    with pytest.warns(UserWarning, match=NO_ROWS):
        model.set_params(class_weight={1: 0.0}).fit(X, y)
    with pytest.warns(UserWarning, match=NO_ROWS):
        model.set_params(class_weight=None).fit(X, y, there)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2, 3])
    assert model.dual_coef_.shape == (76, 4) and not model.dual_coef_[:, 1].any()
    model.save(tmp_path / "model")
    for same in (model, type(model).load(tmp_path / "model")):
        scores = same.decision_function(everywhere)
        np.testing.assert_allclose(scores[:, [0, 2, 3]], other.decision_function(everywhere), atol=1e-6)
        np.testing.assert_array_equal(same.predict(everywhere), other.predict(everywhere))
        p = same.predict_proba(everywhere)
        assert (scores[:, 1] == -1e30).all() and not p[:, 1].any()
        np.testing.assert_allclose(p[:, [0, 2, 3]], other.predict_proba(everywhere), atol=1e-6)
        assert 1 not in same.predict(everywhere, loss=1 - np.eye(4)[[1] * 4])  # that class costs nothing
        assert 1 not in same.predict_topk(everywhere, 3)[0]
        with pytest.raises(ValueError, match=r"^k: expected at most 3, the number of classes with rows"):
            same.predict_topk(everywhere, 4)


def test_inner_products_of_rows_that_weigh_0_have_no_coefficients():
    X, y = clusters(80, 6, classes=4)
    there, model = y > 0, xmcjax.TopKSVC(kernel="precomputed", random_state=0, fit_intercept=True)
    other = clone(model).fit(X[there] @ X[there].T, y[there]).decision_function(X @ X[there].T)
    with pytest.warns(UserWarning, match=NO_ROWS):
        model.fit(X @ X.T, y, there)
    assert model.coef_.shape == (4, 80) and not model.coef_[:, ~there].any()
    np.testing.assert_allclose(model.decision_function(X @ X.T)[:, 1:], other, atol=1e-9)
    most = "k: expected at most 2, the number of classes that have a row of weight above 0, less one, got 3"
    with pytest.raises(ValueError, match=f"^{most}$"):
        model.set_params(k=3).fit(X @ X.T, y, there)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(
    "estimator", [xmcjax.MulticlassSVC("cs", random_state=0), xmcjax.MultinomialLogisticRegression()]
)
def test_a_label_without_rows_that_count_is_no_part_of_the_problem(estimator, form):
    X, Y = matrix()
    Y[:, 2] = np.arange(len(Y)) < 5
    weight = np.where(Y[:, 2], 0.0, 1.0)
    kept, others = weight > 0, [0, 1, 3]
    other = clone(estimator).fit(X[kept], form(Y[kept][:, others]))
    expected = other.decision_function(X)
    for given in ((X, form(Y), weight), (X[kept], form(Y[kept]))):
        with pytest.warns(UserWarning, match=NO_ROWS):
            model = clone(estimator).fit(*given)
        np.testing.assert_array_equal(model.classes_, np.arange(4))
        np.testing.assert_array_equal(model.decision_function(X)[:, others], expected)
        np.testing.assert_array_equal(model.predict(X), np.array(others)[other.predict(X)])
        assert model.score(X, form(Y)) == (Y[np.arange(len(Y)), model.predict(X)]).mean()


def test_a_calibration_is_that_of_the_rows_that_count():
    X, y = clusters(80, 6, classes=4)
    there, rows = y > 0, np.arange(80)
    model = xmcjax.MulticlassSVC(calibration="temperature", random_state=0)
    pairs = [(rows[rows % 2 == i], rows[rows % 2 != i]) for i in (0, 1)]
    with pytest.warns(UserWarning, match=NO_ROWS):
        model.set_params(cv=pairs).fit(X, y, there)
    place = np.cumsum(there) - 1
    pairs = [tuple(place[part[there[part]]] for part in pair) for pair in pairs]
    other = clone(model).set_params(cv=pairs).fit(X[there], y[there])
    ours, theirs = model.calibration_, other.calibration_
    assert ours is not None and theirs is not None
    np.testing.assert_allclose(ours.slope[1:], theirs.slope, rtol=1e-6)
    found = model.predict_proba(X)
    assert not found[:, 0].any()
    np.testing.assert_allclose(found[:, 1:], other.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_formulations_with_weights_are_those_of_repeated_rows(formulation):
    X, y = clusters(60, 5)
    times = np.random.default_rng(1).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), times)
    options = dict(formulation=formulation, C=0.7, tol=1e-10, random_state=0)
    ours = xmcjax.MulticlassSVC(**options).fit(X, y, times)
    other = xmcjax.MulticlassSVC(**options).fit(X[rows], y[rows])
    assert ours.dual_gap_ <= 1e-10
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=2e-4)


def test_a_precomputed_kernel_with_weights_is_that_of_repeated_rows():
    X, y = clusters(80, 6, classes=5)
    times = np.random.default_rng(1).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), times)
    options = dict(k=2, C=0.7, tol=1e-8, random_state=0, kernel="precomputed", max_iter=10_000)
    ours = xmcjax.TopKSVC(**options).fit(X @ X.T, y, times)
    other = xmcjax.TopKSVC(**options).fit(X[rows] @ X[rows].T, y[rows])
    np.testing.assert_allclose(
        ours.decision_function(X @ X.T), other.decision_function(X @ X[rows].T), atol=2e-4
    )


# of the same problem in scikit-learn: LIBLINEAR's Crammer-Singer has no squared norm of a bias either
ORACLES = {
    "cs": dict(multi_class="crammer_singer"),
    "ovr": dict(loss="hinge", dual=True),
    "ovr_squared": dict(loss="squared_hinge", dual=False),
}


@pytest.mark.parametrize("formulation", ORACLES)
def test_multiclass_is_linear_svc_with_the_same_weights(formulation):
    X, y = clusters(60, 5)
    weight = 3 * np.random.default_rng(1).random(len(y))
    ours = xmcjax.MulticlassSVC(formulation, C=0.7, tol=1e-9).fit(X, y, weight)
    svc = LinearSVC(
        C=0.7, tol=1e-8, max_iter=1_000_000, fit_intercept=False, random_state=0, **ORACLES[formulation]
    ).fit(X, y, weight)
    np.testing.assert_allclose(ours.decision_function(X), svc.decision_function(X), atol=2e-3)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 3.0, 1: 0.5}])
def test_one_vs_all_is_linear_svc_with_the_same_weights(class_weight, count):
    X, y = clusters(90)
    X, y = X[y < count][15:], y[y < count][15:]
    weight = None if class_weight == "balanced" else 3 * np.random.default_rng(1).random(len(y))
    ours = xmcjax.OneVsAllClassifier(C=0.7, class_weight=class_weight, **TIGHT).fit(X, y, weight)
    coef, intercept = linear_svc(X, y, weight, C=0.7, class_weight=class_weight)
    np.testing.assert_allclose(ours.coef_, coef, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, intercept, atol=1e-5)


def matrix(seed=0):
    X, _ = clusters(90, 6, classes=4)
    Y = np.random.default_rng(seed).random((90, 4)) < [0.5, 0.2, 0.1, 0.4]
    return X, Y.astype(int)


def test_balanced_labels_weigh_as_in_a_loop_over_them():
    X, Y = matrix()
    ours = xmcjax.OneVsAllClassifier(C=0.7, class_weight="balanced", fit_intercept=False, **TIGHT).fit(
        X, sp.csr_matrix(Y)
    )
    svc = LinearSVC(
        C=0.7, class_weight="balanced", dual=False, tol=1e-10, max_iter=1_000_000, fit_intercept=False
    )
    other = OneVsRestClassifier(svc).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, np.vstack([one.coef_ for one in other.estimators_]), atol=1e-4)


def test_labels_have_weights_by_number():
    X, Y = matrix()
    options = dict(C=0.7, **TIGHT)
    ours = xmcjax.OneVsAllClassifier(class_weight={1: 5.0}, **options).fit(X, Y)
    plain = xmcjax.OneVsAllClassifier(**options).fit(X, Y)
    np.testing.assert_array_equal(ours.coef_[[0, 2, 3]], plain.coef_[[0, 2, 3]])
    one = xmcjax.OneVsAllClassifier(**options).fit(X, Y[:, 1], np.where(Y[:, 1], 5.0, 1.0))
    np.testing.assert_allclose(ours.coef_[1:2], one.coef_, atol=1e-5)


def test_weights_by_label_and_by_propensity_are_multiplied():
    X, Y = matrix()
    options = dict(C=0.7, weighting="propensity", **TIGHT)
    ours = xmcjax.OneVsAllClassifier(class_weight={0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0}, **options).fit(X, Y)
    plain = xmcjax.OneVsAllClassifier(**options).fit(X, Y)
    assert np.abs(ours.coef_ - plain.coef_).max() > 0.01
    balanced = xmcjax.OneVsAllClassifier(class_weight="balanced", **options).fit(X, Y)
    assert np.abs(balanced.coef_ - ours.coef_).max() > 0.01


def test_multinomial_is_logistic_regression_with_the_same_weights():
    X, y = clusters(90)
    weight = np.random.default_rng(1).random(len(y))
    for class_weight in ("balanced", {0: 3.0, 1: 0.5}):
        options = dict(C=0.7, class_weight=class_weight)
        ours = xmcjax.MultinomialLogisticRegression(tol=1e-10, **options).fit(X, y, weight)
        other = LogisticRegression(tol=1e-10, max_iter=10_000, **options).fit(X, y, weight)
        np.testing.assert_allclose(ours.predict_proba(X), other.predict_proba(X), atol=1e-5)


CLASS_WEIGHTS = [
    ("uniform", ValueError, "^class_weight: expected None, balanced or a dict, got 'uniform'$"),
    (3.0, TypeError, "^class_weight: expected None, balanced or a dict, got 3.0$"),
    ([1.0, 2.0, 3.0], TypeError, "^class_weight: expected None, balanced or a dict, got"),
    ({0: -1.0}, ValueError, "^class_weight: expected finite weights of at least 0, found -1.0 for 0$"),
    ({0: np.inf}, ValueError, "^class_weight: expected finite weights of at least 0, found inf for 0$"),
    ({0: "a"}, TypeError, "^class_weight of 0: expected a number, got 'a'$"),
    ({0: 1.0, 7: 2.0}, ValueError, "^class_weight: expected classes of y, found 7$"),
    ({0: 0, 1: 0}, ValueError, "^class_weight: expected"),
]


@pytest.mark.parametrize("name", NAMES)
def test_class_weights_are_checked(name):
    X, y = clusters()
    for weights, error, message in CLASS_WEIGHTS:
        with pytest.raises(error, match=message):
            ESTIMATORS[name].set_params(class_weight=weights).fit(X, y)


def test_weights_of_labels_are_checked():
    X, Y = matrix()
    for weights, message in (
        ({0: 0.0}, "^class_weight: expected weights above 0, found 0 for 0$"),
        ({4: 1.0}, "^class_weight: expected labels 0 … 3, found 4$"),
        ({"a": 1.0}, "^class_weight: expected labels 0 … 3, found 'a'$"),
    ):
        with pytest.raises(ValueError, match=message):
            xmcjax.OneVsAllClassifier(class_weight=weights).fit(X, Y)


def test_classes_of_a_fold_may_lack_some_that_have_weights():
    """As scikit-learn has it, where all classes that there are have one."""
    X, y = clusters()
    kept = y < 2
    given = {0: 2.0, 1: 1.0, 2: 5.0}
    for name in BY_ROW:
        ours = scores(name, X[kept], y[kept], class_weight=given)
        np.testing.assert_allclose(ours, scores(name, X[kept], y[kept], class_weight={0: 2.0}), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_stored(name, tmp_path):
    X, y = clusters()
    for given in ("balanced", {0: 3.0, 1: 0.5, 2: 1.0}):
        model = ESTIMATORS[name].set_params(class_weight=given).fit(X, y)
        model.save(tmp_path / str(type(given)))
        loaded = type(model).load(tmp_path / str(type(given)))
        assert loaded.class_weight == given
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))


def test_weights_of_inner_labels_in_a_tree():
    """A label at an inner node has a weight of its own, and repeats as rows do."""
    X, y = clusters(60, 4, classes=3)
    tree = [(0, 1), (0, 2), (2, 3), (2, 4)]
    labels = np.array([1, 3, 4])[y]
    labels[:20:2] = 2
    options = dict(hierarchy=tree, inner_labels=True, tol=1e-9, w=0.5)
    ours = xmcjax.KernelLogisticClassifier(class_weight={2: 2.0, 3: 1.0, 4: 1.0, 1: 1.0}, **options)
    rows = np.repeat(np.arange(60), np.where(labels == 2, 2, 1))
    other = xmcjax.KernelLogisticClassifier(**options).fit(X[rows], labels[rows])
    np.testing.assert_allclose(ours.fit(X, labels).predict_proba(X), other.predict_proba(X), atol=1e-5)


def test_weights_of_nodes_without_rows_in_a_tree():
    """A part of the rows may lack a leaf, which is a class of the model all the same."""
    X, y = clusters(60, 4, classes=3)
    labels = np.array([1, 3, 2])[y]
    options: dict = dict(hierarchy=[(0, 1), (0, 2), (2, 3), (2, 4)], w=0.5)
    few, inner = labels < 2, dict(inner_labels=True, class_weight={0: 4.0, 1: 2.0, 4: 7.0})
    where = few | (labels == 3)
    ours = xmcjax.KernelLogisticClassifier(class_weight={1: 2.0, 4: 7.0}, **options)
    other = xmcjax.KernelLogisticClassifier(**options)
    ours.fit(X[where], labels[where])
    other.fit(X[where], labels[where], np.where(few, 2.0, 1.0)[where])
    assert list(ours.classes_) == [1, 3, 4]
    np.testing.assert_allclose(ours.predict_proba(X), other.predict_proba(X), atol=1e-12)
    ours = xmcjax.KernelLogisticClassifier(**inner, **options).fit(X, labels)
    other = xmcjax.KernelLogisticClassifier(inner_labels=True, **options)
    other.fit(X, labels, np.where(few, 2.0, 1.0))
    np.testing.assert_allclose(ours.predict_proba(X), other.predict_proba(X), atol=1e-12)
    inner, neither = dict(inner_labels=True), "not a node of the tree"
    for more, key, said in (
        ({}, 9, f"leaves of the hierarchy, found 9, {neither}"),
        ({}, 2, "leaves of the hierarchy, found 2, an inner node"),
        ({}, 0, "leaves of the hierarchy, found 0, the root"),
        ({}, "a", f"leaves of the hierarchy, found 'a', {neither}"),
        (inner, 9, f"nodes of the hierarchy, found 9, {neither}"),
    ):
        wrong = xmcjax.KernelLogisticClassifier(class_weight={1: 2.0, key: 7.0}, **options, **more)
        with pytest.raises(ValueError, match=f"^class_weight: expected {said}$"):
            wrong.fit(X[where], labels[where])
        if isinstance(key, int):  # and in y
            wrong = xmcjax.KernelLogisticClassifier(**options, **more)
            with pytest.raises(ValueError, match=f"^y: expected {said}$"):
                wrong.fit(X[where], np.where(labels == 3, key, labels)[where])
