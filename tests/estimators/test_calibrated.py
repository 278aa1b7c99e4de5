"""Calibrated estimators beside scikit-learn's calibration of the same folds, and its scorers."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, log_softmax, softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV, _SigmoidCalibration
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    PredefinedSplit,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)

from xmcjax import MulticlassSVC, MultinomialLogisticRegression, OneVsAllClassifier, TopKSVC
from xmcjax.models import Calibration, Calibrator, LinearModel, write_calibration

KINDS = {"OneVsAllClassifier": OneVsAllClassifier, "MulticlassSVC": MulticlassSVC, "TopKSVC": TopKSVC}
METHODS = {"OneVsAllClassifier": "sigmoid", "MulticlassSVC": "temperature", "TopKSVC": "temperature"}
SVCS = ["MulticlassSVC", "TopKSVC"]


def made(name, **options):
    return KINDS[name](random_state=0, calibration=METHODS[name], **options)


def drawn(classes=4, rows=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 6))
    y = (X @ rng.normal(size=(6, classes)) + rng.normal(size=(rows, classes))).argmax(axis=1)
    return X, np.array([f"class {k}" for k in range(classes)])[y]


def folds(X, y, cv=5):
    return Calibrator.folds(sp.csr_array((y[:, None] == np.unique(y)).astype(float)), cv)


def dense(coef):
    return coef.toarray() if sp.issparse(coef) else coef


def test_two_classes_have_the_probabilities_of_scikit_learns_sigmoid():
    X, y = drawn(2)
    ours = made("OneVsAllClassifier").fit(X, y)
    # the one problem of two classes has the second as positive
    fold = Calibrator.folds(sp.csr_array((y == "class 1")[:, None].astype(float)), 5)
    other = CalibratedClassifierCV(
        OneVsAllClassifier(), method="sigmoid", cv=PredefinedSplit(fold), ensemble=False
    ).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), other.predict_proba(X), rtol=5e-3, atol=1e-5)


def test_each_class_has_scikit_learns_slope_and_the_log_odds_make_probabilities():
    X, y = drawn()
    ours = made("OneVsAllClassifier").fit(X, y)
    other = CalibratedClassifierCV(
        OneVsAllClassifier(), method="sigmoid", cv=PredefinedSplit(folds(X, y)), ensemble=False
    ).fit(X, y)
    calibrators = other.calibrated_classifiers_[0].calibrators
    np.testing.assert_allclose(ours.calibration_.slope, [-c.a_ for c in calibrators], rtol=5e-3)
    np.testing.assert_allclose(ours.calibration_.offset, [-c.b_ for c in calibrators], rtol=5e-3, atol=5e-3)
    u = ours.calibration_.apply(ours.decision_function(X))
    np.testing.assert_allclose(ours.predict_proba(X), softmax(u, axis=1), rtol=1e-6)
    np.testing.assert_allclose(ours.predict_log_proba(X), log_softmax(u, axis=1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", SVCS)
def test_the_temperature_is_scikit_learns(name):
    X, y = drawn()
    ours = made(name).fit(X, y)
    other = CalibratedClassifierCV(
        KINDS[name](random_state=0), method="temperature", cv=PredefinedSplit(folds(X, y)), ensemble=False
    ).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), other.predict_proba(X), rtol=0.05, atol=0.01)
    np.testing.assert_array_equal(
        ours.predict_proba(X).argmax(axis=1), ours.decision_function(X).argmax(axis=1)
    )


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("classes", [2, 4])
def test_weights_and_predictions_are_those_without_it_and_held_out_rows_are_likelier(name, classes):
    X, y = drawn(classes, 600)
    ours, plain = made(name).fit(X[:400], y[:400]), KINDS[name](random_state=0).fit(X[:400], y[:400])
    assert not hasattr(plain, "predict_proba") and not hasattr(plain, "predict_log_proba")
    for one, two in ((ours.coef_, plain.coef_), (ours.intercept_, plain.intercept_)):
        assert not abs(one - two).sum()
    np.testing.assert_array_equal(ours.predict(X), plain.predict(X))
    p = ours.predict_proba(X[400:])
    np.testing.assert_allclose(p.sum(axis=1), 1)
    share = np.array([(y[:400] == kind).mean() for kind in ours.classes_])
    assert log_loss(y[400:], p) < 0.8 * log_loss(y[400:], np.tile(share, (200, 1)))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("classes", [2, 4])
def test_it_is_stored_and_read_to_the_bit(name, classes, tmp_path):
    X, y = drawn(classes)
    ours = made(name, cv=3).fit(X, y)
    ours.save(tmp_path / "m")
    read = KINDS[name].load(tmp_path / "m")
    assert read.get_params() == ours.get_params()
    np.testing.assert_array_equal(read.predict_log_proba(X), ours.predict_log_proba(X))
    for field in ("slope", "offset", "shared"):
        np.testing.assert_array_equal(getattr(read.calibration_, field), getattr(ours.calibration_, field))
    KINDS[name](random_state=0).fit(X, y).save(tmp_path / "plain")
    plain = KINDS[name].load(tmp_path / "plain")
    assert plain.calibration_ is None and not hasattr(plain, "predict_proba")


def labels(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 6))
    z = X @ rng.normal(size=(6, 7)) + rng.normal(size=(rows, 7))
    Y = sp.csr_matrix(z > np.quantile(z, [0.5, 0.7, 0.9, 0.95, 0.98, 0.99, 1.0], axis=0).diagonal())
    return X, Y


@pytest.fixture
def quiet():
    """The last label has no row, and all classifiers warn of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "1 of [37] labels have no positive rows", UserWarning)
        yield


