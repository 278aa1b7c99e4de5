"""The parameters of OneVsAllClassifier, sample weights among them, reach the trainer and are checked."""

import numpy as np
import pytest
import scipy.sparse as sp
from one_vs_all_helpers import TIGHT, reference, with_ones
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from xmcjax import OneVsAllClassifier, inits, losses
from xmcjax.lanes import OneVsAll, Weighting, train_one_vs_all
from xmcjax.models import ShardWriter
from xmcjax.penalties import ElasticNet


@pytest.mark.filterwarnings("ignore:dropping weights below clip:UserWarning")
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic", "huber_hinge"])
@pytest.mark.parametrize("intercept", ["regularised", "free", "none"])
def test_parameters_reach_the_trainer(multilabel, loss, intercept):
    X, Y = multilabel
    intercepts = dict(fit_intercept=intercept != "none", regularise_intercept=intercept == "regularised")
    ours = OneVsAllClassifier(
        loss,
        C=2.0,
        tol=0.1,
        clip=0.05,
        block_size=8,
        init="zero",
        **intercepts,
    ).fit(X, Y)
    options = OneVsAll(
        losses.MARGIN_LOSSES[loss], inits.Zero(), C=2.0, tol=0.1, clip=0.05, block_size=8, **intercepts
    )
    results = {}
    train_one_vs_all(X, Y, options, lambda result: results.__setitem__(result.label, result))
    for label, result in results.items():
        row = ours.coef_[label]
        np.testing.assert_array_equal(row.indices, result.indices)
        np.testing.assert_array_equal(row.data, result.values)
        assert ours.intercept_[label] == np.float32(result.bias)
    assert np.all(ours.intercept_ == 0) == (intercept == "none")


def test_objects_for_loss_and_init(multilabel):
    X, Y = multilabel
    ours = OneVsAllClassifier(losses.HuberHinge(delta=0.25), inits.MultiPos(max_positives=3), **TIGHT)
    ours = clone(ours).fit(X.astype(np.float64), Y)
    other = OneVsAllClassifier(losses.HuberHinge(delta=0.25), "zero", **TIGHT).fit(X.astype(np.float64), Y)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-3)
    assert not np.allclose(ours.coef_, OneVsAllClassifier("huber_hinge", clip=0).fit(X, Y).coef_, atol=1e-2)


def test_pretrained_starts_from_a_saved_model(multilabel, fitted, tmp_path):
    X, Y = multilabel
    meta = {"n_features": X.shape[1], "n_labels": Y.shape[1], "dtype": "float32"}
    with ShardWriter(tmp_path / "model", meta) as writer:
        for label in range(Y.shape[1]):
            row = fitted.coef_[label]
            writer.add(label, row.indices, row.data, float(fitted.intercept_[label]), 1)
    again = OneVsAllClassifier(init="pretrained", pretrained=tmp_path / "model", max_iter=0).fit(X, Y)
    np.testing.assert_array_equal(again.coef_.toarray(), fitted.coef_.toarray())
    np.testing.assert_array_equal(again.intercept_, fitted.intercept_)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(loss="squared"), ValueError, "loss: expected one of squared_hinge, .*'squared'"),
        (dict(init="msi"), ValueError, "init: expected one of zero, .*'msi'"),
        (dict(loss="hinge"), ValueError, "loss: expected one of squared_hinge, logistic, huber_hinge, got"),
        (dict(loss=losses.hinge), TypeError, "needs a loss with curvature"),
        (dict(C=0), ValueError, "C: expected a finite number above 0"),
        (dict(tol=-1), ValueError, "tol: expected a finite number above 0, got -1"),
        (dict(clip=-0.1), ValueError, "clip"),
        (dict(block_size=0), ValueError, "block_size: expected at least 1, got 0"),
        (dict(C="a"), TypeError, "C: expected a number, got 'a'"),
        (dict(C=None), TypeError, "C: expected a number, got None"),
        (dict(tol="a"), TypeError, "tol: expected a number, got 'a'"),
        (dict(penalty="l3"), ValueError, "penalty: expected one of l2, l1, elastic_net, huber, got 'l3'"),
        (dict(penalty="elastic_net", l1_ratio=2), ValueError, "expected 0 < l1_ratio <= 1, got 2"),
        (dict(penalty="huber", huber_width="a"), TypeError, "huber_width: expected a number, got 'a'"),
        (dict(sparsify_rise="a"), TypeError, "sparsify_rise: expected a number, got 'a'"),
        (dict(sparsify_rise=-1), ValueError, "sparsify_rise: expected a finite number above 0, got -1"),
        (dict(weighting="up"), ValueError, "weighting: expected one of propensity, .* got 'up'"),
        (dict(weighting="propensity", propensities="x"), ValueError, "dataset: expected one of default"),
        (dict(weighting="propensity", propensities=3), TypeError, "propensities: expected .* a pair"),
        (dict(weighting="propensity", propensities=(0, 1)), ValueError, "a: expected a positive number"),
        (dict(clip="a"), TypeError, "clip: expected a number, got 'a'"),
        (dict(msi_s="a"), TypeError, "msi_s: expected a number, got 'a'"),
        (dict(block_size=1.5), TypeError, "block_size: expected a whole number of at least 1, got 1.5"),
        (dict(max_iter=2.5), TypeError, "max_iter: expected a whole number of at least 0, got 2.5"),
        (dict(max_iter=-1), ValueError, "max_iter: expected at least 0, got -1"),
        (
            dict(n_jobs="a"),
            TypeError,
            "n_jobs: expected a whole number of threads, or -1 for one per core, got 'a'",
        ),
        (
            dict(n_jobs=0),
            ValueError,
            "n_jobs: expected from 1 to 16384 threads, or -1 for one per core, got 0",
        ),
        (
            dict(loss=3),
            TypeError,
            "loss: expected one of squared_hinge, .* or an object of MarginLoss, got 3",
        ),
        (
            dict(loss=losses.HuberHinge),
            TypeError,
            "loss: expected one of .* or an object of MarginLoss, got <class",
        ),
        (dict(init=3), TypeError, "init: expected one of zero, .* or an object of Init, got 3"),
        (dict(init="pretrained"), ValueError, "directory of a model"),
        (dict(init="bias", fit_intercept=False), ValueError, "needs a bias"),
    ],
)
def test_options_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        OneVsAllClassifier(**options).fit(np.eye(3), [0, 1, 1])


