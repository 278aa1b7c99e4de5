"""OneVsAllClassifier on class vectors and label matrices of every kind, beside LinearSVC."""

import numpy as np
import pytest
import scipy.sparse as sp
from one_vs_all_helpers import TIGHT, reference, with_ones
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from xmcjax import OneVsAllClassifier


@pytest.mark.parametrize("names", [(0, 1, 2), (-7, 3, 1000), ("ant", "bee", "cow"), (0.0, 2.0, 5.0)])
def test_a_class_vector_of_any_kind(classes, names):
    X, y = classes
    y = np.array(names)[np.searchsorted([-7, 3, 1000], y)]
    ours = OneVsAllClassifier(**TIGHT).fit(X, y)
    coef, intercept = reference(X, y)
    np.testing.assert_array_equal(ours.classes_, names)
    np.testing.assert_allclose(ours.coef_, coef, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, intercept, atol=1e-5)
    np.testing.assert_array_equal(ours.predict(X), np.array(names)[np.argmax(X @ coef.T + intercept, 1)])
    assert ours.predict(X).dtype == y.dtype
    assert ours.score(X, y) > 0.8


@pytest.mark.parametrize("names", [(-1, 1), (0, 1), ("no", "yes"), (3, 17), (False, True)])
def test_two_classes_are_one_problem(classes, names):
    X, y = classes
    X, y = X[y != 1000], np.array(names)[(y[y != 1000] == 3).astype(int)]
    ours = OneVsAllClassifier(**TIGHT).fit(X, y)
    coef, intercept = reference(X, y == names[1])
    assert ours.coef_.shape == (1, 4) and ours.intercept_.shape == (1,)
    np.testing.assert_allclose(ours.coef_, coef, atol=1e-5)
    scores = ours.decision_function(X)
    assert scores.shape == (len(y),)
    np.testing.assert_allclose(scores, X @ coef[0] + intercept[0], atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), np.array(names)[(scores > 0).astype(int)])
    labels, top = ours.predict_topk(X, 2)
    np.testing.assert_array_equal(labels[:, 0], ours.predict(X))
    np.testing.assert_allclose(top, np.stack([abs(scores), -abs(scores)], 1), rtol=1e-6)


def test_a_label_matrix_equals_a_loop_over_its_labels(multilabel):
    X, Y = multilabel
    X = X.astype(np.float64)
    ours = OneVsAllClassifier(**TIGHT).fit(X, Y)
    svc = OneVsRestClassifier(LinearSVC(dual=False, tol=1e-10, max_iter=100000, fit_intercept=False))
    svc.fit(with_ones(X), Y)
    coef = np.concatenate([e.coef_ for e in svc.estimators_])
    np.testing.assert_allclose(ours.coef_, coef[:, :-1], atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, coef[:, -1], atol=1e-4)


@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.coo_array, np.asarray])
def test_predictions_have_the_form_of_y(multilabel, fitted, container):
    X, Y = multilabel
    y = container(Y.toarray())
    ours = OneVsAllClassifier().fit(X, y)
    np.testing.assert_array_equal(ours.coef_.toarray(), fitted.coef_.toarray())
    predicted = ours.predict(X)
    assert sp.issparse(predicted) == sp.issparse(y) and predicted.shape == y.shape
    if sp.issparse(y):
        assert predicted.format == "csr"
        assert set(predicted.data) == {1}
        predicted = predicted.toarray()
    np.testing.assert_array_equal(predicted, ours.decision_function(X) > 0)
    assert ours.score(X, y) == np.mean((predicted == Y.toarray()).all(1))


def test_stored_zeros_are_no_labels(multilabel, fitted):
    X, Y = multilabel
    stored = Y.copy()
    stored.data[::10] = 0
    twice = 2 * stored
    cleaned = stored.copy()
    cleaned.eliminate_zeros()
    assert stored.nnz > cleaned.nnz
    a, b = OneVsAllClassifier().fit(X, twice), OneVsAllClassifier().fit(X, cleaned)
    np.testing.assert_array_equal(a.coef_.toarray(), b.coef_.toarray())


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([[0, 1, 2], [1, 0, 0], [0, 0, 1], [1, 1, 2]]), "matrix of 0 and 1"),
        (np.array([[1, 2]] * 4), "matrix of 0 and 1 as y, found 2"),
        (np.array([[0.0, 3.0], [3, 0], [0, 0], [3, 3]]), "matrix of 0 and 1 as y, found 3.0"),
        (np.array([[-1, 1], [1, -1], [1, 1], [-1, -1]]), "matrix of 0 and 1 as y, found -1"),
        (sp.csr_matrix([[0, -2.0], [1, 0], [1, 1], [0, 0]]), "matrix of 0 and 1 as y, found -2.0"),
        (np.array([0.5, 1.5, 2.5, 0.5]), "Unknown label type"),
        (np.array([1, 1, 1, 1]), "at least two classes"),
        (np.array([1, 0, 1]), "inconsistent numbers of samples"),
        (np.array([1, 0, np.nan, 1]), "NaN"),
    ],
)
def test_y_is_checked(y, message):
    with pytest.raises(ValueError, match=message):
        OneVsAllClassifier().fit(np.eye(4), y)