@pytest.mark.usefixtures("quiet")
def test_labels_have_probabilities_each_by_itself(tmp_path):
    X, Y = labels()
    ours = made("OneVsAllClassifier").fit(X, Y)
    z, p = ours.decision_function(X), ours.predict_proba(X)
    np.testing.assert_allclose(p[:, :6], expit(ours.calibration_.apply(z))[:, :6], rtol=1e-9)
    assert not p[:, 6].any()
    assert ours.calibration_.shared.tolist() == [False, False, False, False, True, True, False]
    # on rows that it was trained on these are a little too sure, but not as far off as σ(z)
    shares = np.asarray(Y.mean(axis=0)).ravel()
    off, before = (np.abs(values.mean(axis=0) - shares)[1:6] for values in (p, expit(z)))
    assert (off < 0.1 * before).all()
    np.testing.assert_array_equal(np.argsort(p[:, 0]), np.argsort(z[:, 0]))
    ours.save(tmp_path / "m")
    np.testing.assert_array_equal(OneVsAllClassifier.load(tmp_path / "m").predict_proba(X), p)


@pytest.mark.usefixtures("quiet")
def test_more_labels_leave_the_calibration_of_the_others():
    X, Y = labels()
    ours = made("OneVsAllClassifier").fit(X, Y[:, :4])
    before = ours.calibration_
    ours.partial_fit(X, Y)
    assert len(ours.calibration_.slope) == 7 and not ours.calibration_.shared[:4].any()
    for field in ("slope", "offset"):
        np.testing.assert_array_equal(getattr(ours.calibration_, field)[:4], getattr(before, field))
    assert ours.calibration_.shared[4:].tolist() == [True, True, False]
    with pytest.raises(ValueError, match=r"^calibration: expected 'sigmoid', as in the fit of the weights"):
        ours.set_params(calibration=None).partial_fit(X, sp.hstack([Y, Y[:, :1]], format="csr"))


def test_a_third_class_leaves_the_calibration_of_two():
    X, y = drawn(3)
    two = y != "class 1"
    ours = made("OneVsAllClassifier").fit(X[two], y[two])
    slope, offset = ours.calibration_.slope[0], ours.calibration_.offset[0]
    ours.partial_fit(X, y)
    found = ours.calibration_
    assert (found.slope[[0, 2]] == slope).all() and found.offset[[0, 2]].tolist() == [-offset, offset]
    assert found.slope[1] > 0 and found.slope[1] != slope
    np.testing.assert_allclose(ours.predict_proba(X).sum(axis=1), 1)


