"""The parameters of OneVsAllClassifier reach the trainer."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from tests.support.estimators import TIGHT
from xmcjax import MultinomialLogisticRegression, OneVsAllClassifier, inits, losses
from xmcjax.lanes import OneVsAll, Weighting, train_one_vs_all
from xmcjax.models import ShardWriter
from xmcjax.penalties import ElasticNet


def assert_trained(ours, X, Y, options, label_weights=None):
    """The weights are those of the trainer itself."""
    results = []
    train_one_vs_all(X, Y, options, results.append, label_weights=label_weights)
    assert len(results) == Y.shape[1]
    for result in results:
        row = ours.coef_[result.label]
        np.testing.assert_array_equal(row.indices, result.indices)
        np.testing.assert_array_equal(row.data, result.values)
        assert ours.intercept_[result.label] == np.float32(result.bias)


@pytest.mark.filterwarnings("ignore:dropping weights below clip:UserWarning")
@pytest.mark.parametrize("loss", losses.SMOOTH_LOSSES)
@pytest.mark.parametrize("intercept", ["regularised", "free", "none"])
def test_numbers_and_losses(multilabel, loss, intercept):
    options = dict(fit_intercept=intercept != "none", regularise_intercept=intercept == "regularised")
    options |= dict(C=2.0, tol=0.1, clip=0.05, block_size=8)
    ours = OneVsAllClassifier(loss, init="zero", **options).fit(*multilabel)
    X, Y = multilabel
    assert_trained(ours, X, Y, OneVsAll(losses.MARGIN_LOSSES[loss], inits.Zero(), **options))
    assert np.all(ours.intercept_ == 0) == (intercept == "none")


@pytest.mark.parametrize(
    ("propensities", "weighting"),
    [("Wikipedia", Weighting("propensity", 0.5, 0.4)), ((0.6, 2.6), Weighting("propensity", 0.6, 2.6))],
)
def test_weighting_and_sparsify(multilabel, propensities, weighting):
    X, Y = multilabel
    ours = OneVsAllClassifier(weighting="propensity", propensities=propensities, sparsify_rise=0.05)
    assert_trained(ours.fit(X, Y), X, Y, OneVsAll(sparsify_rise=0.05), weighting.weights(Y))


def test_objects_for_loss_and_init(multilabel):
    X, Y = multilabel
    ours = OneVsAllClassifier(losses.HuberHinge(delta=0.25), inits.MultiPos(max_positives=3), **TIGHT)
    ours = clone(ours).fit(X.astype(np.float64), Y)
    other = OneVsAllClassifier(losses.HuberHinge(delta=0.25), "zero", **TIGHT).fit(X.astype(np.float64), Y)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-3)
    assert not np.allclose(ours.coef_, OneVsAllClassifier("huber_hinge", clip=0).fit(X, Y).coef_, atol=1e-2)


def test_penalties_of_objects_and_names_are_the_same(multilabel):
    by_name = OneVsAllClassifier(penalty="elastic_net", l1_ratio=0.8).fit(*multilabel)
    by_object = OneVsAllClassifier(penalty=ElasticNet(0.8)).fit(*multilabel)
    np.testing.assert_array_equal(by_name.coef_.toarray(), by_object.coef_.toarray())


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


@pytest.mark.parametrize("kind", [OneVsAllClassifier, MultinomialLogisticRegression])
def test_two_classes_start_from_a_model_of_them(multilabel, tmp_path, kind):
    X, y = multilabel[0], np.where(multilabel[1][:, [0]].toarray().ravel(), "with", "to be without")
    saved = kind().fit(X, y)
    saved.save(tmp_path / "model")
    start = OneVsAllClassifier(init="pretrained", pretrained=tmp_path / "model", max_iter=0).fit(X, y)
    np.testing.assert_allclose(start.decision_function(X), saved.decision_function(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(start.classes_, saved.classes_)
    # the one column of a label matrix starts as the second class
    start.fit(X, sp.csr_array((y == "with")[:, None].astype(float)))
    scores = start.decision_function(X).ravel()
    np.testing.assert_allclose(scores, saved.decision_function(X), rtol=1e-5, atol=1e-6)


def test_no_iteration_gives_the_starting_weights(multilabel):
    """⟨w0, p̄⟩ = s and ⟨w0, n̄⟩ = t, which clipped weights would miss."""
    X, Y = multilabel
    ours = OneVsAllClassifier(max_iter=0, msi_s=0.5, msi_t=-4.0).fit(X, Y)
    scores, Y = ours.decision_function(X), Y.toarray()
    np.testing.assert_allclose((scores * Y).sum(0) / Y.sum(0), 0.5, atol=1e-4)
    np.testing.assert_allclose((scores * (1 - Y)).sum(0) / (1 - Y).sum(0), -4.0, atol=1e-4)
    assert set(ours.n_iter_) == {0}


@pytest.mark.parametrize("init", ["mean_separating", "multi_pos", "ova_primal_pp"])
def test_a_weight_is_a_number_of_rows_for_every_start(multilabel, init):
    X, Y = multilabel
    X = X.astype(np.float64)
    times = np.random.default_rng(2).integers(0, 4, X.shape[0])
    rows = np.repeat(np.arange(X.shape[0]), times)
    ours = OneVsAllClassifier(init=init, clip=0, max_iter=2)
    with pytest.warns(ConvergenceWarning):
        weighted = clone(ours).fit(X, Y, sample_weight=times)
    with pytest.warns(ConvergenceWarning):
        repeated = clone(ours).fit(X[rows], Y[rows])
    tolerance = 1e-3 if init == "multi_pos" else 1e-8  # whose ridge meets repeated rows
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=tolerance)
    np.testing.assert_array_equal(weighted.status_, repeated.status_)


@pytest.mark.parametrize("clip", [0, 0.5])
def test_a_clip_has_no_place_beside_sparsify_rise(multilabel, clip):
    said = f"^clip: expected None beside sparsify_rise, which takes its place, got {clip}"
    with pytest.raises(ValueError, match=said):
        OneVsAll(clip=clip, sparsify_rise=0.05)
    with pytest.raises(ValueError, match=said):
        OneVsAllClassifier(clip=clip, sparsify_rise=0.05).fit(*multilabel)
