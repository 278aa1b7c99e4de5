"""OneVsAllClassifier says which labels have no positives, did not converge or overflowed."""

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from one_vs_all_helpers import with_ones
from sklearn.exceptions import ConvergenceWarning

from xmcjax import OneVsAllClassifier
from xmcjax.solvers import Status


def test_labels_without_positives(multilabel):
    X, Y = multilabel
    Y = sp.hstack([sp.csr_matrix((X.shape[0], 2)), Y], format="csr")
    with pytest.warns(UserWarning, match=rf"^2 of {Y.shape[1]} labels have no positive rows") as caught:
        ours = OneVsAllClassifier().fit(X, Y)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert list(ours.status_[:2]) == [Status.NO_POSITIVES] * 2 and list(ours.n_iter_[:2]) == [0, 0]
    assert np.all(ours.decision_function(X)[:, :2] == np.float32(-1e30))
    assert ours.predict(X)[:, :2].nnz == 0
    labels, scores = ours.predict_topk(X, Y.shape[1])
    assert np.all(labels[:, -2:] == -1) and np.all(scores[:, -2:] == -np.inf)
    assert labels[:, :-2].min() == 2


def test_what_did_not_converge_is_said_once(multilabel):
    X, Y = multilabel
    with pytest.warns(
        ConvergenceWarning, match=r"labels did not converge.*MAX_STEPS.*raise max_iter"
    ) as caught:
        ours = OneVsAllClassifier(max_iter=1, init="zero").fit(X, Y)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert f"{np.sum(ours.status_ == Status.MAX_STEPS)} of {Y.shape[1]}" in str(caught[0].message)
    assert set(ours.n_iter_) == {1}


@pytest.mark.parametrize("number", [2, 3])
def test_the_class_that_did_not_converge_is_named(classes, number):
    X, y = classes
    names = np.array(["ant", "bee", "cow"])[np.searchsorted([-7, 3, 1000], y)]
    X, names = X[names != "cow"] if number == 2 else X, names[names != "cow"] if number == 2 else names
    with pytest.warns(ConvergenceWarning, match="the worst is class '(bee|cow)' .MAX_STEPS") as caught:
        ours = OneVsAllClassifier(max_iter=1, tol=1e-6, init="zero").fit(X, names)
    if number == 2:
        assert "1 of 1" in str(caught[0].message) and "class 'bee'" in str(caught[0].message)
        return
    # the class named is that with the largest gradient
    y, found = (names[:, None] == ours.classes_) * 2.0 - 1, str(caught[0].message)
    W, b = np.hstack([ours.coef_.toarray(), ours.intercept_[:, None]]), with_ones(X).toarray()
    slope = -2 * np.maximum(1 - y * (b @ W.T), 0) * y
    norms = np.linalg.norm(W + slope.T @ b, axis=1)
    assert f"class '{ours.classes_[np.argmax(norms)]}'" in found


def test_a_label_whose_numbers_overflowed_is_never_predicted(multilabel, monkeypatch):
    X, Y = multilabel
    _spoil(monkeypatch, {1, 4})
    for y in (Y, Y.toarray()):
        with pytest.warns(ConvergenceWarning, match="^2 of .* worst is label 1 .NONFINITE.*huge C"):
            ours = OneVsAllClassifier().fit(X, y)
        assert (
            np.all(ours.intercept_[[1, 4]] == -np.inf)
            and np.isfinite(np.delete(ours.intercept_, [1, 4])).all()
        )
        assert np.all(ours.decision_function(X)[:, [1, 4]] == np.float32(-1e30))
        assert not ours.predict(X)[:, [1, 4]].sum()
        labels, scores = ours.predict_topk(X, Y.shape[1])
        assert not np.isin(labels, [1, 4]).any() and np.all(labels[:, -2:] == -1)
        assert np.all(scores[:, -2:] == -np.inf)


def test_a_class_whose_numbers_overflowed_is_never_predicted(classes, monkeypatch):
    X, y = classes
    _spoil(monkeypatch, {1})
    with pytest.warns(ConvergenceWarning, match="worst is class 3 .NONFINITE"):
        ours = OneVsAllClassifier().fit(X, y)
    assert set(ours.predict(X)) == {-7, 1000}
    assert set(ours.predict_topk(X, 2)[0].ravel()) == {-7, 1000}
    with pytest.raises(ValueError, match="k: expected at most 2, the number of classes with weights, got 3"):
        ours.predict_topk(X, 3)


@pytest.mark.parametrize("number", [2, 3])
def test_without_a_finite_class_there_is_no_classifier(number):
    X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32) * np.float32(1e30)
    with pytest.raises(ValueError, match=r"^no class has weights, because numbers of each overflowed: look"):
        OneVsAllClassifier(init="zero").fit(X, np.arange(12) % number)


def _spoil(monkeypatch, spoilt):
    """Lets the problems of these labels end as those that overflow do."""
    from xmcjax import lanes

    train = lanes.train_one_vs_all

    def trained(X, Y, options, sink, **more):
        def spoiling(result):
            if result.label in spoilt:
                nothing = result.indices[:0], result.values[:0]
                result = result._replace(
                    indices=nothing[0],
                    values=nothing[1],
                    bias=0.0,
                    status=Status.NONFINITE,
                    gradient_norm=np.nan,
                )
            sink(result)

        return train(X, Y, options, spoiling, **more)

    monkeypatch.setattr(lanes, "train_one_vs_all", trained)


@pytest.mark.parametrize("wide", [False, True])
def test_jax_settings_do_not_change_the_weights(multilabel, fitted, wide):
    X, Y = multilabel
    with jax.enable_x64(wide):
        other = OneVsAllClassifier().fit(X, Y)
        assert other.predict_topk(X, 2)[1].dtype == np.float32
    np.testing.assert_array_equal(other.coef_.toarray(), fitted.coef_.toarray())


def test_no_iteration_gives_the_starting_weights(multilabel):
    """⟨w0, p̄⟩ = s and ⟨w0, n̄⟩ = t, which clipped weights would miss."""
    X, Y = multilabel
    ours = OneVsAllClassifier(max_iter=0, msi_s=0.5, msi_t=-4.0).fit(X, Y)
    scores, Y = ours.decision_function(X), Y.toarray()
    np.testing.assert_allclose((scores * Y).sum(0) / Y.sum(0), 0.5, atol=1e-4)
    np.testing.assert_allclose((scores * (1 - Y)).sum(0) / (1 - Y).sum(0), -4.0, atol=1e-4)
    assert set(ours.n_iter_) == {0}