@pytest.mark.parametrize("name", KINDS)
def test_rows_of_weight_zero_are_no_rows(name):
    X, y = drawn(3)
    weight = np.random.default_rng(1).uniform(0.5, 2, 400)
    weight[::3] = 0
    kept = weight > 0
    ours = made(name, tol=1e-6).fit(X, y, sample_weight=weight)
    other = made(name, tol=1e-6).fit(X[kept], y[kept], sample_weight=weight[kept])
    np.testing.assert_allclose(ours.calibration_.slope, other.calibration_.slope, rtol=1e-3)
    plain = made(name, tol=1e-6).fit(X[kept], y[kept])
    assert np.abs(plain.calibration_.slope / ours.calibration_.slope - 1).max() > 1e-3


def test_a_weight_of_two_is_the_pair_twice_in_the_objective():
    rng = np.random.default_rng(0)
    z, positive = rng.normal(size=50), rng.random(50) < 0.4
    once = _SigmoidCalibration().fit(np.tile(z, 2), np.tile(positive, 2))
    from tests.support.internals import platt

    count = np.full((1, 50), 2.0)
    one, zero = platt.targets(*((count[0] * which).sum() for which in (positive, ~positive)))
    ours = platt.fit_sigmoids(z[None], count, count * np.where(positive, one, zero))
    assert (ours.slope[0], ours.offset[0]) == pytest.approx((-once.a_, -once.b_), rel=1e-3) or once.a_ > 0


def test_inner_products_are_calibrated_by_the_inner_products_of_the_folds():
    X, y = drawn(3, 200)
    X = X.astype(np.float64)
    given = dict(k=1, C=0.1, tol=1e-8, fit_intercept=False)
    linear = made("TopKSVC", **given).fit(X, y)
    products = made("TopKSVC", kernel="precomputed", **given).fit(X @ X.T, y)
    np.testing.assert_allclose(products.calibration_.slope, linear.calibration_.slope, rtol=1e-3)
    np.testing.assert_allclose(products.predict_proba(X @ X.T), linear.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("name", KINDS)
def test_folds_are_what_scikit_learn_takes_for_them(name, tmp_path):
    X, y = drawn(3)
    fold = folds(X, y, 3)
    ours = made(name, cv=3).fit(X, y)
    pairs = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    for cv in (pairs, iter(pairs), PredefinedSplit(fold)):
        other = made(name, cv=cv).fit(X, y)
        np.testing.assert_allclose(other.calibration_.slope, ours.calibration_.slope, rtol=1e-6)
    made(name, cv=pairs).fit(X, y).save(tmp_path / "m")
    read = KINDS[name].load(tmp_path / "m")
    np.testing.assert_array_equal(read.predict_proba(X), made(name, cv=pairs).fit(X, y).predict_proba(X))
    with pytest.raises(ValueError, match="cv: expected each row held out once at most, as by KFold, found"):
        made(name, cv=[pairs[0], pairs[0]]).fit(X, y)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(calibration="isotonic"), "calibration: expected one of (sigmoid|temperature), got 'isotonic'"),
        (dict(cv=1), "cv: expected at least 2, got 1"),
        (dict(cv=1000), "cv: expected at most 400, the number of rows, got 1000"),
    ],
)
def test_options_out_of_range_are_refused(name, options, said):
    X, y = drawn()
    with pytest.raises(ValueError, match=said):
        made(name).set_params(**options).fit(X, y)
    with pytest.raises(TypeError, match="cv: expected a whole number"):
        made(name, cv=2.5).fit(X, y)


@pytest.mark.parametrize("name", KINDS)
def test_a_class_of_one_row_is_no_obstacle_and_nothing_but_such_is_refused(name):
    X, y = drawn(3)
    y = y.copy()
    y[0] = "another"
    ours = made(name).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X).sum(axis=1), 1)
    with pytest.raises(ValueError, match="calibration: "):
        made(name, cv=2).fit(X[:4], ["a", "b", "c", "d"])