def test_l1_equals_linear_svc(multilabel):
    """At the default tolerance and at a tight one, the bias as the weight of a feature of value 1."""
    X, Y = multilabel
    X = X.astype(np.float64)
    fits = [
        (OneVsAllClassifier(penalty="l1", C=2.0, tol=eps, clip=0).fit(X, Y), relative)
        for eps, relative in ((0.01, 1e-3), (1e-6, 1e-6))
    ]
    ones = with_ones(X)
    for label in np.flatnonzero(np.asarray(Y.sum(0)).ravel())[:5].tolist():
        y = 2 * Y[:, [label]].toarray().ravel() - 1
        svc = LinearSVC(penalty="l1", dual=False, C=2.0, fit_intercept=False, tol=1e-9, max_iter=1_000_000)
        best = svc.fit(ones, y).coef_[0]

        def f(v, y=y):
            return np.abs(v).sum() + 2 * (np.maximum(1 - y * (ones @ v), 0) ** 2).sum()

        for ours, relative in fits:
            found = f(np.append(ours.coef_[label], ours.intercept_[label]))
            np.testing.assert_allclose(found, f(best), rtol=relative)
    for ours, _ in fits:
        assert (ours.coef_ == 0).mean() > 0.1


def test_penalties_of_objects_and_names_are_the_same(multilabel):
    X, Y = multilabel
    by_name = OneVsAllClassifier(penalty="elastic_net", l1_ratio=0.8).fit(X, Y)
    by_object = OneVsAllClassifier(penalty=ElasticNet(0.8)).fit(X, Y)
    np.testing.assert_array_equal(by_name.coef_.toarray(), by_object.coef_.toarray())


def test_weighting_and_sparsify_reach_the_trainer(multilabel):
    X, Y = multilabel
    for propensities, weighting in (
        ("Wikipedia", Weighting("propensity", 0.5, 0.4)),
        ((0.6, 2.6), Weighting("propensity", 0.6, 2.6)),
    ):
        ours = OneVsAllClassifier(
            weighting="propensity", propensities=propensities, sparsify_rise=0.05, clip=0
        )
        ours.fit(X, Y)
        results = []
        options = OneVsAll(sparsify_rise=0.05)
        train_one_vs_all(X, Y, options, results.append, label_weights=weighting.weights(Y))
        assert sp.issparse(ours.coef_)
        for result in results:
            np.testing.assert_array_equal(ours.coef_[result.label].data, result.values)


def test_sample_weights_weigh_the_losses(classes):
    X, y = classes
    weight = np.random.default_rng(1).random(len(y)) * 3
    ours = OneVsAllClassifier(C=0.7, **TIGHT).fit(X, y, sample_weight=weight)
    coef, intercept = reference(X, y, weight=weight, C=0.7)
    np.testing.assert_allclose(ours.coef_, coef, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, intercept, atol=1e-5)


@pytest.mark.parametrize("init", ["mean_separating", "multi_pos", "ova_primal_pp"])
def test_a_weight_is_a_number_of_rows(multilabel, init):
    X, Y = multilabel
    X = X.astype(np.float64)
    times = np.random.default_rng(2).integers(0, 4, X.shape[0])
    rows = np.repeat(np.arange(X.shape[0]), times)
    options = dict(init=init, clip=0, max_iter=2)
    with pytest.warns(ConvergenceWarning):
        weighted = OneVsAllClassifier(**options).fit(X, Y, sample_weight=times)
    with pytest.warns(ConvergenceWarning):
        repeated = OneVsAllClassifier(**options).fit(X[rows], Y[rows])
    tolerance = 1e-3 if init == "multi_pos" else 1e-8  # whose ridge meets repeated rows
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=tolerance)
    np.testing.assert_array_equal(weighted.status_, repeated.status_)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, 1], r"shape \(3,\)"),
        ([1, -1, 1], "found -1.0 for row 1"),
        ([1, 1, np.inf], "found inf for row 2"),
        ([0, 0, 0], "only zeros"),
        ([0, 1, 1], "at least two classes"),
    ],
)
def test_sample_weights_are_checked(weight, message):
    with pytest.raises(ValueError, match=message):
        OneVsAllClassifier().fit(np.eye(3), [0, 1, 1], sample_weight=weight)