@pytest.mark.parametrize("name", KINDS)
def test_rows_are_held_out_once_and_never_trained_on(name):
    X, y = drawn(3)
    one = np.arange(200), np.arange(200, 400)
    said = "cv: expected rows to hold out that are not trained on, found row 199 of pair 2 in both"
    with pytest.raises(ValueError, match=said):
        made(name, cv=[one, (np.arange(200), np.arange(199, 200))]).fit(X, y)
    said = "cv: expected each row held out once at most, as by KFold, found row [0-9]+ more often"
    with pytest.raises(ValueError, match=said):
        made(name, cv=ShuffleSplit(3, random_state=0)).fit(X, y)
    with pytest.raises(ValueError, match="cv: expected rows to train on in each pair, found none in pair 2"):
        made(name, cv=[one, ([], np.arange(200))]).fit(X, y)
    # rows that are never held out have no scores
    split = ShuffleSplit(1, test_size=0.5, random_state=0)
    np.testing.assert_array_equal(
        made(name, cv=split).fit(X, y).calibration_.slope,
        made(name, cv=list(split.split(X))).fit(X, y).calibration_.slope,
    )


@pytest.mark.usefixtures("quiet")
def test_labels_have_no_strata():
    X, Y = labels()
    with pytest.raises(
        ValueError, match=r"^cv: StratifiedKFold needs one class in each row, .*; KFold works$"
    ):
        made("OneVsAllClassifier", cv=StratifiedKFold(3)).fit(X, Y)
    assert made("OneVsAllClassifier", cv=KFold(3)).fit(X, Y).calibration_.slope.min() > 0


@pytest.mark.parametrize(
    ("name", "classes", "options"),
    [
        ("MulticlassSVC", 2, {}),
        ("TopKSVC", 2, {}),
        ("TopKSVC", 3, dict(k=2)),
        ("MulticlassSVC", 3, dict(class_weight={"class 0": 2.0, "class 1": 1.0, "class 2": 3.0})),
    ],
)
def test_a_fold_with_all_rows_of_a_class_ends_no_fit(name, classes, options):
    X, y = drawn(classes)
    last = np.flatnonzero(y == f"class {classes - 1}")
    kept = np.setdiff1d(np.arange(400), last[1:])
    ours = made(name, **options).fit(X[kept], y[kept])
    np.testing.assert_allclose(ours.predict_proba(X).sum(axis=1), 1)
    assert np.isfinite(ours.calibration_.slope).all()


@pytest.mark.parametrize("name", KINDS)
def test_what_cannot_be_calibrated_is_refused_before_the_fit(name, monkeypatch):
    X, y = drawn(3)
    begun = []
    method = "_trained" if name == "OneVsAllClassifier" else "_solve" if name == "TopKSVC" else "_store"
    monkeypatch.setattr(KINDS[name], method, lambda *args, **kwargs: begun.append(1))
    apart = [(np.flatnonzero(y != kind), np.flatnonzero(y == kind)) for kind in np.unique(y)]
    with pytest.raises(ValueError, match=r"^calibration: expected a label with positive rows in two folds"):
        made(name, cv=apart).fit(X, y)
    assert not begun


def test_no_fold_with_enough_classes_is_refused_before_the_fit(monkeypatch):
    X, y = drawn(3)
    monkeypatch.setattr(TopKSVC, "_solve", None)
    halves = [(np.flatnonzero(y != "class 0"), np.flatnonzero(y == "class 0")[:5])]
    halves.append((np.flatnonzero(y == "class 1")[5:], np.flatnonzero(y == "class 1")[:5]))
    with pytest.raises(
        ValueError, match=r"^calibration: expected 3 classes with rows beside those that a fold"
    ):
        made("TopKSVC", k=2, cv=halves).fit(X, y)


@pytest.mark.parametrize("name", KINDS)
def test_a_model_that_was_calibrated_later_is_calibrated_again_by_another_fit(name, tmp_path):
    X, y = drawn()
    KINDS[name](random_state=0).fit(X, y).save(tmp_path / "m")
    offset = np.arange(4.0) if name == "OneVsAllClassifier" else np.zeros(4)
    write_calibration(tmp_path / "m", Calibration(np.full(4, 2.0), offset, np.zeros(4, bool)))
    assert LinearModel.load(tmp_path / "m").meta["calibration"] == {"method": METHODS[name]}
    read = KINDS[name].load(tmp_path / "m")
    assert read.calibration == METHODS[name] and read.fit(X, y).calibration_ is not None
    again = made(name).fit(X, y).set_params(calibration=None)
    again.save(tmp_path / "again")
    assert LinearModel.load(tmp_path / "again").meta["calibration"] == {"method": METHODS[name], "cv": 5}
    assert KINDS[name].load(tmp_path / "again").calibration == METHODS[name]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("offset", "method"), [(0.0, "temperature"), (0.5, "sigmoid")])
def test_a_model_with_the_calibration_of_another_system_is_fitted_again(name, offset, method, tmp_path):
    X, y = drawn()
    plain = KINDS[name](random_state=0).fit(X, y)
    plain.save(tmp_path / "m")
    write_calibration(tmp_path / "m", Calibration(np.full(4, 2.0), np.full(4, offset), np.zeros(4, bool)))
    assert LinearModel.load(tmp_path / "m").meta["calibration"] == {"method": method}
    read = KINDS[name].load(tmp_path / "m")
    given = softmax(2 * plain.decision_function(X).astype(np.float64) + offset, axis=1)
    np.testing.assert_allclose(read.predict_proba(X), given, rtol=1e-5, atol=1e-12)
    # what it is told stays, until another fit makes one of its own
    read.save(tmp_path / "again")
    assert LinearModel.load(tmp_path / "again").meta["calibration"]["method"] == method
    assert read.calibration == METHODS[name]
    found, own = read.fit(X, y).calibration_, made(name).fit(X, y).calibration_
    np.testing.assert_array_equal(found.slope, own.slope)
    np.testing.assert_array_equal(found.offset, own.offset)


def test_a_classifier_without_the_option_has_the_calibration_of_its_model_until_another_fit(tmp_path):
    X, y = drawn()
    plain = MultinomialLogisticRegression().fit(X, y)
    plain.save(tmp_path / "m")
    write_calibration(tmp_path / "m", Calibration(np.full(4, 2.0), np.zeros(4), np.zeros(4, bool)))
    MultinomialLogisticRegression.load(tmp_path / "m").save(tmp_path / "again")
    assert LinearModel.load(tmp_path / "again").meta["calibration"]["method"] == "temperature"
    read = MultinomialLogisticRegression.load(tmp_path / "again")
    given = softmax(2 * plain.decision_function(X).astype(np.float64), axis=1)
    np.testing.assert_allclose(read.predict_proba(X), given, rtol=1e-5, atol=1e-12)
    np.testing.assert_array_equal(read.fit(X, y).predict_proba(X), plain.predict_proba(X))
    read.save(tmp_path / "fitted")
    assert "calibration" not in LinearModel.load(tmp_path / "fitted").meta


def test_the_method_of_a_fit_is_stored_whatever_its_numbers_are(tmp_path):
    ours = made("OneVsAllClassifier").fit(np.zeros((20, 3)), np.arange(20) % 2)
    assert (ours.calibration_.offset == 0).all()  # as of a temperature
    ours.save(tmp_path / "m")
    OneVsAllClassifier.load(tmp_path / "m").save(tmp_path / "again")
    for name in ("m", "again"):
        assert LinearModel.load(tmp_path / name).meta["calibration"]["method"] == "sigmoid"


@pytest.mark.usefixtures("quiet")
def test_positive_rows_of_weight_zero_are_none():
    X, Y = labels()
    Y = sp.csr_matrix(Y[:, :3])
    weight = np.ones(300)
    some = np.flatnonzero(Y[:, [2]].toarray().ravel())
    weight[some] = 0  # all rows of the last label
    with pytest.warns(UserWarning, match="1 of 3 labels have no positive rows"):
        ours = made("OneVsAllClassifier").fit(X, Y, sample_weight=weight)
    assert ours.calibration_.shared.tolist() == [False] * 3
    assert (ours.calibration_.slope[2], ours.calibration_.offset[2]) == (1, 0)


@pytest.mark.parametrize("name", KINDS)
def test_a_weight_is_a_number_of_rows_where_folds_keep_these_together(name):
    X, y = drawn(rows=150)
    times = np.random.default_rng(1).integers(0, 3, len(y))
    rows = np.repeat(np.arange(len(y)), times)
    own = list(KFold(3).split(X))
    of_copies = [tuple(np.flatnonzero(np.isin(rows, part)) for part in pair) for pair in own]

    def both(one, other):
        ours = made(name, tol=1e-8, cv=one).fit(X, y, times)
        theirs = made(name, tol=1e-8, cv=other).fit(X[rows], y[rows])
        np.testing.assert_allclose(dense(ours.coef_), dense(theirs.coef_), atol=1e-4)
        return ours.predict_proba(X), theirs.predict_proba(X)

    np.testing.assert_allclose(*both(own, of_copies), atol=1e-3)
    # folds of their own part the copies
    one, other = both(3, 3)
    assert np.abs(one - other).max() > 0.01


@pytest.mark.parametrize("name", SVCS)
@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_scores_of_any_magnitude_have_the_probabilities_of_others(name, scale):
    X, y = drawn(3, 200)
    given = dict(cv=[(np.arange(100), np.arange(100, 200))], tol=1e-6)
    ours = made(name, **given).fit(X, y)
    from xmcjax.models import ArrayModel, HeldOut, fit_temperature

    X = X.astype(np.float64)
    part = HeldOut(np.arange(200), X * scale, ArrayModel(ours.coef_.astype(np.float64) * scale))
    plain = HeldOut(np.arange(200), X, ArrayModel(ours.coef_.astype(np.float64)))
    numbers = np.searchsorted(ours.classes_, y)
    found = fit_temperature([part], numbers).slope * scale * scale
    np.testing.assert_allclose(found, fit_temperature([plain], numbers).slope, rtol=1e-6)


@pytest.mark.parametrize("name", SVCS)
def test_folds_that_do_not_converge_are_counted_once(name):
    X, y = drawn()
    with pytest.warns(ConvergenceWarning) as told:
        made(name, max_iter=1, tol=1e-9).fit(X, y)
    assert len(told) == 2
    assert str(told[1].message).startswith("training did not converge in 5 of 5 folds of the calibration")


# scikit-learn's own


@pytest.mark.parametrize("name", KINDS)
def test_scorers_searches_and_clones(name):
    X, y = drawn(3, 200)
    classifier = made(name, cv=2)
    assert (cross_val_score(classifier, X, y, scoring="neg_log_loss", cv=3) > -1).all()
    assert (cross_val_score(classifier, X, y, scoring="roc_auc_ovr", cv=3) > 0.75).all()
    search = GridSearchCV(clone(classifier), {"C": [1e-4, 1.0]}, scoring="neg_log_loss", cv=2).fit(X, y)
    assert search.best_params_ == {"C": 1.0} and search.predict_proba(X).shape == (200, 3)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
def test_calibrated_classifier_cv_takes_the_estimators(name, method):
    X, y = drawn(3, 200)
    other = CalibratedClassifierCV(KINDS[name](random_state=0), method=method, cv=3).fit(X, y)
    assert roc_auc_score(y, other.predict_proba(X), multi_class="ovr") > 0.75


def test_labels_are_scored_by_their_probabilities():
    X, Y = labels()
    ours = made("OneVsAllClassifier").fit(X, Y[:, :5])
    auc = roc_auc_score(Y[:, :5].toarray(), ours.predict_proba(X))
    assert auc == pytest.approx(roc_auc_score(Y[:, :5].toarray(), ours.decision_function(X)), abs=1e-12)
